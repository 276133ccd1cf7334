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

	// KeepCompactions keeps compaction records as events. By default, a compaction record is adopted if possible: a
	// summary replaces the events that the record covers. See [adkrecord.Adopt].
	KeepCompactions bool

	// ReplayedState keeps the state that results from replaying the session's events. By default, if the source has
	// another state, Run adds an event that sets the source's values.
	ReplayedState bool

	// OverwriteShared overwrites values of shared scopes in the target that differ from the source's values. By
	// default, the target's values are kept.
	OverwriteShared bool

	// Session, if not nil, is called with the result of each session, in order. If Session returns an error, the
	// migration ends. Progress, if not nil, is called with the number of sessions done and the total number, or 0 if
	// the total is unknown. Both functions are called by the goroutine that called Run.
	Session  func(Result) error
	Progress func(done, total int)
}

// Status is the outcome of the migration of a session.
type Status string

// Outcomes of a session.
const (
	Created   Status = "created"   // the session was not in the target before
	Extended  Status = "extended"  // new events of the source were added
	Unchanged Status = "unchanged" // the target already had everything that the source has
	Ahead     Status = "ahead"     // the target has more records than the source
	Conflict  Status = "conflict"  // the target and the source differ, and the target was not changed
	Failed    Status = "failed"    // the session could not be migrated
	Gone      Status = "gone"      // the session was deleted from the source during the migration
)

// Result is the outcome for one session. With DryRun, it is the outcome that a migration would have.
type Result struct {
	Key     store.Key `json:"key"`
	Status  Status    `json:"status"`
	Added   int       `json:"added"`   // number of new records
	Present int       `json:"present"` // number of records that were in the target before
	Seq     uint64    `json:"seq"`     // seq of the last record in the target

	Adopted     []string                    `json:"adopted"` // ids of the compaction records that were replaced by summaries
	NotAdopted  []adkrecord.UnadoptedRecord `json:"left"`    // compaction records kept as events
	Differences []Difference                `json:"differences"`

	// Err is the reason for [Conflict] or [Failed]. With any other status, it is nil or an *[UntranslatedError].
	Err error `json:"err,omitzero"`
}

// Report is the result of a migration.
type Report struct {
	Sessions    map[Status]int `json:"sessions"`
	Added       int            `json:"added"`       // number of records added
	Adopted     int            `json:"adopted"`     // number of compaction records replaced by summaries
	NotAdopted  int            `json:"left"`        // number of compaction records kept as events
	Differences int            `json:"differences"` // number of differences in sessions
	Failures    int            `json:"failures"`    // sessions with an error, and named inputs that could not be read

	// SharedAdded is the number of values of shared scopes that were added. SharedDifferent are the names of values
	// that differ between the target and the source. They were overwritten if OverwriteShared is set, and kept
	// otherwise. SharedErr is the error from reading or writing shared values.
	SharedAdded     int      `json:"sharedAdded"`
	SharedDifferent []string `json:"sharedDifferent"`
	SharedErr       error    `json:"sharedErr,omitzero"`

	// Source are differences that concern the source as a whole.
	Source []Difference `json:"source"`

	// Unread are the files that were not read, by reason.
	Unread map[string][]string `json:"unread"`

	// DryRun is set if nothing was written.
	DryRun bool `json:"dryRun"`
}

// Run migrates all sessions of a source, and the state that they share, to a store.
//
// A session is written in one commit, with its creation time, all its events in order, and the source's state. A
// source has the current state and the changes by each event, but no initial state. So Run assumes that a key is in
// the initial state if and only if no event sets it. If replaying the events gives another state than the source's,
// Run adds an event that sets the source's values. That event has the custom metadata
// {"patchlog":{"migration":"state"}}.
//
// A missing id is derived from the session and the event, so each run derives the same id. A missing time is set to
// the time of the session's last update.
//
// If the target already has the session, one of the two logs must be a prefix of the other. The order of events with
// equal times may differ. Run then adds the new events of the source. Otherwise the status is [Conflict].
//
// After all sessions, Run adds missing values of shared scopes. Existing values are kept, unless OverwriteShared is
// set. The events of a session do not change shared scopes.
//
// Package adk can wrap another service. If package adk wrote a session to that service, events of the session carry
// patches. Run logs these patches at the same positions and takes the state from the resulting log. Patches that
// cannot be applied are omitted and listed in [Result.Err].
//
// If a session fails, Run reports the failure and continues with the next session. Run returns an error only if it
// would also affect the next session: an error of the source as a whole, of the store, or of the context. Sessions
// that were migrated before are kept, and Run may be called again. One session at a time is in memory, with several
// copies of its events.
func Run(ctx context.Context, target *store.Store, source Source, opts Options) (Report, error) {
	m := &migration{target: target, opts: opts, seen: map[store.Key]bool{}, report: Report{Sessions: map[Status]int{}, DryRun: opts.DryRun}}
	if target == nil || source == nil {
		return m.report, fmt.Errorf("%w: a migration needs a store and a source", store.ErrInvalid)
	}
	total, err := source.Count(ctx)
	if err != nil {
		return m.report, fmt.Errorf("read the source: %w", err)
	}
	done := 0
	for s, err := range source.Sessions(ctx) {
		m.reportProgress(done, total)
		if err := m.handleNext(ctx, s, err); err != nil {
			return m.report, err
		}
		done++
	}
	m.reportProgress(done, total)
	if err := ctx.Err(); err != nil {
		return m.report, err
	}
	if err := m.migrateShared(ctx, source); err != nil {
		return m.report, err
	}
	if m.report.Source, err = source.Differences(ctx); err != nil {
		return m.report, fmt.Errorf("read the source: %w", err)
	}
	return m.report, nil
}

// migration is the state of a Run.
type migration struct {
	target *store.Store
	opts   Options
	report Report
	seen   map[store.Key]bool // sessions that the source has yielded
}

func (m *migration) reportProgress(done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(done, total)
	}
}

// handleNext migrates a session, or handles an error that the source has yielded.
func (m *migration) handleNext(ctx context.Context, s *Session, err error) error {
	var r Result
	var sessionErr *SessionError
	switch {
	case errors.As(err, &sessionErr):
		r = Result{Key: sessionErr.Key, Status: Failed, Err: err}
	case err != nil:
		return fmt.Errorf("read the source: %w", err)
	default:
		if r, err = m.migrateSession(ctx, s); err != nil {
			if r.Status = StatusOf(err); r.Status == "" {
				return err
			}
			r.Err = err
		}
	}
	m.report.Sessions[r.Status]++
	m.report.Added += r.Added
	m.report.Adopted += len(r.Adopted)
	m.report.NotAdopted += len(r.NotAdopted)
	m.report.Differences += len(r.Differences)
	if r.Err != nil {
		m.report.Failures++
	}
	if m.opts.Session != nil {
		return m.opts.Session(r)
	}
	return nil
}

// StatusOf returns the status of a session that failed with err, which is Conflict or Failed. It returns "" for nil,
// for [store.ErrOutcomeUnknown], and for errors that would also affect the next session, such as a full disk.
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

// scratchOptions are the options of an in-memory store in which sessions are built.
func scratchOptions() store.Options {
	return store.Options{CacheBytes: -1, MaxRecordBytes: patch.MaxRecordBytes}
}
