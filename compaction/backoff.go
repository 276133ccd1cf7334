package compaction

import "sync/atomic"

// backoff is what a compactor remembers of a session for which no summary was had.
type backoff struct {
	failures int
	until    uint64 // nothing is tried before the log has a record with this seq
}

// A session has to grow by at most so many records before the next attempt.
const maxBackoff = 64

// waits reports whether a session has not grown enough since the last failure.
func (c *Compactor[K]) waits(key K, seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return seq < c.backoff[key].until
}

// failed notes a failure.
func (c *Compactor[K]) failed(key K, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	b.failures++
	b.until = seq + min(maxBackoff, uint64(1)<<min(b.failures-1, 30))
	c.backoff[key] = b
}

func (c *Compactor[K]) succeeded(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.backoff, key)
}

// summarizer returns who is to be asked for a session.
func (c *Compactor[K]) summarizer(key K) Summarizer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.Fallback != nil && c.backoff[key].failures >= c.cfg.FallbackAfter {
		return c.cfg.Fallback
	}
	return c.cfg.Summarizer
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
