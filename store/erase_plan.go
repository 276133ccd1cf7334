package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// erasePlan is what is to be erased of one session.
type erasePlan struct {
	key      Key
	view     fold.View
	of       patch.Erasure // what the receipt will say
	events   []erase.Event
	receipts []erase.Receipt // in the log
	open     []erase.Receipt // those that are not closed, with the plan's own once it is logged
	receipt  patch.Record    // the plan's own

	// What came, or would come, of blank summaries.
	reverted, blank []string

	// Set for the session that the call is for: how its copies are found.
	scan    *erase.Scan
	first   patch.Record           // that is selected
	initial map[string]patch.Value // the initial state
	nulls   []string               // keys of it whose values are selected
}

func (p *erasePlan) isEmpty() bool { return len(p.of.Seqs) == 0 && len(p.of.Initial) == 0 }

func (e EraseSelection) matcher() erase.Matcher {
	return erase.Matcher{Text: e.Match, Folded: e.IgnoreCase}
}

func (e EraseSelection) choose() erase.Choose {
	ids, seqs := map[string]bool{}, map[uint64]bool{}
	for _, id := range e.EventIDs {
		ids[id] = true
	}
	for _, seq := range e.Seqs {
		seqs[seq] = true
	}
	m := e.matcher()
	return func(r patch.Record, _ uint32) (own bool, which func(int, *patch.Event) bool) {
		whole := e.All || seqs[r.Seq]
		if p := r.Patch; p != nil {
			whole = whole || ids[p.ID()] || e.Author != "" && p.Author() == e.Author
			own = whole || m.Patch(p)
		}
		return own, func(_ int, event *patch.Event) bool {
			return whole || ids[event.ID()] || e.Author != "" && event.Author() == e.Author || m.Event(event)
		}
	}
}

// chooses returns the choice of the events of a log to erase.
func (e *erasing) chooses(ctx context.Context, key Key, v fold.View) (erase.Choose, error) {
	choose, m := e.selection.choose(), e.selection.matcher()
	switch {
	case e.resumes != nil:
		return erase.ChooseCovered(e.resumes), nil
	case !e.hidden.IsZero():
		return e.hiddenBefore(ctx, key, v)
	case e.opts.Values == patch.NullValues:
		return choose, nil
	}
	return func(r patch.Record, sum uint32) (bool, func(int, *patch.Event) bool) {
		own, which := choose(r, sum)
		return own, func(i int, event *patch.Event) bool {
			if !which(i, event) {
				return false
			}
			blank := event.Blank("", patch.KeepValues)
			if m.Event(blank) || m.Text == "" && !blank.IsBlank(patch.NullValues) {
				e.matches++
			}
			return true
		}
	}, nil
}

// plans plans the erasing of a session, and of the same events in others. The session that the
// call is for comes first.
func (e *erasing) plans(ctx context.Context, key Key) ([]*erasePlan, error) {
	e.leftOut, e.matches = nil, 0
	own, err := e.plan(ctx, key, nil)
	if err != nil {
		return nil, err
	}
	m := e.selection.matcher()
	own.initial, own.nulls, err = e.initial(ctx, key, func(name string, v patch.Value) bool {
		if e.resumes != nil {
			return slices.Contains(e.resumes[0].Of.Initial, name)
		}
		return !erase.IsNull(v) && (e.selection.All || m.Value(v))
	})
	if err != nil {
		return nil, err
	}
	if e.opts.Values == patch.NullValues {
		own.setInitial(own.initial, own.nulls)
	} else {
		e.matches, own.nulls = e.matches+len(own.nulls), nil
	}
	if e.resumes == nil && (e.opts.DryRun || e.opts.Values == patch.KeepValues) {
		shared, err := e.eraseShared(ctx, key, true)
		if err != nil {
			return nil, err
		}
		if e.opts.Values == patch.NullValues {
			e.shared = shared
		} else {
			e.matches += len(shared)
		}
	}
	first, any := own.scan.First()
	if !any && len(own.nulls) > 0 { // then the first record tells copies
		first, any = 1, own.view.Seq() > 0
	}
	e.seen = map[string]bool{own.view.Creation(): true}
	if !any || !e.hidden.IsZero() || e.keeps() && e.opts.Author == retention {
		return []*erasePlan{own}, nil
	}
	if own.first, err = e.store.record(ctx, own.key, own.view.Creation(), first); err != nil {
		return nil, err
	}
	copies, err := e.copies(ctx, own)
	return append([]*erasePlan{own}, copies...), err
}

// plan plans the erasure in one session: of the events that choose selects, or [erasing.chooses] if it is nil, and of
// the events derived from them.
func (e *erasing) plan(ctx context.Context, key Key, choose erase.Choose) (*erasePlan, error) {
	v, err := e.store.View(ctx, key)
	if err != nil {
		return nil, err
	}
	resumes := choose == nil && e.resumes != nil
	if choose == nil {
		if choose, err = e.chooses(ctx, key, v); err != nil {
			return nil, err
		}
	}
	c := erase.NewScan()
	for page, err := range e.store.pages(ctx, key, logOf(v), 1, v.Seq()) {
		if err != nil {
			return nil, err
		}
		for i, r := range page.records {
			c.Record(r, recordform.Checksum(page.raw[i].Data), choose, e.opts.Values)
		}
	}
	if resumes {
		c.Done()
	} else {
		c.Settle(e.keeps(), e.opts.ID)
	}
	if len(c.Set) > 0 && !e.keeps() {
		if err := c.Spread(v, e.opts.Context); err != nil {
			return nil, err
		}
	}
	p := &erasePlan{key: key, view: v, receipts: c.Receipts, open: c.Open(), events: c.Events(), scan: c}
	p.of = patch.Erasure{Values: e.opts.Values, Reason: e.opts.Reason, Summaries: e.opts.Summaries}
	c.Cover(&p.of, p.events)
	return p, nil
}

func (e *erasing) keeps() bool { return e.opts.Summaries == patch.KeepSummaries }

// initial returns a session's initial state, and the keys of it that are selected, in order.
func (e *erasing) initial(ctx context.Context, key Key, selects func(name string, v patch.Value) bool) (map[string]patch.Value, []string, error) {
	_, created, err := e.store.head(ctx, key)
	initial := created.initial
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(initial)), func(name string) bool { return !selects(name, initial[name]) })
	return initial, names, err
}

// setInitial plans that values of the initial state become null, those that are not.
func (p *erasePlan) setInitial(initial map[string]patch.Value, names []string) {
	for _, name := range names {
		if !erase.IsNull(initial[name]) {
			p.of.Initial = append(p.of.Initial, name)
		}
	}
}

// eraseShared sets those of the values that the session shares with others to null that have the text, and
// returns their keys.
func (e *erasing) eraseShared(ctx context.Context, key Key, dryRun bool) ([]string, error) {
	m := e.selection.matcher()
	if m.Text == "" {
		return nil, nil
	}
	return e.store.eraseShared(ctx, scopePrefixes(key), func(v patch.Value, err error) bool { return err == nil && m.Value(v) }, dryRun)
}

// planReverts plans what the closing commit will revert: the summaries that go are not blank yet.
func (e *erasing) planReverts(ctx context.Context, p *erasePlan) error {
	goes := map[string]bool{}
	for _, event := range p.events {
		goes[event.ID] = true
	}
	would, err := e.reverts(ctx, p.key, p.view, goes)
	p.reverted, p.blank = would.Summaries, would.NotReverted
	return err
}

// reverts plans the reverts of a view's blank summaries. Those that go count as blank.
func (e *erasing) reverts(ctx context.Context, key Key, v fold.View, goes map[string]bool) (blanks.Plan, error) {
	return blanks.Revert(v, blanks.Options{MaxGrowth: cmp.Or(e.opts.MaxGrowth, blanks.DefaultMaxGrowth), ErasedIDs: goes, Read: func(seqs []uint64) ([]patch.Record, error) {
		return e.store.pick(ctx, key, v.Creation(), seqs)
	}})
}

// hiddenBefore chooses the events that patches of a time, or of before, have put out of sight for good so far.
func (e *erasing) hiddenBefore(ctx context.Context, key Key, v fold.View) (erase.Choose, error) {
	since, err := v.HiddenSince()
	if err != nil {
		return nil, err
	}
	by := map[uint64]bool{} // the patches, and whether they are old
	for _, seq := range since {
		by[seq] = false
	}
	for seqs := range slices.Chunk(slices.Sorted(maps.Keys(by)), eraseRecords) {
		patches, err := e.store.pick(ctx, key, v.Creation(), seqs)
		if err != nil {
			return nil, err
		}
		for _, r := range patches {
			by[r.Seq] = !r.Patch.Timestamp().After(e.hidden)
		}
	}
	return func(r patch.Record, _ uint32) (bool, func(int, *patch.Event) bool) {
		return false, func(i int, _ *patch.Event) bool { return by[since[fold.Ref{Seq: r.Seq, Index: i}]] }
	}, nil
}

// eraseHidden erases the events of one session that were hidden before a time, and keeps their summaries. It returns
// how many events it erased, or would, and whether it did anything: it may only finish an earlier erase.
func (s *Store) eraseHidden(ctx context.Context, key Key, before time.Time, reason string, dryRun bool) (events int, did bool, err error) {
	v, err := s.View(ctx, key)
	if err != nil || v.PatchSeq() == 0 {
		return 0, false, err
	}
	e, err := s.newErasing(EraseSelection{}, EraseOptions{Author: retention, Reason: reason, Summaries: patch.KeepSummaries, DryRun: dryRun})
	if err != nil {
		return 0, false, err
	}
	e.hidden = before
	done, err := e.erase(ctx, key)
	for _, one := range done.Sessions {
		events += len(one.Events)
	}
	return events, len(done.Sessions) > 0, err
}

// copies plans the erasing of the same events in sessions that have not been looked at. What is hidden
// here may be in sight there.
func (e *erasing) copies(ctx context.Context, own *erasePlan) (plans []*erasePlan, err error) {
	if own.first.Seq == 0 {
		return nil, nil
	}
	for info, err := range e.others(ctx) {
		var p *erasePlan
		if err == nil {
			if e.seen[info.Creation] || info.Seq < own.first.Seq {
				continue
			}
			e.seen[info.Creation] = true
			p, err = e.planCopy(ctx, info, own)
		}
		switch {
		case errors.Is(err, ErrNotFound): // deleted meanwhile
		case errors.Is(err, ErrCorrupt):
			e.leftOut = append(e.leftOut, damaged(info.Key, err))
		case err != nil:
			return nil, err
		case p != nil:
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// planCopy plans the erasing of the events that another session has in common with the one
// that is planned. There is no plan if it has not the first of them at the same place.
func (e *erasing) planCopy(ctx context.Context, info Info, of *erasePlan) (*erasePlan, error) {
	first := of.first
	seqs, err := e.store.backend.Lookup(ctx, info.Key.name(), info.Creation, []string{first.ID()})
	if err != nil {
		return nil, fromBackend(info.Key, err)
	}
	if seqs[0] != first.Seq {
		return nil, nil
	}
	there, err := e.store.record(ctx, info.Key, info.Creation, first.Seq)
	if err != nil || !patch.Same(there, first) && !patch.Same(first, there) { // one of them may be blank
		return nil, err
	}
	p, err := e.plan(ctx, info.Key, of.scan.ChooseCopies())
	if err != nil {
		return nil, err
	}
	for i := range p.events {
		if p.events[i].Why == erase.Selected {
			p.events[i].Why = erase.Same
		}
	}
	if len(of.nulls) > 0 { // a fork has the initial values of the other session
		initial, names, err := e.initial(ctx, info.Key, func(name string, v patch.Value) bool {
			return slices.Contains(of.nulls, name) && v.Equal(of.initial[name])
		})
		if err != nil {
			return nil, err
		}
		p.setInitial(initial, names)
	}
	return p, nil
}

// errReplan: a patch was logged, or something erased, since an erasing was planned.
var errReplan = fmt.Errorf("%w: the log has got a patch since the erasing was planned", ErrConflict)

// logReceipt logs the receipt of a plan, unless there is nothing to erase or an open receipt says it. If the log
// has a receipt of the call's id already, or another session's copy any record, the receipt gets an id of its own.
func (e *erasing) logReceipt(ctx context.Context, key Key, p *erasePlan) error {
	if p.isEmpty() {
		return nil
	}
	id := e.opts.ID
	if slices.ContainsFunc(p.receipts, func(r erase.Receipt) bool { return r.ID() == id }) {
		for _, r := range p.open {
			if says(r, p) {
				if p.receipt = r.Record; e.resumes != nil {
					p.events = nil
				}
				return nil
			}
		}
		id = e.store.opts.NewID()
	}
	for {
		receipt := patch.NewErase(p.of).WithID(id).WithAuthor(e.opts.Author)
		done, err := e.store.commit(ctx, p.key, p.view.Creation(), erasePlanned{receipt, p.view.PatchSeq(), p.view.Edition()})
		if errors.Is(err, ErrDuplicateID) && p.key != key && id == e.opts.ID {
			id = e.store.opts.NewID()
			continue
		}
		if err != nil {
			return err
		}
		p.receipt = done.Records[0]
		p.open = append(p.open, erase.ReceiptOf(p.receipt))
		return nil
	}
}

// says reports whether a receipt says all that the receipt of a plan would say.
func says(r erase.Receipt, p *erasePlan) bool {
	return r.Of.Values == p.of.Values && r.Keeps() == (p.of.Summaries == patch.KeepSummaries) &&
		!slices.ContainsFunc(p.events, func(event erase.Event) bool { return !r.Covers(event.Ref) }) &&
		!slices.ContainsFunc(p.of.Initial, func(name string) bool { return !slices.Contains(r.Of.Initial, name) })
}

// erasePlanned is the plan to log a receipt. It is refused with errReplan if the log has changed since the erase was
// planned: another patch or another edition.
type erasePlanned struct {
	receipt  *patch.PatchEvent
	patchSeq uint64
	edition  uint64
}

func (p erasePlanned) offers() []patch.Record { return []patch.Record{{Patch: p.receipt}} }

func (p erasePlanned) draft(d *draft) error {
	if err := d.match(); err != nil {
		return err
	}
	if len(d.missing) > 0 && (d.view.PatchSeq() != p.patchSeq || d.view.Edition() != p.edition) {
		return errReplan
	}
	return d.addMissing()
}
