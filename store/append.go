package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Committed is what a write put into the log. Records are set too if the error matches [ErrOutcomeUnknown], so that the
// call can be repeated with the same ids. Before is set with [UndoOptions.DryRun] only.
type Committed = fold.Committed

// AppendOptions are options of [Store.AppendEvents]. The zero value sets no condition.
type AppendOptions struct {
	// IfSeq, if not nil, is the seq that the log's last record must have; 0 means an empty log. If the log has another
	// last seq, the error is a *[SeqError], unless all events of the call are logged already.
	IfSeq *uint64

	// Creation, if not empty, is the session's [Info.Creation]. If it differs, the session was deleted and created
	// again, and the error matches [ErrNotFound].
	Creation string

	// Follow, if not nil, is called for each event to be logged, with the view that includes the event. A patch that
	// Follow returns is logged in the same commit. If Follow returns an error, or its patch is refused, the event is
	// logged without a patch and the logger gets a warning. Follow may be called again for the same event. It must be
	// fast, since other writers of the session wait.
	Follow func(v fold.View, r patch.Record) (*patch.PatchEvent, error)
}

// AppendEvents appends events to the end of the session's log, all of them in one durable commit or none. An event
// without an id gets a UUID, and an event without a timestamp gets the time of the call. Partial events and state keys
// with prefix temp: are not logged. State keys with prefix app: or user: go to the shared scopes, in the same commit.
//
// Retrying is safe: an event that is logged already, with the same id and content, is skipped, and its record is
// returned. If the error matches [ErrOutcomeUnknown], it is unknown whether the events were written. Other errors match
// [ErrInvalid], [ErrNotFound], [ErrDuplicateID], [ErrConflict] or [ErrTooLarge], and nothing was written. Concurrent
// calls may share a commit, and its error.
func (s *Store) AppendEvents(ctx context.Context, key Key, events []*patch.Event, opts AppendOptions) (Committed, error) {
	a := appending{store: s, key: key, opts: opts}
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

// appending is the plan to append events.
type appending struct {
	store  *Store
	key    Key
	events []patch.Record
	opts   AppendOptions
}

func (a appending) Offered() []patch.Record { return a.events }

func (a appending) Draft(d *write.Draft) error {
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

// follow adds the patch that follows an event, which is the newest one.
func (a appending) follow(d *write.Draft, r patch.Record) error {
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
		a.store.opts.Logger.Warn("patchlog: the patch that is to follow an event is not logged", "session", a.key.String(), "event", r.ID(), "error", err)
	}
	return nil
}

// commit logs what a plan wants.
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

// commitOrDraft commits a plan, or with dry only drafts it.
func (s *Store) commitOrDraft(ctx context.Context, key Key, creation string, p write.Plan, dry bool) (Committed, error) {
	if dry {
		return s.draft(ctx, key, creation, p)
	}
	return s.commit(ctx, key, creation, p)
}
