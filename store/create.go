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

// creating is the creation of a session: a draft on an empty log. If it has more records than one commit should have,
// the first ones are staged: they are committed to a session that no listing shows, and that the last commit renames.
type creating struct {
	draft
	creation string
	meta     []byte
	family   string
	erased   erase.Said // of a log that is copied
	while    *backend.Unmoved

	begun bool   // records may be staged
	last  uint64 // the seq of the last staged record
	token backend.Token
	chain backend.Chain
}

// newSession begins to create a session. The caller calls drop when it is done.
func (s *Store) newSession(ctx context.Context, h *handle, m meta) (*creating, error) {
	data, err := encodeMeta(m)
	c := &creating{creation: uuid.NewString(), meta: data}
	if len(m.lineage) > 0 {
		c.family = erase.Family(c.creation, m.lineage)
	}
	c.draft = draft{counts: counts{created: m.created}, group: &group{store: s, handle: h}, ctx: ctx, view: fold.New(c.creation, m.initial), then: c.stage}
	return c, err
}

// create creates a session with the records that a plan adds to an empty log; a dry run only drafts that. The session's
// lock is held for the last commit alone.
func (s *Store) create(ctx context.Context, key Key, m meta, shared []patch.Change, p plan, dry bool) (*creating, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	c, err := s.newSession(ctx, h, m)
	defer c.drop() // after the commit it does nothing
	if dry {
		c.then = nil
	}
	if most := s.opts.MaxRecordBytes; err == nil && len(c.meta) > most {
		err = fmt.Errorf("%w: the initial state takes %d bytes; the limit is %d", ErrTooLarge, len(c.meta), most)
	}
	if err == nil {
		err = c.share(shared)
	}
	if err == nil {
		_, err = c.offer(p.offers(), s.complete(p.offers()))
	}
	if err == nil {
		err = p.draft(&c.draft)
	}
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", key, err)
	}
	if dry {
		return c, nil
	}
	if err := h.lock(ctx); err != nil {
		return nil, err
	}
	defer h.unlock()
	return c, c.commit()
}

// stage stages the draft's records, if they are enough for a commit.
func (c *creating) stage() error {
	if len(c.batch) < pageRecords && c.size < pageBytes {
		return nil
	}
	return c.stageAll()
}

// stageAll stages the draft's records. If the outcome of the commit is unknown, the caller drops all staged records.
func (c *creating) stageAll() error {
	s := c.store
	batch := backend.Batch{Creation: c.creation, ExpectedLast: c.last, ExpectedToken: c.token, Next: backend.NewToken(), Chain: c.chain, Records: c.batch, RequireFreeIDs: true}
	if c.last == 0 {
		s.dropStaged(c.ctx, abandonedAfter)
		meta, err := encodeMeta(meta{created: s.opts.Now()})
		if err != nil {
			return err
		}
		batch.Create, batch.Meta, c.begun = true, meta, true
	}
	compress(batch.Records)
	err := s.backend.Append(c.ctx, c.stagedName(), batch)
	if errors.Is(err, backend.ErrUnknown) {
		err = fmt.Errorf("a commit failed, and nothing is left: %w", causeOf(err))
	}
	if err != nil {
		return fromBackend(c.handle.key, err)
	}
	c.last, c.token, c.chain = c.last+uint64(len(c.batch)), batch.Next, chainOf(c.chain, c.batch)
	c.batch, c.size = nil, 0
	return nil
}

// final returns the batch of the last commit, which makes the session visible with all of its records.
func (c *creating) final() backend.Batch {
	b := backend.Batch{Creation: c.creation, Create: true, ExpectedLast: c.last, ExpectedToken: c.token, Chain: c.chain,
		Meta: c.meta, Records: slices.Clone(c.batch), Shared: c.shared, Family: c.family, While: c.while, RequireFreeIDs: true}
	if c.last > 0 {
		b.Staged = c.stagedName()
	}
	return b
}

// commit makes the last commit, and publishes the draft's view. The caller holds the handle's lock.
func (c *creating) commit() error {
	err := c.store.write(c.ctx, c.handle, current{view: c.view, counts: c.counts, invocations: c.invocations}, c.final())
	c.begun = c.begun && err != nil
	return fromBackend(c.handle.key, err)
}

func (c *creating) stagedName() string { return stagedPrefix + c.creation }

// drop removes the staged records. After the last commit it does nothing.
func (c *creating) drop() {
	if c.begun {
		_ = c.store.backend.Delete(context.WithoutCancel(c.ctx), c.stagedName(), c.creation, nil)
	}
}

// Names of staged sessions begin with stagedPrefix, and are below stagedEnd, as no key's name is.
const (
	stagedPrefix = "\x00\x02"
	stagedEnd    = "\x00\x03"
)

// abandonedAfter is the age from which on a staged session is taken for one whose program has ended.
const abandonedAfter = 24 * time.Hour

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
