package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
//  2. Patches appended since the receipts may have put in events derived from the erased ones. Another receipt
//     covers those, and step 1 is repeated.
//  3. With no patch in between, one closing commit notes in the receipts that they are closed and logs the reverts of
//     blank summaries. It increments the log's edition: a patch made on an earlier edition conflicts ([errErased]).
type finishing struct {
	*erasing
	h        *handle
	creation string
	receipts []erase.Receipt
	looked   uint64 // no patch up to this one stands for what is erased, but for what the receipts cover
}

// finish completes the open receipts of a plan's session.
func (e *erasing) finish(ctx context.Context, p *erasePlan) error {
	h := e.store.cache.acquire(p.key)
	defer e.store.cache.release(h)
	f := finishing{erasing: e, h: h, creation: p.view.Creation(), receipts: slices.Clone(p.open)}
	f.looked = f.receipts[len(f.receipts)-1].Seq
	defer f.end(ctx)
	for {
		if err := f.blank(ctx); err != nil {
			return err
		}
		closed, err := f.close(ctx, p)
		if closed || err != nil {
			return err
		}
		if err := f.late(ctx); err != nil && !errors.Is(err, errReplan) {
			return err
		}
	}
}

// end removes erased text from the cached view and the search index.
func (f *finishing) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	if f.h.lock(ctx) == nil {
		now, err := backend.HeadOf(ctx, f.store.backend, f.h.key.name())
		if c := f.h.newest.Load(); c != nil && (err != nil || now.Edition != c.view.Edition()) {
			f.h.drop()
		}
		f.h.unlock()
	}
	f.store.changes.wake(f.h.key)
}

// blank replaces all that the receipts cover, with the values of the initial state.
func (f *finishing) blank(ctx context.Context) error {
	seqs := erase.Covered(f.receipts...)
	for first := true; first || len(seqs) > 0; first = false {
		n := 0
		err := f.locked(ctx, func() error {
			head, m, err := f.head(ctx)
			if err != nil {
				return err
			}
			r := f.replacement(head)
			r.Records, n, err = f.changed(ctx, seqs, func(is patch.Record) patch.Record { return erase.Blank(is, f.receipts) })
			if err != nil {
				return err
			}
			if initial := maps.Clone(m.initial); erase.NullInitial(initial, f.receipts) {
				if r.Meta, err = encodeMeta(meta{m.created, initial}); err != nil {
					return err
				}
			}
			if len(r.Records) == 0 && r.Meta == nil {
				return nil
			}
			return f.commit(ctx, r)
		})
		if err != nil {
			return err
		}
		seqs = seqs[n:]
	}
	return nil
}

// changed reads the first of some records, as many as one commit should replace, and returns the replacements of those
// that change changes. n is how many it read.
func (f *finishing) changed(ctx context.Context, seqs []uint64, change func(patch.Record) patch.Record) (out []backend.Replaced, n int, err error) {
	if len(seqs) == 0 {
		return nil, 0, nil
	}
	raw, err := f.store.backend.Read(ctx, f.h.key.name(), f.creation, seqs[:min(len(seqs), eraseRecords)], eraseBytes)
	if err == nil && len(raw) == 0 {
		err = errMissing(f.h.key, seqs[0])
	}
	for i, old := range raw {
		was, err := decode(f.h.key, seqs[i], old)
		if err != nil {
			return nil, 0, err
		}
		if is := change(was); is != was {
			form, err := patch.AppendRecord(nil, is)
			if err != nil {
				return nil, 0, err
			}
			out = append(out, backend.Replaced{Seq: old.Seq, Old: old.Data, Data: compressRecord(form), OldSum: recordform.Checksum(old.Data), Sum: recordform.Checksum(form)})
		}
	}
	return out, len(raw), err
}

// close makes the closing commit, unless a patch was logged that has to be looked at first.
func (f *finishing) close(ctx context.Context, p *erasePlan) (closed bool, err error) {
	is := func(policy patch.SummaryPolicy) func(erase.Receipt) bool {
		return func(r erase.Receipt) bool { return r.Of.Summaries == policy }
	}
	for range eraseTries {
		r, _, err := f.store.replay(ctx, f.h.key, newest, scopesQuery{})
		switch {
		case err != nil:
			return false, err
		case r.view.PatchSeq() > f.looked:
			return false, nil
		}
		plan := blanks.Plan{After: r.view}
		if slices.ContainsFunc(f.receipts, is(patch.RevertSummaries)) {
			if plan, err = f.reverts(ctx, f.h.key, r.view, nil); err != nil {
				return false, err
			}
		} else if !f.keeps() {
			plan.NotReverted = blanks.Visible(r.view)
		}
		err = f.locked(ctx, func() (err error) {
			closed, err = f.closeOn(ctx, r, plan.Reverts)
			return err
		})
		if closed && err == nil {
			p.reverted, p.blank = plan.Summaries, plan.NotReverted
		}
		if closed || err != nil {
			return closed, err
		}
	}
	return false, fmt.Errorf("session %s: %w: others are erasing", f.h.key, ErrConflict)
}

// closeOn makes the closing commit that was planned on a view, if only events have been logged since. The caller
// holds the handle's lock. Errors are the backend's.
func (f *finishing) closeOn(ctx context.Context, r replayed, reverts []*patch.PatchEvent) (closed bool, err error) {
	s, key := f.store, f.h.key
	head, _, err := f.head(ctx)
	if err != nil {
		return false, err
	}
	change := f.replacement(head)
	var seqs []uint64
	for _, r := range f.receipts {
		seqs = append(seqs, r.Seq)
	}
	slices.Sort(seqs)
	for len(seqs) > 0 {
		receipts, n, err := f.changed(ctx, seqs, func(is patch.Record) patch.Record {
			if of, ok := is.Patch.Erasure(); ok && of.ClosedAt == 0 {
				of.ClosedAt = change.ExpectedLast
				is.Patch = patch.NewErase(of).WithID(is.ID()).WithAuthor(is.Patch.Author()).WithTimestamp(is.Patch.Timestamp())
			}
			return is
		})
		if err != nil {
			return false, err
		}
		change.Records, seqs = append(change.Records, receipts...), seqs[n:]
	}
	if len(change.Records) == 0 { // by another process, or by a try whose outcome was unknown
		return true, nil
	}
	patchSeq := r.view.PatchSeq()
	if head.Edition != r.view.Edition() {
		return false, nil
	}
	if err := s.foldUpTo(ctx, key, head, &r, newest, nil); err != nil || r.view.PatchSeq() != patchSeq {
		return false, err
	}
	var d draft
	d.group = new(group)
	records := s.complete(s.grouped(r.view, f.receipts[0].Patch.Author(), reverts))
	for _, r := range records {
		data, err := patch.AppendRecord(nil, r)
		if err != nil {
			return false, err
		}
		d.put(r, data)
	}
	after, err := s.foldRecords(ctx, key, f.creation, r.view, records)
	if err != nil {
		return false, err
	}
	counts := countsOf(head) // to erase is not to use
	counts.patched = true
	counts = counts.of(after)
	compress(d.batch)
	change.Appended, change.Counts = d.batch, counts.encode()
	if err := f.commit(ctx, change); err != nil {
		return false, err
	}
	f.h.drop()
	f.h.snapshot.Store(nil)
	if now, err := backend.HeadOf(ctx, s.backend, key.name()); err == nil && now.Token == change.Next { // else the next reader reads it
		f.h.publish(current{view: after.WithEdition(now.Edition), token: now.Token, chain: now.Chain, counts: counts})
		s.maybeSnapshot(f.h, after)
	}
	return true, nil
}

// replacement returns a replacement of nothing yet.
func (f *finishing) replacement(head backend.Head) backend.Replacement {
	return backend.Replacement{Creation: f.creation, ExpectedLast: head.Last, ExpectedToken: head.Token, Next: backend.NewToken(), Chain: head.Chain}
}

// head returns the session's head, and the meta that it was created with.
func (f *finishing) head(ctx context.Context) (backend.Head, meta, error) {
	head, m, err := f.store.soundHead(ctx, f.h.key)
	if err == nil && head.Creation != f.creation {
		err = errCreatedAgain(f.h.key)
	}
	return head, m, err
}

// locked calls do with the session's lock, and again if the log has moved on, or if it is
// not known whether the step took place: each step is idempotent.
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
		f.store.changes.wake(f.h.key)
	case errors.Is(err, backend.ErrUnknown):
		f.h.drop()
		if _, fenced := f.store.backend.Fence(ctx, f.h.key.name(), f.creation, r.ExpectedToken, backend.NewToken()); fenced != nil {
			return fromBackend(Key{}, stillUnknown(err, fenced)) // it is not tried again
		}
	}
	return err
}

// late logs a receipt of the events that patches appended since the receipts have put in for covered ones.
func (f *finishing) late(ctx context.Context) error {
	receipts := slices.DeleteFunc(slices.Clone(f.receipts), erase.Receipt.Keeps)
	if len(receipts) == 0 { // which cover no more than they say
		receipts = f.receipts
	}
	e := f.resume(receipts...)
	p, err := e.plan(ctx, f.h.key, nil)
	if err != nil {
		return err
	}
	if len(p.events) == 0 {
		f.looked = p.view.PatchSeq()
		return nil
	}
	if err = e.logReceipt(ctx, f.h.key, p); err == nil {
		f.receipts = append(f.receipts, erase.ReceiptOf(p.receipt))
		f.looked = p.receipt.Seq
	}
	return err
}
