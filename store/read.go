package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// A page is the part of a log that one read transaction copies. These limits keep the transaction short and the
// number of transactions small.
const (
	pageRecords = 512
	pageBytes   = 1 << 20
)

// ViewAt returns the session's view directly after the record with the given seq. With seq 0 it returns the view
// before the first record, which has the initial state. A view does not include shared state. ViewAt fails with
// [ErrNotFound] if the session or the record does not exist, and with [ErrCorrupt] if stored data is damaged.
func (s *Store) ViewAt(ctx context.Context, key Key, seq uint64) (fold.View, error) {
	if seq == endOfLog {
		seq-- // no log is so long that it has this seq
	}
	r, _, err := s.replay(ctx, key, seq, scopesQuery{})
	return r.view, err
}

// RawEvents yields the records of the session's log in seq order, patches included, starting at fromSeq. 0 and 1
// both mean the first record. The iteration ends after the record that was last when the iteration began. No
// transaction is open while the loop's body runs, so the body may be slow and may write to the store. If a record
// is erased during the iteration, RawEvents yields it either whole or blank.
//
// An error is yielded last, with the zero Record:
//   - [ErrNotFound], if the session does not exist or is deleted during the iteration.
//   - [ErrCorrupt], if stored data is damaged. For a record that cannot be read, the error is a *[CorruptError].
//   - [ErrConflict], if a database failover lost records of the log during the iteration. If fromSeq is above 1 and
//     new records have replaced the lost records, RawEvents does not detect the loss.
func (s *Store) RawEvents(ctx context.Context, key Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		head, err := s.head(ctx, key)
		if err != nil {
			yield(patch.Record{}, err)
			return
		}
		s.records(ctx, key, head, max(fromSeq, 1), endOfLog)(yield)
	}
}

// Records yields the records with the given seqs from a view's log. The seqs must ascend and must not exceed the
// view's seq. Otherwise the error matches [ErrInvalid]. After an error, the iteration ends. The error matches
// [ErrNotFound] if the session was deleted, even if it was created again.
func (s *Store) Records(ctx context.Context, key Key, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		err := key.Validate()
		for i, seq := range seqs {
			if seq == 0 || seq > v.Seq() || i > 0 && seq <= seqs[i-1] {
				err = fmt.Errorf("%w: seq %d is not between 1 and %d, or the seqs do not ascend", ErrInvalid, seq, v.Seq())
			}
		}
		for rest := seqs; err == nil && len(rest) > 0; {
			var p page
			p, err = s.readPage(ctx, key, v.Creation(), rest)
			for _, r := range p.records { // on error, these are the records before the damaged record
				if !yield(r, nil) {
					return
				}
			}
			rest = rest[len(p.records):]
		}
		if err != nil {
			yield(patch.Record{}, err)
		}
	}
}

// records yields the records of [Store.pages] one at a time.
func (s *Store) records(ctx context.Context, key Key, head backend.Head, from, last uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for page, err := range s.pages(ctx, key, head, from, last) {
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

// headAndMeta returns a session's head and its decoded meta record.
func (s *Store) headAndMeta(ctx context.Context, key Key) (backend.Head, meta, error) {
	if err := key.Validate(); err != nil {
		return backend.Head{}, meta{}, err
	}
	head, err := backend.FetchHead(ctx, s.backend, key.name())
	if err != nil {
		return head, meta{}, fromBackend(key, err)
	}
	m, err := metaOf(key, head)
	return head, m, err
}

func metaOf(key Key, head backend.Head) (meta, error) {
	m, err := decodeMeta(head.Meta)
	if err != nil {
		return meta{}, fmt.Errorf("session %s: %w", key, err)
	}
	return m, nil
}

// headAfterErase is headAndMeta, except that it first finishes the session's open receipts.
func (s *Store) headAfterErase(ctx context.Context, key Key) (backend.Head, meta, error) {
	head, m, err := s.headAndMeta(ctx, key)
	if err == nil && write.CountsOf(head).Open > 0 {
		if err = s.finishErasures(ctx, key, false); err == nil {
			head, m, err = s.headAndMeta(ctx, key)
		}
	}
	return head, m, err
}

// head returns a session's head without its meta record.
func (s *Store) head(ctx context.Context, key Key) (backend.Head, error) {
	if err := key.Validate(); err != nil {
		return backend.Head{}, err
	}
	fetched, err := s.backend.Fetch(ctx, backend.Query{Session: key.name(), NoMeta: true})
	return fetched.Head, fromBackend(key, err)
}

// page contains records that one read transaction copied.
type page struct {
	records []patch.Record
	raw     []backend.Record // the same records in their stored form
}

// pages yields the records with seqs in [from, last], page by page. If last is [endOfLog], pages continues to the end
// of the log. After reading a whole log, pages compares the records with the head's chain, and yields an error if
// they differ.
func (s *Store) pages(ctx context.Context, key Key, head backend.Head, from, last uint64) iter.Seq2[page, error] {
	var chainBefore *backend.Chain
	if from <= 1 {
		chainBefore = new(backend.Chain)
	}
	return s.pagesAfter(ctx, key, head, chainBefore, nil, from, last)
}

// maxRechecks limits how often a log is read again under a new head.
const maxRechecks = 3

// pagesAfter is pages for records that follow a known part of the log. The argument chainBefore is the chain up to
// the end of that part, or nil if the chain is unknown. The argument prefetched contains records that the caller
// has already read, in seq order.
//
// After a failover, the head may come from one server, and the records from another server that has lost the end
// of the log. If the records do not match the head's chain, pagesAfter therefore reads the head again. If the head
// is unchanged, the records are damaged. If the head has moved, the error matches [errLogChanged]. If records were
// erased during the read, pagesAfter does not check the chain.
func (s *Store) pagesAfter(ctx context.Context, key Key, head backend.Head, chainBefore *backend.Chain, prefetched []backend.Record, next, last uint64) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		end := min(last, head.Last)
		var chain backend.Chain
		if chainBefore != nil {
			chain = *chainBefore
		}
		for next <= end {
			p, err := s.readPrefetched(ctx, key, head.Creation, prefetched, next, end)
			for _, r := range p.raw {
				chain = chain.Add(recordform.Checksum(r.Data))
			}
			if len(p.records) > 0 && !yield(p, nil) { // on error, yield the records before the damaged record
				return
			}
			if err != nil {
				yield(page{}, err)
				return
			}
			next += uint64(len(p.records))
		}
		switch {
		case last < head.Last:
		case chainBefore != nil && chain != head.Chain:
			now, err := s.headOfCreation(ctx, key, head.Creation)
			switch {
			case err == nil && now.Edition != head.Edition:
				return
			case err == nil && head.Moved(now):
				err = logChangedError(key)
			case err == nil:
				err = &CorruptError{Key: key, Seq: head.Last, Err: errChain(head)}
			}
			yield(page{}, err)
		}
	}
}

// readPrefetched returns a page of records. The page starts at the seq from and ends at or before the seq to. If
// the argument prefetched contains the record at from, the page has only prefetched records. Otherwise
// readPrefetched calls [Store.readPage].
func (s *Store) readPrefetched(ctx context.Context, key Key, creation string, prefetched []backend.Record, from, to uint64) (page, error) {
	i, _ := slices.BinarySearchFunc(prefetched, from, func(r backend.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
	n := 0
	for i+n < len(prefetched) && n < pageRecords && prefetched[i+n].Seq == from+uint64(n) && prefetched[i+n].Seq <= to {
		n++
	}
	seqs := backend.Range(from, int(min(to-from+1, pageRecords)))
	if n > 0 {
		return decodePage(key, prefetched[i:i+n], seqs)
	}
	return s.readPage(ctx, key, creation, seqs)
}

// readPage reads the first of the records with the given seqs: at least one, and at most as many as one transaction
// should copy. The seqs must ascend, and the last one must be in the log that the caller has seen. If a record is
// damaged, readPage returns an error and the records before the damaged one. If a failover has lost the first record,
// the error matches [errLogChanged].
func (s *Store) readPage(ctx context.Context, key Key, creation string, seqs []uint64) (page, error) {
	for rechecked := false; ; rechecked = true {
		raw, err := s.backend.Read(ctx, key.name(), creation, seqs[:min(len(seqs), pageRecords)], pageBytes)
		switch {
		case errors.Is(err, backend.ErrDamaged):
			return page{}, &CorruptError{Key: key, Seq: seqs[0], Err: convertError(err)}
		case err != nil:
			return page{}, fromBackend(key, err)
		case len(raw) > 0:
			return decodePage(key, raw, seqs)
		case rechecked:
			return page{}, errMissing(key, seqs[0])
		}
		if now, err := s.headOfCreation(ctx, key, creation); err != nil {
			return page{}, err
		} else if now.Last < seqs[0] {
			return page{}, logChangedError(key)
		}
	}
}

// headOfCreation returns a session's head. It fails with [ErrNotFound] if the session has another creation id.
func (s *Store) headOfCreation(ctx context.Context, key Key, creation string) (backend.Head, error) {
	head, err := s.head(ctx, key)
	if err == nil && head.Creation != creation {
		err = errCreatedAgain(key)
	}
	return head, err
}

func errCreatedAgain(key Key) error {
	return fmt.Errorf("session %s: %w: it was deleted and created again", key, ErrNotFound)
}

// readRecords returns the records with the given seqs, which must ascend.
func (s *Store) readRecords(ctx context.Context, key Key, creation string, seqs []uint64) ([]patch.Record, error) {
	p, err := s.readRawRecords(ctx, key, creation, seqs)
	return p.records, err
}

// readRawRecords is readRecords, but also returns the records in stored form.
func (s *Store) readRawRecords(ctx context.Context, key Key, creation string, seqs []uint64) (all page, err error) {
	for len(seqs) > 0 {
		p, err := s.readPage(ctx, key, creation, seqs)
		if err != nil {
			return page{}, err
		}
		all.records, all.raw, seqs = append(all.records, p.records...), append(all.raw, p.raw...), seqs[len(p.records):]
	}
	return all, nil
}

// errLogChanged is [write.ErrLogChanged].
var errLogChanged = write.ErrLogChanged

// logChangedError returns an errLogChanged that also matches [ErrConflict]. Its text asks the caller to read the session
// again.
func logChangedError(key Key) error {
	return fmt.Errorf("session %s: %w: %w: a database failover lost records of the log; read the session again", key, ErrConflict, errLogChanged)
}

func errChain(head backend.Head) error {
	return fmt.Errorf("%w: records 1 to %d differ from the records that were written: their checksums do not match the chain",
		ErrCorrupt, head.Last)
}

func errMissing(key Key, seq uint64) error {
	return &CorruptError{Key: key, Seq: seq, Err: fmt.Errorf("%w: the record is missing", ErrCorrupt)}
}
