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

// Index finds the events of one session's log by their words. It contains hashes of words, and no text. Concurrent
// searches are safe as long as no record is being added.
type Index struct {
	splitter          splitter
	seq               uint64
	docs              []doc
	regularDocs       []int32 // index in docs of each regular event, in order; an event is regular if no patch inserted it
	branchScopes      []branchScope
	branchScopeIndex  map[branchScope]int32
	words             uint64         // number of words in all docs
	termPostings      map[term]int32 // key: term; value: index in postings
	inflectedPostings map[term]int32 // key: unstemmed word; value: index in postings; words with the same stem share a posting
	postings          []posting
	formLinks         map[term]int32 // key: form; value: 1 + the index in links of the last entry for the form
	links             []link
	counts            []count // occurrences of terms in the event that is being added
	listBytes         int     // total size of the lists of all postings in bytes
}

// doc is an indexed event.
type doc struct {
	seq          uint64 // seq of the event's record
	wordsBefore  uint64 // number of words in all earlier docs
	time         int64  // Unix time in microseconds
	index        int32  // index among the events of the record
	regularIndex int32  // index in regularDocs, or -1 if the event is not regular
	branchScope  int32  // index in branchScopes
	summary      bool
	shown        bool // whether the event has text that models see
}

// branchScope is the branch and the isolation scope of an event.
type branchScope struct{ branch, scope string }

// posting lists the events that contain a term, with the number of occurrences. Most terms occur in only one event, so
// the first event is stored outside the list.
type posting struct {
	first      int32 // first event that contains the term
	last       int32
	firstCount int32 // number of occurrences in the first event
	docs       int32 // number of events that contain the term
	countIndex int32 // index in counts, if counts has an entry for this posting

	// list describes the further events in order, in varints. The first varint of an event is twice the distance from
	// the event before it, plus 1 if the term occurs only once. If the term occurs several times, a second varint has
	// the number of occurrences.
	list []byte
}

// link is an entry in a linked list of the postings whose words share a form.
type link struct {
	posting int32
	next    int32 // 1 + the index in links of the next entry, or 0
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
	return cap(x.docs)*int(unsafe.Sizeof(doc{})) + cap(x.regularDocs)*int(unsafe.Sizeof(int32(0))) + cap(x.postings)*int(unsafe.Sizeof(posting{})) + x.listBytes +
		cap(x.links)*int(unsafe.Sizeof(link{})) + (len(x.termPostings)+len(x.inflectedPostings)+len(x.formLinks))*perEntry
}

// Add adds a record, which must be newer than all records in the index. It does not index the copies of logged events
// that a patch inserted. Such copies have cleared or shortened results, or restored calls.
func (x *Index) Add(r patch.Record) {
	x.seq = r.Seq
	if x.termPostings == nil {
		x.termPostings, x.inflectedPostings, x.formLinks, x.branchScopeIndex = map[term]int32{}, map[term]int32{}, map[term]int32{}, map[branchScope]int32{}
	}
	for i, e := range r.Events() {
		summary := e.IsSummary() || r.Patch != nil && r.Patch.Type() == patch.Summarise
		if r.Patch != nil && !summary && isCopy(e) {
			continue
		}
		d := doc{seq: r.Seq, wordsBefore: x.words, time: unixMicros(e.Timestamp()), index: int32(i), regularIndex: -1, summary: summary}
		if r.Patch == nil {
			d.regularIndex = int32(len(x.regularDocs))
		}
		x.addEvent(e, d)
	}
}

func (x *Index) addEvent(e *patch.Event, d doc) {
	words := 0
	addText := func(text string, as func(term) term) {
		x.splitter.words(text, func(word []byte, _, _ int) {
			words++
			x.countTerm(x.wordPosting(word, as))
		})
		for id := range identifiers.FindAll(text) {
			x.countTerm(x.termPosting(as(identifierTerm(id))))
		}
	}
	if text := Text(e); text != "" {
		d.shown = true
		addText(text, publicTerm)
		x.splitter.words(e.Author(), func(word []byte, _, _ int) { x.countTerm(x.wordPosting(word, publicTerm)) })
	}
	if text := privateText(e); text != "" {
		addText(text, term.private)
	}
	if len(x.counts) == 0 {
		return
	}
	for _, id := range []string{e.ID(), e.InvocationID()} {
		if id != "" {
			x.countTerm(x.termPosting(identifierTerm(id)))
		}
	}
	for p := range e.FunctionParts() {
		if p.ID != "" {
			x.countTerm(x.termPosting(identifierTerm(p.ID)))
		}
		x.countTerm(x.termPosting(hashTerm(seedTool, p.Name)))
	}
	x.countTerm(x.termPosting(hashTerm(seedAuthor, e.Author())))
	for _, c := range x.counts {
		x.addToPosting(&x.postings[c.posting], int32(len(x.docs)), c.n)
	}
	x.counts = x.counts[:0]
	x.words += uint64(words)
	if d.regularIndex >= 0 {
		x.regularDocs = append(x.regularDocs, int32(len(x.docs)))
	}
	key := branchScope{e.Branch(), e.IsolationScope()}
	at, known := x.branchScopeIndex[key]
	if !known {
		at = int32(len(x.branchScopes))
		x.branchScopes = append(x.branchScopes, key)
		x.branchScopeIndex[key] = at
	}
	d.branchScope = at
	x.docs = append(x.docs, d)
}

// publicTerm returns t unchanged, as the term of a word in text that models see.
func publicTerm(t term) term { return t }

// wordPosting returns the index of a word's posting. If there is no posting for the word, it adds one.
func (x *Index) wordPosting(word []byte, as func(term) term) int32 {
	if !isInflected(word) {
		known := len(x.postings)
		at := x.termPosting(as(unstemmedTerm(word)))
		if int(at) == known {
			x.linkForms(word, at, as)
		}
		return at
	}
	own := as(unstemmedTerm(word))
	at, known := x.inflectedPostings[own]
	if !known {
		at = x.termPosting(as(stemmedTerm(word)))
		x.inflectedPostings[own] = at
		x.linkForms(word, at, as)
	}
	return at
}

// linkForms adds the posting of a new word to the linked list of each form of the word.
func (x *Index) linkForms(word []byte, at int32, as func(term) term) {
	for _, form := range forms(word) {
		form = as(form)
		x.links = append(x.links, link{at, x.formLinks[form]})
		x.formLinks[form] = int32(len(x.links))
	}
}

// termPosting returns the index of a term's posting. If there is no posting for the term, it adds one.
func (x *Index) termPosting(t term) int32 {
	at, known := x.termPostings[t]
	if !known {
		at = int32(len(x.postings))
		x.termPostings[t] = at
		x.postings = append(x.postings, posting{})
	}
	return at
}

// countTerm counts one more occurrence of a term in the event that is being added. The argument at is the index of
// the term's posting.
func (x *Index) countTerm(at int32) {
	p := &x.postings[at]
	if int(p.countIndex) >= len(x.counts) || x.counts[p.countIndex].posting != at {
		p.countIndex = int32(len(x.counts))
		x.counts = append(x.counts, count{at, 0})
	}
	x.counts[p.countIndex].n++
}

// addToPosting adds an event with n occurrences of the term to a posting.
func (x *Index) addToPosting(p *posting, doc, n int32) {
	if p.docs++; p.docs == 1 {
		p.first, p.firstCount, p.last = doc, n, doc
		return
	}
	before := cap(p.list)
	between := uint64(doc-p.last) << 1
	if n == 1 {
		p.list = binary.AppendUvarint(p.list, between|1)
	} else {
		p.list = binary.AppendUvarint(binary.AppendUvarint(p.list, between), uint64(n))
	}
	p.last = doc
	x.listBytes += cap(p.list) - before
}

// each calls f for each event of the posting before index end, with the number of occurrences.
func (p *posting) each(end int32, f func(doc, n int32)) {
	if p.first >= end {
		return
	}
	f(p.first, p.firstCount)
	doc := p.first
	for more := p.list; len(more) > 0; {
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

// each calls f for each event before index end that contains a query term, with the number of occurrences. If similar
// is set, it searches for the words that share a form with the term instead. If shown is set, it ignores text that no
// model sees. It may call f several times for the same event.
func (x *Index) each(a *queryTerm, similar, shown bool, end int32, f func(doc, n int32)) {
	if a.kind == kindDate {
		is := x.dateMatcher(a.date)
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
	for _, as := range []func(term) term{publicTerm, term.private} {
		if at, ok := x.termPostings[as(a.term)]; ok && !similar {
			post(at)
		}
		for i := 0; similar && i < len(a.forms); i++ {
			for next := x.formLinks[as(a.forms[i])]; next > 0; next = x.links[next-1].next {
				post(x.links[next-1].posting)
			}
		}
		if shown {
			return
		}
	}
}

// docsThrough returns the number of events in records up to seq.
func (x *Index) docsThrough(seq uint64) int32 {
	return int32(sort.Search(len(x.docs), func(i int) bool { return x.docs[i].seq > seq }))
}

// wordsBefore returns the number of words in the events before doc.
func (x *Index) wordsBefore(doc int32) uint64 {
	if int(doc) == len(x.docs) {
		return x.words
	}
	return x.docs[doc].wordsBefore
}
