package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// Problem is a finding of [Store.Verify].
type Problem struct {
	Key Key    `json:"key"` // session with the problem; the zero Key if the whole storage has the problem
	Seq uint64 `json:"seq"` // seq of the record with the problem; 0 if the whole session has the problem
	Err error  `json:"err,omitzero"`
}

func (p Problem) String() string {
	switch {
	case p.Key == (Key{}):
		return p.Err.Error()
	case p.Seq == 0:
		return fmt.Sprintf("session %s: %v", p.Key, p.Err)
	}
	return fmt.Sprintf("session %s, record %d: %v", p.Key, p.Seq, p.Err)
}

// VerifyOptions are options of [Store.Verify]. The zero value verifies everything.
type VerifyOptions struct {
	// Key, if not zero, limits Verify to one session. Verify then does not check the structure of the storage or
	// the shared values. If the session does not exist, Verify yields an error that matches [ErrNotFound].
	Key Key

	// Progress, if not nil, is called before each session is verified.
	Progress func(Key)
}

// Verify reads everything in the storage, and yields each of these problems:
//   - damage of the storage's structure;
//   - records that are unreadable, misplaced or altered;
//   - ids that the index of ids lacks;
//   - sessions that the index of forks lacks;
//   - blank events without a receipt;
//   - unfinished erases of a session or of its forks;
//   - content that still exists although a closed receipt covers it;
//   - snapshots that differ from a fold of the log;
//   - unreadable shared values.
//
// After damage in one place, Verify continues with the rest. If Verify cannot continue, it yields an error last,
// with the zero Problem.
//
// A snapshot that differs is harmless, because the store does not use it. Verify ignores snapshots of other
// versions of the program. Unreferenced pages of the file are harmless too. Verify reports them only if there are
// no writes during the call.
//
// Reads and writes continue during the call. In a file, a write waits for Verify no longer than it would wait for
// another write. Pages that are freed while Verify checks the structure can be reused only afterwards. Verify and a
// [Store.Backup] or [Store.Vacuum] of the same file wait for each other. Verify needs memory for the view of one
// session at a time.
func (s *Store) Verify(ctx context.Context, opts VerifyOptions) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		// report yields a problem. If the error ends Verify, report yields the error instead. It reports whether to
		// continue.
		report := func(key Key, seq uint64, err error) (more bool) {
			if isFatal(err) {
				yield(Problem{}, err)
				return false
			}
			return yield(Problem{key, seq, err}, nil)
		}
		session := func(key Key) (more bool) {
			found, err := s.verify(ctx, key)
			for _, p := range found {
				if !yield(p, nil) {
					return false
				}
			}
			return err == nil || report(key, 0, err)
		}
		if opts.Key != (Key{}) {
			if _, err := s.head(ctx, opts.Key); errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
				yield(Problem{}, err)
			} else {
				session(opts.Key)
			}
			return
		}
		if c, ok := s.backend.(backend.Checker); ok {
			for _, err := range splitJoined(c.Check(ctx)) {
				// Damage of an id index is reported later, together with its session.
				if !errors.Is(err, backend.ErrIndex) && !report(Key{}, 0, fromBackend(Key{}, err)) {
					return
				}
			}
		}
		for info, err := range s.List(ctx, ListOptions{}) {
			switch {
			case err != nil && !errors.Is(err, ErrCorrupt):
				yield(Problem{}, err)
				return
			case err != nil && !s.exists(ctx, info.Key):
				if !report(Key{}, 0, err) {
					return
				}
				continue
			}
			if opts.Progress != nil {
				opts.Progress(info.Key)
			}
			if !session(info.Key) {
				return
			}
		}
		values, err := backend.FetchShared(ctx, s.backend, "")
		if err != nil {
			report(Key{}, 0, fromBackend(Key{}, err))
		}
		for _, raw := range values {
			if _, err := sharedValue(raw); err != nil && !report(Key{}, 0, err) {
				return
			}
		}
	}
}

// splitJoined returns the errors that [errors.Join] has joined, or else the error itself.
func splitJoined(err error) []error {
	if err == nil {
		return nil
	}
	if e, ok := err.(interface{ Unwrap() []error }); ok {
		if all := e.Unwrap(); errors.Join(all...).Error() == err.Error() { // an error with a text besides those of its parts is not split
			return all
		}
	}
	return []error{err}
}

// isFatal reports whether an error ends Verify. An error about stored data does not end Verify.
func isFatal(err error) bool {
	return !errors.Is(err, ErrCorrupt) && !errors.Is(err, snapshot.ErrUnusable) && !errors.Is(err, errLogChanged) && err != errEraseUnfinished && err != errEraseUnfinishedElsewhere
}

// exists reports whether the session exists. A damaged name in a listing may belong to no session.
func (s *Store) exists(ctx context.Context, key Key) bool {
	_, err := s.head(ctx, key)
	return !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid)
}

// errEraseUnfinished reports that a receipt is open.
var errEraseUnfinished = errors.New("the erase of this receipt is unfinished; the next erase of the session finishes it, even if it selects nothing")

// errEraseUnfinishedElsewhere reports that other sessions may still have the content.
var errEraseUnfinishedElsewhere = errors.New("the erase of this receipt is finished in this session, but perhaps not in its forks and copies; the next erase of the session finishes it, even if it selects nothing")

// errNotErased reports that content covered by a closed receipt still exists.
var errNotErased = fmt.Errorf("%w: content that this receipt of an erase covers still exists", ErrCorrupt)

// verify returns the problems of a session, or none if the session was deleted during the call. A non-nil error
// ends Verify. If there are problems and the session's head has moved, verify checks the session again, because a
// failover or an erase may have caused the problems.
func (s *Store) verify(ctx context.Context, key Key) ([]Problem, error) {
	for try := 0; ; {
		v := verification{store: s, key: key}
		err := v.checkLog(ctx)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, nil
		case err != nil, len(v.found) == 0, v.head.Creation == "", try == maxRechecks:
			return v.found, err
		}
		now, err := s.head(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, nil
		case err != nil || !v.head.Moved(now):
			return v.found, nil
		case now.Edition == v.head.Edition:
			try++
		}
	}
}

type verification struct {
	store        *Store
	key          Key
	head         backend.Head
	indexDamaged bool // whether damage of the id index was reported
	found        []Problem
}

// report adds a problem. If the error is fatal, report returns it instead.
func (v *verification) report(seq uint64, err error) error {
	if err == nil || isFatal(err) {
		return err
	}
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		err = corrupt.Err
	}
	v.found = append(v.found, Problem{v.key, seq, err})
	return nil
}

func (v *verification) checkLog(ctx context.Context) error {
	s, key := v.store, v.key
	head, err := backend.FetchHead(ctx, s.backend, key.name())
	var m meta
	if err == nil {
		m, err = decodeMeta(head.Meta)
	}
	if err != nil {
		return v.report(0, convertError(err))
	}
	v.head = head
	if len(m.lineage) > 0 { // no name lies between a name and the same name without its last byte
		name := key.name()
		relatives, err := s.backend.Relatives(ctx, erase.Family(head.Creation, m.lineage), name[:len(name)-1], 1)
		if err == nil && (len(relatives) == 0 || relatives[0].Session != name) {
			err = fmt.Errorf("%w: the index of forks lacks it, so an erase of its origin would not find it", ErrCorrupt)
		}
		if err := v.report(0, convertError(err)); err != nil {
			return err
		}
	}
	snap, saved, err := s.readSnapshot(ctx, key, head.Creation) // a snapshot of a record after head.Last is not compared
	if err := v.report(0, err); err != nil {
		return err
	}
	view, whole := fold.New(head.Creation, m.initial), true
	checkSaved := func() error {
		if whole && snap != nil && view.Seq() == saved {
			if again, err := snapshot.Encode(view); err != nil || !bytes.Equal(again, snap) {
				return v.report(0, fmt.Errorf("%w: the snapshot at record %d differs from a fold of the log", ErrCorrupt, saved))
			}
		}
		return nil
	}
	if err := checkSaved(); err != nil {
		return err
	}
	var chain backend.Chain
	var marks receipt.Marks
	for seq := uint64(1); seq <= head.Last; {
		p, readErr := s.readPage(ctx, key, head.Creation, backend.Range(seq, int(min(head.Last-seq+1, pageRecords))))
		if err := v.checkIndex(ctx, p.records); err != nil {
			return err
		}
		for i, r := range p.records {
			chain = chain.Add(recordform.Checksum(p.raw[i].Data))
			marks.Add(r)
			if err := v.report(r.Seq, r.Verify(p.raw[i].Data)); err != nil {
				return err
			}
			if whole {
				if view, err = s.foldRecords(ctx, key, head.Creation, view, p.records[i:i+1]); err != nil {
					whole = false
				}
				if err = v.report(r.Seq, err); err == nil {
					err = checkSaved()
				}
				if err != nil {
					return err
				}
			}
			seq++
		}
		if readErr != nil {
			whole = false
			if err := v.report(seq, readErr); err != nil || len(p.raw) == len(p.records) { // if the lengths are equal, the record is missing
				return err
			}
			seq++
		}
	}
	if whole && chain != head.Chain {
		if err := v.report(head.Last, errChain(head)); err != nil {
			return err
		}
	}
	return v.checkErasures(ctx, marks, m.initial)
}

// readSnapshot returns a session's snapshot and its seq. It returns nil if there is none or this version cannot read
// it.
func (s *Store) readSnapshot(ctx context.Context, key Key, creation string) (data []byte, seq uint64, err error) {
	fetched, err := s.backend.Fetch(ctx, backend.Query{Session: key.name(), UpTo: endOfLog})
	if err == nil && fetched.Creation != creation {
		err = backend.ErrNotFound
	}
	snap := fetched.Snapshot
	if err = cmp.Or(err, snap.Err); err != nil || snap.Data == nil {
		return nil, 0, convertError(err)
	}
	saved, err := snapshot.Decode(snap.Data, fold.New(creation, nil), fetched.Last)
	switch {
	case errors.As(err, new(*fold.MissingRecordsError)):
		err = nil
	case errors.Is(err, snapshot.ErrOutdated):
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return snap.Data, saved.Seq(), nil
}

// checkIndex reports each id of a record that the index lacks, or for which the index has another seq.
func (v *verification) checkIndex(ctx context.Context, records []patch.Record) error {
	if v.indexDamaged {
		return nil
	}
	var ids []string
	var wantSeqs []uint64
	for _, r := range records {
		for id := range r.IDs() {
			ids, wantSeqs = append(ids, id), append(wantSeqs, r.Seq)
		}
	}
	seqs, err := v.store.backend.Lookup(ctx, v.key.name(), v.head.Creation, ids)
	if err != nil {
		v.indexDamaged = errors.Is(err, backend.ErrIndex)
		return v.report(0, convertError(err))
	}
	for i, seq := range seqs {
		if seq != wantSeqs[i] {
			err = v.report(wantSeqs[i], fmt.Errorf("%w: the index of ids maps id %q to record %d", ErrCorrupt, ids[i], seq))
		}
	}
	return err
}

// checkErasures reports blank records without a receipt, open receipts, unfinished erase calls, and closed receipts
// whose content still exists.
func (v *verification) checkErasures(ctx context.Context, marks receipt.Marks, initial map[string]patch.Value) error {
	for _, mark := range marks.WithoutReceipt() {
		err := fmt.Errorf("%w: it is marked as erased, but the log has no receipt %.80q that covers it", ErrCorrupt, mark.Receipt)
		if err := v.report(mark.Seq, err); err != nil {
			return err
		}
	}
	for _, r := range marks.Receipts {
		problem := errEraseUnfinished
		if !r.IsOpen(v.head.Creation) { // receipt that a fork inherited counts as closed
			problem = v.checkErased(ctx, r, initial)
		}
		if problem == nil && r.IsCall(v.head.Creation) && !r.Erasure.Done {
			problem = errEraseUnfinishedElsewhere
		}
		if errors.Is(problem, ErrCorrupt) && problem != errNotErased { // the damage was already reported when the log was read
			continue
		}
		if err := v.report(r.Seq, problem); err != nil {
			return err
		}
	}
	return nil
}

// checkErased returns [errNotErased] if content that the receipt covers still exists.
func (v *verification) checkErased(ctx context.Context, r receipt.Receipt, initial map[string]patch.Value) error {
	if receipt.NullInitial(maps.Clone(initial), []receipt.Receipt{r}) {
		return errNotErased
	}
	for seqs := range slices.Chunk(receipt.CoveredSeqs(r), pageRecords) {
		records, err := v.store.readRecords(ctx, v.key, v.head.Creation, seqs)
		if err != nil {
			return err
		}
		for _, covered := range records {
			if r.Erasure.Blank(covered, r.ID()) != covered {
				return errNotErased
			}
		}
	}
	return nil
}
