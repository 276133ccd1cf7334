package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Retention says what becomes of an app's sessions in time. The zero value keeps them.
type Retention struct {
	// DeleteAfter is how long a session is kept after it was used last; 0 means for ever.
	DeleteAfter time.Duration

	// KeepPinned keeps sessions that show a pinned event, however old they are.
	KeepPinned bool

	// EraseHiddenAfter is how long an event that patches have put out of sight is kept after that; 0
	// means for ever. Then what it says is erased, and what stands for it stays.
	EraseHiddenAfter time.Duration
}

// Retained is a session of which something is due. It was deleted, or kept though its time had come, or
// events of it were erased, or the last two. If none of these is said, an erasing was finished that
// had been cut short.
type Retained struct {
	Info

	// Used is when the session was used last: the latest of when it was created, and the times that
	// its last 32 records say, without receipts of erasures.
	Used time.Time `json:"used,omitzero"`

	Deleted bool   `json:"deleted"` // or would be
	Kept    string `json:"kept"`    // why it was not deleted though that is due: one of the reasons below
	Erased  int    `json:"erased"`  // the number of hidden events that were erased, or would be
}

// Why a session is kept that is due to be deleted.
const (
	KeptPinned = "pinned" // it shows a pinned event, and the policy keeps those
	KeptUsed   = "used"   // it was written to since it was found due
)

const (
	usedRecords = 32          // the last records of a log that tell when it was used
	retainLease = "retain"    // is no session's name
	retainTime  = time.Minute // the lease is taken again with each session that is looked at
)

// RetainOptions are options of [Store.Retain].
type RetainOptions struct {
	// DryRun finds out what is due, and deletes and erases nothing. It does not wait for another process.
	DryRun bool
}

// Retain deletes sessions that were not used for as long as the policy of their app says, erases of the
// others what has been hidden for as long, one session with each
// step of the iteration, and yields each of which something was due. policies are by the names of apps; that of
// "" is for all apps that have none. A loop may end at any step, and take its time in between: it
// holds nothing up. What is left is due the next time. Others go on reading and writing; one session
// is gone at a time, as by [Store.Delete].
//
// When a session was used is what its records say: the times of events, which the author
// gave, or ADK's runner or the store drew from a clock. Where a program gives events times of long
// ago, only the session's creation, which the store has noted, tells that it is young; a time that
// lies ahead keeps a session until it has come. A copy of a session has the times of its original. A session is deleted as it was judged: if it was
// written to since, by whatever process, it is kept.
//
// What is erased are the events that patches took out of sight, and that have been out of it since
// a patch that long ago; not those that are pinned. A patch is as old as the newest time of the records up to it, whatever
// its own time says. It is done as by [Store.Erase] with
// [patch.KeepSummaries], and cannot be taken back: the newest view, its state and its summaries are as
// before, but after a revert of such a patch, and in earlier views and histories,
// these events are blank. The receipt's author is "retention". A session younger than the policy is not looked at. Each session is judged by itself: what is
// hidden in one may be in sight in a fork, and stays there. An erasing that was cut short is
// finished.
//
// Of several processes that share the storage one at a time works: while another does, the error
// matches [ErrRetainRunning], and its holder may be gone for up to a minute. A session that is damaged is yielded with an error that matches [ErrCorrupt], and stays; so
// is one that cannot be deleted, with its error, after which the iteration ends. Errors match
// [ErrInvalid] if a policy makes no sense.
func (s *Store) Retain(ctx context.Context, policies map[string]Retention, opts RetainOptions) iter.Seq2[Retained, error] {
	return func(yield func(Retained, error) bool) {
		for _, app := range slices.Sorted(maps.Keys(policies)) {
			for field, after := range map[string]time.Duration{"DeleteAfter": policies[app].DeleteAfter, "EraseHiddenAfter": policies[app].EraseHiddenAfter} {
				if after < 0 {
					yield(Retained{}, &patch.FieldError{Field: fmt.Sprintf("policies[%q].%s", app, field), Problem: fmt.Sprintf("%v is below 0", after)})
					return
				}
			}
		}
		if !opts.DryRun {
			defer func() { _, _ = s.lease(context.WithoutCancel(ctx), retainLease, 0) }()
		}
		for info, err := range s.List(ctx, ListOptions{}) {
			policy, found := policies[info.Key.App]
			if !found {
				policy, found = policies[""]
			}
			if !found && (err == nil || errors.Is(err, ErrCorrupt)) {
				continue
			}
			r, due := Retained{Info: info}, false
			if err == nil {
				r, due, err = s.retain(ctx, info, policy, opts.DryRun)
			}
			if errors.Is(err, ErrNotFound) || err == nil && !due { // it was deleted meanwhile, or stays as it is
				continue
			}
			if !yield(r, err) || err != nil && !errors.Is(err, ErrCorrupt) {
				return
			}
		}
	}
}

// retain deletes a session if that is due, and else erases what is due of it.
func (s *Store) retain(ctx context.Context, info Info, policy Retention, dryRun bool) (r Retained, due bool, err error) {
	r.Info = info
	now := s.opts.Now()
	isDue := func(after time.Duration, since time.Time) bool { return after > 0 && now.Sub(since) >= after }
	erases := isDue(policy.EraseHiddenAfter, info.Created)
	if !erases && !isDue(policy.DeleteAfter, info.Created) {
		return r, false, nil
	}
	if !dryRun {
		switch held, err := s.lease(ctx, retainLease, retainTime); {
		case err != nil:
			return r, false, fromBackend(info.Key, err)
		case !held:
			return r, false, ErrRetainRunning
		}
	}
	head, m, err := s.undamagedHead(ctx, info.Key)
	if err == nil && !dryRun && write.CountsOf(head).Calls > 0 {
		due = true
		if err = s.finishErasures(ctx, info.Key, true); err == nil {
			head, m, err = s.undamagedHead(ctx, info.Key)
		}
	}
	if err == nil {
		r.Used, err = s.used(ctx, info.Key, head, m.created)
	}
	if err != nil {
		return r, false, err
	}
	if isDue(policy.DeleteAfter, r.Used) {
		if err := s.deleteDue(ctx, &r, head, policy, dryRun); err != nil || r.Deleted {
			return r, true, err
		}
	}
	if !erases {
		return r, due || r.Kept != "", nil
	}
	reason := fmt.Sprintf("hidden for %v", policy.EraseHiddenAfter)
	erased, did, err := s.eraseHidden(ctx, info.Key, now.Add(-policy.EraseHiddenAfter), reason, dryRun)
	r.Erased = erased
	return r, due || did || r.Kept != "", err
}

// deleteDue deletes a session that is due, or says why it is kept.
func (s *Store) deleteDue(ctx context.Context, r *Retained, head backend.Head, policy Retention, dryRun bool) error {
	if policy.KeepPinned {
		v, err := s.View(ctx, r.Key)
		if err != nil {
			return err
		}
		for i := range v.Len() {
			if v.IsPinned(i) {
				r.Kept = KeptPinned
				return nil
			}
		}
	}
	r.Deleted = true
	if dryRun {
		return nil
	}
	err := s.delete(ctx, r.Key, &head)
	if errors.Is(err, backend.ErrMoved) {
		r.Kept, err = KeptUsed, nil
	}
	r.Deleted = err == nil && r.Kept == ""
	return err
}

// used returns when a session was used last.
func (s *Store) used(ctx context.Context, key Key, head backend.Head, created time.Time) (time.Time, error) {
	latest := created
	from := max(head.Last, usedRecords) - usedRecords + 1
	for r, err := range s.records(ctx, key, head, from, newest) {
		if err != nil {
			return latest, err
		}
		if at := records.Envelope(r).Timestamp(); at.After(latest) && !receipt.Is(r) { // to erase is not to use
			latest = at
		}
	}
	return latest, nil
}
