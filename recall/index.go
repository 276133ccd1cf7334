package recall

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"sort"
	"unsafe"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// Index finds the events of one session's log by their words. It has what the records say that
// it was given, but no text: what is found is read from the log. It may be searched from any
// number of goroutines while no record is added. The zero Index has no records.
type Index struct {
	splitter splitter
	seq      uint64
	docs     []doc
	line     []int32 // the docs that are regular events, in their order
	lanes    []lane
	laneOf   map[lane]int32
	words    uint64         // of all docs
	places   map[term]int32 // in postings
	english  map[term]int32 // by words as they are written, which share postings by their stems
	postings []posting
	similar  map[term]int32 // by the forms of words: the last of their links
	links    []link
	counts   []count // of the event that is being added
	more     int     // bytes in the postings' lists
}

// doc is an event that can be found.
type doc struct {
	seq     uint64 // of its record
	before  uint64 // words of all events before it
	time    int64  // Unix time in microseconds
	index   int32  // among the events of its record
	line    int32  // of a regular event, where it is in line; else -1
	lane    int32  // in lanes
	summary bool
	shown   bool // it says something that a model is shown
}

// lane is the branch and the isolation scope that events belong to.
type lane struct{ branch, scope string }

// posting says which events have a term, and how often. Most terms stand in one event alone, so
// the first one is kept outside the list.
type posting struct {
	first  int32 // event
	last   int32
	firstN int32  // how often
	docs   int32  // how many events
	count  int32  // where in counts, if it is there
	more   []byte // of each other event: how many come between, twice, and 1 if it has the term once; else how often
}

// link is an entry in the list of the postings of words that have a form in common.
type link struct {
	posting int32
	next    int32 // 1 + its place in links, or 0
}

// count is how often a term stands in the event that is being added.
type count struct {
	posting, n int32
}

// Seq is the seq of the newest record that was added, or 0.
func (x *Index) Seq() uint64 { return x.seq }

// Bytes is about how many bytes of memory the index takes.
func (x *Index) Bytes() int {
	const perEntry = 24 // of a map, whose slots are not all in use
	return cap(x.docs)*int(unsafe.Sizeof(doc{})) + cap(x.line)*int(unsafe.Sizeof(int32(0))) + cap(x.postings)*int(unsafe.Sizeof(posting{})) + x.more +
		cap(x.links)*int(unsafe.Sizeof(link{})) + (len(x.places)+len(x.english)+len(x.similar))*perEntry
}

// Add adds a record, which must be newer than all that were added. Of what patches put in,
// copies of events with cleared or shortened results are left out, and calls that came back:
// the log has what they were made of.
func (x *Index) Add(r patch.Record) {
	x.seq = r.Seq
	for i, e := range r.Events() {
		summary := e.IsSummary() || r.Patch != nil && r.Patch.Type() == patch.Summarise
		if r.Patch != nil && !summary && isCopy(e) {
			continue
		}
		d := doc{seq: r.Seq, before: x.words, time: microsOf(e.Timestamp()), index: int32(i), line: -1, summary: summary}
		if r.Patch == nil {
			d.line = int32(len(x.line))
		}
		x.add(e, d)
	}
}

func (x *Index) add(e *patch.Event, d doc) {
	words := 0
	say := func(text string, as func(term) term) {
		x.splitter.words(text, func(word []byte, english bool) {
			words++
			x.count(x.placeOfWord(word, english, as))
		})
		for id := range identifiers.All(text) {
			x.count(x.place(as(termOf(seedIdentifier, id))))
		}
	}
	if said := Text(e); said != "" {
		d.shown = true
		say(said, shown)
		x.splitter.words(e.Author(), func(word []byte, english bool) { x.count(x.placeOfWord(word, english, shown)) })
	}
	if said := privateText(e); said != "" {
		say(said, term.private)
	}
	if len(x.counts) == 0 {
		return
	}
	for _, id := range []string{e.ID(), e.InvocationID()} {
		if id != "" {
			x.count(x.place(termOf(seedIdentifier, id)))
		}
	}
	for p := range e.FunctionParts() {
		if p.ID != "" {
			x.count(x.place(termOf(seedIdentifier, p.ID)))
		}
		x.count(x.place(termOf(seedTool, p.Name)))
	}
	x.count(x.place(termOf(seedAuthor, e.Author())))
	for _, c := range x.counts {
		x.post(&x.postings[c.posting], int32(len(x.docs)), c.n)
	}
	x.counts = x.counts[:0]
	x.words += uint64(words)
	if d.line >= 0 {
		x.line = append(x.line, int32(len(x.docs)))
	}
	of := lane{e.Branch(), e.IsolationScope()}
	at, known := x.laneOf[of]
	if !known {
		if x.laneOf == nil {
			x.laneOf = map[lane]int32{}
		}
		at = int32(len(x.lanes))
		x.lanes = append(x.lanes, of)
		x.laneOf[of] = at
	}
	d.lane = at
	x.docs = append(x.docs, d)
}

// shown is the term of what a model is shown.
func shown(t term) term { return t }

// placeOfWord returns where the posting of a word is.
func (x *Index) placeOfWord(word []byte, english bool, as func(term) term) int32 {
	if !english {
		known := len(x.postings)
		at := x.place(as(written(word)))
		if int(at) == known {
			x.link(word, at, as)
		}
		return at
	}
	known := as(written(word))
	at, there := x.english[known]
	if !there {
		if x.english == nil {
			x.english = map[term]int32{}
		}
		at = x.place(as(stemmed(word)))
		x.english[known] = at
		x.link(word, at, as)
	}
	return at
}

// link adds the posting of a new word to the lists of the word's forms.
func (x *Index) link(word []byte, at int32, as func(term) term) {
	for _, form := range forms(word) {
		if x.similar == nil {
			x.similar = map[term]int32{}
		}
		form = as(form)
		x.links = append(x.links, link{at, x.similar[form]})
		x.similar[form] = int32(len(x.links))
	}
}

// place returns where the posting of a term is, which is new if there was none.
func (x *Index) place(t term) int32 {
	at, known := x.places[t]
	if !known {
		if x.places == nil {
			x.places = map[term]int32{}
		}
		at = int32(len(x.postings))
		x.places[t] = at
		x.postings = append(x.postings, posting{})
	}
	return at
}

// count notes that the event that is being added has the term of a posting.
func (x *Index) count(at int32) {
	p := &x.postings[at]
	if int(p.count) >= len(x.counts) || x.counts[p.count].posting != at {
		p.count = int32(len(x.counts))
		x.counts = append(x.counts, count{at, 0})
	}
	x.counts[p.count].n++
}

// post notes how often an event has a term.
func (x *Index) post(p *posting, doc, n int32) {
	if p.docs++; p.docs == 1 {
		p.first, p.firstN, p.last = doc, n, doc
		return
	}
	before := cap(p.more)
	between := uint64(doc-p.last) << 1
	if n == 1 {
		p.more = binary.AppendUvarint(p.more, between|1)
	} else {
		p.more = binary.AppendUvarint(binary.AppendUvarint(p.more, between), uint64(n))
	}
	p.last = doc
	x.more += cap(p.more) - before
}

// each calls f with the events before end that have a term, and how often.
func (p *posting) each(end int32, f func(doc, n int32)) {
	if p.first >= end {
		return
	}
	f(p.first, p.firstN)
	doc := p.first
	for more := p.more; len(more) > 0; {
		v, size := binary.Uvarint(more)
		more = more[size:]
		if doc += int32(v >> 1); doc >= end {
			return
		}
		n := uint64(1)
		if v&1 == 0 {
			n, size = binary.Uvarint(more)
			more = more[size:]
		}
		f(doc, int32(min(n, math.MaxInt32)))
	}
}

// having yields the postings of a term: of what a model is shown, and unless that is all, of what
// is private.
func (x *Index) having(t term, shown bool) iter.Seq[*posting] {
	return func(yield func(*posting) bool) {
		if at, ok := x.places[t]; ok && !yield(&x.postings[at]) || shown {
			return
		}
		if at, ok := x.places[t.private()]; ok {
			yield(&x.postings[at])
		}
	}
}

// havingSimilar yields the postings of words that have one of the forms, each once: of the words that
// a model is shown, and unless shown is set, of private ones.
func (x *Index) havingSimilar(forms []term, shown bool) iter.Seq[*posting] {
	return func(yield func(*posting) bool) {
		var seen []int32
		for _, form := range forms {
			heads := []int32{x.similar[form], 0}
			if !shown {
				heads[1] = x.similar[form.private()]
			}
			for _, next := range heads {
				for ; next > 0; next = x.links[next-1].next {
					at := x.links[next-1].posting
					if slices.Contains(seen, at) {
						continue
					}
					if seen = append(seen, at); !yield(&x.postings[at]) {
						return
					}
				}
			}
		}
	}
}

// until is how many events records up to a seq have brought.
func (x *Index) until(seq uint64) int32 {
	return int32(sort.Search(len(x.docs), func(i int) bool { return x.docs[i].seq > seq }))
}

// wordsBefore is how many words the events before one have.
func (x *Index) wordsBefore(doc int32) uint64 {
	if int(doc) == len(x.docs) {
		return x.words
	}
	return x.docs[doc].before
}
