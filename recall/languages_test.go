package recall_test

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/recall"
)

// In each language, the questions use other forms of the words of a fact. For at least 95 % of the questions, the
// fact is among the first five of 30 results. The accents of query and text may be composed or decomposed.
func TestLanguages(t *testing.T) {
	data := testlog.Must(os.ReadFile("testdata/languages.txt"))(t)
	for _, block := range strings.Split(string(data), "\n[")[1:] {
		lang, lines, _ := strings.Cut(block, "]\n")
		var facts, questions []string
		for line := range strings.Lines(lines) {
			if fact, question, ok := strings.Cut(strings.TrimSpace(line), " | "); ok {
				facts, questions = append(facts, fact), append(questions, question)
			}
		}
		for _, c := range []struct {
			name            string
			logged, queried norm.Form
		}{{"composed", norm.NFC, norm.NFC}, {"decomposed queries", norm.NFC, norm.NFD}, {"decomposed texts", norm.NFD, norm.NFC}} {
			x := new(recall.Index)
			for i, fact := range facts {
				x.Add(said(i+1, "user", c.logged.String(fact)))
			}
			var missed []string
			first := 0
			for i, question := range questions {
				got := seqs(x, c.queried.String(question), math.MaxUint64)
				switch at := slices.Index(got, uint64(i+1)); {
				case at == 0:
					first++
				case at < 0 || at >= 5:
					missed = append(missed, question)
				}
			}
			t.Logf("%s, %s: of %d, %d are first, %d not among the first five", lang, c.name, len(facts), first, len(missed))
			if 20*len(missed) > len(questions) {
				t.Errorf("%s, %s: not found are %q", lang, c.name, missed)
			}
		}
	}
}

// A snippet shows and marks decomposed words as they were logged.
func TestDecomposedSnippet(t *testing.T) {
	text := norm.NFD.String("내일 서울에서 만나요")
	got := marked(recall.SnippetOf(said(1, "user", text).Event, recall.Parse("서울"), 0, true))
	if want := norm.NFD.String("내일 [서울]에서 만나요"); got != want {
		t.Errorf("the snippet is %q, want %q", got, want)
	}
}
