package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// ErrInjected is the default error of a failing call to a [Faulty] backend.
var ErrInjected = errors.New("injected failure")

// Failure is how a write fails.
type Failure int

const (
	Refused    Failure = iota // the write fails before its commit and changes nothing
	NotApplied                // the outcome is unknown; the write did not take effect
	Applied                   // the outcome is unknown; the write took effect
)

func (f Failure) String() string {
	return [...]string{"refused", "lost", "landed"}[f]
}

// Faulty is a backend that fails as planned. The writes that can fail are Append, Replace, PutShared and Delete.
// Without a plan, Faulty behaves like the backend that it wraps.
type Faulty struct {
	backend.Backend

	mu       sync.Mutex
	plan     Plan
	writes   int // number of writes under the current plan
	passNext int // how many of the next calls do not fail
	failNext int // how many calls after these fail
}

// Plan is when and how a [Faulty] backend fails.
type Plan struct {
	Write    int     // number of the write that fails, from 1; 0 means none
	Failure  Failure // how the write fails
	PassNext int     // how many calls after the failed write succeed, reads included
	FailNext int     // how many calls after these fail with Err
	Err      error   // nil means [ErrInjected]

	// Before, if not nil, is called before each write, with the number of the write.
	Before func(write int)

	// During, if not nil, is called while the write fails: after the write took effect, or instead of the write.
	During func()
}

// Plan replaces the current plan. With the zero Plan, no call fails.
func (f *Faulty) Plan(p Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan, f.writes, f.passNext, f.failNext = p, 0, 0, 0
}

// Writes returns the number of writes under the current plan.
func (f *Faulty) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// followUpError returns the error of a call after the failed write.
func (f *Faulty) followUpError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.passNext > 0:
		f.passNext--
		return nil
	case f.failNext == 0:
		return nil
	}
	f.failNext--
	return cmp.Or(f.plan.Err, fmt.Errorf("a later call: %w", ErrInjected))
}

func (f *Faulty) write(do func() error) error {
	if err := f.followUpError(); err != nil {
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
	case Applied:
		err = cmp.Or(do(), err) // if the backend refuses the write, the write has not taken effect
	}
	if plan.During != nil {
		plan.During()
	}
	f.mu.Lock()
	f.passNext, f.failNext = plan.PassNext, plan.FailNext
	f.mu.Unlock()
	return err
}

// Append implements [backend.Backend].
func (f *Faulty) Append(ctx context.Context, session string, batch backend.Batch) error {
	return f.write(func() error { return f.Backend.Append(ctx, session, batch) })
}

// Replace implements [backend.Backend].
func (f *Faulty) Replace(ctx context.Context, session, creation string, plan func(backend.Head) (backend.Replacement, error)) error {
	return f.write(func() error { return f.Backend.Replace(ctx, session, creation, plan) })
}

// PutShared implements [backend.Backend]. A plan counts it as a write.
func (f *Faulty) PutShared(ctx context.Context, changes []backend.SharedChange) error {
	return f.write(func() error { return f.Backend.PutShared(ctx, changes) })
}

// Delete implements [backend.Backend].
func (f *Faulty) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	return f.write(func() error { return f.Backend.Delete(ctx, session, creation, seen) })
}

// read makes a call that is not counted as a write.
func read[T any](f *Faulty, do func() (T, error)) (T, error) {
	if err := f.followUpError(); err != nil {
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

// PutSnapshot implements [backend.Backend]. A plan does not count it as a write, because a store may write snapshots
// at any time.
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
