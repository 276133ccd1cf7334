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

// migrateSession migrates one session. The result is valid even if the error is not nil.
func (m *migration) migrateSession(ctx context.Context, s *Session) (Result, error) {
	r := Result{Key: s.Key, Differences: slices.Clone(s.Differences)}
	if err := s.Key.Validate(); err != nil {
		return r, err
	}
	switch {
	case s.store != nil:
		return r, m.copySession(ctx, s, &r)
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
	logged, err := readLog(ctx, m.target, s.Key)
	exists := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return r, err
	}
	sortAsLogged(logged, events)
	plainLog, untranslated := withoutCarriedPatches(logged, events)
	missing, ahead, err := missingEvents(plainLog, untranslated)
	if err != nil {
		return r, fmt.Errorf("session %s: %w", s.Key, err)
	}
	if ahead {
		r.Status, r.Present, r.Seq = Ahead, len(logged), uint64(len(logged))
		return r, nil
	}
	defer func() { m.seen[s.Key] = true }()
	if exists && len(missing) == 0 {
		if same, err := m.hasSourceState(ctx, s, &r); err != nil || same {
			if lost := lostPatches(s, untranslated, nil); same && err == nil && len(lost) > 0 {
				r.Err = &UntranslatedError{s.Key, lost}
			}
			return r, err
		}
	}
	b, err := m.newBuilder(ctx, s, events, exists)
	if err != nil {
		return r, err
	}
	defer b.scratch.Close() // the store is in memory, so Close cannot fail
	b.untranslated = lostPatches(s, untranslated, missing)
	err = b.appendEvents(ctx, missing)
	if err == nil {
		differences, err = b.addStateEvent(ctx, len(events))
	}
	// Whatever the cause, the next session may succeed.
	if err != nil && ctx.Err() == nil {
		r.Status, r.Err = Failed, fmt.Errorf("session %s: %w", s.Key, err)
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.Differences = append(r.Differences, differences...)
	r.Adopted, r.NotAdopted = b.adopted, b.notAdopted
	done, err := m.target.CopyFrom(ctx, s.Key, b.scratch, store.CopyOptions{DryRun: m.opts.DryRun, NoShared: true})
	if err != nil {
		return r, err
	}
	r.setImported(done)
	if len(b.untranslated) > 0 {
		r.Err = &UntranslatedError{s.Key, b.untranslated}
	}
	return r, nil
}

// hasSourceState reports whether a session in the target already has the source's state, so that no event must be
// added to set it. The session must already have all events of the source. If the result is true, hasSourceState
// sets the status in r.
func (m *migration) hasSourceState(ctx context.Context, s *Session, r *Result) (bool, error) {
	target, err := m.target.Get(ctx, s.Key)
	if err != nil {
		return false, err
	}
	var differences []Difference
	var delta map[string]patch.Value
	if !s.isWrapped() {
		differences, delta = compareState(target.View, s.State, s.Events, m.opts.ReplayedState)
	}
	switch {
	case len(delta) > 0 && m.seen[s.Key]:
		differences = []Difference{{What: "the source has the session twice, with different states; the first one is used"}}
	case len(delta) > 0:
		return false, nil
	}
	r.Differences = append(r.Differences, differences...)
	r.Status, r.Present, r.Seq = Unchanged, int(target.View.Seq()), target.View.Seq()
	return true, nil
}

func readLog(ctx context.Context, s *store.Store, key store.Key) (records []patch.Record, err error) {
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// sortAsLogged sorts events with equal times into the order of an existing log, because a source may not know their
// order.
func sortAsLogged(logged []patch.Record, events []*patch.Event) {
	if len(logged) == 0 {
		return
	}
	positions := make(map[string]int, len(logged))
	for i, r := range logged {
		positions[r.ID()] = i + 1
	}
	position := func(e *patch.Event) int {
		if i := positions[e.ID()]; i > 0 {
			return i
		}
		return len(logged) + 1
	}
	for start := 0; start < len(events); {
		end := start + 1
		for end < len(events) && !events[start].Timestamp().IsZero() && events[end].Timestamp().Equal(events[start].Timestamp()) {
			end++
		}
		slices.SortStableFunc(events[start:end], func(a, b *patch.Event) int { return position(a) - position(b) })
		start = end
	}
}

// missingEvents returns the events of a source that are not in a log. The result ahead reports whether the log has
// all events of the source and more records. If neither is a prefix of the other, missingEvents fails with
// [store.ErrConflict].
func missingEvents(logged []patch.Record, events []*patch.Event) (missing []*patch.Event, ahead bool, err error) {
	i := 0
	for _, r := range logged {
		// The patches that this event carries were not translated.
		for r.Event != nil && i < len(events) && carriesPatches(events[i]) {
			i++
		}
		switch {
		case i < len(events) && r.Event != nil && r.ID() == events[i].ID():
			if !patch.Same(r, patch.Record{Event: events[i]}) {
				return nil, false, fmt.Errorf("%w: record %d is event %q, but its content differs from the source's", store.ErrConflict, r.Seq, r.ID())
			}
			i++
		case isMigrationRecord(r):
		case i < len(events):
			return nil, false, fmt.Errorf("%w: record %d is %q, but the source has event %q there", store.ErrConflict, r.Seq, r.ID(), events[i].ID())
		default:
			return nil, true, nil
		}
	}
	return events[i:], false, nil
}

type builder struct {
	session     *Session
	opts        Options
	scratch     *store.Store
	invocation  string    // invocation id of the last event
	defaultTime time.Time // time for events without a time
	now         time.Time // time for the next record, if the record has no time
	adopted     []string
	notAdopted  []adkrecord.UnadoptedRecord

	rewindReads  int // number of records that rewinds have read
	untranslated []Difference
}

// newBuilder returns a builder with a copy of the target's session, or with a new session.
func (m *migration) newBuilder(ctx context.Context, s *Session, events []*patch.Event, exists bool) (*builder, error) {
	created, defaultTime := sessionTimes(s, events)
	b := &builder{session: s, opts: m.opts, defaultTime: defaultTime, now: defaultTime}
	if n := len(events); n > 0 {
		b.invocation = events[n-1].InvocationID()
	}
	opts := scratchOptions()
	opts.Now = func() time.Time { return b.now }
	var err error
	if b.scratch, err = store.OpenMemory(opts); err != nil {
		return nil, err
	}
	if exists {
		_, err = b.scratch.CopyFrom(ctx, s.Key, m.target, store.CopyOptions{NoShared: true})
	} else {
		initial, ok := wrappedInitialState(s.State)
		if !ok {
			initial = initialState(s.State, events)
		}
		_, err = b.scratch.Create(ctx, s.Key, initial, store.CreateOptions{Created: created})
	}
	if err != nil {
		b.scratch.Close() // the store is in memory, so Close cannot fail
		return nil, err
	}
	return b, nil
}

// sessionTimes returns the creation time of the session, if the creation time is known, and the time for events
// without a time.
func sessionTimes(s *Session, events []*patch.Event) (created, defaultTime time.Time) {
	var first, last time.Time
	for _, e := range events {
		if at := e.Timestamp(); !at.IsZero() {
			first, last = cmp.Or(first, at), at
		}
	}
	defaultTime = cmp.Or(s.Updated, last, s.Created, time.Now())
	return cmp.Or(s.Created, first, defaultTime), defaultTime
}

// appendEvents appends events. It adopts each compaction record directly after appending it. So a session that grows
// between migrations gets the same log as a session that is migrated once.
func (b *builder) appendEvents(ctx context.Context, events []*patch.Event) error {
	for len(events) > 0 {
		if patches, ok := carriedPatches(events[0]); ok {
			if err := b.translate(ctx, events[0], patches); err != nil {
				return err
			}
			events = events[1:]
			continue
		}
		run := events
		if n := slices.IndexFunc(events, carriesPatches); n > 0 {
			run = events[:n]
		}
		n := 1 + slices.IndexFunc(run, func(e *patch.Event) bool { return rewindTarget(e) != "" || isCompaction(e) && !b.opts.KeepCompactions })
		if n == 0 {
			n = len(run)
		}
		b.now = b.defaultTime
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
	log, err := readLog(ctx, b.scratch, b.session.Key)
	if err != nil {
		return err
	}
	patches, err := rewindPatches(v, log, &b.rewindReads)
	if err != nil || len(patches) == 0 {
		return err
	}
	return b.applyPatches(ctx, v, patches)
}

func isCompaction(e *patch.Event) bool { return adkrecord.IsCompactionEvent(e) || e.IsSummary() }

// adopt replaces the last event, a compaction record, by a summary if possible.
func (b *builder) adopt(ctx context.Context, after store.Committed) error {
	v, last := after.View, after.Records[len(after.Records)-1].Event
	plan := adkrecord.Adopt(v, adkrecord.Options{Records: []string{last.ID()}, NewID: idsAfter(b.session.Key, v.Seq())})
	b.notAdopted = append(b.notAdopted, plan.NotAdopted...)
	if len(plan.Patches) == 0 {
		return nil
	}
	b.now = last.Timestamp()
	_, err := b.scratch.ApplyPatch(ctx, b.session.Key, plan.Patches, store.PatchOptions{On: v})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		b.notAdopted = append(b.notAdopted, adkrecord.UnadoptedRecord{EventID: last.ID(), Reason: err.Error()})
	default:
		b.adopted = append(b.adopted, last.ID())
	}
	return nil
}
