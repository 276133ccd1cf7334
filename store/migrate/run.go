package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Options are options of a migration. The zero value means the defaults.
type Options struct {
	// DryRun computes the results without writing.
	DryRun bool

	// KeepCompactions keeps records of compaction as events. By default each record that can be adopted becomes a
	// summary in place of the events that it covers: see [adkrecord.Adopt].
	KeepCompactions bool

	// ReplayedState keeps the state that replaying the session's events gives. By default, if the source's state
	// differs, an event that sets the source's values is added.
	ReplayedState bool

	// OverwriteShared overwrites values of shared scopes in the target that differ from the source's. By default they
	// stay.
	OverwriteShared bool

	// Session, if not nil, is called with the result of each session, in order; an error from it ends the migration.
	// Progress, if not nil, is called with the number of sessions done and their total, 0 if unknown. Both are called
	// by the goroutine that called Run.
	Session  func(Result) error
	Progress func(done, total int)
}

// Status is the outcome for a session.
type Status string

// The outcomes.
const (
	Created   Status = "created"   // it was not in the target before
	Extended  Status = "extended"  // the source's new events were added
	Unchanged Status = "unchanged" // the target already has all of the source
	Ahead     Status = "ahead"     // the target has more than the source
	Conflict  Status = "conflict"  // target and source differ; the target is unchanged
	Failed    Status = "failed"    // it could not be migrated
	Gone      Status = "gone"      // it was deleted from the source during the migration
)

// Result is the outcome for one session, or what it would be without DryRun.
type Result struct {
	Key     store.Key `json:"key"`
	Status  Status    `json:"status"`
	Added   int       `json:"added"`   // new records
	Present int       `json:"present"` // records that were there before
	Seq     uint64    `json:"seq"`     // of the last record

	Adopted     []string                    `json:"adopted"` // ids of compaction records that summaries replaced
	Left        []adkrecord.UnadoptedRecord `json:"left"`    // compaction records kept as events
	Differences []Difference                `json:"differences"`

	// Err is the reason for [Conflict] or [Failed]. With another status it is nil or an *[UntranslatedError].
	Err error `json:"err,omitzero"`
}

// Report is the result of a migration.
type Report struct {
	Sessions    map[Status]int `json:"sessions"`
	Added       int            `json:"added"`       // records
	Adopted     int            `json:"adopted"`     // compaction records
	Left        int            `json:"left"`        // compaction records kept as events
	Differences int            `json:"differences"` // of sessions
	Failures    int            `json:"failures"`    // sessions with an error, and inputs that were named and could not be read

	// SharedAdded counts the values of shared scopes that were added. SharedDifferent are the names of those that had
	// another value in the target; they were kept, or overwritten with OverwriteShared. SharedErr says which could
	// not be read or written.
	SharedAdded     int      `json:"sharedAdded"`
	SharedDifferent []string `json:"sharedDifferent"`
	SharedErr       error    `json:"sharedErr,omitzero"`

	// Source are differences of the source as a whole.
	Source []Difference `json:"source"`

	// Unread are the files that were not read, by the reason.
	Unread map[string][]string `json:"unread"`
}

// Run migrates all sessions of a source, and the state that they share, to a store.
//
// A session is written in one commit, with its creation time, all its events in order, and the source's state. A
// source has the current state and what each event sets, but no initial state. So a key that no event sets is taken
// as initial state, and a key that an event sets is taken as initially unset. If replaying the events gives another
// state than the source's, an event is added that sets the source's values; it is marked by customMetadata
// {"patchlog":{"migration":"state"}}. Missing ids and times are derived from the session and its last update, the
// same in each run.
//
// If the session exists in the target, one log must be a prefix of the other, up to the order of events with equal
// times; the source's new events are added. Otherwise its status is [Conflict].
//
// After all sessions, missing values of shared scopes are written. Existing ones stay, unless OverwriteShared is set.
// Events write no shared scopes.
//
// For a session that a service of package adk wraps, the patches in its events become patches of the log, at the same
// positions, and the state is the log's. Patches that cannot be applied are left out, and [Result.Err] lists them.
//
// If a session fails, the failure is reported and the next one is migrated. Run returns an error only if the failure would
// also affect the next session: one of the source as a whole, of the store, or of the context. Sessions migrated
// before it stay, and Run may be called again. One session at a time is held in memory, its events several times.
func Run(ctx context.Context, target *store.Store, source Source, opts Options) (Report, error) {
	m := &migration{target: target, opts: opts, seen: map[store.Key]bool{}, report: Report{Sessions: map[Status]int{}}}
	if target == nil || source == nil {
		return m.report, fmt.Errorf("%w: a migration takes a store and a source", store.ErrInvalid)
	}
	total, err := source.Count(ctx)
	if err != nil {
		return m.report, fmt.Errorf("read the source: %w", err)
	}
	done := 0
	for s, err := range source.Sessions(ctx) {
		m.progress(done, total)
		if err := m.next(ctx, s, err); err != nil {
			return m.report, err
		}
		done++
	}
	m.progress(done, total)
	if err := ctx.Err(); err != nil {
		return m.report, err
	}
	if err := m.shared(ctx, source); err != nil {
		return m.report, err
	}
	if m.report.Source, err = source.Differences(ctx); err != nil {
		return m.report, fmt.Errorf("read the source: %w", err)
	}
	return m.report, nil
}

// migration is the state of a run.
type migration struct {
	target *store.Store
	opts   Options
	report Report
	seen   map[store.Key]bool // sessions that the source has yielded
}

func (m *migration) progress(done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(done, total)
	}
}

// next migrates a session or handles an error that the source yields.
func (m *migration) next(ctx context.Context, s *Session, err error) error {
	var r Result
	var one *SessionError
	switch {
	case errors.As(err, &one):
		r = Result{Key: one.Key, Status: Failed, Err: err}
	case err != nil:
		return fmt.Errorf("read the source: %w", err)
	default:
		if r, err = m.session(ctx, s); err != nil {
			if r.Status = StatusOf(err); r.Status == "" {
				return err
			}
			r.Err = err
		}
	}
	m.report.Sessions[r.Status]++
	m.report.Added += r.Added
	m.report.Adopted += len(r.Adopted)
	m.report.Left += len(r.Left)
	m.report.Differences += len(r.Differences)
	if r.Err != nil {
		m.report.Failures++
	}
	if m.opts.Session != nil {
		return m.opts.Session(r)
	}
	return nil
}

// StatusOf returns the status of a session that failed with err: Conflict or Failed. It is "" for nil, for
// [store.ErrOutcomeUnknown], and for errors that would also affect the next session, such as a full disk.
func StatusOf(err error) Status {
	switch {
	case errors.Is(err, store.ErrOutcomeUnknown):
		return ""
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrDuplicateID):
		return Conflict
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrNotFound):
		return Failed
	}
	return ""
}

// scratchOptions are the options of an in-memory store for building sessions.
func scratchOptions() store.Options {
	return store.Options{CacheBytes: -1, MaxRecordBytes: patch.MaxRecordBytes}
}
