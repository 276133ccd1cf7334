package adk

import (
	"log/slog"
	"sync"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// decoded caches events of the log as ADK knows them, since decoding one takes about ten
// times as long as copying it. It is safe for use by any number of goroutines.
type decoded struct {
	logger *slog.Logger

	mu     sync.Mutex
	events recent[*patch.Event, *session.Event] // by bytes of JSON
}

// event returns an event of the log as ADK knows it, the caller's own.
func (d *decoded) event(p *patch.Event) *session.Event {
	d.mu.Lock()
	e, ok := d.events.find(p)
	d.mu.Unlock()
	if ok {
		return copyEvent(e)
	}
	e, err := SessionEvent(p)
	if err != nil {
		d.logger.Warn("patchlog: an event of the log has fields that ADK cannot read", "error", err)
	}
	size := patch.Record{Event: p}.Size()
	d.mu.Lock()
	d.events.keep(p, e, size)
	d.mu.Unlock()
	return copyEvent(e)
}
