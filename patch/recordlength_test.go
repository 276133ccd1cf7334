package patch_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
)

// formsToFind are records' forms of both kinds, among them some of one block and of several.
func formsToFind(t *testing.T) [][]byte {
	var forms [][]byte
	for _, text := range []string{"hello", strings.Repeat("hello there. ", 20), strings.Repeat("x", 300_000)} {
		plain := encode(t, patch.Record{Seq: 300, Event: newEvent(t, patch.Fields{ID: "e1", Author: "user", Content: patch.Text("user", text)})})
		short := recordform.Compress(plain)
		if short[0] != 2 {
			t.Fatalf("a record of %d bytes is not compressed", len(plain))
		}
		forms = append(forms, plain, short)
	}
	return forms
}

// Of a record's form the length is known once enough of it is there, whatever follows.
func TestRecordLength(t *testing.T) {
	for _, form := range formsToFind(t) {
		for _, tail := range []string{"", "\x00", "\xff\xff\xff"} {
			if n, ok := recordform.Length(append(form[:len(form):len(form)], tail...)); n != len(form) || !ok {
				t.Errorf("form %d, followed by %q: %d, %t, want %d", form[0], tail, n, ok, len(form))
			}
		}
		for i := 0; i < len(form); i += 1 + i/50 {
			if n, ok := recordform.Length(form[:i]); ok || n <= i || n > len(form) {
				t.Errorf("form %d, of the first %d bytes: %d, %t, want a length above that and up to %d", form[0], i, n, ok, len(form))
			}
		}
	}
	for _, other := range []string{"\x00", "\x03", "\x01....\xc1", "\x01....\xc6\xff\xff\xff\xff", "\x02........\xd2", "\x02........\xd1\x00\x00\x00", "\x02........\xd1\x10\x00\x01"} {
		if n, ok := recordform.Length([]byte(other)); n != 0 || ok {
			t.Errorf("%q: %d, %t, want 0", other, n, ok)
		}
	}
}

func TestFindRecord(t *testing.T) {
	for _, form := range formsToFind(t) {
		const enough = 16
		for _, before := range []string{"", "\x00", "\x01", "\x02", "\x01\x02\x01\x02", strings.Repeat("\x93\x28", 20)} {
			for _, n := range []int{enough, len(form)} {
				b := append([]byte(before), form[:n]...)
				if at := recordform.Find(b); at != len(before) {
					t.Errorf("form %d behind %q: at %d, want %d", form[0], before, at, len(before))
				}
			}
		}
		for n := range enough {
			if at := recordform.Find(form[:n]); at > 0 {
				t.Errorf("of %d bytes: at %d", n, at)
			}
		}
	}
	for _, none := range []string{"", "\x01", strings.Repeat("\x01\x02", 100), strings.Repeat("\xd1\x00\x00\x01\x93", 100)} {
		if at := recordform.Find([]byte(none)); at != -1 {
			t.Errorf("%q: at %d", none, at)
		}
	}
}
