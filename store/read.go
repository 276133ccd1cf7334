package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// A page is what one read transaction copies out: enough to make reading fast, little
// enough to make the transaction short.
const (
	pageRecords = 512
	pageBytes   = 1 << 20
)

// ViewAt returns the session's view as it stood after the record with the given seq; 0
// gives the view before the first record. The shared scopes are no part of a view. It
// fails with [ErrNotFound] if there is no such session, or no such record yet.
func (s *Store) ViewAt(ctx context.Context, key Key, seq uint64) (fold.View, error) {
	if err := key.Validate(); err != nil {
		return fold.View{}, err
	}
	if seq == newest {
		seq-- // no log is so long
	}
	r, err := s.replay(ctx, key, seq)
	return r.view, err
}

// RawEvents yields the records of the session's log from fromSeq on (0 and 1 both mean
// the first), patches included, in seq order, up to the record that is the last when
// the iteration starts. No transaction is open while the loop's body runs, so it may
// take its time and write to the store. It ends with [ErrNotFound] if there is no such
// session or the session is deleted meanwhile, and with a *[CorruptError] at a record
// that cannot be read, or where it is in doubt whether the log goes on. A record that is erased
// meanwhile is yielded as it was or as it is.
func (s *Store) RawEvents(ctx context.Context, key Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		if err := key.Validate(); err != nil {
			yield(patch.Record{}, err)
			return
		}
		var given backend.Chain // of the ids of the records that were yielded
		count := 0
		for try := 1; ; try++ {
			head, err := s.headOnly(ctx, key)
			if err != nil {
				yield(patch.Record{}, err)
				return
			}
			again, n, ids := false, 0, backend.Chain{}
			for r, err := range recordsOf(s.pages(ctx, key, head, max(fromSeq, 1), head.Last)) {
				if again = errors.Is(err, ErrCorrupt) && try < replayTries && s.movedSince(ctx, key, head); again {
					break
				}
				if err == nil {
					n, ids = n+1, ids.Add(recordform.Checksum([]byte(r.ID())))
				}
				if err == nil && n <= count { // it was yielded before, if it is the same
					if n == count && ids != given {
						break
					}
					continue
				}
				if err == nil {
					count, given = n, ids
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
			switch {
			case again:
			case n < count || ids != given:
				yield(patch.Record{}, fmt.Errorf("session %s: %w: a server took over that has not got all records that were read; read again", key, ErrConflict))
				return
			default:
				return
			}
		}
	}
}

// recordsOf yields the records of pages, one by one.
func recordsOf(pages iter.Seq2[page, error]) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for page, err := range pages {
			if err != nil {
				yield(patch.Record{}, err)
				return
			}
			for _, r := range page.records {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// InitialState returns the state that the session was created with, without the shared
// scopes' keys.
func (s *Store) InitialState(ctx context.Context, key Key) (map[string]patch.Value, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	_, m, err := s.head(ctx, key)
	return m.initial, err
}

// head returns what the session is, and how far its log goes. That damage leaves this in
// doubt is no error yet: what comes before can be read.
func (s *Store) head(ctx context.Context, key Key) (backend.Head, meta, error) {
	head, err := s.headOnly(ctx, key)
	if err != nil {
		return head, meta{}, err
	}
	m, err := decodeMeta(head.Meta)
	if err != nil {
		return head, meta{}, fmt.Errorf("session %s: %w", key, err)
	}
	return head, m, nil
}

// headOnly is head without what the session was created with. It waits for a commit that has
// been made and whose view is not published yet, so that no later look at the view finds less.
func (s *Store) headOnly(ctx context.Context, key Key) (backend.Head, error) {
	head, err := s.backend.Head(ctx, key.name())
	if err != nil || s.shared { // where each look asks the backend
		return head, fromBackend(key, err)
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	if c := h.newest.Load(); c != nil && c.view.Creation() == head.Creation && c.view.Seq() < head.Last {
		if err := h.lock(ctx); err != nil {
			return head, err
		}
		h.unlock()
	}
	return head, nil
}

// page is a stretch of a log, as one read transaction copied it out.
type page struct {
	records []patch.Record
	data    [][]byte // their byte forms
}

// pages yields the records from one seq to another, a page at a time. At the log's end it
// yields an error if that is in doubt, or if the records do not make the head's chain.
func (s *Store) pages(ctx context.Context, key Key, head backend.Head, from, last uint64) iter.Seq2[page, error] {
	var before *backend.Chain
	if from <= 1 {
		before = new(backend.Chain)
	}
	return s.pagesAfter(ctx, key, head, before, from, last)
}

// pagesAfter is pages with the log's chain before the first of the records, or nil if that is
// not known.
func (s *Store) pagesAfter(ctx context.Context, key Key, head backend.Head, before *backend.Chain, first, last uint64) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		var chain backend.Chain
		if before != nil {
			chain = *before
		}
		end := last
		if head.Damaged != 0 {
			end = min(last, head.Damaged-1)
		}
		for next := first; next <= end; {
			most := int(min(end-next+1, pageRecords))
			raw, err := s.backend.Read(ctx, key.name(), head.Creation, next, most, pageBytes)
			switch {
			case errors.Is(err, backend.ErrDamaged):
				yield(page{}, &CorruptError{Key: key, Seq: next, Err: named(err)})
				return
			case err != nil:
				yield(page{}, fromBackend(key, err))
				return
			}
			if len(raw) == 0 {
				yield(page{}, &CorruptError{Key: key, Seq: next, Err: fmt.Errorf("%w: it is missing", ErrCorrupt)})
				return
			}
			raw = onePage(raw)
			records, errs := decodeAll(key, raw, from(next))
			p := page{records, make([][]byte, len(raw))}
			for i, r := range raw {
				p.data[i] = r.Data
				if err := errs[i]; err != nil {
					// What comes before the damage can be read.
					if p.records = p.records[:i]; i == 0 || yield(p, nil) {
						yield(page{}, err)
					}
					return
				}
				chain = chain.Add(recordform.Checksum(r.Data))
			}
			if !yield(p, nil) {
				return
			}
			next += uint64(len(raw))
		}
		switch {
		case last < head.Last:
		case head.Damaged != 0:
			yield(page{}, inDoubt(key, head))
		case before != nil && last == head.Last && chain != head.Chain && !s.replacedSince(ctx, key, head):
			yield(page{}, &CorruptError{Key: key, Seq: last, Err: errChain(head)})
		}
	}
}

// replacedSince reports whether records of the log have been erased since it had the given
// head: what is read then is partly as it was and partly as it is.
func (s *Store) replacedSince(ctx context.Context, key Key, head backend.Head) bool {
	now, err := s.backend.Head(ctx, key.name())
	return err == nil && now.Creation == head.Creation && now.Edition != head.Edition
}

// inDoubt is the error of a log whose end damage leaves in doubt.
func inDoubt(key Key, head backend.Head) error {
	return &CorruptError{Key: key, Seq: head.Damaged, Err: named(head.Err())}
}

func errChain(head backend.Head) error {
	return fmt.Errorf("%w: the records from 1 to %d are not those that were written: their checksums make another chain",
		ErrCorrupt, head.Last)
}

// record returns one record of a log.
func (s *Store) record(ctx context.Context, key Key, creation string, seq uint64) (patch.Record, error) {
	raw, err := s.backend.Read(ctx, key.name(), creation, seq, 1, math.MaxInt)
	switch {
	case err != nil:
		return patch.Record{}, fromBackend(key, err)
	case len(raw) == 0:
		return patch.Record{}, &CorruptError{Key: key, Seq: seq, Err: fmt.Errorf("%w: it is missing", ErrCorrupt)}
	}
	return decode(key, seq, raw[0])
}
