package patch_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

// Of a record's form the length is known once enough of it is there, whatever follows.
func TestRecordLength(t *testing.T) {
	e, err := patch.ParseEvent([]byte(`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"hello"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	form, err := patch.AppendRecord(nil, patch.Record{Seq: 300, Event: e})
	if err != nil {
		t.Fatal(err)
	}
	for _, tail := range []string{"", "\x00", "\xff\xff\xff"} {
		if n, ok := patch.RecordLength(append(form[:len(form):len(form)], tail...)); n != len(form) || !ok {
			t.Errorf("followed by %q: %d, %t, want %d", tail, n, ok, len(form))
		}
	}
	for i := range form {
		if n, ok := patch.RecordLength(form[:i]); ok || n <= i || n > len(form) {
			t.Errorf("of the first %d bytes: %d, %t, want a length above that and up to %d", i, n, ok, len(form))
		}
	}
	for _, other := range []string{"\x02", "\x01....\xc1", "\x01....\xc6\xff\xff\xff\xff"} {
		if n, ok := patch.RecordLength([]byte(other)); n != 0 || ok {
			t.Errorf("%q: %d, %t, want 0", other, n, ok)
		}
	}
}
