// Package write adds records to sessions' logs. There is no other way to add one.
//
// # From a call to the bytes
//
//	Store.AppendEvents, ApplyPatch, Revert …   make a Plan
//	Session.Commit                             queues it (groupcommit.Queue)
//	Session.lead                               takes the group of all plans that wait
//	group.draft                                has each plan make a Draft on the newest view, behind the drafts before it
//	    fold.Match, fold.Draft                 find retries, judge patches, give the view after them: pure
//	    batch.add                              encodes what the draft adds, with its ids and shared values
//	group.commit                               hands the group's batch to the backend
//	backend.Append                             commits it; on bbolt with the batches of other sessions
//	Session.publish                            shows the view to readers, then the callers return
//
// Read draft.go, batch.go, commit.go and outcome.go in this order. create.go makes new sessions by the same drafts.
//
// # Two ways of waiting
//
// Writers of one session must be judged one after the other, each on the view that the writer before leaves. The
// session's queue does that: the caller that gets the session's lock drafts all waiting plans, and they share one
// batch. So 256 writers of one session make a few batches, not 256 that depend on each other. Writers of different
// sessions are judged in parallel, and meet only at the storage. A commit costs two syncs or a round trip however much
// it holds, so a backend groups the batches of all sessions. Both queues are needed. Without the session's queue, each
// append to a session waits for a commit of its own. Without the backend's queue, each session does.
//
// # Locks
//
// A caller holds at most one session's lock (Session.Lock), and holds no other lock of the store while it waits for it.
// The lock is held while a group is drafted and committed, while a view is read from the storage, and during an
// erasure's commit and a deletion. Readers of a cached view take no session lock. A holder of the session's lock may
// briefly take the locks of the cache, of the queue of snapshots and of the watchers, in any order but one at a time,
// except that the queue of snapshots takes the cache's lock. The backend's own locks are innermost.
//
// A plan may need records of the log that the view lacks, such as those that a revert restores. They are read under the
// caller's context with no lock held; then the plan waits for the lock again.
//
// # Publication
//
// A view is published after its batch is committed, and before any caller of the group returns, so every later read has
// the acknowledged records. It never replaces a view of a later record, so a slow reader of the storage does not undo a
// commit. If a commit fails with an unknown outcome, the view is dropped, and the next caller reads the storage.
//
// # Crashes and unknown outcomes
//
// A batch is one commit of the backend: after a crash the log has all of its records or none, with their ids, shared
// values and counts. If we crash before the commit, nothing was written. If we crash after it, before the callers
// return, the records are in the log; a caller that repeats its call with the same ids learns that from Match.
//
// A commit that fails may have taken place, or may yet. outcome.go finds out: a fence first rules out a late commit,
// then the log shows whether the records are there. The caller gets [backend.ErrUnknown] only if the storage cannot
// tell. A failover may lose records that a read has shown, but no acknowledged ones. So a call that finds its work
// already done, and commits nothing, makes a fence, which is a commit, before it returns.
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

// State is a session's view, with what the head says about the log.
type State struct {
	View   fold.View
	Token  backend.Token
	Chain  backend.Chain
	Counts Counts

	// Invocations are the most recent invocations known to be in the index of ids.
	Invocations []string
}

// sameLog reports whether no commit came between two states.
func (s State) sameLog(other State) bool {
	return s.Token == other.Token && s.View.Creation() == other.View.Creation()
}

// Log reads a session and holds its view.
type Log interface {
	// State returns the view in memory, which may be out of date, or else reads it. The caller holds the session's
	// lock.
	State(ctx context.Context) (State, error)

	// Newest returns a state as of a moment after the call began. locked says that the caller holds the session's lock.
	Newest(ctx context.Context, locked bool) (State, error)

	// Records reads records with ascending seqs.
	Records(ctx context.Context, creation string, seqs []uint64) ([]patch.Record, error)

	// Publish shows a committed state to readers, unless they have a later one. Drop forgets the view in memory.
	Publish(State)
	Drop()

	// Wake wakes the watchers of the session.
	Wake()

	// Named adds the names of the store and the session to an error of the backend or of a plan.
	Named(error) error
}

// Config is what all sessions of a store share.
type Config struct {
	Backend        backend.Backend
	Remote         bool // a commit may take long, so a caller whose context ends does not wait for it
	MaxRecordBytes int
	NewID          func() string
	Now            func() time.Time
	Logger         *slog.Logger
}

// Complete sets the missing ids and times of records.
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

// Session writes one session.
type Session struct {
	*Config
	Log
	Name   string                       // in the backend
	Label  string                       // for people
	Shared func(stateKey string) string // the name of a shared value in the backend

	lock  chan struct{} // holds a token while it is held
	queue groupcommit.Queue[*request]
}

// NewSession returns the writer of a session.
func NewSession(c *Config, log Log, name, label string, shared func(string) string) *Session {
	return &Session{Config: c, Log: log, Name: name, Label: label, Shared: shared, lock: make(chan struct{}, 1), queue: groupcommit.Queue[*request]{Detached: c.Remote}}
}

// Lock takes the session's lock.
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

// Unlock releases it.
func (s *Session) Unlock() { <-s.lock }

// Plan says what a call wants to log.
type Plan interface {
	// Offered returns the records that the caller gave, which may be in the log already.
	Offered() []patch.Record

	// Draft adds records to a draft, or returns an error, depending on the draft's view. If the error is a
	// *[fold.MissingRecordsError], the plan is drafted again with these records. Draft may be called any number of
	// times, and must neither wait nor read, because other writers of the session wait for it.
	Draft(d *Draft) error
}

// Commit logs what a plan wants. The session must have this creation id, unless it is "".
func (s *Session) Commit(ctx context.Context, creation string, p Plan) (fold.Committed, error) {
	// Completed once: if the outcome stays unknown, the caller must know the ids.
	r := &request{ctx: ctx, creation: creation, plan: p, completed: s.Complete(p.Offered())}
	for {
		completed := r.completed
		switch err := s.queue.Do(ctx, s.lock, r, fitting, func(group []*request) { s.lead(ctx, group) }); {
		case errors.Is(err, groupcommit.ErrBegun): // the leader still uses the request
			return fold.Committed{Records: completed}, s.Named(&backend.UnknownError{Cause: ctx.Err()})
		case err != nil:
			return fold.Committed{}, err
		}
		again, err := s.supply(r, r.err)
		if again == nil {
			// The group's work has its own context, which may have ended because this caller's did.
			if own := ctx.Err(); own != nil && errors.Is(err, context.Canceled) && !errors.Is(err, own) {
				err = fmt.Errorf("%w: %w", own, err)
			}
			return r.result, err
		}
		r = again
	}
}

// Preview drafts a plan on the newest view, and commits nothing.
func (s *Session) Preview(ctx context.Context, creation string, p Plan) (fold.Committed, error) {
	r := &request{ctx: ctx, creation: creation, plan: p, completed: s.Complete(p.Offered())}
	for {
		base, err := s.Newest(ctx, false)
		if err != nil {
			return fold.Committed{}, err
		}
		base.Counts = Counts{} // a preview does not know of open receipts
		s.draftGroup(ctx, base, []*request{r}, true)
		if err = r.err; r.draft != nil {
			err = r.refusal
		}
		again, err := s.supply(r, err)
		switch {
		case err != nil:
			return fold.Committed{}, err
		case again == nil:
			return fold.Committed{Records: r.draft.Records, View: r.draft.View, Before: base.View}, nil
		}
		r = again
	}
}

// supply returns the request to try again, with the records that its plan asked for, or nil and the final error.
func (s *Session) supply(r *request, err error) (again *request, _ error) {
	var need *fold.MissingRecordsError
	if !errors.As(err, &need) {
		return nil, err
	}
	again = &request{ctx: r.ctx, creation: r.creation, plan: r.plan, completed: r.completed, suppliedOf: r.triedOn.Creation()}
	// A plan supplies its own records. Records supplied before are kept: the error names only what one record needs.
	logged := slices.DeleteFunc(slices.Clone(need.Seqs), func(seq uint64) bool { return seq > r.triedOn.Seq() })
	if r.suppliedOf == again.suppliedOf {
		for _, given := range r.supplied {
			logged = append(logged, given.Seq)
		}
		slices.Sort(logged)
		if logged = slices.Compact(logged); len(logged) == len(r.supplied) {
			return nil, fmt.Errorf("%w: records %d are asked for again, though they were supplied", patch.ErrCorrupt, need.Seqs)
		}
	}
	again.supplied, err = s.Records(r.ctx, again.suppliedOf, logged)
	if err != nil && !errors.Is(err, ErrOtherLog) { // the next try will find that too
		return nil, err
	}
	return again, nil
}

// ErrOtherLog: the log is not the one that was read before. Another server, which lacks records, has taken over, the
// session was created again, or records were erased.
var ErrOtherLog = errors.New("the log is not the one that was read before")
