package adk

import (
	"context"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/wrap"
)

// Pins is for tests.
var Pins = pins

// Settle waits until nothing is being compacted in the background.
func (s *Service) Settle(t *testing.T) {
	if s.compacting == nil {
		return
	}
	t.Helper()
	for {
		stats := s.compacting.worker.Stats()
		if stats.Waiting+stats.Running == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Ended says that an invocation has ended, as the plugin does.
func (s *Service) Ended(ctx context.Context, sess session.Session, invocation string) {
	key := sess.(*Session).key
	s.runs.end(ctx, key, invocation, false)
	s.compacting.notify(key)
}

// Cached returns how many sessions of a base are cached.
func (s *Service) Cached() int {
	return s.store.(*wrap.Storage).Cached()
}

// IndexBytes returns the memory of the indexes of a base's sessions.
func (s *Service) IndexBytes() int { return s.finder.Bytes() }

// Over returns a service over the storage of another one.
func (s *Service) Over(t *testing.T, opts Options) *Service {
	t.Helper()
	out, err := newService(s.store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// WithoutCache returns options of a service of [Wrap] that caches no log.
func (o Options) WithoutCache() Options { o.cacheBytes = -1; return o }

// SetMissing sets the errors that ADK's in-memory service returns for a missing session.
func SetMissing(t *testing.T, err error) {
	before, get := missing, func() error { return err }
	missing = missingErrors{get, get}
	t.Cleanup(func() { missing = before })
}

// Base returns the service that is wrapped.
func (s *Service) Base() (session.Service, bool) {
	b, ok := s.store.(*wrap.Storage)
	if !ok {
		return nil, false
	}
	return b.Base(), true
}
