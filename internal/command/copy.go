package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// copying is an import from a database of patchlog's.
type copying struct {
	*tally
	keys           []store.Key
	named          bool // by the user
	opts           store.CopyOptions
	source, target *store.Store
}

// copyFrom copies a session of another database, or all of them.
func (r *importing) copyFrom(ctx context.Context, keyText, name string) (err error) {
	c := copying{tally: newTally(r.app, *r.dryRun), opts: store.CopyOptions{DryRun: *r.dryRun}}
	if keyText != "" {
		key, err := parseKey(keyText)
		if err != nil {
			return err
		}
		c.keys, c.named = []store.Key{key}, true
	}
	if sameFile(name, r.db) {
		return usagef("SOURCE is the database to write")
	}
	if c.source, err = c.openDatabase(ctx, name, Reading, c.bulk()); err != nil {
		return fmt.Errorf("SOURCE: %w", err)
	}
	defer func() { err = errors.Join(err, c.source.Close()) }()
	if c.target, err = c.openTarget(ctx, r.db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.target.Close()) }()
	c.bar = c.progress("import")
	defer c.bar.end()
	return c.copyAll(ctx)
}

func (c *copying) copyAll(ctx context.Context) error {
	if !c.named {
		for info, err := range c.source.List(ctx, store.ListOptions{}) {
			switch {
			case errors.Is(err, store.ErrCorrupt): // the others are still worth a copy
				if err := c.report(info.Key, statusFailed, store.Copied{}, err); err != nil {
					return err
				}
			case err != nil:
				return fmt.Errorf("SOURCE: %w", err)
			default:
				c.keys = append(c.keys, info.Key)
			}
		}
	}
	for i, key := range c.keys {
		c.at(i, len(c.keys))
		done, err := c.target.CopyFrom(ctx, c.source, key, c.opts)
		status := statusOf(done, err)
		switch {
		case status == "":
			return err
		case status == statusFailed && errors.Is(err, store.ErrNotFound) && !c.named:
			status, err = statusGone, nil
		}
		if err := c.report(key, status, done, err); err != nil {
			return err
		}
	}
	var shared store.CopiedShared
	if !c.named {
		var err error
		if shared, err = c.copyShared(ctx); err != nil {
			return err
		}
	}
	c.bar.end()
	return c.sum(len(c.keys), shared, "imported", nil)
}

// statusOf returns "" for an error that ends the run: the next session would meet it too.
func statusOf(done store.Copied, err error) string {
	switch {
	case err != nil:
		return string(migrate.StatusOf(err))
	case done.Created:
		return statusCreated
	case done.Added > 0:
		return statusExtended
	case done.Seq > uint64(done.Present):
		return statusAhead
	}
	return statusUnchanged
}

// copyShared copies the shared values that no session brought.
func (c *copying) copyShared(ctx context.Context) (store.CopiedShared, error) {
	none := c.counts[statusCreated]+c.counts[statusExtended]+c.counts[statusUnchanged]+c.counts[statusAhead] == 0
	shared, err := c.target.CopyShared(ctx, c.source, c.opts)
	if errors.Is(err, store.ErrNotFound) && none {
		return store.CopiedShared{}, c.noShared(err)
	}
	if err != nil {
		return shared, err
	}
	if c.opts.DryRun {
		return shared, nil // sessions that were not copied would have brought theirs
	}
	return shared, c.different(shared.Different)
}

// report says what became of a session. One that is as it was is only counted.
func (c *copying) report(key store.Key, status string, done store.Copied, err error) error {
	doc := newSessionDocument(key, status, done.Added, done.Present, done.Seq, err)
	return c.session(doc, doc, err)
}
