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
	line      []int32 // the docs of regular events, in order
	lanes     []lane
	laneOf    map[lane]int32
	words     uint64         // number of words in all docs
	places    map[term]int32 // index in postings
	inflected map[term]int32 // index in postings, by unstemmed word; words with the same stem share a posting
	postings  []posting
	similar   map[term]int32 // by form: 1 + index in links of the form's last entry
	links     []link
	counts    []count // of the event that is being added
	more      int     // total size of the postings' lists in bytes
}

// doc is an indexed event.
type doc struct {
	seq     uint64 // seq of its record
	before  uint64 // number of words in all earlier docs
	time    int64  // Unix time in microseconds
	index   int32  // index among the events of its record
	line    int32  // index in line, or -1 if the event is not regular
	lane    int32  // index in lanes
	summary bool
	shown   bool // the event has text that models see
}

// lane is the branch and the isolation scope of events.
type lane struct{ branch, scope string }

// posting lists the events that contain a term, with the number of occurrences. Most terms occur in only one event, so
// the first event is stored outside the list.
type posting struct {
	first  int32 // the first event
	last   int32
	firstN int32  // number of occurrences in the first event
	docs   int32  // number of events
	count  int32  // index in counts, if counts has an entry for this posting
	more   []byte // varints for each further event: twice the distance from the previous event, plus 1 if the term occurs once; otherwise followed by the number of occurrences
}

// link is an entry in a linked list of the postings whose words share a form.
type link struct {
	posting int32
	next    int32 // 1 + index in links of the next entry, or 0
}

// count is the number of occurrences of a term in the event that is being added.
type count struct {
	posting, n int32
}

// Seq returns the seq of the newest record in the index, or 0.
func (x *Index) Seq() uint64 { return x.seq }

// Bytes estimates the memory that the index uses.
func (x *Index) Bytes() int {
	const perEntry = 24 // bytes of a map entry, including unused slots
	return cap(x.docs)*int(unsafe.Sizeof(doc{})) + cap(x.line)*int(unsafe.Sizeof(int32(0))) + cap(x.postings)*int(unsafe.Sizeof(posting{})) + x.more +
		cap(x.links)*int(unsafe.Sizeof(link{})) + (len(x.places)+len(x.inflected)+len(x.similar))*perEntry
}

// Add adds a record, which must be newer than all records in the index. It omits copies of logged events that a patch
// inserted. Such copies have cleared or shortened results, or restored calls.
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

// public returns the term for text that models see.
func public(t term) term { return t }

// placeOfWord returns the index of a word's posting, and adds the posting if there is none.
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

// link adds the posting of a new word to the list of each of the word's forms.
func (x *Index) link(word []byte, at int32, as func(term) term) {
	for _, form := range forms(word) {
		form = as(form)
		x.links = append(x.links, link{at, x.similar[form]})
		x.similar[form] = int32(len(x.links))
	}
}

// place returns the index of a term's posting, and adds the posting if there is none.
func (x *Index) place(t term) int32 {
	at, known := x.places[t]
	if !known {
		at = int32(len(x.postings))
		x.places[t] = at
		x.postings = append(x.postings, posting{})
	}
	return at
}

// count counts one more occurrence of a term in the event that is being added. The argument is the index of the term's
// posting.
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

// each calls f for each event before the index end, with the number of occurrences.
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

// each calls f for each event before the index end that matches a query term, with the number of occurrences. If
// similar is set, it matches the words that share a form with the term instead. If shown is set, it ignores text that
// no model sees. each may call f several times for one event.
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

// until returns the number of events in records up to seq.
func (x *Index) until(seq uint64) int32 {
	return int32(sort.Search(len(x.docs), func(i int) bool { return x.docs[i].seq > seq }))
}

// wordsBefore returns the number of words in the events before doc.
func (x *Index) wordsBefore(doc int32) uint64 {
	if int(doc) == len(x.docs) {
		return x.words
	}
	return x.docs[doc].before
}
