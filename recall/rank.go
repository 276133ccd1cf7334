package recall

import (
	"container/heap"
	"iter"
	"math"
	"slices"
	"time"
)

// Filter says which events to look for. The zero value means all that are no summaries.
type Filter struct {
	Author string // only of this author; "" means any
	Tool   string // only events with a call or a response of this tool; "" means all

	From, To uint64 // only of records from one seq to another, both included; 0 means no limit

	Since, Until time.Time // only of this time or later, and before that one, to the microsecond; zero means no limit

	Summaries bool // summaries too

	// Shown leaves out what no model is shown: the state that events set, and events by which
	// ADK asks for credentials and confirmations.
	Shown bool
}

// Doc is an event that may be found.
type Doc struct {
	Seq           uint64 // of its record
	Index         int    // among the events of its record
	Branch, Scope string
}

// Match is an event that was found.
type Match struct {
	Seq   uint64 // of its record
	Index int    // among the events of its record

	Summary bool // a patch put it in as a summary, or it says that it is one
	Score   float64
}

// Stats are figures of a log, or of several, for what a query asks for. The zero value is
// of none.
type Stats struct {
	events int
	words  uint64
	having []int // events, by what is asked for: words, then identifiers

	// similar is how many events have similar words, by the words that are asked for; 0 for a
	// word that stands in the log.
	similar []int
}

// Stats returns the figures of the log up to a seq, for searches with or without [Filter.Shown].
func (x *Index) Stats(t Terms, through uint64, shown bool) Stats {
	end := x.until(through)
	s := Stats{events: int(end), words: x.wordsBefore(end)}
	count := func(postings iter.Seq[*posting]) (n int) {
		for p := range postings {
			if p.last < end {
				n += int(p.docs)
			} else {
				p.each(end, func(int32, int32) { n++ })
			}
		}
		return min(n, int(end))
	}
	for _, w := range slices.Concat(t.words, t.identifiers) {
		s.having = append(s.having, count(x.having(w, shown)))
	}
	for i, w := range t.words {
		n := 0
		if s.having[i] == 0 {
			n = count(x.havingSimilar(t.similar[w], shown))
		}
		s.similar = append(s.similar, n)
	}
	return s
}

// Add adds the figures of another log, for the same terms. Events of several logs are
// comparable if they are searched with the sum.
func (s *Stats) Add(o Stats) {
	s.events += o.events
	s.words += o.words
	add := func(to *[]int, some []int) {
		*to = append(*to, make([]int, max(0, len(some)-len(*to)))...)
		for i, n := range some {
			(*to)[i] += n
		}
	}
	add(&s.having, o.having)
	add(&s.similar, o.similar)
}

// finds reports whether anything that is asked for stands in the logs.
func (s *Stats) finds(t Terms) bool {
	some := func(n int) bool { return n > 0 }
	return t.all && s.events > 0 || slices.ContainsFunc(s.having, some) || slices.ContainsFunc(s.similar, some)
}

// weight is what a term counts for, the more the rarer it is: the inverse document frequency
// of BM25, in the form that is never negative.
func (s *Stats) weight(having int) float64 {
	n := float64(having)
	return math.Log(1 + (float64(s.events)-n+0.5)/(n+0.5))
}

// Parameters of the ranking. It is BM25 (Robertson and Zaragoza, 2009) with k1 and b as usual
// for short texts. A regular event is taken together with those beside it in the log, whose words
// count the less the farther they are: an answer often lacks the words of the question that it answers.
// Identifiers count for the event alone that has them, and so much that it comes before events
// with other words.
const (
	saturation = 1.2 // k1
	lengthPart = 0.4 // b
	idWeight   = 8
	similarity = 0.7 // what a similar word counts for one that stands in none of the logs
)

var besides = [...]float64{0.5, 0.25}

// Search yields the events that records up to a seq have brought and in which, or beside which,
// anything stands that is asked for, the best first; of equally good ones the newest first. Events
// for which only is false are treated as if they were not there: they are not found, and help
// nothing beside them. nil means all. It is called at most once for an event. The order is a function
// of these records, of what is asked for, and of s. It takes time linear in the number of events
// and in how often the terms stand in them.
func (x *Index) Search(t Terms, f Filter, through uint64, s Stats, only func(Doc) bool) iter.Seq[Match] {
	return func(yield func(Match) bool) {
		end := x.until(through)
		allowed := x.allowed(only, end)
		keep := x.filter(f, end)
		var best ranked
		for d, score := range x.score(t, end, s, f.Shown, allowed) {
			if d := int32(d); (score > 0 || t.all) && keep(d) && allowed(d) {
				best = append(best, scored{d, score})
			}
		}
		heap.Init(&best)
		for len(best) > 0 {
			b := heap.Pop(&best).(scored)
			d := &x.docs[b.doc]
			if !yield(Match{d.seq, int(d.index), d.summary, b.score}) {
				return
			}
		}
	}
}

// allowed asks only about each event before one at most once.
func (x *Index) allowed(only func(Doc) bool, end int32) func(int32) bool {
	if only == nil {
		return func(int32) bool { return true }
	}
	const yes, no = 1, 2
	known := make([]byte, end)
	return func(at int32) bool {
		if known[at] == 0 {
			d := &x.docs[at]
			known[at] = no
			if of := x.lanes[d.lane]; only(Doc{d.seq, int(d.index), of.branch, of.scope}) {
				known[at] = yes
			}
		}
		return known[at] == yes
	}
}

// score returns the scores of the events before one.
func (x *Index) score(t Terms, end int32, s Stats, shown bool, allowed func(int32) bool) []float64 {
	scores := make([]float64, end)
	near := make([]float64, end) // how often a word stands in an event and beside it
	var touched []int32
	mean := float64(s.words)/float64(max(1, s.events)) + 1
	add := func(d int32, often float64) {
		if d >= end {
			return
		}
		if near[d] == 0 {
			touched = append(touched, d)
		}
		near[d] += often
	}
	for i, w := range t.words {
		postings, weight := x.having(w, shown), s.weight(s.having[i])
		if s.having[i] == 0 {
			postings, weight = x.havingSimilar(t.similar[w], shown), similarity*s.weight(s.similar[i])
		}
		for p := range postings {
			p.each(end, func(d, n int32) {
				if !allowed(d) {
					return
				}
				length := float64(x.wordsBefore(d+1)-x.wordsBefore(d)) / mean
				often := float64(n) / (1 - lengthPart + lengthPart*length)
				add(d, often)
				at := int(x.docs[d].line)
				for i, part := range besides {
					if before := at - i - 1; before >= 0 {
						add(x.line[before], part*often)
					}
					if after := at + i + 1; at >= 0 && after < len(x.line) {
						add(x.line[after], part*often)
					}
				}
			})
		}
		for _, d := range touched {
			scores[d] += weight * near[d] * (saturation + 1) / (near[d] + saturation)
			near[d] = 0
		}
		touched = touched[:0]
	}
	for i, w := range t.identifiers {
		weight := idWeight * s.weight(s.having[len(t.words)+i])
		for p := range x.having(w, shown) {
			p.each(end, func(d, _ int32) { scores[d] += weight }) // for itself alone
		}
	}
	return scores
}

// filter returns a function that reports whether an event before one is looked for.
func (x *Index) filter(f Filter, end int32) func(doc int32) bool {
	author, tool := x.allHaving(f.Author, termOf(seedAuthor, f.Author), end), x.allHaving(f.Tool, termOf(seedTool, f.Tool), end)
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !f.Since.IsZero() {
		since = microsOf(f.Since)
	}
	if !f.Until.IsZero() {
		until = microsOf(f.Until)
	}
	return func(at int32) bool {
		d := &x.docs[at]
		return (!d.summary || f.Summaries) && (d.shown || !f.Shown) && (author == nil || author[at]) && (tool == nil || tool[at]) &&
			d.seq >= f.From && (f.To == 0 || d.seq <= f.To) && d.time >= since && d.time < until
	}
}

// allHaving tells of each event before one whether it has a term; nil means that it does not
// matter.
func (x *Index) allHaving(name string, t term, end int32) []bool {
	if name == "" {
		return nil
	}
	all := make([]bool, end)
	for p := range x.having(t, true) {
		p.each(end, func(d, _ int32) { all[d] = true })
	}
	return all
}

// microsOf is a time in microseconds, or the nearest that there is.
func microsOf(t time.Time) int64 {
	const most = math.MaxInt64 / 1_000_000
	return max(-most, min(t.Unix(), most-1))*1_000_000 + int64(t.Nanosecond())/1_000
}

// scored is an event and its score.
type scored struct {
	doc   int32
	score float64
}

// ranked is a heap with the best on top.
type ranked []scored

func (r ranked) Len() int { return len(r) }

func (r ranked) Less(i, j int) bool {
	return r[i].score > r[j].score || r[i].score == r[j].score && r[i].doc > r[j].doc
}

func (r ranked) Swap(i, j int) { r[i], r[j] = r[j], r[i] }

func (r *ranked) Push(s any) { *r = append(*r, s.(scored)) }

func (r *ranked) Pop() any {
	last := len(*r) - 1
	s := (*r)[last]
	*r = (*r)[:last]
	return s
}
