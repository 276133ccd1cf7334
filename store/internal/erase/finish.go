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

// unknownTries limits how often in a row a commit with an unknown outcome is tried.
const unknownTries = 4

// logReceipt logs the call's next receipt in a loaded session. The receipt covers all content to erase there. The
// argument done marks the call as done, for a call without work in other sessions. If an erasure has committed since
// the session was loaded, logReceipt fails with [ErrEdition].
func (c *Call) logReceipt(ctx context.Context, e *Erased, l *loaded, done bool) (receipt.Receipt, error) {
	creation := l.Head.Creation
	of := c.call()
	of.Values, of.Reason, of.Summaries, of.Context, of.MaxGrowth = c.opts.Values, c.opts.Reason, c.opts.Summaries, c.opts.Context, c.opts.MaxGrowth
	of.Session, of.Seen, of.Done, of.OfUser = creation, l.Head.Last, done, e == c.own && c.opts.User != nil
	for _, name := range c.initial {
		if _, there := l.Initial[name]; there {
			of.Initial = append(of.Initial, name)
		}
	}
	slices.Sort(of.Initial)
	l.scan.Cover(&of, l.scan.Events(c.sel.Hidden.IsZero()))
	n := 0
	for _, r := range l.scan.Receipts {
		if r.IsOfCall(of, creation) {
			n++
		}
	}
	p := patch.NewErase(of).WithID(receipt.ID(of, n)).WithAuthor(c.opts.Author).WithBase(l.view.PatchSeq())
	r := c.log.Complete([]patch.Record{{Patch: p}})[0]
	var raw backend.Record
	_, err := c.commit(ctx, l, func(head backend.Head) (rep backend.Replacement, err error) {
		if head.Edition != l.Head.Edition {
			return rep, ErrEdition
		}
		r.Seq = head.Last + 1
		if raw, err = encode(r); err != nil {
			return rep, err
		}
		added := write.Counts{Open: 1}
		if creation == of.CallSession && !done {
			added.Calls = 1
		}
		return backend.Replacement{Appended: []backend.Record{raw}, Counts: counted(head, added)}, nil
	})
	if errors.Is(err, backend.ErrTaken) || errors.Is(err, backend.ErrUnknown) || errors.Is(err, ErrEdition) {
		// An earlier attempt or another process may have logged the receipt.
		seqs, lookup := c.log.lookup(ctx, l.Name, creation, r.ID())
		if lookup != nil || seqs[0] == 0 {
			return receipt.Receipt{}, cmp.Or(lookup, c.log.Named(l.Name, err))
		}
		records, raws, pick := c.log.Pick(ctx, l.Name, creation, seqs)
		if pick != nil {
			return receipt.Receipt{}, pick
		}
		r, raw, err = records[0], raws[0], nil
		l.raw, l.Head.Edition = map[uint64]backend.Record{}, 0 // the cached records may be out of date
	} else if err == nil {
		l.Head.Edition++
	}
	if err != nil {
		return receipt.Receipt{}, c.log.Named(l.Name, err)
	}
	l.raw[r.Seq] = raw
	e.Receipt = r
	return receipt.Of(r), nil
}

// commit commits a replacement. After an unknown outcome it tries again, because a repeated or late commit changes
// nothing. The result moved reports that the records to replace have changed since they were read.
func (c *Call) commit(ctx context.Context, l *loaded, make func(backend.Head) (backend.Replacement, error)) (moved bool, err error) {
	for n := 1; ; n++ {
		err := c.log.Replace(ctx, l.Name, l.Head.Creation, make)
		switch {
		case errors.Is(err, backend.ErrUnknown) && n < unknownTries && ctx.Err() == nil:
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
	return backend.Record{Seq: r.Seq, Sum: recordform.Checksum(form), Data: write.Compress(form), IDs: write.IDs(r)}, nil
}

// counted returns the head's counts plus added.
func counted(head backend.Head, added write.Counts) []byte {
	c := write.CountsOf(head)
	c.Visible, c.VisibleTokens = c.Visible+added.Visible, c.VisibleTokens+added.VisibleTokens
	c.Open, c.Calls = max(c.Open+added.Open, 0), max(c.Calls+added.Calls, 0)
	return c.Encode()
}

// finishing is the work on an open receipt of a session:
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
type finishing struct {
	*Call
	e    *Erased
	r    receipt.Receipt
	l    *loaded // nil if the session must be read
	goes map[string]bool
	done bool
}

// finish completes an open receipt. l is the session as it was read for the receipt, or nil. The argument done also
// marks the call as done.
func (c *Call) finish(ctx context.Context, e *Erased, r receipt.Receipt, l *loaded, done bool) error {
	f := &finishing{Call: c, e: e, r: r, l: l, goes: e.ids(), done: done}
	if l != nil && l.Head.Edition == 0 {
		f.l = nil
	}
	err := f.note(ctx)
	if err == nil {
		err = f.blank(ctx)
	}
	if err == nil {
		err = f.close(ctx)
	}
	return err
}

// read reads the session again and collects the covered content and the content derived from it. It reports whether
// there is derived content that the receipt does not cover.
func (f *finishing) read(ctx context.Context) (more bool, err error) {
	l, err := load(ctx, f.log, f.e.Name, chooseBy(f.r.Covers), f.r.Of.Values)
	if err != nil {
		return false, err
	}
	covered := len(l.scan.Set)
	if !f.r.Keeps() {
		if err := l.scan.Spread(l.view, f.r.Of.Context); err != nil {
			return false, err
		}
	}
	f.l, f.goes = l, map[string]bool{}
	for _, event := range l.scan.Events(false) {
		f.goes[event.ID] = true
	}
	return len(l.scan.Set) > covered, nil
}

// note extends the receipt to events that patches inserted after the log was read.
func (f *finishing) note(ctx context.Context) error {
	for !f.r.Keeps() && f.r.Of.Seen+1 < f.r.Seq {
		between, _, err := f.log.Pick(ctx, f.e.Name, f.e.Head.Creation, backend.Range(f.r.Of.Seen+1, int(f.r.Seq-f.r.Of.Seen-1)))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(between, func(r patch.Record) bool { return r.Patch != nil && !receipt.Is(r) }) {
			return nil
		}
		more, err := f.read(ctx)
		if err != nil || !more {
			return err
		}
		of := f.r.Of
		of.Seqs, of.EventIndices, of.Seen = nil, nil, f.r.Seq-1
		f.l.scan.Cover(&of, slices.DeleteFunc(f.l.scan.Events(true), func(e Event) bool { return e.Seq >= f.r.Seq }))
		if err := f.change(ctx, of, write.Counts{}); err != nil {
			return err
		}
		if f.l == nil { // another process has changed the receipt
			continue
		}
		for ref := range f.l.scan.Set {
			f.e.goes[ref] = true
		}
		f.e.add(due{events: f.l.scan.Events(false)})
	}
	return nil
}

// change replaces the fields of the receipt. If another process has changed the receipt meanwhile, change only reads
// the receipt again.
func (f *finishing) change(ctx context.Context, of patch.Erasure, added write.Counts) error {
	old, err := f.stored(ctx)
	if err != nil {
		return err
	}
	changed, err := f.rewriteReceipt(of, old)
	if err != nil {
		return err
	}
	moved, err := f.commit(ctx, f.l, func(head backend.Head) (backend.Replacement, error) {
		return backend.Replacement{Records: []backend.Replaced{changed}, Counts: counted(head, added)}, nil
	})
	if moved {
		return f.reread(ctx)
	}
	if err != nil {
		return f.log.Named(f.e.Name, err)
	}
	f.r = receipt.Of(f.r.Record)
	f.l.raw[f.r.Seq] = backend.Record{Seq: f.r.Seq, Data: changed.Data}
	f.l.Head.Edition++
	return nil
}

// stored returns the receipt in its stored form.
func (f *finishing) stored(ctx context.Context) (backend.Record, error) {
	if f.l != nil {
		if raw, there := f.l.raw[f.r.Seq]; there {
			return raw, nil
		}
	}
	_, raws, err := f.log.Pick(ctx, f.e.Name, f.e.Head.Creation, []uint64{f.r.Seq})
	if err != nil {
		return backend.Record{}, err
	}
	return raws[0], nil
}

// reread reads the receipt again and discards the loaded session.
func (f *finishing) reread(ctx context.Context) error {
	records, _, err := f.log.Pick(ctx, f.e.Name, f.e.Head.Creation, []uint64{f.r.Seq})
	if err == nil {
		f.r, f.l = receipt.Of(records[0]), nil
	}
	return err
}

// rewriteReceipt changes the fields of the receipt and returns the replacement of its stored form.
func (f *finishing) rewriteReceipt(of patch.Erasure, old backend.Record) (backend.Replaced, error) {
	was := f.r.Patch
	f.r.Patch = patch.NewErase(of).WithID(was.ID()).WithAuthor(was.Author()).WithTimestamp(was.Timestamp())
	if base, ok := was.Base(); ok {
		f.r.Patch = f.r.Patch.WithBase(base)
	}
	return f.replaced(old, f.r.Record)
}

func (f *finishing) replaced(old backend.Record, is patch.Record) (backend.Replaced, error) {
	raw, err := encode(is)
	return backend.Replaced{Seq: old.Seq, Old: old.Data, Data: raw.Data, OldSum: recordform.Checksum(old.Data), Sum: raw.Sum}, err
}

// blank replaces all covered records by blanks and sets covered values of the initial state to null.
func (f *finishing) blank(ctx context.Context) error {
	if err := f.nullInitial(ctx); err != nil {
		return err
	}
	seqs := receipt.Covered(f.r)
	for len(seqs) > 0 {
		changed, n, err := f.changed(ctx, seqs)
		if err != nil {
			return err
		}
		if len(changed) > 0 {
			moved, err := f.replace(ctx, backend.Replacement{Records: changed})
			if moved {
				f.l = nil
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
func (f *finishing) replace(ctx context.Context, r backend.Replacement) (moved bool, err error) {
	l := f.l
	if l == nil {
		l = &loaded{Session: f.e.Session}
	}
	if moved, err = f.commit(ctx, l, func(backend.Head) (backend.Replacement, error) { return r, nil }); err == nil && !moved {
		l.Head.Edition++
	}
	return moved, f.log.Named(f.e.Name, err)
}

// nullInitial sets the covered values of the initial state to null.
func (f *finishing) nullInitial(ctx context.Context) error {
	for len(f.r.Of.Initial) > 0 {
		s, err := f.log.Session(ctx, f.e.Name)
		if err != nil {
			return err
		}
		old := s.Head.Meta
		if s.Initial = maps.Clone(s.Initial); !receipt.NullInitial(s.Initial, []receipt.Receipt{f.r}) {
			return nil
		}
		meta, err := f.log.Meta(s)
		if err != nil {
			return err
		}
		if moved, err := f.replace(ctx, backend.Replacement{OldMeta: old, Meta: meta}); !moved {
			return err
		}
	}
	return nil
}

// changed returns the blanks of the first records, within the limits of a commit. n is the number of records that it
// examined.
func (f *finishing) changed(ctx context.Context, seqs []uint64) (out []backend.Replaced, n int, err error) {
	seqs = seqs[:min(len(seqs), maxRecords)]
	var records []patch.Record
	var raws []backend.Record
	kept := false
	if f.l != nil {
		records, raws, kept = f.l.stored(seqs)
	}
	if !kept {
		if records, raws, err = f.log.Pick(ctx, f.e.Name, f.e.Head.Creation, seqs); err != nil {
			return nil, 0, err
		}
	}
	size := 0
	for i, was := range records {
		if size += len(raws[i].Data); i > 0 && size > maxBytes {
			break
		}
		n++
		if is := receipt.Blank(was, []receipt.Receipt{f.r}); is != was {
			changed, err := f.replaced(raws[i], is)
			if err != nil {
				return nil, 0, err
			}
			out = append(out, changed)
		}
	}
	return out, n, nil
}

func (f *finishing) close(ctx context.Context) error {
	for f.r.Of.ClosedAt == 0 {
		err := f.closeOnce(ctx)
		if errors.Is(err, ErrEdition) {
			err = f.reread(ctx)
		}
		if err != nil {
			return err
		}
	}
	if f.done && !f.r.Of.Done {
		return f.markDone(ctx)
	}
	return nil
}

func (f *finishing) closeOnce(ctx context.Context) error {
	if f.l == nil {
		if _, err := f.read(ctx); err != nil {
			return err
		}
	}
	l := f.l
	plan := blanks.Plan{After: l.view}
	var err error
	switch f.r.Of.Summaries {
	case patch.RevertSummaries:
		if plan, err = f.reverts(ctx, l, f.goes); err != nil {
			return err
		}
	case patch.BlankSummaries:
		plan.NotReverted = blanks.VisibleSummaries(l.view, f.goes)
	}
	reverts := f.log.Complete(fold.Grouped(l.view, f.r.Patch.Author(), f.log.NewID, plan.Reverts))
	tokens := 0
	for _, event := range plan.After.Events() {
		if f.goes[event.ID()] {
			event = event.Blank("", f.r.Of.Values)
		}
		tokens += event.EstimatedTokens()
	}
	old, err := f.stored(ctx)
	if err != nil {
		return err
	}
	added := write.Counts{Visible: plan.After.Len() - l.view.Len(), VisibleTokens: tokens - write.CountsOf(l.Head).VisibleTokens, Open: -1}
	of := f.r.Of
	if f.done && !of.Done {
		of.Done, added.Calls = true, -1
	}
	seq := f.r.Seq
	moved, err := f.commit(ctx, l, func(head backend.Head) (rep backend.Replacement, err error) {
		if head.Edition != l.Head.Edition {
			return rep, ErrEdition
		}
		of.ClosedAt = head.Last
		changed, err := f.rewriteReceipt(of, old)
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
		rep.Counts = counted(head, added)
		return rep, nil
	})
	if moved {
		return ErrEdition
	}
	if err != nil {
		return f.log.Named(f.e.Name, err)
	}
	f.r = receipt.Of(f.r.Record)
	if f.e.Receipt.Seq == seq {
		f.e.Receipt = f.r.Record
	}
	f.e.Reverted, f.e.Blank = append(f.e.Reverted, plan.Summaries...), plan.NotReverted
	return nil
}

// markDone marks the call as done in its first receipt.
func (c *Call) markDone(ctx context.Context) error {
	of := c.call()
	of.Session = of.CallSession
	for {
		seqs, err := c.log.lookup(ctx, c.own.Name, c.own.Head.Creation, receipt.ID(of, 0))
		if err != nil {
			return err
		}
		records, raws, err := c.log.Pick(ctx, c.own.Name, c.own.Head.Creation, seqs)
		if err != nil {
			return err
		}
		f := &finishing{Call: c, e: c.own, r: receipt.Of(records[0])}
		f.l = &loaded{Session: c.own.Session, raw: map[uint64]backend.Record{seqs[0]: raws[0]}}
		if f.r.Of.Done {
			c.own.Receipt = f.r.Record
			return nil
		}
		is := f.r.Of
		is.Done = true
		if err := f.change(ctx, is, write.Counts{Calls: -1}); err != nil {
			return err
		}
	}
}
