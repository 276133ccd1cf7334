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

// Retention is the policy for an app's sessions. The zero value keeps everything.
type Retention struct {
	// DeleteAfter is how long a session is kept after its last use; 0 means forever.
	DeleteAfter time.Duration

	// KeepPinned keeps sessions with a visible pinned event, however old they are.
	KeepPinned bool

	// EraseHiddenAfter is how long after a patch hid it an event is erased; 0 means never. Its summaries stay.
	EraseHiddenAfter time.Duration
}

// Retained reports what [Store.Retain] did with a session. The session was deleted; or it was kept although it was due, or events
// of it were erased, or both. If no field says so, an interrupted erasure was finished.
type Retained struct {
	Info

	// Used is when the session was used last: the latest of its creation and the times of its last 32 records other than receipts.
	Used time.Time `json:"used,omitzero"`

	Deleted bool   `json:"deleted"` // or would be
	Kept    string `json:"kept"`    // why it was kept although it is due: [KeptPinned] or [KeptUsed]
	Erased  int    `json:"erased"`  // the number of hidden events that were erased, or would be
}

// Reasons to keep a session that is due to be deleted.
const (
	KeptPinned = "pinned" // a pinned event is visible, and the policy has KeepPinned
	KeptUsed   = "used"   // it was written to after it was found due
)

const (
	usedRecords = 32          // the number of last records that tell the last use
	retainLease = "retain"    // not the name of a session
	retainTime  = time.Minute // the lease is extended for each session
)

// RetainOptions are options of [Store.Retain].
type RetainOptions struct {
	// DryRun reports what is due without deleting or erasing. It needs no lease.
	DryRun bool
}

// Retain deletes sessions that were unused for longer than their app's policy says, and erases from the others events that have been
// hidden for longer. It works on one session with each step of the iteration, and yields those for which something was due.
// policies are by app name; "" is for all other apps. A loop may stop at any step, and blocks no other call between steps; the rest is
// due the next time.
//
// The last use of a session is the newest time in its last 32 records, or its creation if that is later. Times are those of events, so a
// program that gives events old times should rely on the creation, and a time in the future keeps a session until then. A copy of a
// session has the times of its original. A session that is written to after it was found due is kept.
//
// It erases unpinned events that were hidden by a patch before the limit and have been hidden since. A patch is as old as the
// newest time of the records up to it, whatever its own time. It erases as [Store.Erase] does with [patch.KeepSummaries] and
// [patch.KeepValues], and cannot be undone: the newest view, its state and its summaries do not change, but these events are blank
// in earlier views and histories, and after a revert. The receipt's author is "retention". Each session is judged by itself: an
// event that is hidden in one may be visible in a fork, and stays there. An interrupted erasure is finished.
//
// One process at a time may run Retain on a storage. While another does, the error matches [ErrRetainRunning]; after a crash, for
// up to a minute. A damaged session is yielded with an error that matches [ErrCorrupt], and stays; so does one that cannot be
// deleted, after which the iteration ends. Errors match [ErrInvalid] if a policy is invalid.
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

// retain deletes a session if it is due, and otherwise erases its due events.
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
	head, m, err := s.headAndMeta(ctx, info.Key)
	if err == nil && !dryRun && write.CountsOf(head).Calls > 0 {
		due = true
		if err = s.finishErasures(ctx, info.Key, true); err == nil {
			head, m, err = s.headAndMeta(ctx, info.Key)
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

// deleteDue deletes a due session, or sets r.Kept.
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

// used returns the time of a session's last use.
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
