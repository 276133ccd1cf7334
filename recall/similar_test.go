package recall_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"pgregory.net/rapid"
)

// indexOf returns an index in which record 1 has the first text, record 2 the second, and so on.
func indexOf(texts ...string) *recall.Index {
	x := new(recall.Index)
	for i, text := range texts {
		x.Add(said(i+1, "user", text))
	}
	return x
}

// seqs returns the seqs of the records that contain a term of the query, best first. It omits records that are only
// near such a record.
func seqs(x *recall.Index, query string, through uint64) (all []uint64) {
	terms := recall.Parse(query)
	for m := range x.Search(terms, recall.Filter{}, through, x.Stats(terms, through, false), nil) {
		all = append(all, m.Seq)
	}
	return all
}

func TestSimilarWords(t *testing.T) {
	x := indexOf("The pelican sails to Hamburg", "a", "b", "c", "d", "서울에서 만나요", "e", "f", "g", "h", "Die Größe der Wohnung, order 48213", "i", "j", "k", "l", "A coat for the boat")
	for query, want := range map[string]uint64{
		"pelican":  1,
		"pelcan":   1, // omitted
		"pelicaan": 1, // added
		"pelicen":  1, // replaced
		"pelicna":  1, // swapped
		"PELICNA":  1,
		"Hambrug":  1,
		"serviced": 0,
		"plcan":    0, // two letters omitted
		"서울":       6,
		"서울은":      6,
		"Wohnng":   11,
		"größee":   11,
		"48214":    0, // numbers match exactly
		"boat":     16,
		"bot":      0, // too short for similar words
	} {
		got := seqs(x, query, math.MaxUint64)
		if want == 0 && len(got) > 0 || want > 0 && (len(got) == 0 || got[0] != want) {
			t.Errorf("%q finds %v, want %d", query, got, want)
		}
	}
	if got := seqs(indexOf("a coat", "1", "2", "3", "4", "a boat"), "boat", math.MaxUint64); slices.Contains(got, 1) {
		t.Errorf("a word that stands in the log is corrected: %v", got)
	}
	if got := seqs(indexOf("a coat", "1", "2", "3", "4", "a boat"), "boat", 5); len(got) == 0 || got[0] != 1 {
		t.Errorf("before the word was logged: %v", got)
	}
	s := recall.SnippetOf(said(1, "user", strings.Repeat("filler ", 200)+"the pelican sails").Event, recall.Parse("pelicna"), 80, true)
	if !strings.Contains(marked(s), "[pelican]") {
		t.Errorf("the snippet is %q", marked(s))
	}
}

// A word with a typo finds a similar word in a state change, except in searches of the text that models see. In a
// search of several logs, a word is corrected only if none of the logs contains it.
func TestSimilarWordsElsewhere(t *testing.T) {
	x := new(recall.Index)
	x.Add(ofJSON(1, `{"id":"e1","author":"user","actions":{"stateDelta":{"k":"pelican"}}}`))
	for shown, want := range map[bool]int{false: 1, true: 0} {
		terms := recall.Parse("pelicna")
		n := 0
		for range x.Search(terms, recall.Filter{ShownToModel: shown}, math.MaxUint64, x.Stats(terms, math.MaxUint64, shown), nil) {
			n++
		}
		if n != want {
			t.Errorf("shown %v: %d found, want %d", shown, n, want)
		}
	}
	l := newLogs()
	l.put("a", said(1, "user", "a coat"))
	l.put("b", said(1, "user", "a boat"))
	all := func(yield func(string, error) bool) { _ = yield("a", nil) && yield("b", nil) }
	for query, want := range map[string]int{"boat": 1, "moat": 2} {
		hits, err := recall.NewFinder(l, 0).SearchAll(t.Context(), all, func(string, error) bool { return false }, recall.Search{Query: query})
		if err != nil || len(hits) != want {
			t.Errorf("%q: %s, want %d", query, found(hits, err), want)
		}
	}
}

// A word of letters with one typo finds the event that contains the word without the typo.
func TestPropertySimilarWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("abcdefgåßжд")
		word := rapid.SliceOfN(rapid.SampledFrom(letters), 5, 20).Draw(t, "word")
		at := rapid.IntRange(0, len(word)-1).Draw(t, "at")
		typo := slices.Clone(word)
		switch rapid.IntRange(0, 3).Draw(t, "edit") {
		case 0:
			typo = slices.Delete(typo, at, at+1)
		case 1:
			typo = slices.Insert(typo, at, rapid.SampledFrom(letters).Draw(t, "letter"))
		case 2:
			typo[at] = rapid.SampledFrom(letters).Draw(t, "letter")
		default:
			if at > 0 {
				typo[at-1], typo[at] = typo[at], typo[at-1]
			}
		}
		if got := seqs(indexOf(string(word)), string(typo), math.MaxUint64); !slices.Equal(got, []uint64{1}) {
			t.Fatalf("%q finds %v of %q", string(typo), got, string(word))
		}
	})
}

// BenchmarkTerms measures queries of one term over 100,000 events with 20 words each. The times of the events are one
// hour apart.
func BenchmarkTerms(b *testing.B) {
	x := new(recall.Index)
	name := func(n int) string {
		var word []byte
		for n = n*7919 + 1_000_003; n > 0; n /= 17 {
			word = append(word, byte('a'+n%17))
		}
		return string(word)
	}
	for i := range 100_000 {
		var text strings.Builder
		for j := range 20 {
			fmt.Fprint(&text, name((i*31+j*j*j*97)%30_000), " ")
		}
		e, err := patch.NewEvent(patch.Fields{ID: "e", Author: "user", Content: patch.Text("user", text.String()), Timestamp: time.Unix(int64(i)*3600, 0)})
		if err != nil {
			b.Fatal(err)
		}
		x.Add(patch.Record{Seq: uint64(i + 1), Event: e})
	}
	for _, c := range []struct{ name, query string }{{"known", name(77)}, {"typo", "q" + name(77)}, {"day", "8 May 1975"}, {"month", "in May"}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if len(seqs(x, c.query, math.MaxUint64)) == 0 {
					b.Fatal("nothing was found")
				}
			}
			b.ReportMetric(float64(x.Bytes())/(1<<20), "MiB")
		})
	}
}
