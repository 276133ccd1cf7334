package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// erasePlan is what is to be erased of one session.
type erasePlan struct {
	key      Key
	view     fold.View
	of       patch.Erasure // what the receipt will say
	events   []erase.Event
	receipts []erase.Receipt        // in the log
	open     []erase.Receipt        // those that are not closed, with the plan's own once it is logged
	receipt  patch.Record           // the plan's own
	initial  map[string]patch.Value // if some of it is to be null
	shares   bool                   // erased events have set keys that sessions share

	again map[fold.Ref]bool            // what is blank, and covered again
	first patch.Record                 // of those of which something is erased
	sums  map[uint64][sha256.Size]byte // of the records' canonical forms
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
	return func(r patch.Record) (own bool, which func(int, *patch.Event) bool) {
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

// plans plans the erasing of a session, and of the same events in others. The session that the
// call is for comes first.
func (e *erasing) plans(ctx context.Context, key Key, selection EraseSelection) ([]*erasePlan, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	e.leftOut, e.kept = nil, KeptValues{}
	choose := selection.choose()
	if e.opts.Values == patch.KeepValues {
		choose = e.countKept(choose, selection)
	}
	own, err := e.plan(ctx, key, choose)
	if err != nil {
		return nil, err
	}
	if err := e.planInitial(ctx, own, selection); err != nil {
		return nil, err
	}
	if e.shared, err = e.eraseShared(ctx, key, selection, true); err != nil {
		return nil, err
	}
	if e.opts.Values == patch.KeepValues {
		e.kept.Shared, e.shared = e.shared, nil
	}
	return e.withCopies(ctx, own)
}

// plan finds out what is to be erased of a session: what is chosen, and what was made of it.
func (e *erasing) plan(ctx context.Context, key Key, choose erase.Choose) (*erasePlan, error) {
	v, err := e.store.View(ctx, key)
	if err != nil {
		return nil, err
	}
	if !e.hidden.IsZero() {
		if choose, err = e.hiddenBefore(ctx, key, v); err != nil {
			return nil, err
		}
	}
	c, err := e.scan(ctx, key, v, choose)
	if err != nil {
		return nil, err
	}
	p := &erasePlan{key: key, view: v, of: e.receiptOf(), receipts: c.Receipts, open: c.Open()}
	p.again = c.Settle(e.keeps(), e.opts.ID)
	if len(c.Set) > 0 && !e.keeps() {
		if err := c.Spread(v, e.opts.Context); err != nil {
			return nil, err
		}
	}
	p.events = c.Events()
	c.Cover(&p.of, p.events)
	return p, e.digest(ctx, p)
}

// planLate plans the erasing of what patches behind a record have put in for what receipts cover.
func (e *erasing) planLate(ctx context.Context, key Key, receipts []erase.Receipt, after uint64) (*erasePlan, error) {
	v, err := e.store.View(ctx, key)
	if err != nil {
		return nil, err
	}
	covered := func(ref fold.Ref) bool {
		return slices.ContainsFunc(receipts, func(r erase.Receipt) bool { return r.Covers(ref) })
	}
	c, err := e.scan(ctx, key, v, func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		return false, func(i int, _ *patch.Event) bool { return covered(fold.Ref{Seq: r.Seq, Index: i}) }
	})
	if err == nil {
		err = c.Spread(v, e.opts.Context)
	}
	if err != nil {
		return nil, err
	}
	p := &erasePlan{key: key, view: v, of: e.receiptOf()}
	p.events = slices.DeleteFunc(c.Events(), func(event erase.Event) bool { return event.Seq <= after || covered(event.Ref) })
	c.Cover(&p.of, p.events)
	return p, e.digest(ctx, p)
}

func (e *erasing) keeps() bool { return e.opts.Summaries == patch.KeepSummaries }

// receiptOf returns what every receipt of the erasing says.
func (e *erasing) receiptOf() patch.Erasure {
	return patch.Erasure{Values: e.opts.Values, Reason: e.opts.Reason, Summaries: e.opts.Summaries}
}

// scan reads the log of a view.
func (e *erasing) scan(ctx context.Context, key Key, v fold.View, choose erase.Choose) (*erase.Scan, error) {
	c := erase.NewScan()
	for page, err := range e.store.pages(ctx, key, logOf(v), 1, v.Seq()) {
		if err != nil {
			return nil, err
		}
		for _, r := range page.records {
			c.Record(r, choose, e.opts.Values)
		}
	}
	return c, nil
}

// digest reads what is to be erased once more, and notes what it was.
func (e *erasing) digest(ctx context.Context, p *erasePlan) error {
	d := newDigest(e.opts.Salt)
	p.sums = map[uint64][sha256.Size]byte{}
	for seqs := range erase.Chunks(p.of.Seqs, eraseRecords) {
		picked, err := e.store.pick(ctx, p.key, p.view.Creation(), seqs)
		if err != nil {
			return err
		}
		for _, r := range picked {
			form, err := d.add(r)
			if err != nil {
				return fmt.Errorf("session %s, record %d: %w", p.key, r.Seq, err)
			}
			p.sums[r.Seq] = sha256.Sum256(form)
			for range records.SharedChanges(r) {
				p.shares = true
				break
			}
		}
	}
	p.of.Digest = d.mac.Sum(nil)
	return nil
}

// planReverts plans what the closing commit will revert: the summaries that go are not blank yet.
func (e *erasing) planReverts(ctx context.Context, p *erasePlan) (blanks.Plan, error) {
	goes := map[string]bool{}
	for _, event := range p.events {
		goes[event.ID] = true
	}
	return e.reverts(ctx, p.key, p.view, goes)
}

// reverts plans the reverts of a view's blank summaries. Those that go count as blank.
func (e *erasing) reverts(ctx context.Context, key Key, v fold.View, goes map[string]bool) (blanks.Plan, error) {
	room := e.opts.Room
	if room == 0 {
		room = blanks.DefaultRoom
	}
	return blanks.Revert(v, blanks.Options{Room: room, Goes: goes, Read: func(seqs []uint64) ([]patch.Record, error) {
		return e.store.pick(ctx, key, v.Creation(), seqs)
	}})
}

// hiddenBefore chooses the events that patches of a time, or of before, have put out of sight for good so far.
func (e *erasing) hiddenBefore(ctx context.Context, key Key, v fold.View) (erase.Choose, error) {
	since, err := v.Hidden()
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
	return func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		return false, func(i int, _ *patch.Event) bool {
			seq, hidden := since[fold.Ref{Seq: r.Seq, Index: i}]
			return hidden && by[seq]
		}
	}, nil
}

// eraseHidden erases what was hidden before a time of a session, and of it alone, and keeps what stands for
// that. It returns how many events it erased, or would, and whether it did anything: it may finish
// what was begun.
func (s *Store) eraseHidden(ctx context.Context, key Key, before time.Time, reason string, dryRun bool) (events int, did bool, err error) {
	v, err := s.View(ctx, key)
	if err != nil || v.PatchSeq() == 0 {
		return 0, false, err
	}
	e, err := s.newErasing(EraseOptions{Author: "retention", Reason: reason, Summaries: patch.KeepSummaries, DryRun: dryRun})
	if err != nil {
		return 0, false, err
	}
	e.hidden = before
	done, err := e.do(ctx, key, EraseSelection{})
	for _, one := range done.Sessions {
		events += len(one.Events)
	}
	return events, len(done.Sessions) > 0, err
}

// countKept counts the events that are chosen and that the selection still finds once they are
// erased with their state values kept.
func (e *erasing) countKept(choose erase.Choose, selection EraseSelection) erase.Choose {
	m := selection.matcher()
	return func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		own, which := choose(r)
		return own, func(i int, event *patch.Event) bool {
			selected := which(i, event)
			if selected {
				blank := event.Blank("", patch.KeepValues)
				if m.Event(blank) || m.Text == "" && !blank.IsBlank(patch.NullValues) {
					e.kept.Events++
				}
			}
			return selected
		}
	}
}

// planInitial adds to a plan the values of the initial state that are to be null, or counts those that
// are kept.
func (e *erasing) planInitial(ctx context.Context, p *erasePlan, selection EraseSelection) error {
	initial, err := e.store.InitialState(ctx, p.key)
	if err != nil {
		return err
	}
	p.initial = initial
	m := selection.matcher()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		if !erase.IsNull(initial[name]) && (selection.All || m.Value(initial[name])) {
			names = append(names, name)
		}
	}
	if e.opts.Values == patch.NullValues {
		p.of.Initial = names
	} else {
		e.kept.Initial = names
	}
	return nil
}

// eraseShared sets those of the values that the session shares with others to null that have the text, and
// returns their keys.
func (e *erasing) eraseShared(ctx context.Context, key Key, selection EraseSelection, dryRun bool) ([]string, error) {
	m := selection.matcher()
	if m.Text == "" {
		return nil, nil
	}
	return e.store.eraseShared(ctx, scopePrefixes(key), func(v patch.Value, err error) bool { return err == nil && m.Value(v) }, dryRun)
}

// withCopies adds to a session's plan those of other sessions that have the same events. A session whose
// initial state alone is erased is known by its first record.
func (e *erasing) withCopies(ctx context.Context, own *erasePlan) (plans []*erasePlan, err error) {
	e.seen = map[string]bool{own.view.Creation(): true}
	if own.isEmpty() || own.view.Seq() == 0 {
		return []*erasePlan{own}, nil
	}
	first := uint64(1)
	if len(own.of.Seqs) > 0 {
		first = own.of.Seqs[0].From
	}
	if own.first, err = e.store.record(ctx, own.key, own.view.Creation(), first); err != nil {
		return nil, err
	}
	copies, err := e.copies(ctx, own)
	return append([]*erasePlan{own}, copies...), err
}

// copies plans the erasing of the same events in sessions that have not been looked at. What is hidden
// here may be in sight there.
func (e *erasing) copies(ctx context.Context, own *erasePlan) (plans []*erasePlan, err error) {
	if !e.hidden.IsZero() || own.first.Seq == 0 {
		return nil, nil
	}
	for info, err := range e.others(ctx) {
		switch {
		case errors.Is(err, ErrCorrupt):
			e.leaveOut(info.Key, err)
			continue
		case err != nil:
			return nil, err
		case e.seen[info.Creation] || info.Seq < own.first.Seq:
			continue
		}
		e.seen[info.Creation] = true
		p, err := e.planCopy(ctx, info, own)
		switch {
		case errors.Is(err, ErrNotFound): // deleted meanwhile
		case errors.Is(err, ErrCorrupt):
			e.leaveOut(info.Key, err)
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
	if err != nil || !isSame(there, first) {
		return nil, err
	}
	chosen := map[fold.Ref]string{}
	for _, event := range of.events {
		chosen[event.Ref] = event.ID
	}
	p, err := e.plan(ctx, info.Key, func(r patch.Record) (bool, func(int, *patch.Event) bool) {
		sum, ok := of.sums[r.Seq]
		if ok {
			form, err := patch.AppendRecord(nil, r)
			ok = err == nil && sha256.Sum256(form) == sum
		}
		_, own := chosen[fold.Ref{Seq: r.Seq, Index: -1}]
		return ok && own, func(i int, event *patch.Event) bool {
			ref := fold.Ref{Seq: r.Seq, Index: i}
			id, is := chosen[ref]
			// Of one that is blank here or there the id must do.
			return is && (ok || id == event.ID() && (of.again[ref] || event.IsBlank(patch.KeepValues)))
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range p.events {
		if p.events[i].Why == erase.Selected {
			p.events[i].Why = erase.Same
		}
	}
	// Initial values are a fork's as they are the other session's.
	if len(of.of.Initial) > 0 {
		initial, err := e.store.InitialState(ctx, info.Key)
		if err != nil {
			return nil, err
		}
		for _, name := range of.of.Initial {
			if v, ok := initial[name]; ok && v.Equal(of.initial[name]) {
				p.of.Initial = append(p.of.Initial, name)
			}
		}
	}
	return p, nil
}

// isSame reports whether two records are the same one, of which one may be blank.
func isSame(a, b patch.Record) bool { return patch.Same(a, b) || patch.Same(b, a) }
