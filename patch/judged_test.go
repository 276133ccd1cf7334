package patch_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestScopeOf(t *testing.T) {
	for key, want := range map[string]statekey.Scope{
		"app:k": statekey.App, "user:k": statekey.User, "temp:k": statekey.Temp, "app:": statekey.App,
		"k": statekey.Session, "": statekey.Session, "app": statekey.Session, "xapp:k": statekey.Session, "App:k": statekey.Session,
	} {
		if got := statekey.ScopeOf(key); got != want {
			t.Errorf("the scope of %q is %d, want %d", key, got, want)
		}
	}
}

func TestParsePatchFields(t *testing.T) {
	for _, base := range []uint64{0, 10, 11, math.MaxUint64} {
		p := patch.NewSplice(0, 1).WithBase(base)
		if got, ok := parsePatch(t, p.String()).Base(); got != base || !ok {
			t.Errorf("base %d is read as %d, %v", base, got, ok)
		}
	}
	for text, want := range map[string]string{
		`{"patchType":"revert","patchId":"p"}`: "p", `{"patchType":"revert","patchId":5}`: "", `{"patchType":"revert","patchId":""}`: "",
		`{"patchType":"revert"}`: "", `{"patchType":"splice","start":0,"count":1,"patchId":"p"}`: "",
	} {
		if got := parsePatch(t, text).PatchID(); got != want {
			t.Errorf("%s reverts %q, want %q", text, got, want)
		}
	}
}

// PromptTokens returns 0 if the count in an event is invalid or overflows.
func TestPromptTokensOfInvalidCounts(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "10": 10, "1": 1, "-1": 0, "99999999999999999999": 0, "-99999999999999999999": 0, "1.5": 0, `"7"`: 0, "null": 0,
	} {
		if got := records.PromptTokens(parseEvent(t, `{"usageMetadata":{"promptTokenCount":`+text+`}}`)); got != want {
			t.Errorf("a promptTokenCount of %s is %d, want %d", text, got, want)
		}
	}
}

// Complete completes the events of a patch, even if the patch itself is complete.
func TestCompleteNestedEvents(t *testing.T) {
	now := time.Unix(1, 0)
	for offered, logged := range map[string]string{
		`{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"summarise","start":0,"count":1,"summaryEvent":{"timestamp":"1970-01-01T00:00:00Z"}}`:                                                      `{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"new","timestamp":"1970-01-01T00:00:00Z"}}`,
		`{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"},{"id":"b"}]}`:                                    `{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"},{"id":"b","timestamp":"1970-01-01T00:00:01Z"}]}`,
		`{"timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"}]}`:                                                        `{"id":"new","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"}]}`,
		`{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[]}`:                                                                                            `{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[]}`,
		`{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"},{"id":"b","timestamp":"1970-01-01T00:00:00Z"}]}`: `{"id":"p","timestamp":"1970-01-01T00:00:00Z","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a","timestamp":"1970-01-01T00:00:00Z"},{"id":"b","timestamp":"1970-01-01T00:00:00Z"}]}`,
	} {
		if got := marshal(t, patch.Complete(parse(t, offered), func() string { return "new" }, now)); got != logged {
			t.Errorf("logged is\n%s, want\n%s", got, logged)
		}
	}
}

// If a record has no "temp:" keys, Complete returns the record itself, not a copy.
func TestWithoutTempUnchanged(t *testing.T) {
	for _, text := range []string{
		`{"id":"e","actions":{"stateDelta":{"a":1}}}`,
		`{"patchType":"splice","start":0,"count":1,"replacement":[{"actions":{"stateDelta":{"a":1}}}]}`,
		`{"patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s"}}`,
		`{"patchType":"truncate_before","eventId":"x"}`,
	} {
		rec := parse(t, text)
		if got := patch.Complete(rec, nil, time.Time{}); got != rec {
			t.Errorf("%s was copied", text)
		}
	}
}

func TestSameComparesEveryField(t *testing.T) {
	for _, c := range [][2]string{
		{`{"id":"i","x":null}`, `{"id":"i","y":null}`},
		{`{"id":"p","author":"a","patchType":"splice","start":0,"count":1}`, `{"id":"p","author":"b","patchType":"splice","start":0,"count":1}`},
		{`{"id":"p","patchType":"splice","start":0,"count":1}`, `{"id":"p","patchType":"other","start":0,"count":1}`},
		{`{"id":"p","patchType":"splice","start":0,"count":1,"x":null}`, `{"id":"p","patchType":"splice","start":0,"count":1,"y":null}`},
		{`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"a"}]}`, `{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"b"}]}`},
		{`{"id":"p","patchType":"splice","start":0,"count":1}`, `{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[{"id":"b"}]}`},
		{`{"id":"p","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"a"}}`, `{"id":"p","patchType":"summarise","start":0,"count":1}`},
	} {
		a, b := parse(t, c[0]), parse(t, c[1])
		if patch.Same(a, b) || patch.Same(b, a) {
			t.Errorf("%s and %s are the same", c[0], c[1])
		}
		if !patch.Same(a, a) || !patch.Same(b, b) {
			t.Errorf("%s or %s is not itself", c[0], c[1])
		}
	}
}

// An error about a byte form or a header contains the invalid value.
func TestErrorsNameTheValue(t *testing.T) {
	form := encode(t, patch.Record{Seq: 1, Event: parseEvent(t, `{"id":"e"}`)})
	newer := append([]byte{3}, form[1:]...)
	flipped := append([]byte(nil), form...)
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		form []byte
		want string
	}{
		{newer, "unknown form 3; this program supports the forms 1 and 2"}, {flipped, "checksum"}, {form[:4], "the form is truncated after 4 bytes"},
	} {
		if _, err := patch.DecodeRecord(c.form); !errors.Is(err, patch.ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	for text, want := range map[string]string{
		`{"patchlog":2}` + "\n":                   "version 2 of the text form is not supported; this program supports version 1",
		`{"patchlog":1,"initialState":[]}` + "\n": `field "initialState": want an object, not []`,
	} {
		if _, _, err := readAllOf(patch.NewDecoder(strings.NewReader(text), "f")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A value in the header line loses its white space.
func TestHeaderIsCompacted(t *testing.T) {
	_, initial, err := readAllOf(patch.NewDecoder(strings.NewReader(`{ "patchlog" : 1 , "initialState" : { "a" : [ 1 , { "b" : 2 } ] } }`+"\n"), "f"))
	if err != nil {
		t.Fatal(err)
	}
	a := initial["a"]
	if got := marshal(t, a); got != `[1,{"b":2}]` {
		t.Errorf("the value is %s", got)
	}
}
