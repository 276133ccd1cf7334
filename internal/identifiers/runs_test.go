package identifiers

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Where much was looked through already, a word is found by its rarest stretch, all the same.
func TestPropertyByRuns(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b1", "1", "12", ".", "/", "-", " ", "é", "号", "…"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "text"), "")
		x := NewIndex(text)
		x.left, x.words = 0, nil
		for range 10 {
			word := strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(t, "word"), "")
			if strings.ContainsAny(word, "ab1é") && x.Has(word) != Stands(text, word) {
				t.Fatalf("%q in %q: %v", word, text, x.Has(word))
			}
		}
	})
}
