package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Retention says what becomes of an app's sessions in time. The zero value keeps them.
type Retention struct {
	// DeleteAfter is how long a session is kept after it was used last; 0 means for ever.
	DeleteAfter time.Duration

	// KeepPinned keeps sessions that show a pinned event, however old they are.
	KeepPinned bool
}

// RetainOptions are options of [Store.Retain]. The zero value means the defaults.
type RetainOptions struct {
	// DryRun finds out what is due, and deletes nothing.
	DryRun bool
}

// Retained is a session that is due to be deleted.
type Retained struct {
	Info

	// Used is when the session was used last: the latest of when it was created, and the times that
	// its last 32 records say.
	Used time.Time

	// Kept says why it is kept all the same, and is one of the reasons below; "" is that it was
	// deleted, or would be.
	Kept string
}

// Why a session is kept that is due.
const (
	KeptPinned = "pinned" // it shows a pinned event, and the policy keeps those
	KeptUsed   = "used"   // somebody has written to it since it was found due
)

const (
	usedRecords = 32          // so many of a log's last records tell when it was used
	retainLease = "retain"    // is no session's name
	retainTime  = time.Minute // the lease is taken again with each session that is looked at
)

// ErrRetaining: another process deletes what is due in this storage.
var ErrRetaining = errors.New("another process is at it")

// Retain deletes sessions that were not used for as long as the policy of their app says, one with each
// step of the iteration, and yields each that was due. policies are by the names of apps; that of
// "" is for all apps that have none. A loop may end at any step, and take its time in between: it
// holds nothing up. What is left is due the next time. Others go on reading and writing; one session
// is gone at a time, as by [Store.Delete].
//
// When a session was used is what its records say: the times of events, which whoever appended them
// gave, and ADK's runner and the store draw from a clock. Where a program gives events times of long
// ago, only the session's creation, which the store has noted, tells that it is young; a time that
// lies ahead keeps a session until it has come. A copy of a session has the times of its original. A session is deleted as it was judged: if it has grown
// since, it is kept. If the storage is shared, a record that another process appends at the very
// moment of the deletion goes with it.
//
// Of several processes that share the storage one at a time works: while another does, the error
// matches [ErrRetaining], and its holder may be gone for up to a minute. A dry run does not wait for
// that. A session that is damaged is yielded with an error that matches [ErrCorrupt], and stays; so
// is one that cannot be deleted, with its error, after which the iteration ends. Errors match
// [ErrInvalid] if a policy makes no sense.
func (s *Store) Retain(ctx context.Context, policies map[string]Retention, opts RetainOptions) iter.Seq2[Retained, error] {
	return func(yield func(Retained, error) bool) {
		for _, app := range slices.Sorted(maps.Keys(policies)) {
			if after := policies[app].DeleteAfter; after < 0 {
				yield(Retained{}, &patch.FieldError{Field: fmt.Sprintf("policies[%q].DeleteAfter", app), Problem: fmt.Sprintf("%v is below 0", after)})
				return
			}
		}
		if !opts.DryRun {
			defer func() { _, _ = s.backend.Lease(context.WithoutCancel(ctx), retainLease, s.owner, 0) }()
		}
		for info, err := range s.dueAmong(ctx, policies) {
			r := Retained{Info: info}
			due := false
			if err == nil {
				r, due, err = s.retain(ctx, info, policies, opts)
			}
			damaged := errors.Is(err, ErrCorrupt)
			switch {
			case errors.Is(err, ErrNotFound): // it was deleted meanwhile
			case err != nil && (!yield(r, err) || !damaged):
				return
			case err == nil && due && !yield(r, nil):
				return
			}
		}
	}
}

// dueAmong lists the sessions that a policy may be about.
func (s *Store) dueAmong(ctx context.Context, policies map[string]Retention) iter.Seq2[Info, error] {
	if _, all := policies[""]; all {
		return s.List(ctx, ListOptions{})
	}
	return func(yield func(Info, error) bool) {
		for _, app := range slices.Sorted(maps.Keys(policies)) {
			for info, err := range s.List(ctx, ListOptions{App: app}) {
				if !yield(info, err) || err != nil && !errors.Is(err, ErrCorrupt) {
					return
				}
			}
		}
	}
}

// retain deletes a session if it is due.
func (s *Store) retain(ctx context.Context, info Info, policies map[string]Retention, opts RetainOptions) (r Retained, due bool, err error) {
	r.Info = info
	policy, own := policies[info.Key.App]
	if !own {
		policy = policies[""]
	}
	now := s.opts.Now()
	if policy.DeleteAfter == 0 || now.Sub(info.Created) < policy.DeleteAfter {
		return r, false, nil
	}
	if !opts.DryRun {
		switch held, err := s.backend.Lease(ctx, retainLease, s.owner, retainTime); {
		case err != nil:
			return r, false, fromBackend(info.Key, err)
		case !held:
			return r, false, ErrRetaining
		}
	}
	head, m, err := s.head(ctx, info.Key)
	if err == nil && head.Damaged != 0 {
		err = inDoubt(info.Key, head)
	}
	if err != nil {
		return r, false, err
	}
	if r.Used, err = s.used(ctx, info.Key, head, m.created); err != nil || now.Sub(r.Used) < policy.DeleteAfter {
		return r, false, err
	}
	if policy.KeepPinned {
		v, err := s.View(ctx, info.Key)
		if err != nil {
			return r, false, err
		}
		for i := range v.Len() {
			if v.IsPinned(i) {
				r.Kept = KeptPinned
				return r, true, nil
			}
		}
	}
	if opts.DryRun {
		return r, true, nil
	}
	err = s.deleteIf(ctx, info.Key, func(now backend.Head) bool {
		return now.Creation == head.Creation && now.Last == head.Last && now.Token == head.Token
	})
	if errors.Is(err, errMoved) {
		r.Kept, err = KeptUsed, nil
	}
	return r, true, err
}

// used returns when a session was used last.
func (s *Store) used(ctx context.Context, key Key, head backend.Head, created time.Time) (time.Time, error) {
	latest := created
	from := max(head.Last, usedRecords) - usedRecords + 1
	for page, err := range s.pages(ctx, key, head, from, head.Last) {
		if err != nil {
			return latest, err
		}
		for _, r := range page.records {
			var at time.Time
			if r.Event != nil {
				at = r.Event.Timestamp()
			} else {
				at = r.Patch.Timestamp()
			}
			if at.After(latest) {
				latest = at
			}
		}
	}
	return latest, nil
}

var errMoved = errors.New("the log has moved on")
