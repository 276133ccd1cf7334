package locomo

import (
	"math"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// Best is the number of results per question in which a relevant message counts as found.
const Best = 10

// Index indexes the messages of a conversation. The function find returns the seqs of the messages that best match a
// question, best first. It returns at most [Best] seqs.
type Index func(turns []patch.Record) (find func(question string) []uint64)

// Hits counts the questions, and the questions with a relevant message among the results.
type Hits struct {
	questions, found [categories]int
}

// Measure asks the questions of each conversation of an index of that conversation.
func Measure(all []Conversation, index Index) Hits {
	var h Hits
	for _, c := range all {
		find := index(c.Turns)
		for _, q := range c.Questions {
			best := find(q.Text)
			best = best[:min(len(best), Best)]
			hit := slices.ContainsFunc(q.Evidence, func(seq uint64) bool { return slices.Contains(best, seq) })
			for _, of := range []Category{All, q.Category} {
				h.questions[of]++
				if hit {
					h.found[of]++
				}
			}
		}
	}
	return h
}

// Share returns the fraction of a category's questions with a relevant result, from 0 to 1.
func (h Hits) Share(of Category) float64 {
	return float64(h.found[of]) / float64(max(1, h.questions[of]))
}

// Report reports the shares of all questions and of each category, in percent.
func (h Hits) Report(b *testing.B) {
	b.Helper()
	b.ReportMetric(100*h.Share(All), "%-hit")
	for of := All + 1; of < categories; of++ {
		b.ReportMetric(100*h.Share(of), "%-hit-"+of.String())
	}
	b.ReportMetric(float64(h.questions[All]), "questions")
}

// Find returns the seqs of the records that best match a question, best first. It returns at most [Best] seqs.
func Find(x *recall.Index, question string) (seqs []uint64) {
	terms := recall.Parse(question)
	for m := range x.Search(terms, recall.Filter{}, math.MaxUint64, x.Stats(terms, math.MaxUint64, false), nil) {
		if seqs = append(seqs, m.Seq); len(seqs) == Best {
			break
		}
	}
	return seqs
}
