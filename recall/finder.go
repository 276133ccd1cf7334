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

	// Hidden leaves out what the view shows, and Told what it neither shows nor tells of: see
	// [fold.Places.Told]. What was taken out by hand, by a truncation or a rewind is so left
	// out. Sees, if not nil, leaves out the events for which it is false.
	Hidden bool
	Told   bool
	Sees   func(*patch.Event) bool

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

// entry is a session's index.
type entry[K comparable] struct {
	key K

	mu       sync.RWMutex
	creation string
	index    *Index

	// Guarded by the finder's lock.
	users int
	bytes int
	at    *list.Element
}

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

// acquire returns a session's entry. The caller releases it.
func (f *Finder[K]) acquire(key K) *entry[K] {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entries[key]
	if e == nil {
		e = &entry[K]{key: key}
		e.at = f.recent.PushFront(e)
		f.entries[key] = e
	}
	f.recent.MoveToFront(e.at)
	e.users++
	return e
}

// entryBytes is about what an entry takes besides its index, with its share of the finder's map.
const entryBytes = 1 << 10

func (f *Finder[K]) release(e *entry[K]) {
	e.mu.RLock()
	bytes := entryBytes
	if e.index != nil {
		bytes += e.index.Bytes()
	}
	e.mu.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	e.users--
	if f.entries[e.key] != e {
		return
	}
	f.total += bytes - e.bytes
	e.bytes = bytes
	for at := f.recent.Back(); at != nil && (f.total > f.limit || f.limit == 0); {
		old := at.Value.(*entry[K])
		at = at.Prev()
		if old.users == 0 {
			f.drop(old)
		}
	}
}

// drop forgets an entry. Whoever uses it goes on with it. The lock is held.
func (f *Finder[K]) drop(e *entry[K]) {
	f.recent.Remove(e.at)
	delete(f.entries, e.key)
	f.total -= e.bytes
	e.bytes = 0
}

// indexed calls do with an index of all records of a view, which does not change meanwhile.
func (f *Finder[K]) indexed(ctx context.Context, in searched[K], do func(*Index) error) error {
	e, v := f.acquire(in.key), in.view
	defer f.release(e)
	for {
		e.mu.RLock()
		if e.index != nil && e.creation == v.Creation() && e.index.Seq() >= v.Seq() {
			defer e.mu.RUnlock()
			return do(e.index)
		}
		e.mu.RUnlock()
		if err := f.extend(ctx, e, v); err != nil {
			return err
		}
	}
}

// extend adds what an index lacks of a view's records.
func (f *Finder[K]) extend(ctx context.Context, e *entry[K], v fold.View) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.index == nil || e.creation != v.Creation() {
		e.index, e.creation = new(Index), v.Creation()
	}
	if e.index.Seq() >= v.Seq() {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for some := range f.read(ctx, e.key, v, e.index.Seq()+1) {
		if some.err != nil {
			return some.err
		}
		for _, r := range some.records {
			e.index.Add(r)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if at := e.index.Seq(); at < v.Seq() {
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
// it returns true; an error that comes with keys ends the search.
func (f *Finder[K]) SearchAll(ctx context.Context, keys iter.Seq2[K, error], skip func(K, error) bool, s Search) ([]Hit[K], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Limit == 0 {
		s.Limit = DefaultLimit
	}
	terms := Parse(s.Query)
	if terms.IsZero() {
		return nil, nil
	}
	var in []searched[K]
	var stats Stats
	for key, err := range keys {
		if err != nil {
			return nil, err
		}
		session := searched[K]{key: key}
		own, err := f.stats(ctx, &session, s, terms)
		if err != nil {
			if !skip(key, err) {
				return nil, err
			}
			continue
		}
		stats.Add(own)
		if own.finds(terms) {
			in = append(in, session)
		}
	}
	var hits []Hit[K]
	for _, session := range in {
		own, err := f.search(ctx, session, s, terms, stats)
		if err != nil {
			if !skip(session.key, err) {
				return nil, err
			}
			continue
		}
		hits = append(hits, own...)
		slices.SortStableFunc(hits, func(a, b Hit[K]) int { return cmp.Compare(b.Score, a.Score) })
		hits = hits[:min(len(hits), s.Limit)]
	}
	for i := range hits {
		hits[i].Snippet = SnippetOf(hits[i].Event, terms, s.Snippet)
	}
	return hits, nil
}

// searched is a session, and the view of it that is searched.
type searched[K comparable] struct {
	key  K
	view fold.View
}

// stats gets the session's view, and the figures of its log.
func (f *Finder[K]) stats(ctx context.Context, in *searched[K], s Search, terms Terms) (own Stats, err error) {
	if s.On != nil {
		in.view = *s.On
	} else if in.view, err = f.log.View(ctx, in.key); err != nil {
		return Stats{}, err
	}
	err = f.indexed(ctx, *in, func(x *Index) error {
		own = x.Stats(terms, in.view.Seq())
		return nil
	})
	return own, err
}

// So many of an index's matches are looked up in the log at a time.
const lookUp = 32

// search finds the best events of one session.
func (f *Finder[K]) search(ctx context.Context, in searched[K], s Search, terms Terms, stats Stats) (hits []Hit[K], err error) {
	known := &placed[K]{log: f.log, key: in.key, view: in.view}
	err = f.indexed(ctx, in, func(x *Index) error {
		var some []Match
		judge := func() (err error) {
			hits, err = known.hits(ctx, some, s, hits)
			some = some[:0]
			return err
		}
		for m := range x.Search(terms, s.Filter, in.view.Seq(), stats) {
			if some = append(some, m); len(some) == lookUp {
				if err := judge(); err != nil || len(hits) == s.Limit {
					return err
				}
			}
		}
		return judge()
	})
	return hits, err
}

// placed is a view, with records of its log at hand.
type placed[K comparable] struct {
	log     Log[K]
	key     K
	view    fold.View
	records map[uint64]patch.Record
	places  *fold.Places
}

// read gets records that are not at hand.
func (p *placed[K]) read(ctx context.Context, seqs []uint64) error {
	if p.records == nil {
		p.records = map[uint64]patch.Record{}
	}
	var lacking []uint64
	for _, seq := range seqs {
		if _, has := p.records[seq]; !has {
			lacking = append(lacking, seq)
		}
	}
	slices.Sort(lacking)
	lacking = slices.Compact(lacking)
	if len(lacking) == 0 {
		return nil
	}
	records, err := p.log.Records(ctx, p.key, p.view, lacking)
	for _, r := range records {
		p.records[r.Seq] = r
	}
	return err
}

// hits appends those of the matches that are looked for, as far as the limit.
func (p *placed[K]) hits(ctx context.Context, matches []Match, s Search, hits []Hit[K]) ([]Hit[K], error) {
	seqs := make([]uint64, len(matches))
	for i, m := range matches {
		seqs[i] = m.Seq
	}
	if err := p.read(ctx, seqs); err != nil {
		return hits, err
	}
	for _, m := range matches {
		hit, ok, err := p.hit(ctx, m, s)
		if err != nil || len(hits) == s.Limit {
			return hits, err
		}
		if ok {
			hits = append(hits, hit)
		}
	}
	return hits, nil
}

// hit returns what was found, and whether it is what is looked for.
func (p *placed[K]) hit(ctx context.Context, m Match, s Search) (hit Hit[K], ok bool, err error) {
	events := p.records[m.Seq].Events()
	if m.Index >= len(events) {
		return hit, false, fmt.Errorf("record %d has no event %d, which was found in it", m.Seq, m.Index)
	}
	hit = Hit[K]{Key: p.key, Seq: m.Seq, Index: m.Index, Event: events[m.Index], Summary: m.Summary, Score: m.Score}
	if s.Sees != nil && !s.Sees(hit.Event) {
		return hit, false, nil
	}
	var there, told bool
	err = p.ask(ctx, func(places *fold.Places) (err error) {
		hit.Place, there = places.Of(m.Seq, m.Index)
		if s.Told {
			told, err = places.Told(m.Seq, m.Index, hit.Event)
		}
		return err
	})
	ok = there && !(s.Hidden && hit.Place.Visible()) && (told || !s.Told)
	return hit, ok, err
}

// ask asks where events of the view's log are, and gives the view what it needs to answer.
func (p *placed[K]) ask(ctx context.Context, question func(*fold.Places) error) (err error) {
	for {
		if p.places == nil {
			p.places, err = p.view.Places()
		}
		if err == nil {
			err = question(p.places)
		}
		var need *fold.NeedError
		switch {
		case !errors.As(err, &need):
			return err
		case need.Log:
			p.view, err = p.log.Whole(ctx, p.key, p.view)
		default:
			if err = p.read(ctx, need.Seqs); err == nil {
				at := make([]patch.Record, 0, len(p.records))
				for _, r := range p.records {
					at = append(at, r)
				}
				p.view, p.places = p.view.With(at), nil
			}
		}
		if err != nil {
			return err
		}
	}
}
