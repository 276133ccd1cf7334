package write

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
)

// Minimum size of a commit of staged records.
const (
	stageRecords = 512
	stageBytes   = 1 << 20
)

// Creation is a session that is being created: a draft on an empty log. If one commit cannot hold all records, the
// first records are staged. They are committed to a session that no listing shows ([backend.Batch.RenameFrom]), and the
// last commit renames that session. If we crash before the last commit, no reader has seen the session, and a later
// call removes the staged records. If we crash after the last commit, the session is complete.
type Creation struct {
	Draft
	ID             string // creation id
	Meta           []byte
	Family         string                  // see [backend.Batch.Family]
	ExpectedSource *backend.SessionEdition // the session that is copied, or nil

	// BeforeStaging is called before the first records are staged.
	BeforeStaging func(context.Context)
	// StagedMeta is the meta record of the staged session.
	StagedMeta []byte

	hasStaged  bool   // the staged session may exist
	lastStaged uint64 // seq of the last staged record
	token      backend.Token
	chain      backend.Chain
}

// NewCreation starts the creation of the session. The caller must call Drop at the end.
func (s *Session) NewCreation(ctx context.Context, created time.Time, initial map[string]patch.Value) *Creation {
	c := &Creation{ID: uuid.NewString()}
	c.Draft = Draft{Draft: fold.Draft{View: fold.New(c.ID, initial)}, batch: batch{Counts: Counts{Created: created}}, ctx: ctx, session: s, isNew: true, stage: c.Stage}
	return c
}

// Plan drafts the session's records with p. If dry is set, no records are staged.
func (c *Creation) Plan(p Plan, shared []patch.Change, dry bool) error {
	s := c.session
	if len(c.Meta) > s.MaxRecordBytes {
		return fmt.Errorf("%w: the initial state takes %d bytes; the limit is %d", patch.ErrTooLarge, len(c.Meta), s.MaxRecordBytes)
	}
	if dry {
		c.stage = nil
	}
	c.offered, c.Records = p.Offered(), s.Complete(p.Offered())
	if err := c.addShared(s, shared); err != nil {
		return err
	}
	if err := fold.CheckUnique(c.Records); err != nil {
		return err
	}
	return p.Draft(&c.Draft)
}

// Copy adds an encoded record of another log. The argument after is the view that includes the record.
func (c *Creation) Copy(r patch.Record, data []byte, after fold.View) {
	c.View = after
	c.addEncoded(r, data)
}

// Stage stages the draft's records if there are enough of them for a commit. If it fails, the caller must drop all staged
// records.
func (c *Creation) Stage() error {
	if len(c.records) < stageRecords && c.size < stageBytes {
		return nil
	}
	s := c.session
	b := backend.Batch{Creation: c.ID, ExpectedLast: c.lastStaged, ExpectedToken: c.token, Next: backend.NewToken(), Chain: c.chain, Records: c.records, RequireFreeIDs: true}
	if c.lastStaged == 0 {
		c.BeforeStaging(c.ctx)
		b.Create, b.Meta, c.hasStaged = true, c.StagedMeta, true
	}
	CompressAll(b.Records)
	err := s.Backend.Append(c.ctx, c.stagedName(), b)
	if errors.Is(err, backend.ErrUnknown) {
		err = fmt.Errorf("a commit failed, and nothing was written: %w", Cause(err))
	}
	if err != nil {
		return s.WrapError(err)
	}
	c.lastStaged, c.token, c.chain = c.lastStaged+uint64(len(c.records)), b.Next, chainOf(c.chain, c.records)
	c.records, c.size = nil, 0
	return nil
}

// Commit makes the last commit, which makes the session visible with all its records, and publishes its view. The
// caller has locked the session.
func (c *Creation) Commit(ctx context.Context) error {
	b := backend.Batch{Creation: c.ID, Create: true, ExpectedLast: c.lastStaged, ExpectedToken: c.token, Chain: c.chain,
		Meta: c.Meta, Records: slices.Clone(c.records), Shared: c.shared, Family: c.Family, ExpectedSource: c.ExpectedSource, RequireFreeIDs: true}
	if c.lastStaged > 0 {
		b.RenameFrom = c.stagedName()
	}
	err := c.session.CommitBatch(ctx, State{View: c.View, Counts: c.Counts, Invocations: c.invocations}, b)
	c.hasStaged = c.hasStaged && err != nil
	return c.session.WrapError(err)
}

func (c *Creation) stagedName() string { return StagedPrefix + c.ID }

// Drop deletes the staged session. After a successful Commit it does nothing.
func (c *Creation) Drop() {
	if c.hasStaged {
		_ = c.session.Backend.Delete(context.WithoutCancel(c.ctx), c.stagedName(), c.ID, nil)
	}
}

// Names of staged sessions begin with StagedPrefix and sort below StagedEnd. Other sessions have no such names.
const (
	StagedPrefix = "\x00\x02"
	StagedEnd    = "\x00\x03"
)
