package recall_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// marked returns a snippet with brackets around its marks.
func marked(s recall.Snippet) string {
	out, from := "", 0
	for _, m := range s.Marks {
		out += s.Text[from:m[0]] + "[" + s.Text[m[0]:m[1]] + "]"
		from = m[1]
	}
	return out + s.Text[from:]
}

func TestSnippet(t *testing.T) {
	long := strings.Repeat("before it. ", 50) + "The flights to Lisbon are cancelled; W-2378 and W-23789 stand. " + strings.Repeat("Behind it. ", 50)
	for _, c := range []struct {
		text, query string
		runes       int
		want        string
	}{
		{"a flight  to\n\tLisbon", "flights lisbon", 0, "a [flight] to [Lisbon]"},
		{"retail and the tail", "the tail", 0, "retail and [the tail]"},
		{"the the", "the", 0, "[the] [the]"},
		{"nothing of it", "lisbon", 0, "nothing of it"},
		{long, "flight lisbon", 40, "…it. The [flights] to [Lisbon] are…"},
		{long, "W-2378", 40, "…[W-2378] and [W]-23789 stand. Behind it.…"},
		{long, "xylophone", 30, "before it. before it. before…"},
		{long, "behind", 25, "…[Behind] it. [Behind] it.…"},
		{"東京タワーは高い", "京タ", 0, "東[京タ]ワーは高い"},
		{"東京タワー", "東京タワー", 0, "[東京タワー]"},
		{"caf\u0065\u0301 bar", "café", 0, "[cafe\u0301] bar"},
		{strings.Repeat("x", 100), "y", 10, strings.Repeat("x", 10) + "…"},
		{strings.Repeat("é", 100), "y", 10, strings.Repeat("é", 10) + "…"},
	} {
		e := testlog.Must(patch.NewEvent(patch.Fields{Content: patch.Text("user", c.text)}))(t)
		if got := marked(recall.SnippetOf(e, recall.Parse(c.query), c.runes, false)); got != c.want {
			t.Errorf("%.20q in %.20q: %q, want %q", c.query, c.text, got, c.want)
		}
	}
	text, err := json.Marshal(recall.Snippet{Text: "a b", Marks: [][2]int{{0, 1}}})
	if err != nil || string(text) != `{"text":"a b","marks":[[0,1]]}` {
		t.Errorf("%s, %v", text, err)
	}
}

// For any text, a snippet is on one line and within its maximum length. Its marks are in order.
func TestPropertySnippet(t *testing.T) {
	piece := rapid.SampledFrom([]string{"word", "other", "a1-b2", " ", "\n", "東京", "é", "e\u0301", "\u2028", ".", "x@y.zz"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(t, "text"), "")
		query := strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(t, "query"), "")
		runes := rapid.IntRange(1, 40).Draw(t, "runes")
		e := testlog.Must(patch.NewEvent(patch.Fields{Content: patch.Text("user", text)}))(t)
		s := recall.SnippetOf(e, recall.Parse(query), runes, false)
		plain := strings.Join(strings.Fields(text), " ")
		piece := strings.TrimSuffix(strings.TrimPrefix(s.Text, "…"), "…")
		if !strings.Contains(plain, piece) || utf8.RuneCountInString(piece) > runes || !utf8.ValidString(s.Text) || piece == "" && plain != "" {
			t.Fatalf("%q of %q", s.Text, plain)
		}
		at := 0
		for _, m := range s.Marks {
			if m[0] < at || m[1] <= m[0] || m[1] > len(s.Text) || !utf8.ValidString(s.Text[m[0]:m[1]]) {
				t.Fatalf("marks %v in %q", s.Marks, s.Text)
			}
			at = m[1]
		}
	})
}

func ExampleSnippetOf() {
	e, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "Two red bicycles, please, for my children.")})
	s := recall.SnippetOf(e, recall.Parse("bicycle"), 20, false)
	fmt.Println(s.Text, s.Text[s.Marks[0][0]:s.Marks[0][1]], err)
	// Output: …red bicycles,… bicycles <nil>
}
