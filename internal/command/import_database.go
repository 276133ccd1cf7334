package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// importDatabase copies a session of another database of patchlog's, or all of them.
func (r *importing) importDatabase(ctx context.Context, keyText, name string) (err error) {
	var keys []store.Key
	if keyText != "" {
		key, err := parseKey(keyText)
		if err != nil {
			return err
		}
		keys = []store.Key{key}
	}
	if sameFile(name, r.db) {
		return usagef("SOURCE is the database to write")
	}
	source, err := r.openDatabase(ctx, name, Reading, r.bulk())
	if err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := r.openTarget(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if r.many = true; keyText == "" {
		for info, err := range source.List(ctx, store.ListOptions{}) {
			switch {
			case errors.Is(err, store.ErrCorrupt): // the others are still worth a copy
				if err := r.report(outcome{Key: info.Key.String(), Status: migrate.Failed}, err); err != nil {
					return err
				}
			case err != nil:
				return fmt.Errorf("SOURCE: %w", err)
			default:
				keys = append(keys, info.Key)
			}
		}
	}
	opts := store.CopyOptions{DryRun: *r.dryRun}
	for i, key := range keys {
		r.progressOf(i, len(keys))
		done, err := target.CopyFrom(ctx, source, key, opts)
		o := outcomeOf(key, done)
		if err != nil {
			switch o.Status = migrate.StatusOf(err); {
			case o.Status == "": // the next session would meet it too
				return err
			case errors.Is(err, store.ErrNotFound) && keyText == "":
				o.Status, err = gone, nil
			}
		}
		if err := r.report(o, err); err != nil {
			return err
		}
	}
	if keyText != "" {
		return r.sum(store.CopiedShared{}, nil, "", nil)
	}
	shared, err := target.CopyShared(ctx, source, opts)
	switch {
	case errors.Is(err, store.ErrNotFound) && r.counts[migrate.Failed]+r.counts[migrate.Conflict]+r.counts[gone] == len(keys):
		return r.sum(store.CopiedShared{}, err, "", nil) // no session is there to share the values
	case err != nil:
		return err
	case *r.dryRun:
		shared.Different = nil // sessions that were not copied would have brought theirs
	}
	return r.sum(shared, nil, "", nil)
}
