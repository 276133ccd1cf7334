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

// creating is a session in the making: a draft on an empty log, of which what is more than one
// commit should have is staged.
type creating struct {
	draft
	staged staged
	meta   []byte
	erased erase.Said // of a log that is copied
	while  *backend.Unmoved
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
	c := &creating{staged: staged{store: s, key: h.key, creation: uuid.NewString()}, meta: data}
	c.draft = draft{group: &group{store: s, handle: h}, ctx: ctx, view: fold.New(c.staged.creation, own)}
	return c, nil
}

// stage stages the draft's records, if they are as many as one commit should have. The caller
// drops them if the session is not created.
func (c *creating) stage() error {
	if len(c.batch) < pageRecords && c.size < pageBytes {
		return nil
	}
	if err := c.staged.add(c.ctx, c.batch); err != nil {
		return err
	}
	c.batch, c.size = nil, 0
	return nil
}

// commit makes the session be there, with all of its records. The caller holds the
// handle's lock.
func (c *creating) commit() error {
	batch := c.staged.batch()
	batch.Meta, batch.Records, batch.Shared, batch.While = c.meta, slices.Clone(c.draft.batch), c.shared, c.while
	err := c.store.write(c.ctx, c.handle, c.view, c.draft.counts, batch)
	if err == nil {
		c.staged.begun = false
	}
	return fromBackend(c.handle.key, err)
}

// staged is the beginning of a session that is created by several commits. Until the last one,
// which renames it, its records stand in a session that no listing shows.
type staged struct {
	store    *Store
	key      Key // of the session to be
	creation string
	begun    bool   // something may be there
	last     uint64 // the seq of the last record
	token    backend.Token
	chain    backend.Chain
}

// Names of staged sessions begin with stagedPrefix, and are below stagedEnd, as no key's name is.
const (
	stagedPrefix = "\x00\x02"
	stagedEnd    = "\x00\x03"
)

// abandonedAfter is how long after its beginning a staged session is taken for that of a program
// that has ended.
const abandonedAfter = 24 * time.Hour

func (g *staged) name() string { return stagedPrefix + g.creation }

// add adds records. If the outcome of the commit is unknown, the caller drops them all.
func (g *staged) add(ctx context.Context, records []backend.Record) error {
	s := g.store
	batch := backend.Batch{Creation: g.creation, After: g.last, Seen: g.token, Next: newToken(), Chain: g.chain, Records: records}
	if g.last == 0 {
		s.dropStaged(ctx, abandonedAfter)
		meta, err := encodeMeta(meta{created: s.opts.Now()})
		if err != nil {
			return err
		}
		batch.Create, batch.Meta, g.begun = true, meta, true
	}
	compress(records)
	err := s.backend.Append(ctx, g.name(), batch)
	if errors.Is(err, backend.ErrUnknown) {
		err = fmt.Errorf("a commit failed, and nothing is left: %w", causeOf(err))
	}
	if err != nil {
		return fromBackend(g.key, err)
	}
	g.last, g.token, g.chain = g.last+uint64(len(records)), batch.Next, chainOf(g.chain, records)
	return nil
}

// batch returns a batch that creates the session of the records that are staged, if any are.
func (g *staged) batch() backend.Batch {
	b := backend.Batch{Creation: g.creation, Create: true, After: g.last, Seen: g.token, Chain: g.chain}
	if g.last > 0 {
		b.Staged = g.name()
	}
	return b
}

// drop removes what is staged. If it has become a session it does nothing.
func (g *staged) drop(ctx context.Context) {
	if g.begun {
		_ = g.store.backend.Delete(context.WithoutCancel(ctx), g.name(), g.creation, nil)
	}
}

// dropStaged removes sessions that programs have staged that ended before they were created.
func (s *Store) dropStaged(ctx context.Context, after time.Duration) {
	page, err := s.backend.List(ctx, stagedPrefix, "", listPage)
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
		s.opts.Logger.Warn("patchlog: what an unfinished import or fork has left is not removed yet", "error", err)
	}
}
