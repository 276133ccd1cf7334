package standin

import (
	"context"
	"sync"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// compacted is a service that shortens and compacts as early as possible. It is deterministic: AppendEvent returns
// only after background compaction has finished. Each append uses a new adk.Service, as after a restart of the
// program.
type compacted struct {
	session.Service
	db *store.Store
	mu sync.Mutex // serialises appends
}

var early = compaction.Config{Enabled: true, CompactionInterval: 1, TokenThreshold: 1, EventRetentionSize: 1}

func newCompacted(db *store.Store) (*compacted, error) {
	reading, err := adk.NewService(db, adk.Options{KeepInterruptedCalls: true})
	return &compacted{Service: reading, db: db}, err
}

func (c *compacted) AppendEvent(ctx context.Context, s session.Session, e *session.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	appending, err := adk.NewService(c.db, adk.Options{KeepInterruptedCalls: true, Compaction: early, MaxResultTokens: recall.MinResultTokens})
	if err != nil {
		return err
	}
	if err := appending.AppendEvent(ctx, s, e); err != nil {
		return err
	}
	return appending.Close(context.WithoutCancel(ctx))
}
