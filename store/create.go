package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// creating is a session in the making: a draft on an empty log. If it has more records
// than one commit should have, the others are staged: the backend keeps them where nobody
// sees them.
type creating struct {
	draft
	creation string
	meta     []byte
	after    uint64        // the last seq that is staged
	chain    backend.Chain // of what is staged
	erased   erase.Said    // of a log that is copied
	while    *backend.Unmoved
}

// newSession begins to create a session. Its shared changes are to be added by
// [draft.share].
func (s *Store) newSession(ctx context.Context, h *handle, own map[string]patch.Value, created time.Time) (*creating, error) {
	data, err := encodeMeta(meta{created.UTC(), own})
	if err != nil {
		return nil, err
	}
	if most := s.opts.MaxRecordBytes; len(data) > most {
		return nil, fmt.Errorf("session %s: %w: the initial state takes %d bytes; the limit is %d", h.key, ErrTooLarge, len(data), most)
	}
	c := &creating{creation: uuid.NewString(), meta: data}
	c.draft = draft{group: &group{store: s, handle: h}, ctx: ctx, view: fold.New(c.creation, own).Lean()}
	return c, nil
}

// stage has the backend keep the draft's records, if they are as many as one commit should
// have. Who calls it calls Unstage if the session is not created.
func (c *creating) stage() error {
	if len(c.batch) < pageRecords && c.size < pageBytes {
		return nil
	}
	if err := c.store.stage(c.ctx, c.handle.key, c.creation, c.after, c.batch); err != nil {
		return err
	}
	c.after += uint64(len(c.batch))
	c.chain = chainOf(c.chain, c.batch)
	c.batch, c.size = nil, 0
	return nil
}

// stage has the backend keep records of a session in the making. A staged batch whose commit
// failed is dropped with the session, so its outcome does not matter.
func (s *Store) stage(ctx context.Context, key Key, creation string, after uint64, batch []backend.Record) error {
	compress(batch)
	err := s.backend.Stage(ctx, creation, after, batch)
	if errors.Is(err, backend.ErrUnknown) {
		err = fmt.Errorf("a commit failed, and nothing is left: %w", causeOf(err))
	}
	return fromBackend(key, err)
}

// commit makes the session be there, with all of its records. The caller holds the
// handle's lock.
func (c *creating) commit() error {
	return fromBackend(c.handle.key, c.store.write(c.ctx, c.handle, c.view, backend.Batch{
		Creation: c.creation, Create: true, Meta: c.meta, After: c.after, Chain: c.chain, Records: slices.Clone(c.batch), Shared: c.shared,
		While: c.while,
	}, false))
}
