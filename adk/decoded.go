package adk

import (
	"log/slog"
	"sync"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// decoded keeps events of the log as ADK knows them, since decoding one takes about ten
// times as long as copying it. It is safe for use by any number of goroutines.
//
// It has two generations. What is used is in the young one; when that is full it becomes
// the old one, and what was in the old one is dropped.
type decoded struct {
	limit  int // of a generation, in bytes of JSON; below 0 nothing is kept
	logger *slog.Logger

	mu         sync.Mutex
	size       int // of the young generation
	young, old map[*patch.Event]*session.Event
}

// event returns an event of the log as ADK knows it, the caller's own.
func (d *decoded) event(p *patch.Event) *session.Event {
	if e, ok := d.find(p); ok {
		return copyEvent(e)
	}
	e, err := SessionEvent(p)
	if err != nil {
		d.logger.Warn("patchlog: an event of the log has fields that ADK cannot read", "error", err)
	}
	d.mu.Lock()
	d.keep(p, e)
	d.mu.Unlock()
	return copyEvent(e)
}

func (d *decoded) find(p *patch.Event) (*session.Event, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.young[p]; ok {
		return e, true
	}
	e, ok := d.old[p]
	if ok {
		d.keep(p, e)
	}
	return e, ok
}

// keep puts an event into the young generation. The lock is held.
func (d *decoded) keep(p *patch.Event, e *session.Event) {
	size := p.Size()
	if size > d.limit {
		return
	}
	if d.young == nil || d.size+size > d.limit {
		d.old, d.young, d.size = d.young, map[*patch.Event]*session.Event{}, 0
	}
	if _, ok := d.young[p]; !ok {
		d.size += size
	}
	d.young[p] = e
}
