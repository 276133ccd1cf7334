package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/store"
)

// migrateShared adds missing values of shared scopes to the target.
func (m *migration) migrateShared(ctx context.Context, source Source) error {
	if d, ok := source.(*database); ok {
		return m.copyShared(ctx, d)
	}
	scratch, err := store.OpenMemory(scratchOptions())
	if err != nil {
		return err
	}
	defer scratch.Close() // the store is in memory, so Close cannot fail
	var problems []error
	for s, err := range source.Shared(ctx) {
		var sharedErr *SharedError
		switch {
		case errors.As(err, &sharedErr):
			problems = append(problems, err)
			continue
		case err != nil:
			return fmt.Errorf("read the source: %w", err)
		}
		if err := writeScope(ctx, scratch, s); err != nil {
			problems = append(problems, &SharedError{s.App, s.User, err})
		}
	}
	copied, err := m.target.CopyFrom(ctx, store.Key{}, scratch, store.CopyOptions{DryRun: m.opts.DryRun, OverwriteShared: m.opts.OverwriteShared})
	m.report.SharedAdded, m.report.SharedDifferent = copied.Shared, copied.Different
	m.report.SharedErr = errors.Join(problems...)
	return err
}

// writeScope writes the values of a scope to a store by creating a session with these values.
func writeScope(ctx context.Context, scratch *store.Store, s Shared) error {
	key := store.Key{App: s.App, User: s.User, Session: "user"}
	if s.User == "" {
		key.User, key.Session = "app", "app"
	}
	state := make(map[string]any, len(s.Values))
	for name, value := range s.Values {
		state[name] = value
	}
	_, err := scratch.Create(ctx, key, state, store.CreateOptions{})
	return err
}

// copyShared copies the shared values of a patchlog database, unless a single session was requested.
func (m *migration) copyShared(ctx context.Context, d *database) error {
	if d.key != (store.Key{}) {
		return nil
	}
	copied, err := m.target.CopyFrom(ctx, store.Key{}, d.store, store.CopyOptions{DryRun: m.opts.DryRun, OverwriteShared: m.opts.OverwriteShared})
	m.report.SharedAdded, m.report.SharedDifferent = copied.Shared, copied.Different
	if m.opts.DryRun {
		m.report.SharedDifferent = nil // a real run would first copy the sessions that write some of these values
	}
	sessions := 0
	for _, status := range []Status{Created, Extended, Unchanged, Ahead} {
		sessions += m.report.Sessions[status]
	}
	if errors.Is(err, store.ErrNotFound) && sessions == 0 { // the scope does not exist, because no session was copied
		m.report.SharedErr, err = err, nil
	}
	return err
}
