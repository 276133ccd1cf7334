package adk

import (
	"sync"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// given are the events that one session gives, each the reader's own. Where ADK has records of
// compaction, it gives the same event again when it is asked for it again: ADK reads a
// session's events twice to find out which of them a summary stands for, and compares them by
// their addresses. It is safe for use by any number of goroutines.
type given struct {
	decoded *decoded

	mu     sync.Mutex
	before map[*patch.Event]*session.Event // nil: each time another
}

func newGiven(d *decoded) *given {
	g := &given{decoded: d}
	if recordField >= 0 {
		g.before = map[*patch.Event]*session.Event{}
	}
	return g
}

func (g *given) event(p *patch.Event) *session.Event {
	if g.before == nil {
		return g.decoded.event(p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.before[p]
	if e == nil {
		e = g.decoded.event(p)
		g.before[p] = e
	}
	return e
}
