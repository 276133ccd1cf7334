package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

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
// that cannot be read, or where it is in doubt whether the log goes on. If a server takes over
// that has lost the end of the log, it ends there, or with [ErrConflict] if records were yielded
// that are lost. A record that is erased meanwhile is yielded as it was or as it is.
func (s *Store) RawEvents(ctx context.Context, key Key, fromSeq uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		if err := key.Validate(); err != nil {
			yield(patch.Record{}, err)
			return
		}
		head, err := s.headOnly(ctx, key)
		if err != nil {
			yield(patch.Record{}, err)
			return
		}
		recordsOf(s.pages(ctx, key, &head, max(fromSeq, 1), newest))(yield)
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

// headOnly is head without what the session was created with.
func (s *Store) headOnly(ctx context.Context, key Key) (backend.Head, error) {
	head, err := backend.HeadOf(ctx, s.backend, key.name())
	return head, fromBackend(key, err)
}

// page is a stretch of a log, as one read transaction copied it out.
type page struct {
	records []patch.Record
	data    [][]byte // their byte forms
}

// pages yields the records from one seq to another, or to the log's end if last is [newest], a
// page at a time. At the log's end it yields an error if that is in doubt, or if the records do
// not make the head's chain. If a server has taken over that has lost the log's end, head is set
// to the head there: see [Store.pagesAfter].
func (s *Store) pages(ctx context.Context, key Key, head *backend.Head, from, last uint64) iter.Seq2[page, error] {
	var before *backend.Chain
	if from <= 1 {
		before = new(backend.Chain)
	}
	return s.pagesAfter(ctx, key, head, before, from, last)
}

// maxRechecks limits how often a log is read on under a new head. If something is wrong under each
// of them, the records are damaged, in a session that is written to all the time.
const maxRechecks = 3

// pagesAfter is pages with the log's chain before the first of the records, or nil if that is
// not known.
//
// The head may be one server's, and the records those of another that took over and has lost the
// log's end. So records that are missing, or do not make the head's chain, are damage only if
// the head, read again, is the same. Else the log is read on under its new head, if it has the
// records that were yielded and goes on to last; if not, the error matches [errOtherLog].
func (s *Store) pagesAfter(ctx context.Context, key Key, head *backend.Head, before *backend.Chain, first, last uint64) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		var start backend.Chain
		if before != nil {
			start = *before
		}
		next, chain := first, start // after the records that were yielded
		for rechecks := 0; ; rechecks++ {
			end := min(last, head.Last)
			if head.Damaged != 0 {
				end = min(end, head.Damaged-1)
			}
			gap := false
			for next <= end && !gap {
				most := int(min(end-next+1, pageRecords))
				raw, err := s.backend.Read(ctx, key.name(), head.Creation, backend.Range(next, most), pageBytes)
				switch {
				case errors.Is(err, backend.ErrDamaged):
					yield(page{}, &CorruptError{Key: key, Seq: next, Err: named(err)})
					return
				case err != nil:
					yield(page{}, fromBackend(key, err))
					return
				}
				if gap = len(raw) == 0; gap {
					continue
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
			var damage error
			switch {
			case gap:
				damage = errMissing(key, next)
			case last < head.Last:
				return
			case head.Damaged != 0:
				yield(page{}, inDoubt(key, *head))
				return
			case before == nil || chain == head.Chain:
				return
			default:
				damage = &CorruptError{Key: key, Seq: head.Last, Err: errChain(*head)}
			}
			if rechecks == maxRechecks {
				yield(page{}, damage)
				return
			}
			was := *head
			err := s.recheck(ctx, key, head, damage)
			if err == nil && !gap && head.Edition != was.Edition {
				*head = was // records were erased meanwhile: some were read before that, some after it
				return
			}
			if err == nil && last != newest && last > head.Last {
				err = otherLog(key)
			}
			if err == nil {
				err = s.contains(ctx, key, *head, first, next, start, chain)
			}
			if err != nil {
				yield(page{}, err)
				return
			}
		}
	}
}

// recheck decides whether a log is damaged, in which damage was found after its head was read. It
// returns the damage if the head is still the same. If it is another one, a server may have taken
// over that has lost the log's end: head is set to it, and the error is nil.
func (s *Store) recheck(ctx context.Context, key Key, head *backend.Head, damage error) error {
	now, err := backend.HeadOf(ctx, s.backend, key.name())
	switch {
	case err != nil:
		return fromBackend(key, err)
	case now.Creation != head.Creation:
		return fmt.Errorf("session %s: %w: it was created again since", key, ErrNotFound)
	case !head.Moved(now):
		return damage
	}
	*head = now
	return nil
}

// contains returns an error that matches [errOtherLog] unless the records from first up to before
// next, in the log as it is, carry a chain on from start to end.
func (s *Store) contains(ctx context.Context, key Key, head backend.Head, first, next uint64, start, end backend.Chain) error {
	for first < next {
		raw, err := s.backend.Read(ctx, key.name(), head.Creation, backend.Range(first, int(min(next-first, pageRecords))), pageBytes)
		if err != nil {
			return fromBackend(key, err)
		}
		if len(raw) == 0 {
			return otherLog(key)
		}
		for _, r := range raw {
			start = start.Add(recordform.Checksum(r.Data))
		}
		first += uint64(len(raw))
	}
	if start != end {
		return otherLog(key)
	}
	return nil
}

// errOtherLog: the log is not the one that was read before. Another server has taken over that
// has lost records, the session was created again, or records were erased.
var errOtherLog = errors.New("the log is not the one that was read before")

// otherLog is errOtherLog for callers of the store, who can read the session again.
func otherLog(key Key) error {
	return fmt.Errorf("session %s: %w: %w: a server took over that has lost records; read the session again", key, ErrConflict, errOtherLog)
}

// replacedSince reports whether records of the log have been erased since it had the given
// head: what is read then is partly as it was and partly as it is.
func (s *Store) replacedSince(ctx context.Context, key Key, head backend.Head) bool {
	now, err := backend.HeadOf(ctx, s.backend, key.name())
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

func errMissing(key Key, seq uint64) error {
	return &CorruptError{Key: key, Seq: seq, Err: fmt.Errorf("%w: it is missing", ErrCorrupt)}
}

// record returns one record of a log.
func (s *Store) record(ctx context.Context, key Key, creation string, seq uint64) (patch.Record, error) {
	records, err := s.pick(ctx, key, creation, []uint64{seq})
	if err != nil {
		return patch.Record{}, err
	}
	return records[0], nil
}
