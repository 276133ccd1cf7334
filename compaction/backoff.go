package compaction

import (
	"errors"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
)

// backoff is what a compactor remembers of a session for which no summary was had.
type backoff struct {
	creation string // of the session; one that was created again starts anew
	failures int    // in a row
	answers  int    // of these, those of the summarizer
	until    uint64 // nothing is tried before the log has a record with this seq

	// over are ids of events in windows for which no answer could be used so often that the
	// others shall not wait for it, and the seq from which on they may be tried again.
	over map[string]uint64
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

// failed notes a failure for a window.
func (c *Compactor[K]) failed(key K, cfg Config, v fold.View, w *Window, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.remembered(key, v)
	b.failures++
	if answered := (*SummarizerError)(nil); errors.As(err, &answered) {
		b.answers++
	}
	useless := errors.Is(err, errDeclined) || errors.Is(err, ErrRefusedAnswer) || errors.Is(err, ErrVetoed)
	// No window is given up before the fallback was asked about it.
	asked := cfg.Fallback == nil || b.answers > cfg.FallbackAfter || errors.Is(err, ErrVetoed)
	if useless && asked && w != nil && b.failures >= cfg.FallbackAfter {
		if b.over == nil {
			b.over = map[string]uint64{}
		}
		for _, g := range w.Groups {
			for _, i := range g.Indices {
				b.over[v.At(i).ID()] = v.Seq() + maxBackoff
			}
		}
	}
	b.until = v.Seq() + min(maxBackoff, uint64(1)<<min(b.failures-1, 30))
	c.backoff[key] = b
}

func (c *Compactor[K]) succeeded(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.backoff[key]; len(b.over) > 0 {
		c.backoff[key] = backoff{creation: b.creation, over: b.over}
		return
	}
	delete(c.backoff, key)
}

// passedOver returns the ids of the events of windows that are passed over.
func (c *Compactor[K]) passedOver(key K, v fold.View) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		return nil
	}
	maps.DeleteFunc(b.over, func(_ string, until uint64) bool { return v.Seq() >= until })
	return slices.Collect(maps.Keys(b.over))
}

// remembered returns what is remembered of a session. The mutex is held.
func (c *Compactor[K]) remembered(key K, v fold.View) backoff {
	if b := c.backoff[key]; b.creation == v.Creation() {
		return b
	}
	if len(c.backoff) >= maxRemembered {
		clear(c.backoff)
	}
	return backoff{creation: v.Creation()}
}

// toAsk returns who is to be asked for a session.
func (c *Compactor[K]) toAsk(key K, by *settings) *asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by.cfg.Fallback != nil && c.backoff[key].answers >= by.cfg.FallbackAfter {
		return &by.fallback
	}
	return &by.first
}

// Stats counts what a compactor has done.
type Stats struct {
	Wrote     uint64 // passes that logged a summary
	Declined  uint64
	Conflicts uint64
	Vetoed    uint64
	Failed    uint64

	EventsCovered uint64 // visible events that summaries have replaced
	TokensBefore  uint64 // estimated, of what was replaced
	TokensAfter   uint64 // estimated, of the summaries
	Calls         uint64 // of summarizers, in passes that logged a summary
}

// count counts an attempt.
func (c *Compactor[K]) count(o Outcome, w *Written) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.stats
	switch o {
	case Declined:
		s.Declined++
	case Conflict:
		s.Conflicts++
	case Vetoed:
		s.Vetoed++
	case Failed:
		s.Failed++
	case Wrote:
		s.Wrote++
		s.EventsCovered += uint64(w.EventsBefore)
		s.TokensBefore += uint64(w.TokensBefore)
		s.TokensAfter += uint64(w.TokensAfter)
		s.Calls += uint64(w.Usage.Calls)
	}
}

// Stats returns the counters.
func (c *Compactor[K]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}
