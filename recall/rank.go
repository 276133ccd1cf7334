package recall

import (
	"container/heap"
	"iter"
	"math"
	"slices"
	"time"
)

// Filter selects events. The zero value selects all events except summaries.
type Filter struct {
	Author string // only events of this author; "" means any author
	Tool   string // only events with a call or a response of this tool; "" means all events

	From, To uint64 // only records with seqs from From through To; 0 means no limit

	Since, Until time.Time // only events at or after Since and before Until, to the microsecond; zero means no limit

	Summaries bool // also select summaries

	// ShownToModel excludes text that no model sees: state changes, and ADK's requests for credentials and
	// confirmations.
	ShownToModel bool
}

// Doc identifies an event in an index.
type Doc struct {
	Seq           uint64 // seq of the event's record
	Index         int    // index among the events of the record
	Branch, Scope string
}

// Match is an event that [Index.Search] found.
type Match struct {
	Seq   uint64 // seq of the event's record
	Index int    // index among the events of the record

	Summary bool // whether the event is marked as a summary, or a patch of type summarise inserted it
	Score   float64
}

// Stats counts the events and words of one or more logs, and the events that match each term of a query. The zero value
// counts no log.
type Stats struct {
	events         int
	words          uint64
	exact, similar []int // number of events by term; similar is set only if exact is 0
}

// Stats returns the counts of the records with seqs up to the argument through. The argument shown must be equal to
// [Filter.ShownToModel] of the search.
func (x *Index) Stats(t Terms, through uint64, shown bool) Stats {
	end := x.docsThrough(through)
	s := Stats{events: int(end), words: x.wordsBefore(end)}
	for i := range t.terms {
		count := func(similar bool) (n int) {
			x.each(&t.terms[i], similar, shown, end, func(int32, int32) { n++ })
			return min(n, int(end))
		}
		exact, similar := count(false), 0
		if exact == 0 {
			similar = count(true)
		}
		s.exact, s.similar = append(s.exact, exact), append(s.similar, similar)
	}
	return s
}

// Add adds the counts of another log for the same terms. To make the scores of several logs comparable, search each log
// with the sum of their Stats.
func (s *Stats) Add(o Stats) {
	s.events += o.events
	s.words += o.words
	add := func(to *[]int, some []int) {
		*to = append(*to, make([]int, max(0, len(some)-len(*to)))...)
		for i, n := range some {
			(*to)[i] += n
		}
	}
	add(&s.exact, o.exact)
	add(&s.similar, o.similar)
}

// matchesAny reports whether any event of the logs matches.
func (s *Stats) matchesAny(t Terms) bool {
	some := func(n int) bool { return n > 0 }
	return t.all && s.events > 0 || slices.ContainsFunc(s.exact, some) || slices.ContainsFunc(s.similar, some)
}

// weight returns the inverse document frequency of a term that occurs in the given number of events. It uses BM25's
// variant that is never negative.
func (s *Stats) weight(events int) float64 {
	n := float64(events)
	return math.Log(1 + (float64(s.events)-n+0.5)/(n+0.5))
}

// Parameters of the ranking, which is BM25 (Robertson and Zaragoza, 2009) with common values of k1 and b for short
// texts. For each event, the words of neighbouring regular events count too, less with distance, because an answer
// often lacks the words of its question. Identifiers and dates count only for the event that contains them. idWeight
// ranks events with an identifier before events with other words.
const (
	saturation    = 1.2 // k1
	lengthWeight  = 0.4 // b
	idWeight      = 8
	similarWeight = 0.7 // weight of a similar word, which is used if no log contains the word itself
)

var neighbourWeights = [...]float64{0.5, 0.25}

// Search yields the events that contain a term of the query, or that are near such an event. It reads only records with
// seqs up to the argument through. The events with the highest scores come first. Of events with equal scores, the
// newest comes first.
//
// If the function only is not nil, Search leaves out the events for which this function returns false, and such events
// do not raise the scores of neighbours. Search calls the function at most once per event. The result depends only on
// these records and on the arguments. The running time is linear in the number of events and occurrences of the terms.
func (x *Index) Search(t Terms, f Filter, through uint64, s Stats, only func(Doc) bool) iter.Seq[Match] {
	return func(yield func(Match) bool) {
		end := x.docsThrough(through)
		allowed := x.cachedFilter(only, end)
		isSelected := x.filterFunc(f, end)
		var best scoreHeap
		for d, score := range x.score(t, end, s, f.ShownToModel, allowed) {
			if d := int32(d); (score > 0 || t.all) && isSelected(d) && allowed(d) {
				best = append(best, scoredDoc{d, score})
			}
		}
		heap.Init(&best)
		for len(best) > 0 {
			b := heap.Pop(&best).(scoredDoc)
			d := &x.docs[b.doc]
			if !yield(Match{d.seq, int(d.index), d.summary, b.score}) {
				return
			}
		}
	}
}

// cachedFilter returns a function that caches the results of only. So only is called at most once per event.
func (x *Index) cachedFilter(only func(Doc) bool, end int32) func(int32) bool {
	if only == nil {
		return func(int32) bool { return true }
	}
	const yes, no = 1, 2
	cache := make([]byte, end)
	return func(at int32) bool {
		if cache[at] == 0 {
			d := &x.docs[at]
			cache[at] = no
			if of := x.branchScopes[d.branchScope]; only(Doc{d.seq, int(d.index), of.branch, of.scope}) {
				cache[at] = yes
			}
		}
		return cache[at] == yes
	}
}

func (x *Index) score(t Terms, end int32, s Stats, shown bool, allowed func(int32) bool) []float64 {
	scores := make([]float64, end)
	frequencies := make([]float64, end) // frequency of a word in an event, plus its weighted frequency in neighbouring events
	var touched []int32
	mean := float64(s.words)/float64(max(1, s.events)) + 1
	add := func(d int32, frequency float64) {
		if d >= end {
			return
		}
		if frequencies[d] == 0 {
			touched = append(touched, d)
		}
		frequencies[d] += frequency
	}
	for i := range t.terms {
		a, n, similar, factor := &t.terms[i], s.exact[i], false, 1.0
		switch {
		case a.kind == kindIdentifier:
			factor = idWeight
		case n == 0:
			n, similar, factor = s.similar[i], true, similarWeight
		}
		weight := factor * s.weight(n)
		x.each(a, similar, shown, end, func(d, n int32) {
			if !allowed(d) {
				return
			}
			if a.kind != kindWord { // identifiers and dates do not raise the scores of neighbours
				scores[d] += weight
				return
			}
			length := float64(x.wordsBefore(d+1)-x.wordsBefore(d)) / mean
			frequency := float64(n) / (1 - lengthWeight + lengthWeight*length)
			add(d, frequency)
			at := int(x.docs[d].regularIndex)
			for i, factor := range neighbourWeights {
				if before := at - i - 1; before >= 0 {
					add(x.regularDocs[before], factor*frequency)
				}
				if after := at + i + 1; at >= 0 && after < len(x.regularDocs) {
					add(x.regularDocs[after], factor*frequency)
				}
			}
		})
		for _, d := range touched {
			scores[d] += weight * frequencies[d] * (saturation + 1) / (frequencies[d] + saturation)
			frequencies[d] = 0
		}
		touched = touched[:0]
	}
	return scores
}

// filterFunc returns a function that reports whether the filter selects an event before index end.
func (x *Index) filterFunc(f Filter, end int32) func(doc int32) bool {
	author, tool := x.docsWithTerm(f.Author, hashTerm(seedAuthor, f.Author), end), x.docsWithTerm(f.Tool, hashTerm(seedTool, f.Tool), end)
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !f.Since.IsZero() {
		since = unixMicros(f.Since)
	}
	if !f.Until.IsZero() {
		until = unixMicros(f.Until)
	}
	return func(at int32) bool {
		d := &x.docs[at]
		return (!d.summary || f.Summaries) && (d.shown || !f.ShownToModel) && (author == nil || author[at]) && (tool == nil || tool[at]) &&
			d.seq >= f.From && (f.To == 0 || d.seq <= f.To) && d.time >= since && d.time < until
	}
}

// docsWithTerm reports for each event before index end whether it contains the term t. If name is "", docsWithTerm
// returns nil.
func (x *Index) docsWithTerm(name string, t term, end int32) []bool {
	if name == "" {
		return nil
	}
	all := make([]bool, end)
	x.each(&queryTerm{term: t}, false, true, end, func(d, _ int32) { all[d] = true })
	return all
}

// unixMicros returns the Unix time in microseconds, limited to the range of int64.
func unixMicros(t time.Time) int64 {
	const most = math.MaxInt64 / 1_000_000
	return max(-most, min(t.Unix(), most-1))*1_000_000 + int64(t.Nanosecond())/1_000
}

type scoredDoc struct {
	doc   int32
	score float64
}

// scoreHeap is a heap of events with the highest score first.
type scoreHeap []scoredDoc

func (r scoreHeap) Len() int { return len(r) }

func (r scoreHeap) Less(i, j int) bool {
	return r[i].score > r[j].score || r[i].score == r[j].score && r[i].doc > r[j].doc
}

func (r scoreHeap) Swap(i, j int) { r[i], r[j] = r[j], r[i] }

func (r *scoreHeap) Push(s any) { *r = append(*r, s.(scoredDoc)) }

func (r *scoreHeap) Pop() any {
	last := len(*r) - 1
	s := (*r)[last]
	*r = (*r)[:last]
	return s
}
