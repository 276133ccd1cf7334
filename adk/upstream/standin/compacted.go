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

// compactingService is a service that shortens results and compacts sessions as early as possible. It is
// deterministic, because AppendEvent returns only after background compaction has finished. It uses a new adk.Service
// for each append, as after a restart of the program.
type compactingService struct {
	session.Service
	db *store.Store
	mu sync.Mutex // allows one append at a time
}

var earlyCompaction = compaction.Config{Enabled: true, CompactionInterval: 1, TokenThreshold: 1, EventRetentionSize: 1}

func newCompactingService(db *store.Store) (*compactingService, error) {
	reading, err := adk.NewService(db, adk.Options{KeepInterruptedCalls: true})
	return &compactingService{Service: reading, db: db}, err
}

func (c *compactingService) AppendEvent(ctx context.Context, s session.Session, e *session.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	appending, err := adk.NewService(c.db, adk.Options{KeepInterruptedCalls: true, Compaction: earlyCompaction, MaxResultTokens: recall.MinResultTokens})
	if err != nil {
		return err
	}
	if err := appending.AppendEvent(ctx, s, e); err != nil {
		return err
	}
	return appending.Close(context.WithoutCancel(ctx))
}
