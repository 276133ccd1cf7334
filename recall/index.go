package recall

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"
	"unsafe"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
)

// Index finds the events of one session's log by their words. It contains hashes of words and no text. Concurrent
// searches are safe while no record is added.
type Index struct {
	splitter  splitter
	seq       uint64
	docs      []doc
	line      []int32 // the docs that are regular events, in their order
	lanes     []lane
	laneOf    map[lane]int32
	words     uint64         // of all docs
	places    map[term]int32 // in postings
	inflected map[term]int32 // in postings, by words as they are written; words with one stem share a posting
	postings  []posting
	similar   map[term]int32 // by the forms of words: the last of their links
	links     []link
	counts    []count // of the event that is being added
	more      int     // bytes in the postings' lists
}

// doc is an indexed event.
type doc struct {
	seq     uint64 // of its record
	before  uint64 // words of all events before it
	time    int64  // Unix time in microseconds
	index   int32  // among the events of its record
	line    int32  // index in line, or -1 if the event is not regular
	lane    int32  // in lanes
	summary bool
	shown   bool // it has text that a model is shown
}

// lane is the branch and the isolation scope that events belong to.
type lane struct{ branch, scope string }

// posting lists the events that have a term, and how often. Most terms have one event, so the first one is not
// in the list.
type posting struct {
	first  int32 // event
	last   int32
	firstN int32  // occurrences in the first event
	docs   int32  // number of events
	count  int32  // index in counts, if it is there
	more   []byte // of each other event, as varints: twice the distance from the event before, plus 1 if it has the term once; else also the occurrences
}

// link is an entry in the list of the postings of words that share a form.
type link struct {
	posting int32
	next    int32 // 1 + its place in links, or 0
}

// count is the number of occurrences of a term in the event that is being added.
type count struct {
	posting, n int32
}

// Seq returns the seq of the newest record in the index, or 0.
func (x *Index) Seq() uint64 { return x.seq }

// Bytes estimates the memory of the index.
func (x *Index) Bytes() int {
	const perEntry = 24 // of a map, whose slots are not all in use
	return cap(x.docs)*int(unsafe.Sizeof(doc{})) + cap(x.line)*int(unsafe.Sizeof(int32(0))) + cap(x.postings)*int(unsafe.Sizeof(posting{})) + x.more +
		cap(x.links)*int(unsafe.Sizeof(link{})) + (len(x.places)+len(x.inflected)+len(x.similar))*perEntry
}

// Add adds a record, which must be newer than all records of the index. If a patch inserts copies of logged events
// (with cleared or shortened results, or as restored calls), Add leaves the copies out.
func (x *Index) Add(r patch.Record) {
	x.seq = r.Seq
	if x.places == nil {
		x.places, x.inflected, x.similar, x.laneOf = map[term]int32{}, map[term]int32{}, map[term]int32{}, map[lane]int32{}
	}
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
		x.splitter.words(text, func(word []byte, _, _ int) {
			words++
			x.count(x.placeOfWord(word, as))
		})
		for id := range identifiers.FindAll(text) {
			x.count(x.place(as(identifierTerm(id))))
		}
	}
	if said := Text(e); said != "" {
		d.shown = true
		say(said, public)
		x.splitter.words(e.Author(), func(word []byte, _, _ int) { x.count(x.placeOfWord(word, public)) })
	}
	if said := privateText(e); said != "" {
		say(said, term.private)
	}
	if len(x.counts) == 0 {
		return
	}
	for _, id := range []string{e.ID(), e.InvocationID()} {
		if id != "" {
			x.count(x.place(identifierTerm(id)))
		}
	}
	for p := range e.FunctionParts() {
		if p.ID != "" {
			x.count(x.place(identifierTerm(p.ID)))
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
		at = int32(len(x.lanes))
		x.lanes = append(x.lanes, of)
		x.laneOf[of] = at
	}
	d.lane = at
	x.docs = append(x.docs, d)
}

// public is the term for text that a model is shown.
func public(t term) term { return t }

// placeOfWord returns the index of the posting of a word.
func (x *Index) placeOfWord(word []byte, as func(term) term) int32 {
	if !inflects(word) {
		known := len(x.postings)
		at := x.place(as(written(word)))
		if int(at) == known {
			x.link(word, at, as)
		}
		return at
	}
	own := as(written(word))
	at, known := x.inflected[own]
	if !known {
		at = x.place(as(termOfWord(word)))
		x.inflected[own] = at
		x.link(word, at, as)
	}
	return at
}

// link adds the posting of a new word to the lists of the word's forms.
func (x *Index) link(word []byte, at int32, as func(term) term) {
	for _, form := range forms(word) {
		form = as(form)
		x.links = append(x.links, link{at, x.similar[form]})
		x.similar[form] = int32(len(x.links))
	}
}

// place returns the index of the posting of a term, and adds the posting if there is none.
func (x *Index) place(t term) int32 {
	at, known := x.places[t]
	if !known {
		at = int32(len(x.postings))
		x.places[t] = at
		x.postings = append(x.postings, posting{})
	}
	return at
}

// count counts an occurrence of the term of a posting in the event that is being added.
func (x *Index) count(at int32) {
	p := &x.postings[at]
	if int(p.count) >= len(x.counts) || x.counts[p.count].posting != at {
		p.count = int32(len(x.counts))
		x.counts = append(x.counts, count{at, 0})
	}
	x.counts[p.count].n++
}

// post adds an event with n occurrences to a posting.
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

// each calls f with the events before end and the occurrences in them.
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

// each calls f with the events before end that a term of a query matches, and the occurrences in them; if similar is
// set, it matches words that share a form. shown leaves out text that no model is shown. each may call f more
// than once for an event.
func (x *Index) each(a *queryTerm, similar, shown bool, end int32, f func(doc, n int32)) {
	if a.kind == day {
		is := x.dated(a.date)
		for doc := range end {
			if is(doc) {
				f(doc, 1)
			}
		}
		return
	}
	var seen []int32
	post := func(at int32) {
		if !slices.Contains(seen, at) {
			seen = append(seen, at)
			x.postings[at].each(end, f)
		}
	}
	for _, as := range []func(term) term{public, term.private} {
		if at, ok := x.places[as(a.term)]; ok && !similar {
			post(at)
		}
		for i := 0; similar && i < len(a.forms); i++ {
			for next := x.similar[as(a.forms[i])]; next > 0; next = x.links[next-1].next {
				post(x.links[next-1].posting)
			}
		}
		if shown {
			return
		}
	}
}

// until returns the number of events of records up to a seq.
func (x *Index) until(seq uint64) int32 {
	return int32(sort.Search(len(x.docs), func(i int) bool { return x.docs[i].seq > seq }))
}

// wordsBefore returns the number of words of the events before one.
func (x *Index) wordsBefore(doc int32) uint64 {
	if int(doc) == len(x.docs) {
		return x.words
	}
	return x.docs[doc].before
}
