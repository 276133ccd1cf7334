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

// decoded keeps events of the log as ADK knows them, since decoding one takes about ten
// times as long as copying it. It is safe for use by any number of goroutines.
//
// It has two generations. What is used is in the young one; when that is full it becomes
// the old one, and what was in the old one is dropped.
type decoded struct {
	limit  int // of a generation, in bytes of JSON; below 0 nothing is kept
	logger *slog.Logger

	recalls atomic.Bool // agents can look up what summaries stand for

	mu         sync.Mutex
	size       int // of the young generation
	young, old map[*patch.Event]*session.Event
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
	size := patch.Record{Event: p}.Size()
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
