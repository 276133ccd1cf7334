package inspector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// measured is what reading a session's log tells of it, up to a record: figures of
// [present.Measure], and what became of the newest pass of compaction. It is not changed.
type measured struct {
	creation string
	seq      uint64
	events   int // visible
	tokens   present.Sizes
	skipped  int
	pass     *passed // the newest one; nil if there is none
	problem  string  // what is wrong, if the log cannot be read; then all else is unknown
}

// passed is a pass of compaction. What it says of itself is cut to a length.
type passed struct {
	seq     uint64
	time    time.Time
	trigger string
	did     string
	outcome string // "applied", or why not, or that it was taken back
}

const (
	outcomeApplied  = "applied"
	outcomeReverted = "reverted since"
)

// largestFootprint is about what the largest figures with the largest key take.
const largestFootprint = 3*store.MaxKeyPartBytes + 2048

// footprint is about how many bytes of memory the figures take in the listing.
func (m *measured) footprint(key store.Key) int64 {
	n := 260 + len(key.App) + len(key.User) + len(key.Session) + len(m.problem)
	if p := m.pass; p != nil {
		n += 120 + len(p.trigger) + len(p.did) + len(p.outcome)
	}
	return int64(n)
}

// figuresOf returns the figures of a session at its last record as the list has it, and keeps
// them. One request at a time reads a log, so that looking at the list takes one processor at
// most.
func (i *Inspector) figuresOf(ctx context.Context, s *listed) (*measured, error) {
	l := &i.listing
	if err := l.measuring.take(ctx); err != nil {
		return nil, err
	}
	defer l.measuring.give()
	m, err := i.measure(ctx, s.Info, l.earlier(s.Key))
	switch {
	case errors.Is(err, store.ErrCorrupt):
		m = &measured{creation: s.Creation, seq: s.Seq, problem: problemText(s.Key, err)}
	case errors.Is(err, store.ErrNotFound):
		return &measured{problem: "deleted since this list was read"}, nil
	case err != nil:
		return nil, err
	}
	l.keep(s.Key, m)
	return m, nil
}

// measure reads what the figures lack that are known of the session, or, if that is a patch, the
// whole log.
func (i *Inspector) measure(ctx context.Context, info store.Info, known *measured) (*measured, error) {
	if info.Seq == 0 {
		return &measured{creation: info.Creation}, nil
	}
	now, err := i.store.Info(ctx, info.Key)
	if err != nil {
		return nil, err
	}
	if now.Creation != info.Creation || now.Seq < info.Seq {
		return nil, fmt.Errorf("session %s: %w: it was created again", info.Key, store.ErrNotFound)
	}
	if known != nil && known.creation == info.Creation && known.seq <= info.Seq && known.problem == "" {
		if m, err := i.grown(ctx, info, *known); m != nil || err != nil {
			return m, err
		}
	}
	return i.measureAll(ctx, info)
}

// grown returns the figures after the records that are new, or nil if one of them is a patch: an
// event only adds to what is visible.
func (i *Inspector) grown(ctx context.Context, info store.Info, m measured) (*measured, error) {
	for r, err := range i.upTo(ctx, info, m.seq+1) {
		if err != nil {
			return nil, err
		}
		if r.Event == nil {
			return nil, nil
		}
		n := r.Event.EstimatedTokens()
		m.seq, m.events, m.tokens.Raw, m.tokens.Visible = r.Seq, m.events+1, m.tokens.Raw+n, m.tokens.Visible+n
	}
	return &m, nil
}

// So many records are folded at a time.
const foldRecords = 512

// measureAll reads the whole log.
func (i *Inspector) measureAll(ctx context.Context, info store.Info) (*measured, error) {
	m := &measured{creation: info.Creation, seq: info.Seq}
	v := fold.New(info.Creation, nil).Lean()
	var passID string
	var records []patch.Record
	for r, err := range i.upTo(ctx, info, 1) {
		if err != nil {
			return nil, err
		}
		if e := r.Event; e != nil {
			m.tokens.Raw += e.EstimatedTokens()
		} else if w, ok := compaction.WrittenBy(r.Patch); ok {
			passID = r.Patch.ID()
			m.pass = &passed{
				seq: r.Seq, time: r.Patch.Timestamp(), trigger: strings.Clone(present.PrintableUpTo(string(w.Trigger), 40)),
				did: present.EventsText(w.Merged, w.EventsBefore, w.EventsAfter, w.Level) + ", " + present.TokensText(w.TokensBefore, w.TokensAfter, w.Ratio),
			}
		}
		if records = append(records, r); len(records) == foldRecords || r.Seq == info.Seq {
			if v, err = i.folded(ctx, info.Key, v, records); err != nil {
				return nil, err
			}
			records = records[:0]
		}
	}
	m.events, m.skipped = v.Len(), v.SkippedCount()
	for _, e := range v.Events() {
		m.tokens.Visible += e.EstimatedTokens()
	}
	if m.pass != nil {
		var err error
		if m.pass.outcome, err = outcomeOf(v, m.pass.seq, passID); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// upTo yields the records of a log from a seq on to the last one that the list has.
func (i *Inspector) upTo(ctx context.Context, info store.Info, from uint64) func(func(patch.Record, error) bool) {
	return func(yield func(patch.Record, error) bool) {
		last := from - 1
		if last == info.Seq {
			return
		}
		for r, err := range i.store.RawEvents(ctx, info.Key, from) {
			if err == nil {
				err = ctx.Err() // the time is bounded, also where no page of the log is read
			}
			if !yield(r, err) || err != nil {
				return
			}
			if last = r.Seq; last == info.Seq {
				return
			}
		}
		yield(patch.Record{}, fmt.Errorf("session %s, record %d: %w", info.Key, last+1, store.ErrNotFound))
	}
}

// folded returns the view after records that follow it.
func (i *Inspector) folded(ctx context.Context, key store.Key, v fold.View, records []patch.Record) (fold.View, error) {
	for furnished := uint64(math.MaxUint64); ; {
		next, err := v.Apply(records...)
		need := (*fold.NeedError)(nil)
		switch {
		case err == nil:
			return next, nil
		case !errors.As(err, &need), next.Seq() == furnished:
			return v, &store.CorruptError{Key: key, Seq: next.Seq() + 1, Err: err}
		}
		records, furnished = records[next.Seq()-v.Seq():], next.Seq()
		if v, err = i.furnished(ctx, key, next, need); err != nil {
			return v, err
		}
	}
}

// outcomeOf says what became of a patch of the log that the view is folded from.
func outcomeOf(v fold.View, seq uint64, id string) (string, error) {
	skipped, err := v.Skipped()
	if err != nil {
		return "", err
	}
	if n, found := slices.BinarySearchFunc(skipped, seq, func(s patch.Skip, seq uint64) int { return int(int64(s.Seq) - int64(seq)) }); found {
		return "skipped: " + present.PrintableUpTo(string(skipped[n].Reason), 60), nil
	}
	standing, err := v.Standing(id)
	if blocked := (*fold.BlockedError)(nil); errors.As(err, &blocked) || err == nil && !slices.Contains(standing, id) {
		return outcomeReverted, nil
	}
	return outcomeApplied, nil // also where its group cannot be named
}
