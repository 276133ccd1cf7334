package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// session migrates one session. The result is valid even if there is an error.
func (m *migration) session(ctx context.Context, s *Session) (Result, error) {
	r := Result{Key: s.Key, Differences: slices.Clone(s.Differences)}
	if err := s.Key.Validate(); err != nil {
		return r, err
	}
	switch {
	case s.store != nil:
		return r, m.copy(ctx, s, &r)
	case s.log != nil || s.Records != nil:
		err := m.importFile(ctx, s, &r)
		if s.fileKey != (store.Key{}) && s.nothingInCommon {
			s.Key, s.fileKey = s.fileKey, store.Key{}
			r = Result{Key: s.Key, Differences: append(slices.Clone(s.Differences), Difference{What: "another file has the session's id: the session is named after the file"})}
			err = m.importFile(ctx, s, &r)
		}
		return r, err
	}
	events, differences, err := withUniqueIDs(s)
	r.Differences = append(r.Differences, differences...)
	if err != nil {
		return r, err
	}
	have, err := logOf(ctx, m.target, s.Key)
	there := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return r, err
	}
	sortLike(have, events)
	rest, open := splitCarried(have, events)
	missing, ahead, err := compare(rest, open)
	if err != nil {
		return r, fmt.Errorf("session %s: %w", s.Key, err)
	}
	if ahead {
		r.Status, r.Present, r.Seq = Ahead, len(have), uint64(len(have))
		return r, nil
	}
	defer func() { m.seen[s.Key] = true }()
	if there && len(missing) == 0 {
		if same, err := m.hasSourceState(ctx, s, &r); err != nil || same {
			if left := lostPatches(s, open, nil); same && err == nil && len(left) > 0 {
				r.Err = &UntranslatedError{s.Key, left}
			}
			return r, err
		}
	}
	b, err := m.build(ctx, s, events, there)
	if err != nil {
		return r, err
	}
	defer b.scratch.Close() // in memory, so Close cannot fail
	b.untranslated = lostPatches(s, open, missing)
	err = b.add(ctx, missing)
	if err == nil {
		differences, err = b.settleState(ctx, len(events))
	}
	if err != nil && ctx.Err() == nil { // whatever the cause, the next session may succeed
		r.Status, r.Err = Failed, fmt.Errorf("session %s: %w", s.Key, err)
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.Differences = append(r.Differences, differences...)
	r.Adopted, r.Left = b.adopted, b.left
	done, err := m.target.CopyFrom(ctx, s.Key, b.scratch, store.CopyOptions{DryRun: m.opts.DryRun, NoShared: true})
	if err != nil {
		return r, err
	}
	r.imported(done)
	if len(b.untranslated) > 0 {
		r.Err = &UntranslatedError{s.Key, b.untranslated}
	}
	return r, nil
}

// hasSourceState reports whether a session needs no event to set its state. The session must have all events of the
// source.
func (m *migration) hasSourceState(ctx context.Context, s *Session, r *Result) (bool, error) {
	there, err := m.target.Get(ctx, s.Key)
	if err != nil {
		return false, err
	}
	var differences []Difference
	var delta map[string]patch.Value
	if !s.wrapped() {
		differences, delta = compareState(there.View, s.State, s.Events, m.opts.ReplayedState)
	}
	switch {
	case len(delta) > 0 && m.seen[s.Key]:
		differences = []Difference{{What: "the source has the session again, with another state; the first one is used"}}
	case len(delta) > 0:
		return false, nil
	}
	r.Differences = append(r.Differences, differences...)
	r.Status, r.Present, r.Seq = Unchanged, int(there.View.Seq()), there.View.Seq()
	return true, nil
}

func logOf(ctx context.Context, s *store.Store, key store.Key) (records []patch.Record, err error) {
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// sortLike sorts events with equal times into the order of an existing log, because a source may not know their
// order.
func sortLike(have []patch.Record, events []*patch.Event) {
	if len(have) == 0 {
		return
	}
	place := make(map[string]int, len(have))
	for i, r := range have {
		place[r.ID()] = i + 1
	}
	at := func(e *patch.Event) int {
		if i := place[e.ID()]; i > 0 {
			return i
		}
		return len(have) + 1
	}
	for start := 0; start < len(events); {
		end := start + 1
		for end < len(events) && !events[start].Timestamp().IsZero() && events[end].Timestamp().Equal(events[start].Timestamp()) {
			end++
		}
		slices.SortStableFunc(events[start:end], func(a, b *patch.Event) int { return at(a) - at(b) })
		start = end
	}
}

// compare returns the events of a source that a log does not have. The result ahead reports whether the log has all
// of them and more records. If neither is a prefix of the other, compare fails with [store.ErrConflict].
func compare(have []patch.Record, events []*patch.Event) (missing []*patch.Event, ahead bool, err error) {
	i := 0
	for _, r := range have {
		for r.Event != nil && i < len(events) && isCarrier(events[i]) { // the patches carried by this event were not translated
			i++
		}
		switch {
		case i < len(events) && r.Event != nil && r.ID() == events[i].ID():
			if !patch.Same(r, patch.Record{Event: events[i]}) {
				return nil, false, fmt.Errorf("%w: record %d is event %q with another content than in the source", store.ErrConflict, r.Seq, r.ID())
			}
			i++
		case isMigrationRecord(r):
		case i < len(events):
			return nil, false, fmt.Errorf("%w: record %d is %q, where the source has event %q", store.ErrConflict, r.Seq, r.ID(), events[i].ID())
		default:
			return nil, true, nil
		}
	}
	return events[i:], false, nil
}

type builder struct {
	session    *Session
	opts       Options
	scratch    *store.Store
	invocation string    // invocation id of the last event
	filled     time.Time // time for events that have none
	now        time.Time // time for the next record, if it has none
	adopted    []string
	left       []adkrecord.UnadoptedRecord

	rewound      int // number of records that rewinds have read
	untranslated []Difference
}

// build returns a builder with a copy of the target's session, or with a new session.
func (m *migration) build(ctx context.Context, s *Session, events []*patch.Event, there bool) (*builder, error) {
	created, filled := timesOf(s, events)
	b := &builder{session: s, opts: m.opts, filled: filled, now: filled}
	if n := len(events); n > 0 {
		b.invocation = events[n-1].InvocationID()
	}
	opts := scratchOptions()
	opts.Now = func() time.Time { return b.now }
	var err error
	if b.scratch, err = store.OpenMemory(opts); err != nil {
		return nil, err
	}
	if there {
		_, err = b.scratch.CopyFrom(ctx, s.Key, m.target, store.CopyOptions{NoShared: true})
	} else {
		initial, ok := wrappedInitial(s.State)
		if !ok {
			initial = initialState(s.State, events)
		}
		_, err = b.scratch.Create(ctx, s.Key, initial, store.CreateOptions{Created: created})
	}
	if err != nil {
		b.scratch.Close() // in memory, so Close cannot fail
		return nil, err
	}
	return b, nil
}

// timesOf returns the creation time of the session, if it is known, and the time for events without a time.
func timesOf(s *Session, events []*patch.Event) (created, filled time.Time) {
	var first, last time.Time
	for _, e := range events {
		if at := e.Timestamp(); !at.IsZero() {
			first, last = cmp.Or(first, at), at
		}
	}
	filled = cmp.Or(s.Updated, last, s.Created, time.Now())
	return cmp.Or(s.Created, first, filled), filled
}

// add appends events. It adopts each compaction record directly after appending it. So a session that grows between
// migrations gets the same log as a session that is migrated once.
func (b *builder) add(ctx context.Context, events []*patch.Event) error {
	for len(events) > 0 {
		if patches, ok := carried(events[0]); ok {
			if err := b.translate(ctx, events[0], patches); err != nil {
				return err
			}
			events = events[1:]
			continue
		}
		run := events
		if n := slices.IndexFunc(events, isCarrier); n > 0 {
			run = events[:n]
		}
		n := 1 + slices.IndexFunc(run, func(e *patch.Event) bool { return rewindTarget(e) != "" || isCompaction(e) && !b.opts.KeepCompactions })
		if n == 0 {
			n = len(run)
		}
		b.now = b.filled
		done, err := b.scratch.AppendEvents(ctx, b.session.Key, events[:n], store.AppendOptions{})
		if err != nil {
			return err
		}
		if last := events[n-1]; isCompaction(last) && !b.opts.KeepCompactions {
			if err := b.adopt(ctx, done); err != nil {
				return err
			}
		}
		if rewindTarget(events[n-1]) != "" {
			if err := b.rewind(ctx, done.View); err != nil {
				return err
			}
		}
		events = events[n:]
	}
	return nil
}

// rewind applies the rewind in the last event of the session.
func (b *builder) rewind(ctx context.Context, v fold.View) error {
	log, err := logOf(ctx, b.scratch, b.session.Key)
	if err != nil {
		return err
	}
	patches, err := rewindOf(v, log, &b.rewound)
	if err != nil || len(patches) == 0 {
		return err
	}
	return b.apply(ctx, v, patches)
}

func isCompaction(e *patch.Event) bool { return adkrecord.IsCompactionEvent(e) || e.IsSummary() }

// adopt replaces a compaction record by a summary, if possible. The record is the last event.
func (b *builder) adopt(ctx context.Context, after store.Committed) error {
	v, last := after.View, after.Records[len(after.Records)-1].Event
	plan := adkrecord.Adopt(v, adkrecord.Options{Records: []string{last.ID()}, NewID: idsAfter(b.session.Key, v.Seq())})
	b.left = append(b.left, plan.NotAdopted...)
	if len(plan.Patches) == 0 {
		return nil
	}
	b.now = last.Timestamp()
	_, err := b.scratch.ApplyPatch(ctx, b.session.Key, plan.Patches, store.PatchOptions{On: v})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		b.left = append(b.left, adkrecord.UnadoptedRecord{EventID: last.ID(), Reason: err.Error()})
	default:
		b.adopted = append(b.adopted, last.ID())
	}
	return nil
}
