package erase

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Limits of a commit that replaces records. Other writers wait for such a commit.
const (
	maxRecords = 64
	maxBytes   = 1 << 18
)

// maxUnknownTries limits how often in a row a commit with an unknown outcome is tried.
const maxUnknownTries = 4

// logReceipt logs the call's next receipt in a loaded session. The receipt covers all content to erase there. The
// argument done marks the call as done, for a call without work in other sessions. If an erasure has committed since
// the session was loaded, logReceipt fails with [ErrLogChanged].
func (c *Call) logReceipt(ctx context.Context, e *Erased, l *loaded, done bool) (receipt.Receipt, error) {
	creation := l.Head.Creation
	fields := c.receiptFields()
	fields.Values, fields.Reason, fields.Summaries, fields.Context, fields.MaxGrowth = c.opts.Values, c.opts.Reason, c.opts.Summaries, c.opts.Context, c.opts.MaxGrowth
	fields.Session, fields.Seen, fields.Done, fields.OfUser = creation, l.Head.Last, done, e == c.own && c.opts.User != nil
	for _, name := range c.initial {
		if _, found := l.Initial[name]; found {
			fields.Initial = append(fields.Initial, name)
		}
	}
	slices.Sort(fields.Initial)
	l.scan.Cover(&fields, l.scan.Events(c.sel.Hidden.IsZero()))
	n := 0
	for _, r := range l.scan.Receipts {
		if r.IsOfCall(fields, creation) {
			n++
		}
	}
	p := patch.NewErase(fields).WithID(receipt.ID(fields, n)).WithAuthor(c.opts.Author).WithBase(l.view.PatchSeq())
	r := c.log.Complete([]patch.Record{{Patch: p}})[0]
	var raw backend.Record
	_, err := c.commit(ctx, l, func(head backend.Head) (rep backend.Replacement, err error) {
		if head.Edition != l.Head.Edition {
			return rep, ErrLogChanged
		}
		r.Seq = head.Last + 1
		if raw, err = encode(r); err != nil {
			return rep, err
		}
		added := write.Counts{Open: 1}
		if creation == fields.CallSession && !done {
			added.Calls = 1
		}
		return backend.Replacement{Appended: []backend.Record{raw}, Counts: addCounts(head, added)}, nil
	})
	if errors.Is(err, backend.ErrTaken) || errors.Is(err, backend.ErrUnknown) || errors.Is(err, ErrLogChanged) {
		// An earlier attempt or another process may have logged the receipt.
		seqs, lookup := c.log.lookup(ctx, l.Name, creation, r.ID())
		if lookup != nil || seqs[0] == 0 {
			return receipt.Receipt{}, cmp.Or(lookup, c.log.WrapError(l.Name, err))
		}
		records, raws, pick := c.log.ReadRecords(ctx, l.Name, creation, seqs)
		if pick != nil {
			return receipt.Receipt{}, pick
		}
		r, raw, err = records[0], raws[0], nil
		l.raw, l.Head.Edition = map[uint64]backend.Record{}, 0 // the cached records may be out of date
	} else if err == nil {
		l.Head.Edition++
	}
	if err != nil {
		return receipt.Receipt{}, c.log.WrapError(l.Name, err)
	}
	l.raw[r.Seq] = raw
	e.Receipt = r
	return receipt.Decode(r), nil
}

// commit commits a replacement. After an unknown outcome it tries again, because a repeated or late commit changes
// nothing. The result moved reports that the records to replace have changed since they were read.
func (c *Call) commit(ctx context.Context, l *loaded, make func(backend.Head) (backend.Replacement, error)) (moved bool, err error) {
	for n := 1; ; n++ {
		err := c.log.Replace(ctx, l.Name, l.Head.Creation, make)
		switch {
		case errors.Is(err, backend.ErrUnknown) && n < maxUnknownTries && ctx.Err() == nil:
			continue
		case errors.Is(err, backend.ErrMoved):
			return true, nil
		}
		return false, err
	}
}

// encode returns a record in its stored form.
func encode(r patch.Record) (backend.Record, error) {
	form, err := patch.AppendRecord(nil, r)
	if err != nil {
		return backend.Record{}, err
	}
	return backend.Record{Seq: r.Seq, Sum: recordform.Checksum(form), Data: write.Compress(form), IDs: write.IndexIDs(r)}, nil
}

// addCounts returns the head's counts plus added.
func addCounts(head backend.Head, added write.Counts) []byte {
	c := write.CountsOf(head)
	c.Visible, c.VisibleTokens = c.Visible+added.Visible, c.VisibleTokens+added.VisibleTokens
	c.Open, c.Calls = max(c.Open+added.Open, 0), max(c.Calls+added.Calls, 0)
	return c.Encode()
}

// finisher is the work on an open receipt of a session:
//
//  1. Patches may have been logged after the log was read and before the receipt. If so, the log is read again, and the
//     receipt is extended to the events that these patches inserted for erased ones. Patches after the receipt wait
//     until the receipt is closed.
//  2. All covered content is replaced by blanks, in bounded commits. If the process ends here, the receipt stays open.
//     The next erasure repeats this step, which leaves blanks unchanged.
//  3. The closing commit marks the receipt as closed and logs the reverts of blank summaries.
//
// Each commit increments the log's edition, so anything planned on an earlier edition conflicts. A commit depends
// only on the records that it replaces, so other writers cannot make it fail. The closing commit also depends on the
// edition, because it plans reverts.
type finisher struct {
	*Call
	entry     *Erased
	receipt   receipt.Receipt
	loaded    *loaded // nil if the session must be read
	erasedIDs map[string]bool
	done      bool
}

// finish completes an open receipt. l is the session as it was read for the receipt, or nil. The argument done also
// marks the call as done.
func (c *Call) finish(ctx context.Context, e *Erased, r receipt.Receipt, l *loaded, done bool) error {
	f := &finisher{Call: c, entry: e, receipt: r, loaded: l, erasedIDs: e.ids(), done: done}
	if l != nil && l.Head.Edition == 0 {
		f.loaded = nil
	}
	err := f.extendReceipt(ctx)
	if err == nil {
		err = f.blankRecords(ctx)
	}
	if err == nil {
		err = f.close(ctx)
	}
	return err
}

// reload reads the session again and collects the covered content and the content derived from it. It reports whether
// there is derived content that the receipt does not cover.
func (f *finisher) reload(ctx context.Context) (more bool, err error) {
	l, err := load(ctx, f.log, f.entry.Name, chooseBy(f.receipt.Covers), f.receipt.Erasure.Values)
	if err != nil {
		return false, err
	}
	covered := len(l.scan.Selected)
	if !f.receipt.KeepsSummaries() {
		if err := l.scan.Spread(l.view, f.receipt.Erasure.Context); err != nil {
			return false, err
		}
	}
	f.loaded, f.erasedIDs = l, map[string]bool{}
	for _, event := range l.scan.Events(false) {
		f.erasedIDs[event.ID] = true
	}
	return len(l.scan.Selected) > covered, nil
}

// extendReceipt extends the receipt to events that patches inserted after the log was read.
func (f *finisher) extendReceipt(ctx context.Context) error {
	for !f.receipt.KeepsSummaries() && f.receipt.Erasure.Seen+1 < f.receipt.Seq {
		between, _, err := f.log.ReadRecords(ctx, f.entry.Name, f.entry.Head.Creation, backend.Range(f.receipt.Erasure.Seen+1, int(f.receipt.Seq-f.receipt.Erasure.Seen-1)))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(between, func(r patch.Record) bool { return r.Patch != nil && !receipt.IsReceipt(r) }) {
			return nil
		}
		more, err := f.reload(ctx)
		if err != nil || !more {
			return err
		}
		fields := f.receipt.Erasure
		fields.Seqs, fields.EventIndices, fields.Seen = nil, nil, f.receipt.Seq-1
		f.loaded.scan.Cover(&fields, slices.DeleteFunc(f.loaded.scan.Events(true), func(e Event) bool { return e.Seq >= f.receipt.Seq }))
		if err := f.updateReceipt(ctx, fields, write.Counts{}); err != nil {
			return err
		}
		if f.loaded == nil { // another process has changed the receipt
			continue
		}
		for ref := range f.loaded.scan.Selected {
			f.entry.toErase[ref] = true
		}
		f.entry.add(pendingContent{events: f.loaded.scan.Events(false)})
	}
	return nil
}

// updateReceipt replaces the fields of the receipt. If another process has changed the receipt meanwhile,
// updateReceipt only reads the receipt again.
func (f *finisher) updateReceipt(ctx context.Context, fields patch.Erasure, added write.Counts) error {
	old, err := f.storedReceipt(ctx)
	if err != nil {
		return err
	}
	changed, err := f.rewriteReceipt(fields, old)
	if err != nil {
		return err
	}
	moved, err := f.commit(ctx, f.loaded, func(head backend.Head) (backend.Replacement, error) {
		return backend.Replacement{Records: []backend.Replaced{changed}, Counts: addCounts(head, added)}, nil
	})
	if moved {
		return f.rereadReceipt(ctx)
	}
	if err != nil {
		return f.log.WrapError(f.entry.Name, err)
	}
	f.receipt = receipt.Decode(f.receipt.Record)
	f.loaded.raw[f.receipt.Seq] = backend.Record{Seq: f.receipt.Seq, Data: changed.Data}
	f.loaded.Head.Edition++
	return nil
}

// storedReceipt returns the receipt in its stored form.
func (f *finisher) storedReceipt(ctx context.Context) (backend.Record, error) {
	if f.loaded != nil {
		if raw, found := f.loaded.raw[f.receipt.Seq]; found {
			return raw, nil
		}
	}
	_, raws, err := f.log.ReadRecords(ctx, f.entry.Name, f.entry.Head.Creation, []uint64{f.receipt.Seq})
	if err != nil {
		return backend.Record{}, err
	}
	return raws[0], nil
}

// rereadReceipt reads the receipt again and discards the loaded session.
func (f *finisher) rereadReceipt(ctx context.Context) error {
	records, _, err := f.log.ReadRecords(ctx, f.entry.Name, f.entry.Head.Creation, []uint64{f.receipt.Seq})
	if err == nil {
		f.receipt, f.loaded = receipt.Decode(records[0]), nil
	}
	return err
}

// rewriteReceipt changes the fields of the receipt and returns the replacement of its stored form.
func (f *finisher) rewriteReceipt(fields patch.Erasure, old backend.Record) (backend.Replaced, error) {
	previous := f.receipt.Patch
	f.receipt.Patch = patch.NewErase(fields).WithID(previous.ID()).WithAuthor(previous.Author()).WithTimestamp(previous.Timestamp())
	if base, ok := previous.Base(); ok {
		f.receipt.Patch = f.receipt.Patch.WithBase(base)
	}
	return f.replacement(old, f.receipt.Record)
}

func (f *finisher) replacement(old backend.Record, updated patch.Record) (backend.Replaced, error) {
	raw, err := encode(updated)
	return backend.Replaced{Seq: old.Seq, Old: old.Data, Data: raw.Data, OldSum: recordform.Checksum(old.Data), Sum: raw.Sum}, err
}

// blankRecords replaces all covered records by blanks and sets covered values of the initial state to null.
func (f *finisher) blankRecords(ctx context.Context) error {
	if err := f.nullInitial(ctx); err != nil {
		return err
	}
	seqs := receipt.CoveredSeqs(f.receipt)
	for len(seqs) > 0 {
		changed, n, err := f.nextBlanks(ctx, seqs)
		if err != nil {
			return err
		}
		if len(changed) > 0 {
			moved, err := f.replace(ctx, backend.Replacement{Records: changed})
			if moved {
				f.loaded = nil
				continue
			}
			if err != nil {
				return err
			}
		}
		seqs = seqs[n:]
	}
	return nil
}

// replace commits a replacement that depends only on the records that it replaces.
func (f *finisher) replace(ctx context.Context, r backend.Replacement) (moved bool, err error) {
	l := f.loaded
	if l == nil {
		l = &loaded{Session: f.entry.Session}
	}
	if moved, err = f.commit(ctx, l, func(backend.Head) (backend.Replacement, error) { return r, nil }); err == nil && !moved {
		l.Head.Edition++
	}
	return moved, f.log.WrapError(f.entry.Name, err)
}

// nullInitial sets the covered values of the initial state to null.
func (f *finisher) nullInitial(ctx context.Context) error {
	for len(f.receipt.Erasure.Initial) > 0 {
		s, err := f.log.Session(ctx, f.entry.Name)
		if err != nil {
			return err
		}
		old := s.Head.Meta
		if s.Initial = maps.Clone(s.Initial); !receipt.NullInitial(s.Initial, []receipt.Receipt{f.receipt}) {
			return nil
		}
		meta, err := f.log.EncodeMeta(s)
		if err != nil {
			return err
		}
		if moved, err := f.replace(ctx, backend.Replacement{OldMeta: old, Meta: meta}); !moved {
			return err
		}
	}
	return nil
}

// nextBlanks returns the blanks of the first records, within the limits of a commit. n is the number of records that it
// examined.
func (f *finisher) nextBlanks(ctx context.Context, seqs []uint64) (out []backend.Replaced, n int, err error) {
	seqs = seqs[:min(len(seqs), maxRecords)]
	var records []patch.Record
	var raws []backend.Record
	cached := false
	if f.loaded != nil {
		records, raws, cached = f.loaded.cachedRecords(seqs)
	}
	if !cached {
		if records, raws, err = f.log.ReadRecords(ctx, f.entry.Name, f.entry.Head.Creation, seqs); err != nil {
			return nil, 0, err
		}
	}
	size := 0
	for i, original := range records {
		if size += len(raws[i].Data); i > 0 && size > maxBytes {
			break
		}
		n++
		if blank := receipt.Blank(original, []receipt.Receipt{f.receipt}); blank != original {
			changed, err := f.replacement(raws[i], blank)
			if err != nil {
				return nil, 0, err
			}
			out = append(out, changed)
		}
	}
	return out, n, nil
}

func (f *finisher) close(ctx context.Context) error {
	for f.receipt.Erasure.ClosedAt == 0 {
		err := f.closeOnce(ctx)
		if errors.Is(err, ErrLogChanged) {
			err = f.rereadReceipt(ctx)
		}
		if err != nil {
			return err
		}
	}
	if f.done && !f.receipt.Erasure.Done {
		return f.markDone(ctx)
	}
	return nil
}

func (f *finisher) closeOnce(ctx context.Context) error {
	if f.loaded == nil {
		if _, err := f.reload(ctx); err != nil {
			return err
		}
	}
	l := f.loaded
	plan := blanks.Plan{After: l.view}
	var err error
	switch f.receipt.Erasure.Summaries {
	case patch.RevertSummaries:
		if plan, err = f.reverts(ctx, l, f.erasedIDs); err != nil {
			return err
		}
	case patch.BlankSummaries:
		plan.NotReverted = blanks.VisibleSummaries(l.view, f.erasedIDs)
	}
	reverts := f.log.Complete(fold.Grouped(l.view, f.receipt.Patch.Author(), f.log.NewID, plan.Reverts))
	tokens := 0
	for _, event := range plan.After.Events() {
		if f.erasedIDs[event.ID()] {
			event = event.Blank("", f.receipt.Erasure.Values)
		}
		tokens += event.EstimatedTokens()
	}
	old, err := f.storedReceipt(ctx)
	if err != nil {
		return err
	}
	added := write.Counts{Visible: plan.After.Len() - l.view.Len(), VisibleTokens: tokens - write.CountsOf(l.Head).VisibleTokens, Open: -1}
	fields := f.receipt.Erasure
	if f.done && !fields.Done {
		fields.Done, added.Calls = true, -1
	}
	seq := f.receipt.Seq
	moved, err := f.commit(ctx, l, func(head backend.Head) (rep backend.Replacement, err error) {
		if head.Edition != l.Head.Edition {
			return rep, ErrLogChanged
		}
		fields.ClosedAt = head.Last
		changed, err := f.rewriteReceipt(fields, old)
		if err != nil {
			return rep, err
		}
		rep.Records = []backend.Replaced{changed}
		base := max(l.view.PatchSeq(), seq)
		for i, r := range reverts {
			r.Seq = head.Last + 1 + uint64(i)
			r.Patch, base = r.Patch.WithBase(base), r.Seq
			raw, err := encode(r)
			if err != nil {
				return rep, err
			}
			rep.Appended = append(rep.Appended, raw)
		}
		rep.Counts = addCounts(head, added)
		return rep, nil
	})
	if moved {
		return ErrLogChanged
	}
	if err != nil {
		return f.log.WrapError(f.entry.Name, err)
	}
	f.receipt = receipt.Decode(f.receipt.Record)
	if f.entry.Receipt.Seq == seq {
		f.entry.Receipt = f.receipt.Record
	}
	f.entry.Reverted, f.entry.Blank = append(f.entry.Reverted, plan.Summaries...), plan.NotReverted
	return nil
}

// markDone marks the call as done in its first receipt.
func (c *Call) markDone(ctx context.Context) error {
	fields := c.receiptFields()
	fields.Session = fields.CallSession
	for {
		seqs, err := c.log.lookup(ctx, c.own.Name, c.own.Head.Creation, receipt.ID(fields, 0))
		if err != nil {
			return err
		}
		records, raws, err := c.log.ReadRecords(ctx, c.own.Name, c.own.Head.Creation, seqs)
		if err != nil {
			return err
		}
		f := &finisher{Call: c, entry: c.own, receipt: receipt.Decode(records[0])}
		f.loaded = &loaded{Session: c.own.Session, raw: map[uint64]backend.Record{seqs[0]: raws[0]}}
		if f.receipt.Erasure.Done {
			c.own.Receipt = f.receipt.Record
			return nil
		}
		done := f.receipt.Erasure
		done.Done = true
		if err := f.updateReceipt(ctx, done, write.Counts{Calls: -1}); err != nil {
			return err
		}
	}
}
