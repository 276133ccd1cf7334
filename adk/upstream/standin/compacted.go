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

// compacted is a service that shortens results and compacts sessions as early as can be, and always at the same
// time: an append that makes it compact in the background returns when that is done. Each
// is made by a service of its own, as if the program had been started again.
type compacted struct {
	session.Service
	db *store.Store
	mu sync.Mutex // one append at a time
}

var early = compaction.Config{Enabled: true, CompactionInterval: 1, TokenThreshold: 1, EventRetentionSize: 1}

func newCompacted(db *store.Store) (*compacted, error) {
	reading, err := adk.NewService(db, adk.Options{KeepInterruptedCalls: true})
	return &compacted{Service: reading, db: db}, err
}

// AppendEvent is as session.Service says.
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
