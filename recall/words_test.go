package recall

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func wordsOf(text string) (all []string) {
	var s splitter
	s.words(text, func(word []byte, _, _ int) {
		w := string(word)
		if isInflected(word) {
			w += "+"
		}
		all = append(all, w)
	})
	return all
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"The cat's 2 cats":        "the+ cat+ 2 cats+",
		"Ann’s don't":             "ann+ don+ t+",
		"getUserName HTTPServer2": "get+ user+ name+ getusername+ httpserver2",
		"snake_case a-b":          "snake+ case+ a+ b+",
		"Größe café CAFE\u0301":   "große cafe+ cafe+",
		"ÄrgerNis":                "arger+ nis+ argernis+",
		"ＡＢＣ ﬁne":                 "abc+ fine+",
		"東京タワー 大":                 "東 東京 京 京タ タワ ワー 大",
		"a東b":                     "a+ 東 b+",
		"Ⅷ ½ ٣":                   "viii+ 1⁄2 ٣",
		"\xff\xfe x\x00y":         "x+ y+",
		"naïveTest":               "naive+ test+ naivetest+",
		"e\u0301":                 "e+",
		"İstanbul Zürich":         "istanbul+ zurich+",
	} {
		if got := strings.Join(wordsOf(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	long := strings.Repeat("a", 1000)
	if got := wordsOf(long); len(got) != 1 || len(got[0]) != maxWordBytes+1 {
		t.Errorf("a long word: %q", got)
	}
}

// The words of a valid text are valid UTF-8 and in lower case. They do not depend on the text before and after,
// unless the text begins with an accent or with 's.
func TestPropertyWords(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "B", "é", "e\u0301", "ß", "1", " ", "'s", "’", "東", "京", "ー", "-", "_", "İ", "ﬃ", "\u0301", "\n", "ก", "😀"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "text"), "")
		got := wordsOf(text)
		for _, w := range got {
			if len(w) > maxWordBytes+64 || w == "" || w == "+" || !utf8.ValidString(w) || w != strings.ToLower(w) {
				t.Fatalf("%q has the word %q", text, w)
			}
		}
		if around := wordsOf("x " + text + " y"); !slices.Equal(around, append(append([]string{"x+"}, got...), "y+")) {
			// An accent or 's at the beginning of the text belongs to the preceding x.
			if !strings.HasPrefix(text, "'s") && !strings.HasPrefix(text, "\u0301") {
				t.Fatalf("%q: %q, and with words around it %q", text, got, around)
			}
		}
	})
}

func FuzzWords(f *testing.F) {
	f.Add("getUserName 東京 don't")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		for _, w := range wordsOf(text) {
			n += len(w)
		}
		if n > 64+16*len(text) {
			t.Errorf("%d bytes of words in %q", n, text)
		}
	})
}
