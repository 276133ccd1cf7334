package patch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestWriteTextForm(t *testing.T) {
	var b strings.Builder
	value := func(v any) patch.Value {
		t.Helper()
		value := testlog.Must(patch.NewValue(v))(t)
		return value
	}
	testlog.NoError(t, patch.WriteHeader(&b, map[string]patch.Value{"b": value(5), "a\n": value(map[string]any{"x": 1.0}), "": {}}))
	for _, rec := range []patch.Record{
		{Event: newEvent(t, patch.Fields{Author: "a"})},
		{Seq: 1, Event: newEvent(t, patch.Fields{Author: "a"})},
		{Seq: 2, Event: newEvent(t, patch.Fields{ID: "a", Author: "line\nbreak\u2028"})},
		{Seq: 3, Patch: patch.NewTruncateBefore("a")},
	} {
		testlog.NoError(t, patch.WriteRecord(&b, rec))
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
	if err := patch.WriteHeader(&b, nil); err != nil || b.String() != `{"patchlog":1,"initialState":{}}`+"\n" {
		t.Errorf("a header without state is %q, %v", b.String(), err)
	}
}

func TestWriteErrors(t *testing.T) {
	var b strings.Builder
	testlog.ErrorIs(t, patch.WriteRecord(&b, patch.Record{Seq: 1}), patch.ErrInvalid, "a record of nothing")
	wantField(t, patch.WriteHeader(&b, map[string]patch.Value{"\xff": {}}), "initialState")
	if b.Len() > 0 {
		t.Errorf("wrote %q", b.String())
	}
	full := errors.New("full")
	failing := writerFunc(func([]byte) (int, error) { return 0, full })
	testlog.ErrorIs(t, patch.WriteHeader(failing, nil), full, "a failing writer")
	testlog.ErrorIs(t, patch.WriteRecord(failing, patch.Record{Patch: patch.NewSplice(0, 1)}), full, "a failing writer")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
