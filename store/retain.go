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

// Retention is the policy for the sessions of an app. The zero value keeps everything.
type Retention struct {
	// DeleteAfter is how long a session is kept after its last use. 0 means forever.
	DeleteAfter time.Duration

	// KeepPinned keeps each session that has a visible pinned event, whatever its age.
	KeepPinned bool

	// EraseHiddenAfter is how long a patch may hide an event before the event is erased. 0 means forever. Pinned
	// events are not erased, and neither are summaries of erased events.
	EraseHiddenAfter time.Duration
}

// Retained is what [Store.Retain] did with a session. Info is the session's entry in the listing before the call.
// In a dry run, the fields describe what a real run would do. If Deleted, Kept and Erased are all zero, Retain
// only finished an interrupted erase.
type Retained struct {
	Info

	// Used is the time of the last use: the latest of the session's creation and the times of its last 32 records,
	// without receipts.
	Used time.Time `json:"used,omitzero"`

	Deleted bool   `json:"deleted"` // the session was deleted
	Kept    string `json:"kept"`    // why a session that is due was kept: [KeptPinned] or [KeptUsed]; otherwise ""
	Erased  int    `json:"erased"`  // number of hidden events that were erased
}

// Reasons why Retain keeps a session that is due for deletion.
const (
	KeptPinned = "pinned" // a pinned event is visible, and KeepPinned is set
	KeptUsed   = "used"   // the session was written to after Retain had found it due
)

const (
	usedRecords = 32          // number of last records whose times count for the last use
	retainLease = "retain"    // name of the lease; cannot be the name of a session
	retainTime  = time.Minute // duration of the lease; each session extends it
)

// RetainOptions are options of [Store.Retain].
type RetainOptions struct {
	// DryRun reports what is due, and deletes and erases nothing. It needs no lease.
	DryRun bool
}

// Retain deletes the sessions whose last use is longer ago than [Retention.DeleteAfter]. In the other sessions it
// erases the events that have been hidden for longer than [Retention.EraseHiddenAfter]. The keys of policies are
// app names. The policy with the key "" applies to all apps without a policy. Each step of the iteration handles
// one session, and Retain yields only sessions for which something was due. If the loop ends early, the next Retain
// handles the remaining sessions.
//
// The last use of a session is [Retained.Used]. It depends on the timestamps that the events carry. A session whose
// events have old timestamps counts as used at its creation. If a timestamp lies in the future, the session is due only
// when DeleteAfter has passed since that timestamp. A copy of a session has the times of the original. If a session is
// written to after Retain found it due, Retain keeps it.
//
// Retain erases an unpinned event if a patch hid it at least EraseHiddenAfter ago and it has been hidden since. The
// time of that patch is the newest timestamp among the records up to the patch. Retain erases as [Store.Erase] does
// with [patch.KeepSummaries] and [patch.KeepValues]; this cannot be undone. The newest view, its state and its
// summaries do not change. The erased events are blank in earlier views, in histories and after a revert. The
// author of the receipt is "retention". Unlike Erase, Retain does not erase the event in forks and other related
// sessions, where the event may be visible. Retain also finishes interrupted erases.
//
// If several processes share a server, only one of them may run Retain at a time. While another process runs
// Retain, and for up to a minute after that process crashed, the error matches [ErrRetainRunning]. If a policy is
// invalid, the error matches [ErrInvalid]. If a session is damaged, Retain yields an error that matches
// [ErrCorrupt], keeps the session and continues. Any other error ends the iteration.
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
			if errors.Is(err, ErrNotFound) || err == nil && !due { // the session was deleted during the call, or nothing was due
				continue
			}
			if !yield(r, err) || err != nil && !errors.Is(err, ErrCorrupt) {
				return
			}
		}
	}
}

// retain deletes a session if it is due, and otherwise erases its due events. The result due reports whether
// anything was due.
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
		r.Used, err = s.lastUse(ctx, info.Key, head, m.created)
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

// lastUse returns the time of a session's last use.
func (s *Store) lastUse(ctx context.Context, key Key, head backend.Head, created time.Time) (time.Time, error) {
	latest := created
	from := max(head.Last, usedRecords) - usedRecords + 1
	for r, err := range s.records(ctx, key, head, from, endOfLog) {
		if err != nil {
			return latest, err
		}
		if at := records.Envelope(r).Timestamp(); at.After(latest) && !receipt.IsReceipt(r) { // the receipt of an erase does not count as a use
			latest = at
		}
	}
	return latest, nil
}
