package identifiers

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func ExampleSet() {
	gone := NewSet([]string{"src/a.go", "src/a.go:12", "A-4711"})
	text := "A-4711 is in src/a.go:12, not in src/a.go or BA-4711"
	for from, to := range gone.In(text) {
		fmt.Println(from, text[from:to])
	}
	// Output:
	// 0 A-4711
	// 13 src/a.go:12
	// 33 src/a.go
}

// If identifiers overlap, a set finds the first, and of several that begin at the same place the longest.
func TestSet(t *testing.T) {
	for _, c := range []struct {
		text string
		ids  []string
		want []string
	}{
		{"", []string{"a1b2c"}, nil},
		{"a1b2c", nil, nil},
		{"a1b2c", []string{""}, nil},
		{"a1b2c", []string{"a1b2c", "a1b2c"}, []string{"0 a1b2c"}},
		{"xa1b2c a1b2cx a1b2c.", []string{"a1b2c"}, []string{"14 a1b2c"}},
		{"éa1b2c a1b2cé 世a1b2c世", []string{"a1b2c"}, []string{"19 a1b2c"}},
		{"/a/b.go /a/b.go/c", []string{"/a/b.go", "/a/b.go/c", "b.go"}, []string{"0 /a/b.go", "8 /a/b.go/c"}},
		{"one-2 2-three one-2-three", []string{"one-2", "2-three"}, []string{"0 one-2", "6 2-three", "14 one-2"}},
		{"a1b2", []string{"a1b2c"}, nil},
		{"\xffa1b2c\xff", []string{"a1b2c"}, []string{"1 a1b2c"}},
	} {
		var got []string
		for from, to := range NewSet(c.ids).In(c.text) {
			got = append(got, fmt.Sprint(from, " ", c.text[from:to]))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q in %q: got %q, want %q", c.ids, c.text, got, c.want)
		}
	}
}

// Set.In yields every occurrence of an identifier of the set, unless the occurrence overlaps an earlier one, and
// nothing else. Set.Occurring returns each identifier that occurs in the text.
func TestPropertySet(t *testing.T) {
	draw := func(r *rand.Rand, letters string, most int) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteString(string([]rune(letters)[r.IntN(len([]rune(letters)))]))
		}
		return b.String()
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := draw(r, "a1-/é世 ", 20)
		var ids []string
		for range r.IntN(5) {
			ids = append(ids, draw(r, "a1-/é世", 4))
		}
		covered := make([]bool, len(text))
		last := 0
		set := NewSet(ids)
		for from, to := range set.In(text) {
			if from < last || to <= from || !isWholeWord(text, from, to) {
				t.Fatalf("%q in %q: %d to %d", ids, text, from, to)
			}
			last = to
			for i := from; i < to; i++ {
				covered[i] = true
			}
		}
		occurring := set.Occurring(slices.Values([]string{"", text}))
		for _, id := range ids {
			if occurring[id] != Occurs(text, id) {
				t.Fatalf("%q in %q: that %q occurs there is %v", ids, text, id, occurring[id])
			}
			for i := 0; id != "" && i+len(id) <= len(text); i++ {
				if text[i:i+len(id)] != id || !isWholeWord(text, i, i+len(id)) {
					continue
				}
				if !covered[i] {
					t.Fatalf("%q in %q: nothing begins at or covers %d, where %q stands", ids, text, i, id)
				}
			}
		}
	}
}
