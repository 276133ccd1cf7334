package recall

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
)

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
	// neither shows nor represents ([fold.Places.Represented]), as it was taken out by hand, by a truncation
	// or a rewind; and what [Filter.Shown] leaves out. Sees, if not nil, leaves out the events of
	// branches and isolation scopes for which it is false; it must not search itself. What is left
	// out by these does not help what stands beside it either.
	Told bool
	Sees func(branch, scope string) bool

	// Redact, if not nil, replaces secrets by placeholders in the events and snippets that are found.
	// It does not change which events are found: a caller that searches for a secret learns its position.
	Redact *redact.Redactor

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
	Event   *patch.Event // as it was logged, or redacted
	Summary bool         // it is a summary
	Score   float64      // the higher the better; of use within one search alone
	Snippet Snippet
	Place   fold.Place // where the view shows it, or what hides it
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
	for i, h := range hits {
		var err error
		if hits[i].Event, err = s.Redact.Event(h.Event); err != nil {
			return nil, fmt.Errorf("redact what was found: %w", err)
		}
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
		if err := p.place(); err != nil {
			return err
		}
		for m := range x.Search(terms, s.Filter, v.Seq(), stats, p.only(s)) {
			place, there := p.places.Of(m.Seq, m.Index) // unless a skipped patch was to put it in
			if !there || s.Hidden && place.Index >= 0 {
				continue
			}
			hits = append(hits, Hit[K]{Key: e.key, Seq: m.Seq, Index: m.Index, Summary: m.Summary, Score: m.Score, Place: place})
			if len(hits) == s.Limit {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p.complete(ctx, hits)
}
