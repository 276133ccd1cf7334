package adk

import (
	"context"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/wrap"
)

var Pins = pins

// Settle waits until background compaction is idle.
func (s *Service) Settle(t *testing.T) {
	if s.autoCompaction == nil {
		return
	}
	t.Helper()
	for {
		stats := s.autoCompaction.worker.Stats()
		if stats.Waiting+stats.Running == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Ended reports the end of an invocation, as the plugin does.
func (s *Service) Ended(ctx context.Context, sess session.Session, invocation string) {
	key := sess.(*Session).key
	s.runs.end(ctx, key, invocation, false)
	s.autoCompaction.notify(key)
}

func (s *Service) Cached() int {
	return s.store.(*wrap.Storage).Cached()
}

// IndexBytes returns the memory of the search indexes.
func (s *Service) IndexBytes() int { return s.finder.Bytes() }

// Over returns another service over the storage of s.
func (s *Service) Over(t *testing.T, opts Options) *Service {
	t.Helper()
	out, err := newService(s.store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// WithoutCache returns options with which [Wrap] caches no log.
func (o Options) WithoutCache() Options { o.cacheBytes = -1; return o }

// SetMissing replaces the errors of ADK's in-memory service for a missing session.
func SetMissing(t *testing.T, err error) {
	before, get := missingSession, func() error { return err }
	missingSession = missingErrors{get, get}
	t.Cleanup(func() { missingSession = before })
}

func (s *Service) Base() (session.Service, bool) {
	b, ok := s.store.(*wrap.Storage)
	if !ok {
		return nil, false
	}
	return b.Base(), true
}
