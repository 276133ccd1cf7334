package recall

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Log is what a [Finder] reads: sessions, each named by a key. Its methods may be called from any
// number of goroutines.
type Log[K comparable] interface {
	// View returns the newest view of a session.
	View(ctx context.Context, key K) (fold.View, error)

	// Whole returns a view that is equal to one that the log gave, and knows what all patches
	// before it did.
	Whole(ctx context.Context, key K, v fold.View) (fold.View, error)

	// RecordsFrom yields the records of the log that a view is of, from a seq on, at least as
	// far as the view reaches. It ends with an error if the session is another one by now.
	RecordsFrom(ctx context.Context, key K, v fold.View, from uint64) iter.Seq2[patch.Record, error]

	// Records returns the records with the given seqs, which ascend, of the log that a view
	// is of.
	Records(ctx context.Context, key K, v fold.View, seqs []uint64) ([]patch.Record, error)
}

// DefaultMaxBytes is how much memory the indexes of a [Finder] take unless it is said
// otherwise.
const DefaultMaxBytes = 128 << 20

// Limits of a [Search].
const (
	DefaultLimit = 10
	MaxLimit     = 1000
)

// Search says what to look for in a session, and where.
type Search struct {
	Query string // see [Parse]
	Filter

	// On is the view that is searched: its records, and no later ones. nil means the newest.
	On *fold.View

	// Hidden leaves out what the view shows.
	Hidden bool

	// Told leaves out what a model would not be shown if nothing had been compacted: what the view
	// neither shows nor tells of ([fold.Places.Told]), as it was taken out by hand, by a truncation
	// or a rewind; and what [Filter.Shown] leaves out. Sees, if not nil, leaves out the events of
	// branches and isolation scopes for which it is false; it must not search itself. What is left
	// out by these does not help what stands beside it either.
	Told bool
	Sees func(branch, scope string) bool

	Limit   int // how many to find at most; 0 means [DefaultLimit], and [MaxLimit] is the most
	Snippet int // how many characters of each to return; 0 means [DefaultSnippetRunes]
}

// Validate reports whether the search makes sense. The error matches [patch.ErrInvalid] and
// names the field.
func (s Search) Validate() error {
	bad := func(field, format string, args ...any) error {
		return &patch.FieldError{Field: "Search." + field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Limit < 0 || s.Limit > MaxLimit:
		return bad("Limit", "%d is not between 0 and %d", s.Limit, MaxLimit)
	case s.Snippet < 0:
		return bad("Snippet", "%d is below 0", s.Snippet)
	case s.To > 0 && s.From > s.To:
		return bad("From", "%d is above To, which is %d", s.From, s.To)
	case !s.Until.IsZero() && s.Until.Before(s.Since):
		return bad("Since", "%v is after Until, which is %v", s.Since, s.Until)
	}
	return nil
}

// Hit is an event that was found.
type Hit[K comparable] struct {
	Key     K
	Seq     uint64       // of the record that brought it
	Index   int          // among the events that the record brought; 0 but for some of a patch's
	Event   *patch.Event // as it was logged
	Summary bool         // it is a summary
	Score   float64      // the higher the better; of use within one search alone
	Snippet Snippet
	Place   fold.Place // where the view shows it, or what hides it
}

// Finder searches the sessions of a log. It indexes a session when that is searched for the first
// time, and what was appended since when it is searched again; it keeps the indexes that were
// used last. It is safe for use by any number of goroutines.
type Finder[K comparable] struct {
	log   Log[K]
	limit int

	mu      sync.Mutex
	total   int
	entries map[K]*entry[K]
	recent  *list.List // of entries, the last used first
}

// entry is a session's index. Whoever uses it holds its lock.
type entry[K comparable] struct {
	key      K
	lock     chan struct{} // holds a value while it is locked
	creation string
	index    *Index

	// Guarded by the finder's lock.
	users int
	bytes int
	at    *list.Element
}

func newEntry[K comparable](key K) *entry[K] {
	return &entry[K]{key: key, lock: make(chan struct{}, 1)}
}

// entryBytes is about what an entry takes besides its index, with its share of the finder's map.
const entryBytes = 1 << 10

// NewFinder returns a finder over a log, whose indexes take about so many bytes of memory at
// most while they are not in use: 0 means [DefaultMaxBytes], and below 0 none is kept.
func NewFinder[K comparable](log Log[K], maxBytes int) *Finder[K] {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	return &Finder[K]{log: log, limit: max(maxBytes, 0), entries: map[K]*entry[K]{}, recent: list.New()}
}

// Forget drops the index of a session, if there is one.
func (f *Finder[K]) Forget(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[key]; e != nil {
		f.drop(e)
	}
}

// Bytes is about how many bytes of memory the indexes take that are kept.
func (f *Finder[K]) Bytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// acquire returns a session's entry, which is kept until the caller releases it.
func (f *Finder[K]) acquire(key K) *entry[K] {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entries[key]
	if e == nil {
		e = newEntry(key)
		e.at = f.recent.PushFront(e)
		f.entries[key] = e
	}
	f.recent.MoveToFront(e.at)
	e.users++
	return e
}

func (f *Finder[K]) release(e *entry[K]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.users--
	for at := f.recent.Back(); at != nil && (f.total > f.limit || f.limit == 0); {
		old := at.Value.(*entry[K])
		at = at.Prev()
		if old.users == 0 {
			f.drop(old)
		}
	}
}

// resize notes how much an entry takes. Its own lock is held.
func (f *Finder[K]) resize(e *entry[K]) {
	bytes := entryBytes + e.index.Bytes()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[e.key] == e { // else it was forgotten
		f.total += bytes - e.bytes
		e.bytes = bytes
	}
}

// drop forgets an entry. Whoever uses it goes on with it. The lock is held.
func (f *Finder[K]) drop(e *entry[K]) {
	f.recent.Remove(e.at)
	delete(f.entries, e.key)
	f.total -= e.bytes
	e.bytes = 0
}

// locked calls do with an entry locked.
func (e *entry[K]) locked(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.lock }()
	return do()
}

// apart returns an entry for a view that a search names: another one, of nobody else's, if the
// entry is of another creation of the session, which goes on being searched.
func (f *Finder[K]) apart(ctx context.Context, e *entry[K], v fold.View) (*entry[K], error) {
	own := e
	err := e.locked(ctx, func() error {
		if e.index != nil && e.creation != v.Creation() {
			own = newEntry(e.key)
		}
		return nil
	})
	return own, err
}

// indexed calls do with an index of all records of a view.
func (f *Finder[K]) indexed(ctx context.Context, e *entry[K], v fold.View, do func(*Index) error) error {
	return e.locked(ctx, func() error {
		if e.index == nil || e.creation != v.Creation() {
			e.index, e.creation = new(Index), v.Creation()
		}
		err := f.extend(ctx, e.index, e.key, v)
		f.resize(e)
		if err != nil {
			return err
		}
		return do(e.index)
	})
}

// extend adds what an index lacks of a view's records.
func (f *Finder[K]) extend(ctx context.Context, x *Index, key K, v fold.View) error {
	if x.Seq() >= v.Seq() {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for some := range f.read(ctx, key, v, x.Seq()+1) {
		if some.err != nil {
			return some.err
		}
		for _, r := range some.records {
			x.Add(r)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if at := x.Seq(); at < v.Seq() {
		return fmt.Errorf("the log ends at record %d, before the view's %d", at, v.Seq())
	}
	return nil
}

// batch is records that were read, or why no more were.
type batch struct {
	records []patch.Record
	err     error
}

// batchRecords is how many records are handed over at a time.
const batchRecords = 256

// read reads records in a goroutine of its own, since indexing takes about as long. It ends when
// the context does.
func (f *Finder[K]) read(ctx context.Context, key K, v fold.View, from uint64) <-chan batch {
	out := make(chan batch, 4)
	go func() {
		defer close(out)
		send := func(b batch) bool {
			select {
			case out <- b:
				return true
			case <-ctx.Done():
				return false
			}
		}
		var some []patch.Record
		for r, err := range f.log.RecordsFrom(ctx, key, v, from) {
			if err != nil {
				send(batch{err: err})
				return
			}
			if some = append(some, r); len(some) == batchRecords {
				if !send(batch{records: some}) {
					return
				}
				some = nil
			}
		}
		send(batch{records: some})
	}()
	return out
}

// Search returns the events of a session that the query finds, the best first. What it finds is a
// function of the search and of the view's records, however the index came about. Errors are the
// log's, or that of [Search.Validate].
func (f *Finder[K]) Search(ctx context.Context, key K, s Search) ([]Hit[K], error) {
	one := func(yield func(K, error) bool) { yield(key, nil) }
	return f.SearchAll(ctx, one, func(K, error) bool { return false }, s)
}

// SearchAll is Search over several sessions, whose events are ranked together; the field On must
// be nil. Of a session that cannot be read skip is told the error, and the session is left out if
// it returns true; an error that comes with keys ends the search. Indexes that fit into the finder's
// bound are made once, others twice.
func (f *Finder[K]) SearchAll(ctx context.Context, keys iter.Seq2[K, error], skip func(K, error) bool, s Search) ([]Hit[K], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Limit == 0 {
		s.Limit = DefaultLimit
	}
	s.Shown = s.Shown || s.Told
	terms := Parse(s.Query)
	if terms.IsZero() {
		return nil, nil
	}
	var in []*entry[K] // of sessions that have anything of what is asked for; they are kept for the second look
	defer func() {
		for _, e := range in {
			f.release(e)
		}
	}()
	held := 0
	var stats Stats
	for key, err := range keys {
		if err != nil {
			return nil, err
		}
		e, own, err := f.begin(ctx, key, s, terms)
		if err != nil {
			if !skip(key, err) {
				return nil, err
			}
			continue
		}
		stats.Add(own)
		size := f.sizeOf(e)
		switch {
		case !own.finds(terms):
			f.release(e)
		case len(in) > 0 && held+size > f.limit:
			f.release(e)
			in = append(in, newEntry(key)) // in its place, until it is its turn
		default:
			held += size
			in = append(in, e)
		}
	}
	var hits []Hit[K]
	for i, e := range in {
		if e.index == nil {
			e = f.acquire(e.key)
			in[i] = e
		}
		own, err := f.search(ctx, e, s, terms, stats)
		if err != nil {
			if !skip(e.key, err) {
				return nil, err
			}
			continue
		}
		hits = append(hits, own...)
		slices.SortStableFunc(hits, func(a, b Hit[K]) int { return cmp.Compare(b.Score, a.Score) })
		hits = hits[:min(len(hits), s.Limit)]
	}
	for i := range hits {
		hits[i].Snippet = SnippetOf(hits[i].Event, terms, s.Snippet, s.Shown)
	}
	return hits, nil
}

// begin gets a session's entry, which the caller releases, and the figures of its log.
func (f *Finder[K]) begin(ctx context.Context, key K, s Search, terms Terms) (e *entry[K], own Stats, err error) {
	e = f.acquire(key)
	if s.On != nil {
		var apart *entry[K]
		if apart, err = f.apart(ctx, e, *s.On); apart != e {
			f.release(e)
			e = apart
		}
	}
	if err == nil {
		err = f.look(ctx, e, s, func(x *Index, v fold.View) error {
			own = x.Stats(terms, v.Seq(), s.Shown)
			return nil
		})
	}
	if err != nil {
		f.release(e)
	}
	return e, own, err
}

func (f *Finder[K]) sizeOf(e *entry[K]) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return e.bytes
}

// look calls do with the index of an entry and the view that is searched.
func (f *Finder[K]) look(ctx context.Context, e *entry[K], s Search, do func(*Index, fold.View) error) (err error) {
	var v fold.View
	if s.On != nil {
		v = *s.On
	} else if v, err = f.log.View(ctx, e.key); err != nil {
		return err
	}
	return f.indexed(ctx, e, v, func(x *Index) error { return do(x, v) })
}

// search finds the best events of one session.
func (f *Finder[K]) search(ctx context.Context, e *entry[K], s Search, terms Terms, stats Stats) (hits []Hit[K], err error) {
	var p *placed[K]
	err = f.look(ctx, e, s, func(x *Index, v fold.View) error {
		p = &placed[K]{log: f.log, key: e.key, view: v, told: map[hidden]bool{}}
		if p.err = p.place(ctx); p.err != nil {
			return p.err
		}
		for m := range x.Search(terms, s.Filter, v.Seq(), stats, p.only(ctx, s)) {
			place, there := p.places.Of(m.Seq, m.Index) // unless a skipped patch was to put it in
			if !there || s.Hidden && place.Visible() {
				continue
			}
			hits = append(hits, Hit[K]{Key: e.key, Seq: m.Seq, Index: m.Index, Summary: m.Summary, Score: m.Score, Place: place})
			if len(hits) == s.Limit || p.err != nil {
				break
			}
		}
		return p.err
	})
	if err != nil {
		return nil, err
	}
	return p.complete(ctx, hits)
}

// placed is a view, with what is known of the places of its log's events.
type placed[K comparable] struct {
	log     Log[K]
	key     K
	view    fold.View
	places  *fold.Places
	records []patch.Record // at hand, for the places
	told    map[hidden]bool
	err     error // why a question could not be answered
}

// hidden is what is hidden alike.
type hidden struct {
	by            uint64
	branch, scope string
}

// only returns what leaves out events that must not count, or nil if all do.
func (p *placed[K]) only(ctx context.Context, s Search) func(Doc) bool {
	if !s.Told && s.Sees == nil {
		return nil
	}
	return func(d Doc) bool {
		if p.err != nil || s.Sees != nil && !s.Sees(d.Branch, d.Scope) {
			return false
		}
		if !s.Told {
			return true
		}
		place, there := p.places.Of(d.Seq, d.Index)
		if !there || place.Visible() {
			return there
		}
		alike := hidden{place.HiddenBySeq, d.Branch, d.Scope}
		told, known := p.told[alike]
		if !known {
			told, p.err = p.isTold(ctx, d)
			p.told[alike] = told
		}
		return told
	}
}

// place finds out the places of the log's events.
func (p *placed[K]) place(ctx context.Context) (err error) {
	if p.places, err = p.view.Places(); errors.As(err, new(*fold.NeedError)) {
		if p.view, err = p.log.Whole(ctx, p.key, p.view); err == nil {
			p.places, err = p.view.Places()
		}
	}
	return err
}

// isTold asks whether an event is told of, and hands in the patches that it takes to answer.
func (p *placed[K]) isTold(ctx context.Context, d Doc) (bool, error) {
	for {
		told, err := p.places.Told(d.Seq, d.Index, d.Branch, d.Scope)
		var need *fold.NeedError
		if !errors.As(err, &need) {
			return told, err
		}
		lacking := slices.DeleteFunc(need.Seqs, func(seq uint64) bool {
			return slices.ContainsFunc(p.records, func(r patch.Record) bool { return r.Seq == seq })
		})
		if len(lacking) == 0 {
			return false, err
		}
		more, err := p.log.Records(ctx, p.key, p.view, lacking)
		if err == nil && len(more) != len(lacking) {
			err = fmt.Errorf("the log gave %d records for %d, from record %d on", len(more), len(lacking), lacking[0])
		}
		if err != nil {
			return false, err
		}
		for i := range more {
			if more[i].Seq != lacking[i] {
				return false, fmt.Errorf("the log gave record %d in place of record %d", more[i].Seq, lacking[i])
			}
		}
		p.records = append(p.records, more...)
		p.places = p.places.With(p.records)
	}
}

// complete gives what was found its events.
func (p *placed[K]) complete(ctx context.Context, hits []Hit[K]) ([]Hit[K], error) {
	if len(hits) == 0 {
		return nil, nil
	}
	seqs := make([]uint64, len(hits))
	for i, h := range hits {
		seqs[i] = h.Seq
	}
	slices.Sort(seqs)
	records, err := p.log.Records(ctx, p.key, p.view, slices.Compact(seqs))
	if err != nil {
		return nil, err
	}
	events := map[uint64][]*patch.Event{}
	for _, r := range records {
		events[r.Seq] = r.Events()
	}
	for i := range hits {
		h := &hits[i]
		if h.Index >= len(events[h.Seq]) {
			return nil, fmt.Errorf("record %d has no event %d, which was found in it", h.Seq, h.Index)
		}
		h.Event = events[h.Seq][h.Index]
	}
	return hits, nil
}
