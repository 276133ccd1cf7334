// Package write adds records to the logs of sessions. Only the receipts and reverts of erasures are added elsewhere, by
// package erase.
//
// # Path of a write
//
//	Store.AppendEvents, ApplyPatch, Revert …   make a Plan
//	Session.Commit                             queues the plan (groupcommit.Queue)
//	Session.lead                               takes all waiting plans as a write group
//	group.draft                                lets each plan make a Draft on the newest view, after the earlier drafts
//	    fold.Match, fold.Draft                 detect retries, validate patches and compute the next view, without I/O
//	    batch.add                              encodes the records of the draft, with their ids and shared values
//	group.commit                               passes the group's batch to the backend
//	backend.Append                             commits the batch; on bbolt, together with batches of other sessions
//	Session.Publish                            shows the view to readers; then the callers return
//
// Read draft.go, batch.go, commit.go and outcome.go in this order. create.go creates sessions with the same drafts.
//
// # Two queues
//
// Writes to one session must be validated one after the other, each on the view after the previous write. The
// session's queue does this. The caller that gets the session's lock drafts all waiting plans, and the plans share
// one batch. So 256 concurrent writes to one session need a few commits instead of 256.
//
// Writes to different sessions are validated in parallel. Only the backend orders them. A commit costs two syncs or a
// network round trip, whatever its size, so the backend commits batches of several sessions together.
//
// Both queues are needed. Without the session's queue, each append to a session would wait for its own commit.
// Without the backend's queue, each session would wait for its own commit.
//
// # Locks
//
// A caller locks at most one session at a time (Session.Lock). While it waits for that lock, it holds no other lock
// of the store. The session is locked
//
//   - while a write group is drafted and committed,
//   - while a view that is not cached is read from the storage,
//   - during the last commit that creates the session,
//   - during a commit of an erasure, and
//   - during a deletion.
//
// Readers of a cached view do not lock the session. A caller that has locked the session may briefly lock the cache,
// the snapshot queue or the watchers. It locks them in any order, but only one at a time. As an exception, the
// snapshot queue locks the cache while it is locked itself. The backend's own locks are always taken last.
//
// A plan may need records of the log that the view does not have, such as the records that a revert restores. These
// records are read with the caller's context and without a lock. Then the plan waits for the session's lock again.
//
// # Publication
//
// A view is published after its batch is committed and before any caller of the write group returns. So every later
// read includes the acknowledged records. A published view is never replaced by a view of an earlier record, so a
// slow reader cannot undo a commit in the cache. If the outcome of a commit is unknown, the cached view is dropped,
// and the next caller reads the storage.
//
// # Crashes and unknown outcomes
//
// A batch is one commit of the backend. After a crash the log has either all its records, ids, shared values and
// counts or none of them. If we crash before the commit, nothing was written. If we crash after the commit but before
// the callers return, the records are in the log. A caller that repeats its call with the same ids then learns this
// from Match.
//
// A commit that returned an error may have taken effect, or may take effect later. resolve in outcome.go finds out: a
// fence first prevents a late commit, then the log shows whether the records are there. The caller gets
// [backend.ErrUnknown] only if the storage does not answer this question.
//
// A failover may lose records that were read but never acknowledged. A call that finds its work already done and
// commits nothing therefore sets a fence before it returns. The fence is a commit, so records that were read before
// it survive a failover.
package write

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/groupcommit"
)

// State is a session's view and the data of the head that belongs to it.
type State struct {
	View   fold.View
	Token  backend.Token
	Chain  backend.Chain
	Counts Counts

	// Invocations are the most recent invocations that are known to be in the id index.
	Invocations []string
}

// sameLog reports whether no commit came between two states.
func (s State) sameLog(other State) bool {
	return s.Token == other.Token && s.View.Creation() == other.View.Creation()
}

// Log reads a session and caches its view.
type Log interface {
	// CachedState returns the cached state, which may be out of date, or reads the state if none is cached. The caller has
	// locked the session.
	CachedState(ctx context.Context) (State, error)

	// NewestState returns a state as of a moment after the call began. The argument locked reports whether the caller has
	// locked the session.
	NewestState(ctx context.Context, locked bool) (State, error)

	// Records reads the records with these seqs, which must ascend.
	Records(ctx context.Context, creation string, seqs []uint64) ([]patch.Record, error)

	// Publish caches a committed state for readers, unless a later state is cached. Drop removes the cached view.
	Publish(State)
	Drop()

	// Wake wakes the watchers of the session.
	Wake()

	// WrapError adds the names of the store and the session to an error of the backend or of a plan.
	WrapError(error) error
}

// Config is shared by all sessions of a store.
type Config struct {
	Backend        backend.Backend
	Remote         bool // commits may be slow, so a caller stops waiting for a commit when its context ends
	MaxRecordBytes int
	NewID          func() string
	Now            func() time.Time
	Logger         *slog.Logger
}

// Complete returns the records with missing ids and times filled in.
func (c *Config) Complete(records []patch.Record) []patch.Record {
	if len(records) == 0 {
		return nil
	}
	now := c.Now()
	out := make([]patch.Record, len(records))
	for i, r := range records {
		out[i] = patch.Complete(r, c.NewID, now)
	}
	return out
}

// Session writes to one session.
type Session struct {
	*Config
	Log
	Name   string                       // the session's name in the backend
	Label  string                       // the session's name for messages
	Shared func(stateKey string) string // returns the name of a shared value in the backend

	lock  chan struct{} // has one element while the session is locked
	queue groupcommit.Queue[*request]
}

// NewSession returns a Session for the session called name.
func NewSession(c *Config, log Log, name, label string, shared func(string) string) *Session {
	return &Session{Config: c, Log: log, Name: name, Label: label, Shared: shared, lock: make(chan struct{}, 1), queue: groupcommit.Queue[*request]{Detached: c.Remote}}
}

// Lock locks the session, or returns the error of ctx if ctx ends first.
func (s *Session) Lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock unlocks the session.
func (s *Session) Unlock() { <-s.lock }

// Plan is a write that a call wants to make.
type Plan interface {
	// Offered returns the caller's records. The log may already have some of them.
	Offered() []patch.Record

	// Draft adds records to d, or returns an error, depending on the view of d. If the error is a
	// *[fold.MissingRecordsError], Draft is called again with these records supplied. Draft may be called any number
	// of times. Other writers of the session wait for Draft, so it must not block or read from the backend.
	Draft(d *Draft) error
}

// Commit logs the records of a plan. If creation is not "", the session must have that creation id.
func (s *Session) Commit(ctx context.Context, creation string, p Plan) (fold.Committed, error) {
	// Filled in once, so that the caller gets the ids even if the outcome stays unknown.
	r := &request{ctx: ctx, creation: creation, plan: p, completed: s.Complete(p.Offered())}
	for {
		completed := r.completed
		switch err := s.queue.Do(ctx, s.lock, r, groupSize, func(group []*request) { s.lead(ctx, group) }); {
		case errors.Is(err, groupcommit.ErrRunning): // the leader may still use the request
			return fold.Committed{Records: completed}, s.WrapError(&backend.UnknownError{Cause: ctx.Err()})
		case err != nil:
			return fold.Committed{}, err
		}
		retry, err := s.retryWithRecords(r, r.err)
		if retry == nil {
			// The group's work has its own context, which may have ended because the context of this caller ended.
			if own := ctx.Err(); own != nil && errors.Is(err, context.Canceled) && !errors.Is(err, own) {
				err = fmt.Errorf("%w: %w", own, err)
			}
			return r.result, err
		}
		r = retry
	}
}

// Preview drafts a plan on the newest view without committing it.
func (s *Session) Preview(ctx context.Context, creation string, p Plan) (fold.Committed, error) {
	r := &request{ctx: ctx, creation: creation, plan: p, completed: s.Complete(p.Offered())}
	for {
		base, err := s.NewestState(ctx, false)
		if err != nil {
			return fold.Committed{}, err
		}
		base.Counts = Counts{} // a preview ignores open receipts
		s.draftGroup(ctx, base, []*request{r}, true)
		if err = r.err; r.draft != nil {
			err = r.refusal
		}
		retry, err := s.retryWithRecords(r, err)
		switch {
		case err != nil:
			return fold.Committed{}, err
		case retry == nil:
			return fold.Committed{Records: r.draft.Records, View: r.draft.View, Before: base.View}, nil
		}
		r = retry
	}
}

// retryWithRecords returns the request to try again, with the records that its plan asked for, or nil and the final error.
func (s *Session) retryWithRecords(r *request, err error) (retry *request, _ error) {
	var need *fold.MissingRecordsError
	if !errors.As(err, &need) {
		return nil, err
	}
	retry = &request{ctx: r.ctx, creation: r.creation, plan: r.plan, completed: r.completed, suppliedCreation: r.baseView.Creation()}
	// Seqs above baseView are records of the plan itself. The error names only the records that one step needs, so
	// records that were supplied earlier are kept.
	logged := slices.DeleteFunc(slices.Clone(need.Seqs), func(seq uint64) bool { return seq > r.baseView.Seq() })
	if r.suppliedCreation == retry.suppliedCreation {
		for _, record := range r.supplied {
			logged = append(logged, record.Seq)
		}
		slices.Sort(logged)
		if logged = slices.Compact(logged); len(logged) == len(r.supplied) {
			return nil, fmt.Errorf("%w: records %d are still missing, although they were supplied", patch.ErrCorrupt, need.Seqs)
		}
	}
	retry.supplied, err = s.Records(r.ctx, retry.suppliedCreation, logged)
	if err != nil && !errors.Is(err, ErrLogChanged) { // the next attempt detects this too
		return nil, err
	}
	return retry, nil
}

// ErrLogChanged: the log is no longer the one that was read. A server without the latest records has taken over, the
// session was deleted and created again, or records were erased.
var ErrLogChanged = errors.New("the log is no longer the one that was read")
