package patch_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

type (
	money    int
	badJSON  struct{ text string }
	failing  struct{}
	recursed []recursed
)

func (j badJSON) MarshalJSON() ([]byte, error) { return []byte(j.text), nil }
func (failing) MarshalJSON() ([]byte, error)   { return nil, errors.New("broken") }
func (r recursed) nested(levels int) (v recursed) { // slices nested to the given depth
	v = recursed{}
	for range levels - 1 {
		v = recursed{v}
	}
	return v
}

func TestUnrestorableValuesAreRefused(t *testing.T) {
	cyclic := map[string]any{}
	cyclic["me"] = []any{cyclic}
	for name, v := range map[string]any{
		"NaN": math.NaN(), "Inf": math.Inf(1), "-Inf": math.Inf(-1), "float32 Inf": float32(math.Inf(1)),
		"NaN in a list": []float64{1, math.NaN()}, "Inf in a map": map[string]float32{"a": float32(math.Inf(-1))},
		"struct": struct{ A int }{1}, "pointer": new(int), "defined type": money(1), "error": errors.New("e"),
		"channel": make(chan int), "function": func() {}, "complex": complex(1, 2), "array": [2]int{1, 2},
		"duration": time.Second, "time beyond RFC 3339": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "raw JSON": json.RawMessage("1"), "content": &sdkContent{},
		"uintptr": uintptr(1), "defined slice": recursed{}, "slice of structs": []struct{}{{}},
		"int keys": map[int]string{1: "a"}, "any keys": map[any]any{"a": 1}, "defined keys": map[badKey]int{"a": 1},
		"no UTF-8": "a\xff", "surrogate": "\xed\xa0\x80", "key not UTF-8": map[string]any{"\xff": 1},
		"key of a typed map not UTF-8": map[string]int{"\xff": 1}, "string in a list": []string{"\xff"},
		"json.Number": json.Number("0x1"), "empty json.Number": json.Number(""), "json.Number NaN": []json.Number{"NaN"},
		"cycle": cyclic, "type too deep": [][][][][][][][][]int{}, "errors": []error{errors.New("e")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := patch.NewValue(v)
			if !errors.Is(err, patch.ErrInvalid) {
				t.Errorf("NewValue took it: %v", err)
			}
			for field, f := range map[string]patch.Fields{
				"actions/stateDelta/k":                {Actions: patch.Actions{StateDelta: map[string]any{"k": v}}},
				"customMetadata/a~1b":                 {CustomMetadata: map[string]any{"a/b": v}},
				"content/parts/1/functionCall/args/x": {Content: map[string]any{"parts": []any{nil, map[string]any{"functionCall": map[string]any{"args": map[string]any{"x": v}}}}}},
				"own/list/0":                          {Extra: map[string]any{"own": map[string]any{"list": []any{v}}}},
				"actions/own/k":                       {Actions: patch.Actions{Extra: map[string]any{"own": map[string]any{"k": v}}}},
			} {
				_, err := patch.NewEvent(f)
				var at *patch.FieldError
				if !errors.As(err, &at) || at.Field != field && !strings.HasPrefix(at.Field, field+"/") {
					t.Errorf("the error about %s is %v", field, err)
				}
			}
			if _, err := patch.NewSplice(0, 1).WithCustomMetadata(map[string]any{"k": v}); !errors.Is(err, patch.ErrInvalid) {
				t.Errorf("WithCustomMetadata took it: %v", err)
			}
		})
	}
}

type badKey string

func TestUnrestorableFieldsAreRefused(t *testing.T) {
	long := strings.Repeat("i", patch.MaxIDBytes+1)
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		field string
		f     patch.Fields
	}{
		{"id", patch.Fields{ID: long}},
		{"id", patch.Fields{ID: "\xff"}},
		{"invocationId", patch.Fields{InvocationID: "\xff"}},
		{"author", patch.Fields{Author: "\xff"}},
		{"branch", patch.Fields{Branch: "\xff"}},
		{"isolationScope", patch.Fields{IsolationScope: "\xff"}},
		{"timestamp", patch.Fields{Timestamp: year(0)}},
		{"timestamp", patch.Fields{Timestamp: year(10000)}},
		{"timestamp", patch.Fields{Timestamp: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*3600))}},
		{"longRunningToolIds/1", patch.Fields{LongRunningToolIDs: []string{"a", "\xff"}}},
		{"content/role", patch.Fields{Content: map[string]any{"role": "\xff"}}},
		{"content/parts/0/videoMetadata/fps", patch.Fields{Content: &sdkContent{Parts: []*sdkPart{{VideoMetadata: &sdkVideo{FPS: ptr(math.NaN())}}}}}},
		{"actions/transferToAgent", patch.Fields{Actions: patch.Actions{TransferToAgent: "\xff"}}},
		{"actions/artifactDelta/\xff", patch.Fields{Actions: patch.Actions{ArtifactDelta: map[string]int64{"\xff": 1}}}},
		{"actions/compaction/startTimestamp", patch.Fields{Actions: patch.Actions{Compaction: &patch.EventCompaction{StartTimestamp: math.Inf(1)}}}},
		{"\xff", patch.Fields{Extra: map[string]any{"\xff": 1}}},
		{"actions/\xff", patch.Fields{Actions: patch.Actions{Extra: map[string]any{"\xff": 1}}}},
		{"x", patch.Fields{Extra: map[string]any{"x": badJSON{`{"a":1,"a":2}`}}}},
		{"x", patch.Fields{Extra: map[string]any{"x": badJSON{strings.Repeat("[", 998) + strings.Repeat("]", 998)}}}},
		{"x", patch.Fields{Extra: map[string]any{"x": failing{}}}},
		{"x", patch.Fields{Extra: map[string]any{"x": make(chan int)}}},
	} {
		_, err := patch.NewEvent(c.f)
		if c.field == "\xff" || strings.HasSuffix(c.field, "/\xff") {
			if !errors.Is(err, patch.ErrInvalid) {
				t.Errorf("%+v is taken: %v", c.f, err)
			}
			continue
		}
		wantField(t, err, c.field)
	}
	if e := newEvent(t, patch.Fields{ID: long[1:], Timestamp: year(1).Add(1)}); e.ID() != long[1:] {
		t.Error("an id of the greatest length is not kept")
	}
}

func TestReservedNamesAreRefusedInExtra(t *testing.T) {
	for _, name := range []string{
		"id", "invocationId", "author", "branch", "isolationScope", "timestamp", "seq",
		"content", "partial", "actions", "longRunningToolIds", "usageMetadata", "customMetadata",
		"patchType", "start", "count", "replacement", "eventId", "summaryEvent", "patchId", "base", "state",
		"patch_type", "event_id", "summary_event", "event_data",
	} {
		_, err := patch.NewEvent(patch.Fields{Extra: map[string]any{name: nil}})
		wantField(t, err, name)
	}
	for _, name := range []string{"stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate", "compaction"} {
		_, err := patch.NewEvent(patch.Fields{Actions: patch.Actions{Compaction: &patch.EventCompaction{}, Extra: map[string]any{name: nil}}})
		wantField(t, err, "actions/"+name)
	}
}

// Every event that NewEvent accepts can be written as a line of the text form, even inside a patch.
func TestMaxNesting(t *testing.T) {
	at := func(levels int) patch.Fields {
		return patch.Fields{Extra: map[string]any{"x": recursed{}.nested(levels)}}
	}
	deepest := 0
	for levels := 990; levels < 1010; levels++ {
		e, err := patch.NewEvent(at(levels))
		if err != nil {
			wantField(t, firstStep(err), "x")
			continue
		}
		deepest = levels
		p := parse(t, patch.NewSplice(0, 0, e).String()).Patch
		if err := p.Validate(); err != nil {
			t.Fatalf("%d levels: %v", levels, err)
		}
		if len(p.NewEvents()) != 1 || !patch.Same(patch.Record{Event: e}, stored(t, patch.Record{Event: p.NewEvents()[0]})) {
			t.Fatalf("%d levels came back otherwise", levels)
		}
	}
	if deepest != 997 {
		t.Errorf("%d levels can be nested, want 997", deepest)
	}
}

// firstStep shortens the field of an error to the first element of its pointer.
func firstStep(err error) error {
	var at *patch.FieldError
	if errors.As(err, &at) {
		first, _, _ := strings.Cut(at.Field, "/")
		return &patch.FieldError{Field: first, Problem: at.Problem}
	}
	return err
}
