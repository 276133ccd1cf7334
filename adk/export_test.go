package adk

import (
	"context"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/wrap"
)

var Pins = pins

// WaitForCompaction waits until no background compaction is queued or running.
func (s *Service) WaitForCompaction(t *testing.T) {
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

// EndRun reports the end of an invocation to the service, as the plugin does.
func (s *Service) EndRun(ctx context.Context, sess session.Session, invocation string) {
	key := sess.(*Session).key
	s.runs.end(ctx, key, invocation, false)
	s.autoCompaction.notify(key)
}

func (s *Service) CachedLogs() int {
	return s.store.(*wrap.Storage).Cached()
}

// IndexBytes returns the memory that the search indexes use.
func (s *Service) IndexBytes() int { return s.finder.Bytes() }

// OverSameStorage returns a new service over the storage of s.
func (s *Service) OverSameStorage(t *testing.T, opts Options) *Service {
	t.Helper()
	out, err := newService(s.store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// WithoutCache returns o, changed so that [Wrap] caches no log.
func (o Options) WithoutCache() Options { o.cacheBytes = -1; return o }

// SetMissingError sets the error that ADK's in-memory service returns for a missing session.
func SetMissingError(t *testing.T, err error) {
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
