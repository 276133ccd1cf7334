package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// ErrInjected is why a [Faulty] backend's calls fail.
var ErrInjected = errors.New("injected failure")

// Failure is a way in which a write fails.
type Failure int

// The failures.
const (
	Refused Failure = iota // the write fails before its commit, and did nothing
	Lost                   // the outcome is unknown; the write did not take place
	Landed                 // the outcome is unknown; the write took place
)

func (f Failure) String() string {
	return [...]string{"refused", "lost", "landed"}[f]
}

// Faulty is a backend whose writes, Append, Replace, PutShared and Delete, fail as planned. With nothing
// planned it does what the backend in it does.
type Faulty struct {
	backend.Backend

	mu     sync.Mutex
	plan   Plan
	writes int // since the plan was made
	pass   int // calls that do not fail from now on
	calls  int // calls that fail after those
}

// Plan says what a [Faulty] backend shall do.
type Plan struct {
	Write   int     // which write fails, counted from 1; 0 for none
	Failure Failure // how
	Pass    int     // how many calls after it, reads too, do not fail
	Then    int     // how many calls after those fail with Err
	Err     error   // nil means [ErrInjected]

	// Before, if not nil, is called before each write, with the number of the write.
	Before func(write int)

	// During, if not nil, is called as the write fails: after it took place, or in its
	// stead.
	During func()
}

// Plan replaces what was planned before. The zero Plan heals the backend.
func (f *Faulty) Plan(p Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.writes, f.pass, f.calls = p, 0, 0, 0
}

// Writes returns how many writes there were since the plan was made.
func (f *Faulty) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// later returns the error of a call after the one that failed.
func (f *Faulty) later() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.pass > 0:
		f.pass--
		return nil
	case f.calls == 0:
		return nil
	}
	f.calls--
	return cmp.Or(f.plan.Err, fmt.Errorf("a later call: %w", ErrInjected))
}

func (f *Faulty) write(do func() error) error {
	if err := f.later(); err != nil {
		return err
	}
	f.mu.Lock()
	f.writes++
	plan, write := f.plan, f.writes
	f.mu.Unlock()
	if plan.Before != nil {
		plan.Before(write)
	}
	if write != plan.Write {
		return do()
	}
	var err error = &backend.UnknownError{Cause: ErrInjected}
	switch plan.Failure {
	case Refused:
		err = ErrInjected
	case Landed:
		err = cmp.Or(do(), err) // what the backend refuses does not land
	}
	if plan.During != nil {
		plan.During()
	}
	f.mu.Lock()
	f.pass, f.calls = plan.Pass, plan.Then
	f.mu.Unlock()
	return err
}

// Append implements [backend.Backend].
func (f *Faulty) Append(ctx context.Context, session string, batch backend.Batch) error {
	return f.write(func() error { return f.Backend.Append(ctx, session, batch) })
}

// Replace implements [backend.Backend].
func (f *Faulty) Replace(ctx context.Context, session, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	return f.write(func() error { return f.Backend.Replace(ctx, session, creation, make) })
}

// PutShared implements [backend.Backend]. It is a write.
func (f *Faulty) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	return f.write(func() error { return f.Backend.PutShared(ctx, changes) })
}

// Delete implements [backend.Backend].
func (f *Faulty) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	return f.write(func() error { return f.Backend.Delete(ctx, session, creation, seen) })
}

// read makes a call that does not write.
func read[T any](f *Faulty, do func() (T, error)) (T, error) {
	if err := f.later(); err != nil {
		var none T
		return none, err
	}
	return do()
}

// Fetch implements [backend.Backend].
func (f *Faulty) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	return read(f, func() (backend.Fetched, error) { return f.Backend.Fetch(ctx, q) })
}

// Read implements [backend.Backend].
func (f *Faulty) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	return read(f, func() ([]backend.Record, error) { return f.Backend.Read(ctx, session, creation, seqs, maxBytes) })
}

// Lookup implements [backend.Backend].
func (f *Faulty) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	return read(f, func() ([]uint64, error) { return f.Backend.Lookup(ctx, session, creation, ids) })
}

// PutSnapshot implements [backend.Backend]. It is no write that a plan counts, since a
// store may write snapshots when it likes.
func (f *Faulty) PutSnapshot(ctx context.Context, session, creation string, kept backend.Snapshot) error {
	_, err := read(f, func() (struct{}, error) { return struct{}{}, f.Backend.PutSnapshot(ctx, session, creation, kept) })
	return err
}

// Fence implements [backend.Backend].
func (f *Faulty) Fence(ctx context.Context, session, creation string, seen, next backend.Token) (bool, error) {
	return read(f, func() (bool, error) { return f.Backend.Fence(ctx, session, creation, seen, next) })
}

// Relatives implements [backend.Backend].
func (f *Faulty) Relatives(ctx context.Context, family, after string, limit int) ([]backend.Listed, error) {
	return read(f, func() ([]backend.Listed, error) { return f.Backend.Relatives(ctx, family, after, limit) })
}

// List implements [backend.Backend].
func (f *Faulty) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	return read(f, func() ([]backend.Listed, error) { return f.Backend.List(ctx, prefix, after, limit) })
}
