package adk

import (
	"context"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"
)

// Pins is for tests.
var Pins = pins

// Settle waits until nothing is being compacted in the background.
func (s *Service) Settle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stats := s.compacting.worker.Stats()
		if stats.Waiting+stats.Running == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the background does not come to rest")
		}
	}
}

// Ended says that an invocation has ended, as the plugin does.
func (s *Service) Ended(ctx context.Context, sess session.Session, invocation string) {
	s.compacting.ended(ctx, sess.(*Session).key, invocation)
}

// MaxLines is how many sessions of a base are kept that nobody uses.
const MaxLines = maxLines

// Lines returns how many sessions of a base are known.
func (s *Service) Lines() int {
	b := s.store.(*based)
	b.lines.mu.Lock()
	defer b.lines.mu.Unlock()
	return len(b.lines.byKey)
}
