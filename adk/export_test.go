package adk

import (
	"context"
	"reflect"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
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
	s.compacting.ended(ctx, sess.(*Session).key, invocation)
}

// WithGoTimes is for tests.
var WithGoTimes = withGoTimes

// MoreFields returns the names of a type's fields but some.
func MoreFields(t reflect.Type, but ...string) (names []string) {
	for _, f := range moreFields(t, but...) {
		names = append(names, f.name)
	}
	return names
}

// SameEvents says that a session gives the same event each time, as ADK needs it where it has compaction records.
var SameEvents = recordField >= 0

// GiveSameEvents has a session do so with any version of ADK.
func (s *Session) GiveSameEvents() { s.given.before = map[*patch.Event]*session.Event{} }

// Live returns the id of the invocation that is taken to be running.
func (s *Service) Live(sess session.Session) string {
	return s.compacting.runs.live(sess.(*Session).key)
}

// Cached returns how many sessions of a base are cached or locked.
func (s *Service) Cached() (cached, locked int) {
	b := s.store.(*baseStorage)
	b.locks.mu.Lock()
	defer b.locks.mu.Unlock()
	return len(b.logs.young) + len(b.logs.old), len(b.locks.held)
}

// Over returns a service over the storage of another one.
func (s *Service) Over(t *testing.T, opts Options) *Service {
	t.Helper()
	out, err := newService(s.store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// WithCache returns options of a service with a cache of another size; below 0 there is none.
func (o Options) WithCache(bytes int) Options { o.cacheBytes = bytes; return o }
