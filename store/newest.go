package store

import (
	"context"
	"errors"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// newest returns the session's view, and the shared values with each of the prefixes, as
// they are at a moment after the call began: one look at the backend gives what the view in
// memory lacks.
func (s *Store) newest(ctx context.Context, h *handle, prefixes ...string) (current, [][]backend.Value, error) {
	return s.newestOf(ctx, h, s.current, prefixes)
}

// newestOf is newest with a way to get the view in memory: [Store.current], or
// [Store.lockedCurrent] for a caller that holds the handle's lock.
func (s *Store) newestOf(ctx context.Context, h *handle, read func(context.Context, *handle) (current, error), prefixes []string) (current, [][]backend.Value, error) {
	for {
		c, err := read(ctx, h)
		if err != nil {
			return current{}, nil, err
		}
		news, err := s.backend.Look(ctx, backend.Query{Session: h.key.name(), Creation: c.view.Creation(), After: c.view.Seq(), Shared: prefixes})
		if err != nil {
			if errors.Is(err, backend.ErrNotFound) {
				h.dropSeen(c)
			}
			return current{}, nil, fromBackend(h.key, err)
		}
		next, err := s.advance(ctx, h, c, news)
		if err == nil {
			return next, news.Shared, nil
		}
		h.dropSeen(c)
		if !errors.Is(err, errOtherLog) {
			return current{}, nil, err
		}
	}
}

// advance returns the view after what is new, and publishes it.
func (s *Store) advance(ctx context.Context, h *handle, c current, news backend.News) (current, error) {
	head, v := news.Head, c.view
	switch {
	case head.Creation != v.Creation() || head.Edition != v.Edition() || head.Last < v.Seq() || head.Last == v.Seq() && head.Chain != c.chain:
		return c, errOtherLog // a server that took over may have lost what was acknowledged
	case head.Token == c.token:
		return c, nil
	}
	chain := c.chain
	raw := onePage(news.Records)
	records, errs := decodeAll(h.key, raw, from(v.Seq()+1))
	for i, r := range raw {
		if errs[i] != nil {
			return c, errOtherLog // reading it anew says what is wrong
		}
		chain = chain.Add(recordform.Checksum(r.Data))
	}
	v, err := s.foldRecords(ctx, h.key, head.Creation, v, records)
	if err == nil { // what one look does not give, and whether all of it makes the head's chain
		v, err = s.foldPages(ctx, h.key, head.Creation, v, s.pagesAfter(ctx, h.key, &head, &chain, v.Seq()+1, newest), newest)
	}
	if errors.Is(err, ErrCorrupt) {
		return c, errOtherLog
	}
	if err != nil {
		return c, err
	}
	next := current{v, head.Token, head.Chain, countsOf(head)}
	h.publish(next)
	s.maybeSnapshot(h, v)
	return next, nil
}

// current returns the session's view from memory, which may be out of date, or reads it.
func (s *Store) current(ctx context.Context, h *handle) (current, error) {
	if c := h.newest.Load(); c != nil {
		return *c, nil
	}
	if err := h.lock(ctx); err != nil {
		return current{}, err
	}
	defer h.unlock()
	return s.lockedCurrent(ctx, h)
}

// lockedCurrent is current for a caller that holds the handle's lock.
func (s *Store) lockedCurrent(ctx context.Context, h *handle) (current, error) {
	if c := h.newest.Load(); c != nil {
		return *c, nil
	}
	r, err := s.replay(ctx, h.key, newest)
	if err != nil {
		return current{}, err
	}
	h.snapshot.Store(&snapshotMark{r.view.Creation(), r.snapshot})
	c := current{r.view, r.head.Token, r.head.Chain, countsOf(r.head)}
	h.publish(c)
	s.maybeSnapshot(h, c.view)
	return c, nil
}

// chainOf is a log's chain with more records.
func chainOf(chain backend.Chain, records []backend.Record) backend.Chain {
	for _, r := range records {
		chain = chain.Add(r.Sum)
	}
	return chain
}
