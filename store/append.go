package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Committed is the result of a write to the log. If the error matches [ErrOutcomeUnknown], Records are set too, so
// that the caller can repeat the call with the same ids. Only a dry run sets Before.
type Committed = fold.Committed

// AppendOptions are options of [Store.AppendEvents]. With the zero value, an append has no condition.
type AppendOptions struct {
	// IfSeq, if not nil, is the expected seq of the log's last record; 0 means an empty log. If the last seq
	// differs, the error is a *[SeqError], unless all events of the call are already in the log.
	IfSeq *uint64

	// Creation, if not empty, is the expected [Info.Creation] of the session. If the session was deleted and
	// created again, the error matches [ErrNotFound].
	Creation string

	// Follow, if not nil, is called for each event before the event is logged. It receives the view that includes
	// the event, and the event's record. If Follow returns a patch, the patch is logged in the same commit. If
	// Follow returns an error, or the store refuses the patch, the event is logged without a patch, and
	// [Options.Logger] gets a warning.
	//
	// Follow may be called again for the same event. It must be fast, because other writers of the session wait for
	// it.
	Follow func(v fold.View, r patch.Record) (*patch.PatchEvent, error)
}

// AppendEvents appends events to the end of the session's log, in one durable commit. If it fails, it appends none
// of them. An event without an id gets a UUID. An event without a timestamp gets the time of the call. Partial
// events are not logged. State keys with the prefix "temp:" are left out of the logged event. State keys with the
// prefix "app:" or "user:" are written to the shared scope, in the same commit. AppendEvents does not change the
// caller's events.
//
// A retry is safe. If the log already has an event with the same id and content, AppendEvents skips the event and
// returns the existing record.
//
// If the error matches [ErrOutcomeUnknown], the events may or may not have been written. After any other error
// nothing was written. The error matches [ErrInvalid], [ErrNotFound], [ErrDuplicateID], [ErrConflict] or
// [ErrTooLarge] if the store refuses the events. Concurrent calls may share one commit; if that commit fails, all
// of these calls return its error.
func (s *Store) AppendEvents(ctx context.Context, key Key, events []*patch.Event, opts AppendOptions) (Committed, error) {
	a := appendPlan{store: s, key: key, opts: opts}
	for i, e := range events {
		switch {
		case e == nil:
			return Committed{}, fmt.Errorf("%w: event %d of the call is nil", ErrInvalid, i)
		case !e.Partial():
			a.events = append(a.events, patch.Record{Event: e})
		}
	}
	return s.commit(ctx, key, opts.Creation, a)
}

// appendPlan is the plan to append events.
type appendPlan struct {
	store  *Store
	key    Key
	events []patch.Record
	opts   AppendOptions
}

func (a appendPlan) Offered() []patch.Record { return a.events }

func (a appendPlan) Draft(d *write.Draft) error {
	if err := d.Match(); err != nil {
		return err
	}
	if last := d.View.Seq(); len(d.Missing) > 0 && a.opts.IfSeq != nil && *a.opts.IfSeq != last {
		return &SeqError{Expected: *a.opts.IfSeq, Last: last}
	}
	for _, i := range d.Missing {
		if err := fold.CheckNotErased(d.Records[i]); err != nil {
			return err
		}
		if err := d.Append(i); err != nil {
			return err
		}
		if err := a.follow(d, d.Records[i]); err != nil {
			return err
		}
	}
	return nil
}

// follow adds the patch that opts.Follow returns for the event r, which was just added.
func (a appendPlan) follow(d *write.Draft, r patch.Record) error {
	if a.opts.Follow == nil {
		return nil
	}
	p, err := a.opts.Follow(d.View, r)
	if err == nil && p != nil {
		_, err = d.Propose(fold.CheckOptions{}, patch.Record{Patch: p})
	}
	switch {
	case errors.As(err, new(*fold.MissingRecordsError)):
		return err
	case err != nil && !errors.Is(err, fold.ErrUnknownPatch):
		a.store.opts.Logger.Warn("patchlog: the patch that follows an event was not logged", "session", a.key.String(), "event", r.ID(), "error", err)
	}
	return nil
}

// commit commits a plan. While an erase of the session is unfinished, it finishes the erase and tries again.
func (s *Store) commit(ctx context.Context, key Key, creation string, p write.Plan) (Committed, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	for {
		done, err := h.Commit(ctx, creation, p)
		if !errors.Is(err, write.ErrReceiptOpen) {
			return done, err
		}
		if err := s.finishErasures(ctx, key, false); err != nil {
			return done, err
		}
	}
}

// draft drafts a plan on the newest view, without committing it.
func (s *Store) draft(ctx context.Context, key Key, creation string, p write.Plan) (Committed, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	done, err := h.Preview(ctx, creation, p)
	return done, err
}

// commitOrDraft commits a plan. If dry is true, it only drafts the plan.
func (s *Store) commitOrDraft(ctx context.Context, key Key, creation string, p write.Plan, dry bool) (Committed, error) {
	if dry {
		return s.draft(ctx, key, creation, p)
	}
	return s.commit(ctx, key, creation, p)
}
