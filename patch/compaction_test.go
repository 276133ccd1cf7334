package patch_test

import (
	"reflect"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// The times of a compaction can be Unix seconds, as in ADK for Python, or RFC 3339 times, as in ADK for Go.
func TestRecordsOfCompactionAreReadInBothForms(t *testing.T) {
	for name, text := range map[string]string{
		"seconds":  `{"startTimestamp":1767323045.25,"endTimestamp":1767323046,"compactedContent":{"role":"model","parts":[{"text":"told"}]},"excludedEvents":[{"invocationId":"i","timestamp":"2026-01-02T03:04:05.5Z"}]}`,
		"RFC 3339": `{"startTimestamp":"2026-01-02T03:04:05.25Z","endTimestamp":"2026-01-02T05:04:06+02:00","compactedContent":{"role":"model","parts":[{"text":"told"}]},"excludedEvents":[{"invocationId":"i","timestamp":"2026-01-02T03:04:05.5Z"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			e := parseEvent(t, `{"actions":{"compaction":`+text+`}}`)
			c := testlog.Must(e.Compaction())(t)
			field := ""
			for _, p := range c.CompactedContent.Parts() {
				field += p.Text
			}
			if c.StartTimestamp != 1767323045.25 || c.EndTimestamp != 1767323046 || field != "told" ||
				!reflect.DeepEqual(c.ExcludedEvents, []patch.EventRef{{InvocationID: "i", Timestamp: 1767323045.5}}) {
				t.Errorf("read is %+v", c)
			}
		})
	}
	for field, text := range map[string]string{
		"startTimestamp": `{"startTimestamp":"soon"}`, "endTimestamp": `{"endTimestamp":{}}`, "excludedEvents/0/timestamp": `{"excludedEvents":[{"timestamp":"x"}]}`,
	} {
		e := parseEvent(t, `{"actions":{"compaction":`+text+`}}`)
		_, err := e.Compaction()
		wantField(t, err, "actions/compaction/"+field)
	}
}

// If the Go type of a compaction field is not EventCompaction, the field does not change when the event is stored.
func TestRecordsOfAnotherType(t *testing.T) {
	type record struct {
		StartTimestamp string `json:"startTimestamp"`
		EndTimestamp   string `json:"endTimestamp"`
	}
	given := &record{"2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:06Z"}
	e := newEvent(t, patch.Fields{Actions: patch.Actions{Extra: map[string]any{"compaction": given}}})
	if !e.IsSummary() {
		t.Error("it is no summary")
	}
	var back struct {
		Compaction *record `json:"compaction"`
	}
	if err := e.Decode("actions", &back); err != nil || !reflect.DeepEqual(back.Compaction, given) {
		t.Errorf("%+v came back, %v", back.Compaction, err)
	}
}
