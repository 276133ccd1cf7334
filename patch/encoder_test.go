package patch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

func TestEncoderWritesTheTextForm(t *testing.T) {
	var b strings.Builder
	enc := patch.NewEncoder(&b)
	value := func(v any) patch.Value {
		t.Helper()
		value, err := patch.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	if err := enc.Header(map[string]patch.Value{"b": value(5), "a\n": value(map[string]any{"x": 1.0}), "": {}}); err != nil {
		t.Fatal(err)
	}
	for _, rec := range []patch.Record{
		{Event: newEvent(t, patch.Fields{Author: "a"})},
		{Seq: 1, Event: newEvent(t, patch.Fields{Author: "a"})},
		{Seq: 2, Event: newEvent(t, patch.Fields{ID: "a", Author: "line\nbreak\u2028"})},
		{Seq: 3, Patch: patch.NewTruncateBefore("a")},
	} {
		if err := enc.Record(rec); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"patchlog":1,"initialState":{"":null,"a\n":{"x":1.0},"b":5}}
{"author":"a"}
{"seq":1,"author":"a"}
{"seq":2,"id":"a","author":"line\nbreak` + "\u2028" + `"}
{"seq":3,"patchType":"truncate_before","eventId":"a"}
`
	if b.String() != want {
		t.Errorf("wrote\n%s, want\n%s", b.String(), want)
	}
	records, initial := readAll(t, b.String())
	if len(records) != 4 || records[3].Seq != 3 || initial["b"].String() != "5" {
		t.Errorf("read back %v, %v", records, initial)
	}
	b.Reset()
	if err := enc.Header(nil); err != nil || b.String() != `{"patchlog":1,"initialState":{}}`+"\n" {
		t.Errorf("a header without state is %q, %v", b.String(), err)
	}
}

func TestEncoderErrors(t *testing.T) {
	var b strings.Builder
	enc := patch.NewEncoder(&b)
	if err := enc.Record(patch.Record{Seq: 1}); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("a record of nothing: %v", err)
	}
	wantField(t, enc.Header(map[string]patch.Value{"\xff": {}}), "initialState")
	if b.Len() > 0 {
		t.Errorf("wrote %q", b.String())
	}
	full := errors.New("full")
	enc = patch.NewEncoder(writerFunc(func([]byte) (int, error) { return 0, full }))
	if err := enc.Header(nil); !errors.Is(err, full) {
		t.Errorf("a failing writer: %v", err)
	}
	if err := enc.Record(patch.Record{Patch: patch.NewSplice(0, 1)}); !errors.Is(err, full) {
		t.Errorf("a failing writer: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
