package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// CopyOptions are options of [Store.CopyFrom].
type CopyOptions struct {
	// DryRun reports what the copy would do, and writes nothing.
	DryRun bool

	// NoShared leaves out the shared scopes.
	NoShared bool

	// OverwriteShared applies to a copy with the zero key. If a shared value differs, the copy replaces it with
	// the source's value.
	OverwriteShared bool
}

// CopyFrom copies a session of another store to the same key in this store. The copy has the same initial state and
// time of creation. Its records have the same seqs, ids, times and Go types. The copy stores where its records come
// from, so that an erase in this store finds related sessions. If an erase of the source is unfinished, CopyFrom
// first finishes it. If the session already exists, CopyFrom adds the records that it lacks.
//
// The copy ends at the record that was the source's last when the call began. Both logs may be written to during
// the call. An existing session gets its new records in one commit. A new session becomes visible with the last of
// several commits, complete. If the copy adds records or creates the session, the last commit also writes the
// source's values of the session's shared scopes. [CopyOptions.NoShared] leaves these values out. CopyFrom keeps
// the source's log in memory.
//
// With the zero key, CopyFrom copies no session. Instead it copies, in one commit, the shared values ("app:" and
// "user:" keys) that this store lacks, including the values of users without a session. The result names the shared
// values that differ. This store keeps its own values, unless [CopyOptions.OverwriteShared] is set. CopyFrom reads
// the shared values of both stores into memory. If another write changes one of these values in this store during
// the call, CopyFrom copies nothing and fails with [ErrConflict].
//
// CopyFrom fails with [ErrNotFound] if the source does not have the session. It fails with [ErrConflict] if the
// initial states differ, or if neither log is a prefix of the other.
func (s *Store) CopyFrom(ctx context.Context, key Key, from *Store, opts CopyOptions) (Imported, error) {
	switch {
	case from == nil:
		return Imported{}, fmt.Errorf("%w: the store to copy from is nil", ErrInvalid)
	case key == Key{}:
		return s.copyShared(ctx, from, opts)
	}
	p, err := from.planCopy(ctx, key, opts)
	for errors.Is(err, errLogChanged) { // while the session was read, records were erased
		p, err = from.planCopy(ctx, key, opts)
	}
	if err != nil {
		return Imported{}, fmt.Errorf("read the source: %w", err)
	}
	done, err := s.importInto(ctx, key, p, opts.DryRun)
	if err == nil && !done.Created && !opts.DryRun {
		err = s.extendLineage(ctx, key, p.meta.lineage)
	}
	return done, err
}

// extendLineage updates the lineage of an existing copy that has received more records of its source.
func (s *Store) extendLineage(ctx context.Context, key Key, lineage []erase.Ancestor) error {
	for {
		head, m, err := s.headAndMeta(ctx, key)
		if err != nil {
			return err
		}
		longer := false
		for i, x := range m.lineage {
			for _, y := range lineage {
				if x.Creation == y.Creation && x.Seq < y.Seq {
					m.lineage[i].Seq, longer = y.Seq, true
				}
			}
		}
		if !longer {
			return nil
		}
		meta, err := encodeMeta(m)
		if err != nil {
			return err
		}
		err = eraseLog{s}.Replace(ctx, key.name(), head.Creation, func(backend.Head) (backend.Replacement, error) {
			return backend.Replacement{OldMeta: head.Meta, Meta: meta}, nil
		})
		if !errors.Is(err, backend.ErrMoved) {
			return fromBackend(key, err)
		}
	}
}

// planCopy reads a session of the source, and returns the plan to add it to another store.
func (s *Store) planCopy(ctx context.Context, key Key, opts CopyOptions) (*importPlan, error) {
	head, m, err := s.headAfterErase(ctx, key)
	if err != nil {
		return nil, err
	}
	m.lineage = erase.ExtendLineage(head.Creation, m.lineage, head.Last)
	p := &importPlan{name: "the source", meta: m, requireInitial: true}
	for r, err := range s.records(ctx, key, head, 1, endOfLog) {
		if err != nil {
			return nil, err
		}
		p.records = append(p.records, r)
	}
	if now, err := s.headOfCreation(ctx, key, head.Creation); err != nil || now.Edition != head.Edition {
		return nil, cmp.Or(err, errLogChanged)
	}
	var shared []patch.Change
	if !opts.NoShared {
		scopes, err := s.withScopes(ctx, key) // read after the log, so that the scopes include the shared values of the log's records
		if err != nil {
			return nil, err
		}
		for name, value := range scopes.sharedValues() {
			shared = append(shared, patch.Change{Key: name, Value: value})
		}
	}
	p.add = func(d *write.Draft) error {
		err := d.MatchPrefix(differs)
		if len(d.Missing) == 0 && !d.IsNew() {
			return err
		}
		for _, i := range d.Missing {
			if err == nil {
				err = d.Append(i)
			}
		}
		return cmp.Or(err, d.Share(shared))
	}
	return p, nil
}

func differs(i int) error {
	return fmt.Errorf("%w: record %d differs from that of the source", ErrConflict, i+1)
}

// copyShared copies the values of all shared scopes.
func (s *Store) copyShared(ctx context.Context, from *Store, opts CopyOptions) (out Imported, err error) {
	given, err := backend.FetchShared(ctx, from.backend, "")
	if err != nil {
		return out, fmt.Errorf("read the source: %w", fromBackend(Key{}, err))
	}
	here, err := backend.FetchShared(ctx, s.backend, "")
	if err != nil {
		return out, fromBackend(Key{}, err)
	}
	byName := make(map[string]backend.Value, len(here))
	for _, v := range here {
		byName[v.Name] = v
	}
	var changes []backend.SharedChange
	for _, v := range given {
		value, err := sharedValue(v)
		if err != nil {
			return out, fmt.Errorf("read the source: %w", err)
		}
		own, there := byName[v.Name]
		if !there {
			changes = append(changes, backend.SharedChange{Name: v.Name, Data: v.Data})
			out.Shared++
			continue
		}
		if mine, err := sharedValue(own); err != nil || !mine.Equal(value) {
			out.Different = append(out.Different, strings.ReplaceAll(v.Name, partEnd, "/"))
			if opts.OverwriteShared {
				changes = append(changes, backend.SharedChange{Old: &own, Name: v.Name, Data: v.Data})
			}
		}
	}
	switch {
	case opts.DryRun:
	case len(changes) > 0:
		err = fromBackend(Key{}, s.backend.PutShared(ctx, changes))
	case len(given) > 0: // an earlier call may have written these values; make sure that they are durable
		err = fromBackend(Key{}, write.Confirm(ctx, s.backend))
	}
	return out, err
}
