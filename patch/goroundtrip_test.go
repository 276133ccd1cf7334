package patch_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/filler"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s came back as\n%#v, want\n%#v", what, got, want)
	}
}

// both runs check on a new event, and on the event after encoding and decoding.
func both(t *testing.T, f patch.Fields, check func(*testing.T, *patch.Event)) {
	t.Helper()
	e := newEvent(t, f)
	t.Run("made", func(t *testing.T) { check(t, e) })
	t.Run("stored", func(t *testing.T) { check(t, storedEvent(t, e)) })
}

// decoded returns a field of an event, decoded as a T.
func decoded[T any](t *testing.T, e *patch.Event, field string) *T {
	t.Helper()
	v := new(T)
	testlog.NoError(t, e.Decode(field, v))
	return v
}

func newContent(t *testing.T, v any) patch.Value {
	t.Helper()
	return newEvent(t, patch.Fields{Content: v}).Content()
}

func TestEmptyAndNilStayDistinct(t *testing.T) {
	for _, m := range []map[string]any{nil, {}, {"a": map[string]any{}, "b": map[string]any(nil), "c": nil}} {
		both(t, patch.Fields{CustomMetadata: m, Actions: patch.Actions{StateDelta: m}}, func(t *testing.T, e *patch.Event) {
			wantEqual(t, "custom metadata", e.CustomMetadata(), m)
			wantEqual(t, "state delta", e.StateDelta(), m)
		})
	}
	for _, ids := range [][]string{nil, {}, {"a", ""}} {
		both(t, patch.Fields{LongRunningToolIDs: ids}, func(t *testing.T, e *patch.Event) {
			wantEqual(t, "long running tool ids", e.LongRunningToolIDs(), ids)
		})
	}
}

func TestStateAndMetadataRoundTrip(t *testing.T) {
	f := patch.Fields{
		Actions:        patch.Actions{StateDelta: filler.OddMap(1)},
		CustomMetadata: filler.OddMap(2),
		UsageMetadata:  filler.Fill[sdkUsage](),
	}
	both(t, f, func(t *testing.T, e *patch.Event) {
		wantEqual(t, "state delta", e.StateDelta(), filler.OddMap(1))
		wantEqual(t, "custom metadata", e.CustomMetadata(), filler.OddMap(2))
		usage := decoded[sdkUsage](t, e, "usageMetadata")
		wantEqual(t, "usage metadata", usage, filler.Fill[sdkUsage]())
		n := 0
		for c := range e.Changes() {
			wantEqual(t, "change of "+c.Key, c.Value.Any(), filler.OddMap(1)[c.Key])
			n++
		}
		if n != len(filler.OddMap(1)) {
			t.Errorf("%d changes, want %d", n, len(filler.OddMap(1)))
		}
	})
}

// An extra field of a named type comes back deep-equal. Other fields come back as encoding/json decodes them.
func TestExtraFieldsRoundTrip(t *testing.T) {
	for name, want := range filler.OddMap(5) {
		f := patch.Fields{Extra: map[string]any{"x": want}, Actions: patch.Actions{Extra: map[string]any{"x": map[string]any{"y": want}}}}
		both(t, f, func(t *testing.T, e *patch.Event) {
			var got, actions any
			testlog.NoError(t, errors.Join(e.Decode("x", &got), e.Decode("actions", &actions)))
			wantEqual(t, name, got, want)
			wantEqual(t, name, actions, map[string]any{"x": map[string]any{"y": want}})
		})
	}
	struc := struct {
		A int    `json:"a,omitempty"`
		B string `json:"<b>"`
	}{B: "<&>"}
	both(t, patch.Fields{Extra: map[string]any{"x": &struc}}, func(t *testing.T, e *patch.Event) {
		if got, _ := e.Field("x"); string(got) != `{"<b>":"<&>"}` {
			t.Errorf("a struct is written as %s", got)
		}
	})
}

func TestRawJSONRoundTrip(t *testing.T) {
	raw := json.RawMessage(`{"<":[1.0,1e400, "\u00e9"]}`)
	both(t, patch.Fields{Extra: map[string]any{"raw": raw}}, func(t *testing.T, e *patch.Event) {
		got, _ := e.Field("raw")
		if string(got) != `{"<":[1.0,1e400,"\u00e9"]}` {
			t.Errorf("%s came back as %s", raw, got)
		}
	})
}

func TestActionsRoundTrip(t *testing.T) {
	compaction := patch.EventCompaction{StartTimestamp: 1748509874.123456, EndTimestamp: 1748509875, CompactedContent: newContent(t, oddContent(1))}
	f := patch.Fields{Actions: patch.Actions{
		StateDelta: map[string]any{"k": 1}, ArtifactDelta: map[string]int64{"f": 1<<53 + 1}, SkipSummarization: true,
		TransferToAgent: "b", Escalate: true, Compaction: &compaction,
	}}
	both(t, f, func(t *testing.T, e *patch.Event) {
		var got patch.Actions
		testlog.NoError(t, e.Decode("actions", &got))
		got.StateDelta, got.Compaction = e.StateDelta(), &compaction
		wantEqual(t, "actions", got, f.Actions)
		c := testlog.Must(e.Compaction())(t)
		wantEqual(t, "compaction", c, &compaction)
		var content any
		testlog.WantNil(t, c.CompactedContent.Decode(&content))
		wantEqual(t, "compacted content", content, oddContent(1))
		if !e.IsSummary() {
			t.Error("an event with actions.compaction is a summary")
		}
	})
}

// oddContent returns a content with values that a simple encoding would change.
func oddContent(n int64) any {
	return map[string]any{"role": "model", "parts": []any{nil, map[string]any{
		"thoughtSignature": []byte{0, 255},
		"functionCall":     map[string]any{"name": "f", "args": filler.OddMap(n)},
	}}}
}

// A time in a value comes back in UTC with nanoseconds.
func TestTimesInValuesRoundTrip(t *testing.T) {
	at := time.Date(2024, 2, 29, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	state := map[string]any{"at": at, "list": []any{at.UTC()}, "text": at.UTC().Format(time.RFC3339Nano)}
	both(t, patch.Fields{ID: "e", Actions: patch.Actions{StateDelta: state}}, func(t *testing.T, e *patch.Event) {
		wantEqual(t, "state delta", e.StateDelta(), map[string]any{"at": at.UTC(), "list": []any{at.UTC()}, "text": at.UTC().Format(time.RFC3339Nano)})
	})
}

func TestIdentityRoundTrip(t *testing.T) {
	at := time.Date(2024, 2, 29, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	f := patch.Fields{ID: "i", InvocationID: "v", Author: "a\x00", Branch: "b.c", IsolationScope: "s", Timestamp: at, Partial: true}
	both(t, f, func(t *testing.T, e *patch.Event) {
		got := []string{e.ID(), e.InvocationID(), e.Author(), e.Branch(), e.IsolationScope()}
		wantEqual(t, "identity", got, []string{"i", "v", "a\x00", "b.c", "s"})
		if !e.Timestamp().Equal(at) || e.Timestamp().Location() != time.UTC {
			t.Errorf("time %v, want %v in UTC", e.Timestamp(), at)
		}
		if !e.Partial() {
			t.Error("partial is lost")
		}
	})
	if e := newEvent(t, patch.Fields{}); e.String() != "{}" {
		t.Errorf("an event of nothing is %s", e)
	}
	if e := newEvent(t, patch.Fields{ZeroTime: true}); e.String() != `{"timestamp":"0001-01-01T00:00:00Z"}` {
		t.Errorf("an event at the zero time is %s", e)
	}
}

func TestNewEventCopiesValues(t *testing.T) {
	f := patch.Fields{
		Content:            oddContent(1),
		Actions:            patch.Actions{StateDelta: filler.OddMap(1), ArtifactDelta: map[string]int64{"a": 1}},
		CustomMetadata:     filler.OddMap(2),
		LongRunningToolIDs: []string{"call"},
		UsageMetadata:      filler.Fill[sdkUsage](),
		Extra:              map[string]any{"x": filler.Fill[sdkUsage](), "raw": json.RawMessage(`[1]`)},
	}
	e := newEvent(t, f)
	was := e.String()
	overwrite(reflect.ValueOf(&f).Elem())
	if e.String() != was {
		t.Error("changing the fields after NewEvent changed the event")
	}

	// Changing a decoded value does not change the event.
	content := *decoded[any](t, e, "content")
	usage := decoded[sdkUsage](t, e, "usageMetadata")
	for _, v := range []any{&content, &usage, ptr(e.StateDelta()), ptr(e.CustomMetadata()), ptr(e.LongRunningToolIDs())} {
		overwrite(reflect.ValueOf(v).Elem())
	}
	raw, _ := e.Field("content")
	clear(raw)
	for c := range e.Changes() {
		any := c.Value.Any()
		overwrite(reflect.ValueOf(&any).Elem())
	}
	if e.String() != was {
		t.Error("changing returned values changed the event")
	}
	wantEqual(t, "content", *decoded[any](t, e, "content"), oddContent(1))
	wantEqual(t, "state delta", e.StateDelta(), filler.OddMap(1))
	wantEqual(t, "ids", e.LongRunningToolIDs(), []string{"call"})
	if !records.IsLongRunning(e, "call") || records.IsLongRunning(e, "other") {
		t.Error("IsLongRunning forgot the ids")
	}
}

func ptr[T any](v T) *T { return &v }

// overwrite overwrites a value in place, at any depth.
func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			overwrite(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				overwrite(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwrite(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(k))
			overwrite(elem)
		}
		v.Clear()
	default:
		if v.CanSet() {
			v.SetZero()
		}
	}
}
