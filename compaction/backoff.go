package compaction

import (
	"errors"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/fold"
)

// backoff is what a compactor remembers of a session for which no summary was had.
type backoff struct {
	creation string // of the session; one that was created again starts anew
	failures int    // in a row
	answers  int    // of these, those of the summarizer
	until    uint64 // nothing is tried before the log has a record with this seq
}

// So many sessions are remembered; past that all are forgotten, and tried once more.
const maxRemembered = 1 << 16

// A session has to grow by at most so many records before the next attempt.
const maxBackoff = 64

// waits reports whether a session has not grown enough since the last failure.
func (c *Compactor[K]) waits(key K, v fold.View) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	return b.creation == v.Creation() && v.Seq() < b.until
}

// failed notes a failure.
func (c *Compactor[K]) failed(key K, v fold.View, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		b = backoff{creation: v.Creation()}
	}
	b.failures++
	if answered := (*SummarizerError)(nil); errors.As(err, &answered) {
		b.answers++
	}
	if len(c.backoff) >= maxRemembered {
		clear(c.backoff)
	}
	b.until = v.Seq() + min(maxBackoff, uint64(1)<<min(b.failures-1, 30))
	c.backoff[key] = b
}

func (c *Compactor[K]) succeeded(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.backoff, key)
}

// writer is a summarizer and its calls that were given up and have not returned.
type writer struct {
	Summarizer
	given int // guarded by the compactor's mutex
}

// writer returns who is to be asked for a session.
func (c *Compactor[K]) writer(key K) *writer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Fallback != nil && c.backoff[key].answers >= c.cfg.FallbackAfter {
		return &c.fallback
	}
	return &c.first
}

// Stats counts what a compactor has done.
type Stats struct {
	Wrote     uint64 // passes that logged a summary
	Declined  uint64
	Conflicts uint64
	Failed    uint64

	EventsCovered uint64 // visible events that summaries have replaced
	TokensBefore  uint64 // estimated, of what was replaced
	TokensAfter   uint64 // estimated, of the summaries
	Calls         uint64 // of summarizers, in passes that logged a summary
}

type counters struct {
	wrote, declined, conflicts, failed       atomic.Uint64
	events, tokensBefore, tokensAfter, calls atomic.Uint64
}

func (c *counters) count(o Outcome, w *Written) {
	switch o {
	case Declined:
		c.declined.Add(1)
	case Conflict:
		c.conflicts.Add(1)
	case Failed:
		c.failed.Add(1)
	case Wrote:
		c.wrote.Add(1)
		c.events.Add(uint64(w.EventsBefore))
		c.tokensBefore.Add(uint64(w.TokensBefore))
		c.tokensAfter.Add(uint64(w.TokensAfter))
		c.calls.Add(uint64(w.Usage.Calls))
	}
}

// Stats returns the counters. They are read one by one while others count.
func (c *Compactor[K]) Stats() Stats {
	n := &c.counters
	return Stats{
		Wrote: n.wrote.Load(), Declined: n.declined.Load(), Conflicts: n.conflicts.Load(), Failed: n.failed.Load(),
		EventsCovered: n.events.Load(), TokensBefore: n.tokensBefore.Load(), TokensAfter: n.tokensAfter.Load(), Calls: n.calls.Load(),
	}
}
