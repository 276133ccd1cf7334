package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Options say how to migrate. The zero value means the defaults.
type Options struct {
	// DryRun finds out what a migration would do, and writes nothing.
	DryRun bool

	// KeepCompactions leaves records of compaction as the events that they are. Without it
	// each that can be becomes a summary in the place of what it stands for, as
	// [adkrecord.Adopt] says.
	KeepCompactions bool

	// ReplayedState leaves the state of a session what its events say, where the source's
	// state is another. Without it an event that sets the source's values is added.
	ReplayedState bool

	// OverwriteShared puts the source's values of shared scopes in the place of others that
	// are there. Without it those stay.
	OverwriteShared bool

	// Session, if not nil, is called with what became of each session, in order, and Progress
	// with how many are done, of how many; 0 is not known. They are called by the goroutine
	// that runs the migration. An error of Session ends it.
	Session  func(Result) error
	Progress func(done, total int)
}

// Status says what became of a session.
type Status string

// What becomes of a session.
const (
	Created   Status = "created"   // it was not there before
	Extended  Status = "extended"  // what the source has got since was added
	Unchanged Status = "unchanged" // it is there as it is in the source
	Ahead     Status = "ahead"     // it is there and has gone on by itself
	Conflict  Status = "conflict"  // what is there is not what the source has; it is left alone
	Failed    Status = "failed"    // it cannot be migrated
	Gone      Status = "gone"      // it was deleted from the source meanwhile
)

// Result is what became of one session, or would.
type Result struct {
	Key     store.Key `json:"key"`
	Status  Status    `json:"status"`
	Added   int       `json:"added"`   // records that were not there before
	Present int       `json:"present"` // records that were
	Seq     uint64    `json:"seq"`     // of the last record

	Adopted     []string                    `json:"adopted"` // ids of compaction records that a summary replaces now
	Left        []adkrecord.UnadoptedRecord `json:"left"`    // compaction records that stay as they are
	Differences []Difference                `json:"differences"`

	// Err says why the status is [Conflict] or [Failed], or with another status is an
	// *[UntranslatedError].
	Err error `json:"err,omitzero"`
}

// Report is what a migration came to.
type Report struct {
	Sessions    map[Status]int
	Added       int // records
	Adopted     int // compaction records
	Left        int // compaction records that stay as they are
	Differences int // of sessions
	Failures    int // sessions with an error

	// SharedAdded counts the values of shared scopes that were not there. SharedDifferent has the names of those that
	// were there with another value, and were left, or overwritten if the options say so. SharedErr says which
	// could not be read or written.
	SharedAdded     int
	SharedDifferent []string
	SharedErr       error

	// Source are the differences of the source as a whole.
	Source []Difference
}

// Run migrates all sessions of a source to a store, and the state that they share.
//
// A session is created with its time of creation, all its events in order, and the state
// that the source has, in a commit of its own: it is there as a whole or not at all. A source
// has the newest state and what each event sets, but not the state that a session began with.
// So a key that no event sets is taken to have been there from the start, and one that an
// event sets to have had no value before. Where replaying the events gives another state than
// the source has, an event is added that sets the source's values; customMetadata
// {"patchlog":{"migration":"state"}} marks it. Ids and times that events lack are made from
// the session and its last update, always in the same way.
//
// Of a session that is there already, the log must begin with the events of the source, or be
// the beginning of them; what the source has got since is added. Otherwise its status is
// [Conflict]. Events with equal times may stand there in another order.
//
// Values of shared scopes that are missing are written when all sessions are there. Others
// stay, unless the options say otherwise. Events write none.
//
// Of a session that a service of package adk wraps, patches become patches of the log, each where the
// source has it, and the state is what the log says. Those that cannot are left out, and
// [Result.Err] lists them.
//
// A session that fails is reported, and the others are migrated. The error of Run is one that
// the next session would meet too: of the source as a whole, of the store, or of the context.
// What was migrated before it stays. It may be run again. A session's events are kept in
// memory several times, one session at a time.
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

// migration is a run.
type migration struct {
	target *store.Store
	opts   Options
	report Report
	seen   map[store.Key]bool // sessions that the source has had
}

func (m *migration) progress(done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(done, total)
	}
}

// next migrates what a source yields.
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

// StatusOf returns what an error makes of the session that met it: Conflict or Failed. It is ""
// for an error that the next session would meet too, such as a storage that is full, for
// [store.ErrOutcomeUnknown], and for nil.
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

// scratchOptions are those of a store in memory in which something is put together.
func scratchOptions() store.Options {
	return store.Options{CacheBytes: -1, MaxRecordBytes: patch.MaxRecordBytes}
}
