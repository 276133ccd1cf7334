package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// CopyOptions say how to copy. The zero value means the defaults.
type CopyOptions struct {
	// DryRun finds out what a copy would do, and writes nothing.
	DryRun bool

	// NoShared has [Store.CopyFrom] leave the shared scopes alone.
	NoShared bool

	// OverwriteShared has [Store.CopyShared] put the source's values in place of those that
	// are here and differ.
	OverwriteShared bool
}

// Copied says what a copy did, or would do.
type Copied struct {
	Created bool   // the session was not there before
	Added   int    // records that were not there before
	Present int    // records that were there, as they are in the source
	Seq     uint64 // of the last record of the copy: beyond the source's if it has gone on
}

// CopyFrom copies a session of another store under the same key: every record as it is, with
// its seq, id, time and Go types, the initial state and the time of creation. Copying again
// adds nothing, or what the source has got since. It fails with [ErrNotFound] if the source
// has no such session, and with [ErrConflict] if neither the log that is here nor the source's
// is the beginning of the other, or if they were created with another initial state.
//
// A copy that adds something writes the values of the session's shared scopes, as the source
// has them, in the same commit, unless opts say otherwise. Both logs may be written to meanwhile; the copy ends with the
// record that was the source's last when it started. The source's log is kept in memory. As
// with [Store.Import], what is added to a session that is here is one commit, and a session
// that is created is here with the last of several, as a whole.
func (s *Store) CopyFrom(ctx context.Context, from *Store, key Key, opts CopyOptions) (Copied, error) {
	if from == nil {
		return Copied{}, fmt.Errorf("%w: the store to copy from is nil", ErrInvalid)
	}
	if err := key.Validate(); err != nil {
		return Copied{}, err
	}
	p, m, err := from.copying(ctx, key, opts)
	if err != nil {
		return Copied{}, fmt.Errorf("read the source: %w", err)
	}
	for {
		head, there, err := s.head(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound) && opts.DryRun:
			return Copied{true, len(p.records), 0, uint64(len(p.records))}, nil
		case errors.Is(err, ErrNotFound):
			err = s.copyNew(ctx, key, m, p)
			if errors.Is(err, ErrExists) { // it was created meanwhile
				continue
			}
			return Copied{true, len(p.records), 0, uint64(len(p.records))}, err
		case err != nil:
			return Copied{}, err
		case !sameState(there.initial, m.initial):
			return Copied{}, fmt.Errorf("session %s: %w: it was created with another initial state", key, ErrConflict)
		}
		var after fold.View
		if opts.DryRun {
			var d *draft
			if _, d, err = s.preview(ctx, key, head.Creation, p); err == nil {
				after = d.view
			}
		} else {
			var done Committed
			done, err = s.commit(ctx, key, head.Creation, p)
			after = done.View
		}
		if err != nil {
			return Copied{}, err
		}
		return Copied{false, p.added, len(p.records) - p.added, after.Seq()}, nil
	}
}

// copying is the plan to copy a log into a session that is there.
type copying struct {
	records []patch.Record
	shared  []patch.Change // the values of the scopes
	added   int            // how many records it adds
}

// copying reads what a copy of a session takes.
func (s *Store) copying(ctx context.Context, key Key, opts CopyOptions) (*copying, meta, error) {
	head, m, err := s.head(ctx, key)
	if err != nil {
		return nil, meta{}, err
	}
	p := &copying{}
	for page, err := range s.pages(ctx, key, &head, 1, newest) {
		if err != nil {
			return nil, meta{}, err
		}
		p.records = append(p.records, page.records...)
	}
	if opts.NoShared {
		return p, m, nil
	}
	scopes, err := s.scopes(ctx, key) // after the log: what its records share is among them
	for name, value := range scopes {
		p.shared = append(p.shared, patch.Change{Key: name, Value: value})
	}
	return p, m, err
}

func (p *copying) offers() []patch.Record { return p.records }

func (p *copying) draft(d *draft) error {
	if err := d.matchPrefix(differs); err != nil {
		return err
	}
	if p.added = len(d.missing); p.added == 0 {
		return nil
	}
	if err := d.addMissing(); err != nil {
		return err
	}
	d.shared = nil
	return d.share(p.shared)
}

func differs(i int) error {
	return fmt.Errorf("%w: record %d is not the one of the source", ErrConflict, i+1)
}

// copyNew copies into a session that it creates.
func (s *Store) copyNew(ctx context.Context, key Key, m meta, p *copying) error {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	c, err := s.newSession(ctx, h, m.initial, m.created)
	if err == nil {
		_, err = c.offer(p.records, p.records)
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", key, err)
	}
	defer c.staged.drop(ctx) // after the commit it does nothing
	for i := range c.records {
		if err := c.addUnjudged(i); err != nil {
			return fmt.Errorf("session %s, record %d: %w", key, i+1, err)
		}
		if err := c.stage(); err != nil {
			return err
		}
	}
	c.shared = nil
	if err := c.share(p.shared); err != nil {
		return fmt.Errorf("session %s: %w", key, err)
	}
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	return c.commit()
}

// CopiedShared says what a copy of shared values did, or would do.
type CopiedShared struct {
	Added     int      // values that were not there before
	Different []string // names of values that are there, but were not as they are in the source
}

// CopyShared copies the values of all shared scopes (app: and user: keys) that are not here,
// those of users without a session too. A value that is here stays as it is, unless opts say
// otherwise, and is reported if the source has another one. All values of both stores are kept in memory. The values are
// one commit. It fails with [ErrConflict], and copies nothing, if one that is here is written meanwhile.
func (s *Store) CopyShared(ctx context.Context, from *Store, opts CopyOptions) (CopiedShared, error) {
	if from == nil {
		return CopiedShared{}, fmt.Errorf("%w: the store to copy from is nil", ErrInvalid)
	}
	given, err := backend.SharedOf(ctx, from.backend, "")
	if err != nil {
		return CopiedShared{}, fmt.Errorf("read the source: %w", fromBackend(Key{}, err))
	}
	here, err := backend.SharedOf(ctx, s.backend, "")
	if err != nil {
		return CopiedShared{}, fromBackend(Key{}, err)
	}
	byName := make(map[string]backend.Value, len(here))
	for _, v := range here {
		byName[v.Name] = v
	}
	var done CopiedShared
	var changes []backend.SharedChange
	for _, v := range given {
		value, err := sharedValue(v)
		if err != nil {
			return CopiedShared{}, fmt.Errorf("read the source: %w", err)
		}
		own, there := byName[v.Name]
		if !there {
			changes = append(changes, backend.SharedChange{Name: v.Name, Data: v.Data})
			done.Added++
			continue
		}
		if mine, err := sharedValue(own); err != nil || !mine.Equal(value) {
			done.Different = append(done.Different, strings.ReplaceAll(v.Name, partEnd, "/"))
			if opts.OverwriteShared {
				changes = append(changes, backend.SharedChange{Old: &own, Name: v.Name, Data: v.Data})
			}
		}
	}
	switch {
	case opts.DryRun:
		return done, nil
	case len(changes) > 0:
		return done, fromBackend(Key{}, s.putShared(ctx, changes))
	case len(given) > 0: // an earlier call may have done it all
		return done, s.confirmShared(ctx)
	}
	return done, nil
}
