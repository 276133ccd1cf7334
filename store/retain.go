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

	// EraseHiddenAfter is how long an event may be hidden by a patch before it is erased; 0 means forever. Pinned
	// events, and summaries of erased events, stay.
	EraseHiddenAfter time.Duration
}

// Retained reports what [Store.Retain] did with a session. Either Retain deleted the session; or it kept the session
// although it was due, erased events of it, or both. If Deleted, Kept and Erased are all zero, Retain finished an
// interrupted erasure.
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
	KeptUsed   = "used"   // a write came after Retain had found the session due
)

const (
	usedRecords = 32          // how many of the last records are searched for the last use
	retainLease = "retain"    // not the name of a session
	retainTime  = time.Minute // the lease is extended for each session
)

// RetainOptions are options of [Store.Retain].
type RetainOptions struct {
	// DryRun reports what is due without deleting or erasing. It needs no lease.
	DryRun bool
}

// Retain deletes sessions that were unused for longer than [Retention.DeleteAfter], and in the other sessions erases
// events that were hidden for longer than [Retention.EraseHiddenAfter]. policies are by app name; "" is for all other
// apps. Each step of the iteration works on one session; only sessions for which something was due are yielded. The
// loop may stop at any step: the next Retain does the rest.
//
// The last use of a session is [Retained.Used]. It depends on the events' own timestamps. So a session of events with
// old timestamps counts as used at its creation, and a timestamp in the future keeps the session until that time plus
// DeleteAfter. A copy of a session has the times of its original. A session that is written to after it was found due
// is kept.
//
// Retain erases unpinned events that a patch hid before the limit and that have been hidden since. The time of a patch
// counts as the newest timestamp of the records up to the patch. Retain erases as [Store.Erase] does with
// [patch.KeepSummaries] and [patch.KeepValues], which cannot be undone. The newest view, its state and its summaries do
// not change, but the erased events are blank in earlier views and histories, and after a revert. The receipt's author
// is "retention". Unlike Erase, Retain leaves related sessions alone: an event that is hidden in one session may be
// visible in a fork, and stays there. Retain also finishes interrupted erasures.
//
// One process at a time may run Retain on a storage. While another process runs it, and for up to a minute after that
// process crashed, the error matches [ErrRetainRunning]. A damaged session is yielded with an error that matches
// [ErrCorrupt], and stays. If a session cannot be deleted, it stays and the iteration ends with the error. The error
// matches [ErrInvalid] if a policy is invalid.
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
		if at := records.Envelope(r).Timestamp(); at.After(latest) && !receipt.Is(r) { // an erasure is no use
			latest = at
		}
	}
	return latest, nil
}
