package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// newSession starts the creation of a session. The caller must call Drop on the result in the end.
func (s *Store) newSession(ctx context.Context, h *handle, m meta) (*write.Creation, error) {
	c := h.NewCreation(ctx, m.created, m.initial)
	if len(m.lineage) > 0 {
		c.Family = erase.Family(c.ID, m.lineage)
	}
	c.BeforeStaging = func(ctx context.Context) { s.dropStaged(ctx, abandonedAfter) }
	var err error
	if c.StagedMeta, err = encodeMeta(meta{created: s.opts.Now()}); err == nil {
		c.Meta, err = encodeMeta(m)
	}
	return c, err
}

// create creates a session with the records that a plan adds to an empty log. If dry is true, it only drafts the
// records. It takes the session's lock only for the last commit.
func (s *Store) create(ctx context.Context, key Key, m meta, shared []patch.Change, p write.Plan, dry bool) (*write.Creation, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	c, err := s.newSession(ctx, h, m)
	defer c.Drop() // no-op after the commit
	if err == nil {
		err = c.Plan(p, shared, dry)
	}
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", key, err)
	}
	if dry {
		return c, nil
	}
	if err := h.Lock(ctx); err != nil {
		return nil, err
	}
	defer h.Unlock()
	return c, c.Commit(ctx)
}

// abandonedAfter is the age at which a staged session counts as abandoned. A long import or fork writes to a staged
// session, which no listing shows, until its last commit renames that session.
const abandonedAfter = 24 * time.Hour

// dropStaged removes staged sessions that programs left unfinished. The argument after is the minimum age of these
// sessions.
func (s *Store) dropStaged(ctx context.Context, after time.Duration) {
	page, err := s.backend.List(ctx, write.StagedPrefix, "", listPage)
	for _, l := range page {
		m, metaErr := decodeMeta(l.Meta)
		if metaErr != nil || s.opts.Now().Sub(m.created) < after {
			continue
		}
		if deleteErr := s.backend.Delete(ctx, l.Session, l.Creation, nil); !errors.Is(deleteErr, backend.ErrNotFound) {
			err = errors.Join(err, deleteErr)
		}
	}
	if err != nil {
		s.opts.Logger.Warn("patchlog: the records of an unfinished import or fork could not be removed", "error", err)
	}
}
