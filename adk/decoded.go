package adk

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// decoded caches events of the log as ADK knows them, since decoding one takes about ten
// times as long as copying it. It is safe for use by any number of goroutines.
type decoded struct {
	logger *slog.Logger

	recalls atomic.Bool // agents can look up what summaries stand for

	mu     sync.Mutex
	events recent[*patch.Event, *session.Event] // by bytes of JSON
}

// event returns an event of the log as ADK knows it, the caller's own. Where agents can look it
// up, a summary names the records that it stands for.
func (d *decoded) event(p *patch.Event) *session.Event {
	e := d.logged(p)
	if p.IsSummary() && d.recalls.Load() {
		if l, ok := compaction.SaidLineage(p); ok && l.From > 0 && e.Content != nil {
			e.Content.Parts = append(e.Content.Parts, genai.NewPartFromText(fmt.Sprintf(
				"(This sums up records %d to %d of the conversation. %s finds what it leaves out.)", l.From, l.To, recall.SearchTool)))
		}
	}
	return e
}

// logged is event without that.
func (d *decoded) logged(p *patch.Event) *session.Event {
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
