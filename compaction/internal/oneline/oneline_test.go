package oneline

import "testing"

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		cut   bool
	}{
		{"äöü", 3, false}, {"äöü", 2, true}, {"äöü", 4, false}, {"abc", 3, false}, {"abc", 2, true}, {"äöü", 0, false}, {"äöü", -1, false}, {"", 1, false},
	} {
		if got := Truncate(c.text, c.limit); (got != c.text) != c.cut {
			t.Errorf("%q cut to %d is %q", c.text, c.limit, got)
		}
	}
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb": "a b", "a\tb\n": `a b\n`, "\r": `\r`, "a\u2028\x1b": `a\u2028\u001b`, "plain": "plain",
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q is written as %q, want %q", text, got, want)
		}
	}
}
