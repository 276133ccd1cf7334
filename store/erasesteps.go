package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// Limits of a commit that replaces records: other writers wait for it.
const (
	eraseRecords = 64
	eraseBytes   = 1 << 18
)

// A step is tried so often where others write to the session, or the outcome is unknown.
const eraseTries = 64

// finishing is the work on the open receipts of a session:
//
//  1. All that they cover is made blank, a bounded commit at a time. If the process ends here, the receipts are
//     open, and the next erasure does all of it again: a blank stays as it is.
//  2. Patches that were logged since may stand for what was erased. What they have put in gets a receipt too,
//     and then 1 again.
//  3. With no patch in between, one closing commit notes in the receipts that they are closed and logs the reverts of
//     blank summaries. It makes the log another edition: no patch fits any more that was made of one before ([errErased]).
type finishing struct {
	*erasing
	h        *handle
	creation string
	receipts []erase.Receipt
	looked   uint64 // up to this patch, none that came late stands for what is erased
}

// finish completes the open receipts of a session.
func (e *erasing) finish(ctx context.Context, key Key, creation string, receipts []erase.Receipt) error {
	h := e.store.cache.acquire(key)
	defer e.store.cache.release(h)
	f := finishing{erasing: e, h: h, creation: creation, receipts: slices.Clone(receipts)}
	defer f.end(ctx)
	for {
		if err := f.blank(ctx); err != nil {
			return err
		}
		closed, err := f.close(ctx)
		if closed || err != nil {
			return err
		}
		late, err := f.late(ctx)
		if err == nil && len(late.of.Seqs) > 0 {
			if err = f.further(ctx, late); errors.Is(err, errReplan) {
				continue
			}
		} else if err == nil {
			f.looked = late.view.PatchSeq()
		}
		if err != nil {
			return err
		}
	}
}

// end sees to it that nothing in memory has what was erased.
func (f *finishing) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	if f.h.lock(ctx) == nil {
		now, err := backend.HeadOf(ctx, f.store.backend, f.h.key.name())
		if c := f.h.newest.Load(); c != nil && (err != nil || now.Edition != c.view.Edition()) {
			f.h.drop()
		}
		f.h.unlock()
	}
	f.store.finder.Forget(f.h.key)
	f.h.wake()
}

// blank replaces all that the receipts cover.
func (f *finishing) blank(ctx context.Context) error {
	first := true
	for seqs := range erase.Chunks(erase.Covered(f.receipts), eraseRecords) {
		if err := f.step(ctx, seqs); err != nil {
			return err
		}
		first = false
	}
	if first { // of the session's initial state alone
		return f.step(ctx, nil)
	}
	return nil
}

// step replaces some records, a commit at a time.
func (f *finishing) step(ctx context.Context, seqs []uint64) error {
	for {
		n := 0
		err := f.locked(ctx, func() (err error) {
			n, err = f.replace(ctx, seqs)
			return err
		})
		if seqs = seqs[n:]; err != nil || len(seqs) == 0 {
			return err
		}
	}
}

// replace replaces the first of some records, as many as one commit should have, and returns
// how many. Errors are the backend's.
func (f *finishing) replace(ctx context.Context, seqs []uint64) (n int, err error) {
	s, key := f.store, f.h.key
	head, m, err := f.head(ctx)
	if err != nil {
		return 0, err
	}
	r := backend.Replacement{Creation: f.creation, Last: head.Last, Seen: head.Token, Next: newToken(), Chain: head.Chain}
	raw, err := f.pick(ctx, seqs)
	if err != nil {
		return 0, err
	}
	for i, old := range raw {
		was, err := decode(key, seqs[i], old)
		if err != nil {
			return 0, err
		}
		if is := erase.Blank(was, f.receipts); is != was {
			one, err := s.replaced(old, is)
			if err != nil {
				return 0, err
			}
			r.Records = append(r.Records, one)
		}
	}
	if r.Meta, err = erasedMeta(m, f.receipts); err != nil {
		return 0, err
	}
	if len(r.Records) == 0 && r.Meta == nil {
		return len(raw), nil
	}
	return len(raw), f.commit(ctx, r)
}

// pick reads the first of some records as they are stored.
func (f *finishing) pick(ctx context.Context, seqs []uint64) ([]backend.Record, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	raw, err := f.store.backend.Read(ctx, f.h.key.name(), f.creation, seqs, eraseBytes)
	if err == nil && len(raw) == 0 {
		err = errMissing(f.h.key, seqs[0])
	}
	return raw, err
}

// close makes the closing commit, unless a patch was logged that has to be looked at first.
func (f *finishing) close(ctx context.Context) (closed bool, err error) {
	s, key := f.store, f.h.key
	for range eraseTries {
		r, err := s.replay(ctx, key, newest)
		switch {
		case err != nil:
			return false, err
		case r.view.PatchSeq() > f.newest():
			return false, nil
		}
		plan := blanks.Plan{After: r.view}
		if slices.ContainsFunc(f.receipts, func(r erase.Receipt) bool { return r.Of.Summaries == patch.RevertSummaries }) {
			if plan, err = f.reverts(ctx, key, r.view, nil); err != nil {
				return false, err
			}
		} else if !f.keeps() {
			plan.Left = blanks.Visible(r.view)
		}
		plan.Reverts = f.complete(plan.Reverts)
		err = f.locked(ctx, func() (err error) {
			closed, err = f.closeOn(ctx, r, plan.Reverts)
			return err
		})
		if closed && err == nil {
			f.ended[key] = reverted{plan.Summaries, plan.Left}
		}
		if closed || err != nil {
			return closed, err
		}
	}
	return false, fmt.Errorf("session %s: %w: others are erasing", key, ErrConflict)
}

// newest returns the seq of the newest patch that is known to stand for nothing that is
// erased, but for what the receipts cover.
func (f *finishing) newest() uint64 { return max(f.looked, f.receipts[len(f.receipts)-1].Seq) }

// closeOn makes the closing commit that was planned on a view, if only events have been logged since. The caller
// holds the handle's lock. Errors are the backend's.
func (f *finishing) closeOn(ctx context.Context, r replayed, reverts []*patch.PatchEvent) (closed bool, err error) {
	s, key := f.store, f.h.key
	head, _, err := f.head(ctx)
	if err != nil {
		return false, err
	}
	change := backend.Replacement{Creation: f.creation, Last: head.Last, Seen: head.Token, Next: newToken(), Chain: head.Chain}
	if change.Records, err = f.closedReceipts(ctx, head.Last); err != nil || len(change.Records) == 0 {
		return err == nil, err // by another process, or by a try whose outcome was unknown
	}
	patchSeq := r.view.PatchSeq()
	if head.Edition != r.view.Edition() {
		return false, nil
	}
	if err := s.foldUpTo(ctx, key, &head, &r, newest); err != nil || r.view.PatchSeq() != patchSeq {
		return false, err
	}
	after, appended, err := f.draftReverts(ctx, r.view, reverts)
	if err != nil {
		return false, err
	}
	counts := countsOf(head)
	counts.patched = true
	counts = counts.of(after)
	change.Appended, change.Counts = appended, counts.encode()
	if err := f.commit(ctx, change); err != nil {
		return false, err
	}
	f.h.drop()
	f.h.snapshot.Store(nil)
	if now, err := backend.HeadOf(ctx, s.backend, key.name()); err == nil && now.Token == change.Next { // else the next reader reads it
		f.h.publish(current{after.WithEdition(now.Edition), now.Token, now.Chain, counts})
		s.maybeSnapshot(f.h, after)
	}
	return true, nil
}

// closedReceipts returns the receipts of which the log does not say yet that they are closed, as it shall say it.
func (f *finishing) closedReceipts(ctx context.Context, last uint64) (out []backend.Replaced, err error) {
	var seqs []uint64
	for _, r := range f.receipts {
		seqs = append(seqs, r.Seq)
	}
	slices.Sort(seqs)
	for len(seqs) > 0 {
		raw, err := f.pick(ctx, seqs)
		if err != nil {
			return nil, err
		}
		for i, old := range raw {
			is, err := decode(f.h.key, seqs[i], old)
			if err != nil {
				return nil, err
			}
			if of, ok := is.Patch.Erasure(); !ok || of.Closed > 0 {
				continue
			}
			is.Patch = is.Patch.WithClosed(last)
			one, err := f.store.replaced(old, is)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		seqs = seqs[len(raw):]
	}
	return out, nil
}

// complete gives reverts what they say besides: ids, a time, the author of the receipt, and a group.
func (f *finishing) complete(reverts []*patch.PatchEvent) []*patch.PatchEvent {
	s, group := f.store, ""
	if len(reverts) > 1 {
		group = s.opts.NewID()
	}
	out := make([]*patch.PatchEvent, len(reverts))
	for i, p := range reverts {
		out[i] = patch.Complete(patch.Record{Patch: p.WithAuthor(f.receipts[0].Patch.Author()).WithGroup(group)}, s.opts.NewID, s.opts.Now()).Patch
	}
	return out
}

// draftReverts returns the records of reverts, and the view after them.
func (f *finishing) draftReverts(ctx context.Context, v fold.View, reverts []*patch.PatchEvent) (fold.View, []backend.Record, error) {
	var records []patch.Record
	var raw []backend.Record
	base := v.PatchSeq()
	for i, p := range reverts {
		r := patch.Record{Seq: v.Seq() + 1 + uint64(i), Patch: p.WithBase(base)}
		data, err := patch.AppendRecord(nil, r)
		if err != nil {
			return v, nil, err
		}
		one := backend.Record{Seq: r.Seq, IDs: slices.Collect(r.IDs()), Sum: recordform.Checksum(data), Data: compressRecord(data)}
		if id := groupOf(r); id != "" && i == 0 {
			one.IDs = append(one.IDs, id)
		}
		records, raw, base = append(records, r), append(raw, one), r.Seq
	}
	after, err := f.store.foldRecords(ctx, f.h.key, f.creation, v, records)
	return after, raw, err
}

// head returns the session's head, and what it was created with.
func (f *finishing) head(ctx context.Context) (backend.Head, meta, error) {
	head, m, err := f.store.head(ctx, f.h.key)
	switch {
	case err != nil:
	case head.Creation != f.creation:
		err = fmt.Errorf("session %s: %w: it was created again since", f.h.key, ErrNotFound)
	case head.Damaged != 0:
		err = inDoubt(f.h.key, head)
	}
	return head, m, err
}

// locked does a step with the session's lock, and again if the log has moved on, or if it is
// not known whether the step took place: doing it twice is doing it once.
func (f *finishing) locked(ctx context.Context, do func() error) (err error) {
	for range eraseTries {
		if err := f.h.lock(ctx); err != nil {
			return err
		}
		err = do()
		f.h.unlock()
		if !errors.Is(err, backend.ErrMoved) && !errors.Is(err, backend.ErrUnknown) {
			break
		}
	}
	return fromBackend(f.h.key, err)
}

// commit makes a replacement. Errors are the backend's.
func (f *finishing) commit(ctx context.Context, r backend.Replacement) error {
	err := f.store.backend.Replace(ctx, f.h.key.name(), r)
	switch {
	case err == nil:
		f.h.wake()
	case errors.Is(err, backend.ErrUnknown):
		f.h.drop()
		if _, fenced := f.store.backend.Fence(ctx, f.h.key.name(), f.creation, r.Seen, newToken()); fenced != nil {
			return fmt.Errorf("%w: %w; and asking failed: %w", ErrOutcomeUnknown, causeOf(err), fenced)
		}
	}
	return err
}

// replaced puts a record in the place of a stored one.
func (s *Store) replaced(old backend.Record, r patch.Record) (backend.Replaced, error) {
	form, err := patch.AppendRecord(nil, r)
	return backend.Replaced{Seq: old.Seq, Old: old.Data, Data: compressRecord(form), OldSum: recordform.Checksum(old.Data), Sum: recordform.Checksum(form)}, err
}

// erasedMeta returns a session's meta record with values of the initial state null, or nil if it
// is as the receipts say.
func erasedMeta(m meta, receipts []erase.Receipt) ([]byte, error) {
	initial := maps.Clone(m.initial)
	if !erase.NullInitial(initial, receipts) {
		return nil, nil
	}
	return encodeMeta(meta{m.created, initial})
}

// late plans the erasing of what patches have put in since the first of the receipts, in the
// place of what these cover.
func (f *finishing) late(ctx context.Context) (*erasePlan, error) {
	receipts := slices.DeleteFunc(slices.Clone(f.receipts), erase.Receipt.Keeps)
	if len(receipts) == 0 {
		v, err := f.store.View(ctx, f.h.key)
		return &erasePlan{view: v}, err
	}
	after := receipts[0].Seq
	for _, r := range receipts {
		after = min(after, r.Seq)
	}
	e, first := *f.erasing, receipts[0]
	e.opts.Values, e.opts.Reason, e.opts.Summaries, e.opts.Author = first.Of.Values, first.Of.Reason, first.Of.Summaries, first.Patch.Author()
	return e.planLate(ctx, f.h.key, receipts, after)
}

// further logs a receipt of what patches have put in that came late.
func (f *finishing) further(ctx context.Context, late *erasePlan) error {
	author := f.receipts[slices.IndexFunc(f.receipts, func(r erase.Receipt) bool { return !r.Keeps() })].Patch.Author()
	p := patch.NewErase(late.of).WithAuthor(author)
	done, err := f.store.commit(ctx, f.h.key, f.creation, erasePlanned{p, late.view.PatchSeq(), late.view.Edition()})
	if err == nil {
		f.receipts = append(f.receipts, erase.ReceiptOf(done.Records[0]))
	}
	return err
}

// isErased reports whether nothing is left of what a receipt covers.
func (s *Store) isErased(ctx context.Context, key Key, creation string, initial map[string]patch.Value, r erase.Receipt) (bool, error) {
	if erase.NullInitial(maps.Clone(initial), []erase.Receipt{r}) {
		return false, nil
	}
	for seqs := range erase.Chunks(r.Of.Seqs, eraseRecords) {
		records, err := s.pick(ctx, key, creation, seqs)
		if err != nil {
			return false, err
		}
		for _, covered := range records {
			if r.Of.Blank(covered, r.ID()) != covered {
				return false, nil
			}
		}
	}
	return true, nil
}
