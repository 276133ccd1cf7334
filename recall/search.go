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

// Default and maximum limits of a [Search].
const (
	DefaultLimit = 10
	MaxLimit     = 1000
)

// Search is a query over a session with filters.
type Search struct {
	Query string // see [Parse]
	Filter

	// View limits the search to the records of this view. nil means the newest view.
	View *fold.View

	// Hidden excludes visible events.
	Hidden bool

	// Represented excludes events that a model would not see even without compaction, because a user cut, truncated or
	// rewound them. Such events are not visible, and no visible event such as a summary represents them
	// ([fold.Places.IsRepresented]). Represented also implies [Filter.ShownToModel].
	//
	// Sees, if not nil, excludes the events of the branches and isolation scopes for which it returns false. It must
	// not call the Finder. Events that Represented or Sees excludes do not raise the scores of neighbours.
	Represented bool
	Sees        func(branch, scope string) bool

	// Redact, if not nil, replaces secrets with placeholders in the events and snippets of hits. It does not affect
	// which events match, so a caller who searches for a secret learns where it occurs.
	Redact *redact.Redactor

	Limit   int // maximum number of hits, at most [MaxLimit]; 0 means [DefaultLimit]
	Snippet int // maximum length of a snippet in characters; 0 means [DefaultSnippetRunes]
}

// Validate checks the fields. The error matches [patch.ErrInvalid] and names the invalid field.
func (s Search) Validate() error {
	invalid := func(field, format string, args ...any) error {
		return &patch.FieldError{Field: "Search." + field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Limit < 0 || s.Limit > MaxLimit:
		return invalid("Limit", "%d is not between 0 and %d", s.Limit, MaxLimit)
	case s.Snippet < 0:
		return invalid("Snippet", "%d is below 0", s.Snippet)
	case s.To > 0 && s.From > s.To:
		return invalid("From", "%d is above To, which is %d", s.From, s.To)
	case !s.Until.IsZero() && s.Until.Before(s.Since):
		return invalid("Since", "%v is after Until, which is %v", s.Since, s.Until)
	}
	return nil
}

// Hit is an event that a [Finder] found.
type Hit[K comparable] struct {
	Key     K            `json:"key"`
	Seq     uint64       `json:"seq"`            // seq of the event's record
	Index   int          `json:"index"`          // index among the events of the record; above 0 only in patches
	Event   *patch.Event `json:"event,omitzero"` // the event as logged, or redacted
	Summary bool         `json:"summary"`        // whether the event is a summary
	Score   float64      `json:"score"`          // a higher score is better; comparable only within one search
	Snippet Snippet      `json:"snippet"`
	Place   fold.Place   `json:"place"` // visible index of the event, or the patch that hides the event
}

// Search returns the events of a session that match the query, best first. The result depends only on s and the view's
// records, not on the state of the cache. Errors come from the log or [Search.Validate].
func (f *Finder[K]) Search(ctx context.Context, key K, s Search) ([]Hit[K], error) {
	one := func(yield func(K, error) bool) { yield(key, nil) }
	return f.SearchAll(ctx, one, func(K, error) bool { return false }, s)
}

// SearchAll searches several sessions and ranks their events together. s.View must be nil. If a session cannot be read,
// SearchAll calls skip with the error. If skip returns true, the session is left out. Otherwise the search ends with the
// error. If keys yields an error, the search ends too. If the indexes exceed the finder's memory limit, SearchAll builds
// some indexes twice: once to count words, and once to rank.
func (f *Finder[K]) SearchAll(ctx context.Context, keys iter.Seq2[K, error], skip func(K, error) bool, s Search) ([]Hit[K], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Limit == 0 {
		s.Limit = DefaultLimit
	}
	s.ShownToModel = s.ShownToModel || s.Represented
	terms := Parse(s.Query)
	if terms.IsZero() {
		return nil, nil
	}
	var matching []*entry[K] // sessions with matches, for the second loop
	defer func() {
		for _, e := range matching {
			f.release(e)
		}
	}()
	heldBytes := 0
	var stats Stats
	for key, err := range keys {
		if err != nil {
			return nil, err
		}
		e, found, err := f.acquireWithStats(ctx, key, s, terms)
		if err != nil {
			if !skip(key, err) {
				return nil, err
			}
			continue
		}
		stats.Add(found)
		size := f.entrySize(e)
		switch {
		case !found.matchesAny(terms):
			f.release(e)
		case len(matching) > 0 && heldBytes+size > f.limit:
			f.release(e)
			matching = append(matching, newEntry(key)) // a placeholder until the second loop
		default:
			heldBytes += size
			matching = append(matching, e)
		}
	}
	var hits []Hit[K]
	for i, e := range matching {
		if e.index == nil {
			e = f.acquire(e.key)
			matching[i] = e
		}
		found, err := f.search(ctx, e, s, terms, stats)
		if err != nil {
			if !skip(e.key, err) {
				return nil, err
			}
			continue
		}
		hits = append(hits, found...)
		slices.SortStableFunc(hits, func(a, b Hit[K]) int { return cmp.Compare(b.Score, a.Score) })
		hits = hits[:min(len(hits), s.Limit)]
	}
	for i, h := range hits {
		var err error
		if hits[i].Event, err = s.Redact.Event(h.Event); err != nil {
			return nil, fmt.Errorf("redact a found event: %w", err)
		}
		hits[i].Snippet = SnippetOf(hits[i].Event, terms, s.Snippet, s.ShownToModel)
	}
	return hits, nil
}

// acquireWithStats returns the entry of a session and the statistics of its log. The caller must release the entry.
func (f *Finder[K]) acquireWithStats(ctx context.Context, key K, s Search, terms Terms) (e *entry[K], own Stats, err error) {
	e = f.acquire(key)
	if s.View != nil {
		var apart *entry[K]
		if apart, err = f.entryForView(ctx, e, *s.View); apart != e {
			f.release(e)
			e = apart
		}
	}
	if err == nil {
		err = f.withView(ctx, e, s, func(x *Index, v fold.View) error {
			own = x.Stats(terms, v.Seq(), s.ShownToModel)
			return nil
		})
	}
	if err != nil {
		f.release(e)
	}
	return e, own, err
}

func (f *Finder[K]) entrySize(e *entry[K]) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return e.bytes
}

// withView calls do with the index of an entry and with the view to search.
func (f *Finder[K]) withView(ctx context.Context, e *entry[K], s Search, do func(*Index, fold.View) error) (err error) {
	var v fold.View
	if s.View != nil {
		v = *s.View
	} else if v, err = f.log.View(ctx, e.key); err != nil {
		f.Forget(e.key) // the session may have been deleted
		return err
	}
	return f.withIndex(ctx, e, v, func(x *Index) error { return do(x, v) })
}

// search returns the best events of one session.
func (f *Finder[K]) search(ctx context.Context, e *entry[K], s Search, terms Terms, stats Stats) (hits []Hit[K], err error) {
	var v fold.View
	err = f.withView(ctx, e, s, func(x *Index, view fold.View) error {
		v = view
		places, err := v.Places()
		if err != nil {
			return err
		}
		for m := range x.Search(terms, s.Filter, v.Seq(), stats, s.docFilter(places)) {
			place, there := places.Of(m.Seq, m.Index) // false if the patch with the event was skipped
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
	return hits, f.readEvents(ctx, e.key, v, hits)
}

// docFilter returns a function that reports whether s allows an event to count in a search. If all events count, it
// returns nil.
func (s Search) docFilter(places *fold.Places) func(Doc) bool {
	if !s.Represented && s.Sees == nil {
		return nil
	}
	type hiddenKey struct { // identifies the events of one branch and scope that the same patch hides
		by   uint64
		lane branchScope
	}
	represented := map[hiddenKey]bool{}
	return func(d Doc) bool {
		if s.Sees != nil && !s.Sees(d.Branch, d.Scope) {
			return false
		}
		if !s.Represented {
			return true
		}
		place, ok := places.Of(d.Seq, d.Index)
		if !ok || place.Index >= 0 {
			return ok
		}
		key := hiddenKey{place.HiddenBySeq, branchScope{d.Branch, d.Scope}}
		is, known := represented[key]
		if !known {
			is = places.IsRepresented(d.Seq, d.Index, d.Branch, d.Scope)
			represented[key] = is
		}
		return is
	}
}

func (f *Finder[K]) readEvents(ctx context.Context, key K, v fold.View, hits []Hit[K]) error {
	if len(hits) == 0 {
		return nil
	}
	seqs := make([]uint64, len(hits))
	for i, h := range hits {
		seqs[i] = h.Seq
	}
	slices.Sort(seqs)
	events := map[uint64][]*patch.Event{}
	for r, err := range f.log.Records(ctx, key, v, slices.Compact(seqs)) {
		if err != nil {
			return err
		}
		events[r.Seq] = r.Events()
	}
	for i := range hits {
		h := &hits[i]
		if h.Index >= len(events[h.Seq]) {
			return fmt.Errorf("record %d has no event %d, but the index has one", h.Seq, h.Index)
		}
		h.Event = events[h.Seq][h.Index]
	}
	return nil
}
