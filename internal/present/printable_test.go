package present_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/present"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{" a\tb\n\n c ", "a b c"},
		{"\x00\x1b\x7f\u0085\u009b", `\u0000\u001b\u007f\u0085\u009b`},
		{"\u2028\u202e\ufeff\U000e0001", `\u2028\u202e\ufeff\U000e0001`},
		{"a\xffb\ufffd", `a\xffb` + "\ufffd"},
		{"日本　語 😀 \u00a0é", "日本 語 😀 é"},
	} {
		if got := present.Printable(c.in); got != c.want {
			t.Errorf("Printable(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	for most, want := range map[int]string{0: "", 1: "", 2: "é", 3: "é", 4: `é \u001b`, 99: `é \u001b日`} {
		if got := present.PrintableUpTo(" é\n\x1b日", most); got != want {
			t.Errorf("up to %d: got %q want %q", most, got, want)
		}
	}
}

// Marks stay on what they mark, whatever escapes come before them and within them.
func TestPieces(t *testing.T) {
	const raw = "\x1b[2J é\xff  lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp"
	var marks [][2]int
	for _, word := range []string{"é\xff", "lamp,", "brass\u200blamp", "日本"} {
		at := strings.Index(raw, word)
		marks = append(marks, [2]int{at, at + len(word)})
	}
	var all string
	var marked []string
	for _, p := range present.Pieces(raw, marks) {
		if all += p.Text; p.Mark {
			marked = append(marked, p.Text)
		}
	}
	if want := `\u001b[2J é\xff  lamp, \u202ebrass\u200blamp\U000e0001 日本 lamp`; all != want {
		t.Errorf("got %q want %q", all, want)
	}
	if want := []string{`é\xff`, "lamp,", `brass\u200blamp`, "日本"}; !slices.Equal(marked, want) {
		t.Errorf("got %q want %q", marked, want)
	}
}
