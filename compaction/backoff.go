package compaction

import (
	"errors"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
)

// backoff is the state of a session whose passes failed. The compactor retries once the log has the record with a given
// seq.
type backoff struct {
	creation string            // of the session; a session that was created again has no backoff
	failures int               // in a row
	nextCall uint64            // the summarizer is called once the log has this seq
	nextPass uint64            // a pass is tried once the log has this seq
	skipped  map[string]uint64 // event id → the seq until which its window is skipped
	noBlanks uint64            // seq of the newest patch when no blank summary could be reverted
}

const (
	// maxRemembered is the most sessions with a backoff. At one more, all are dropped.
	maxRemembered = 1 << 16

	// maxBackoff is the most records by which a session must grow before a retry.
	maxBackoff = 64

	// A window is skipped after maxVetoes vetoes in a row.
	maxVetoes = 3
)

// waits reports whether the session must grow before the next pass (rests), and before the next call of the summarizer
// (backsOff).
func (c *Compactor[K]) waits(key K, v fold.View) (rests, backsOff bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		return false, false
	}
	return v.Seq() < b.nextPass, v.Seq() < b.nextCall
}

// skipped returns the ids of the events in skipped windows.
func (c *Compactor[K]) skipped(key K, v fold.View) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		return nil
	}
	maps.DeleteFunc(b.skipped, func(_ string, until uint64) bool { return v.Seq() >= until })
	return slices.Collect(maps.Keys(b.skipped))
}

// failed records a failed pass. p is nil if the pass failed before it had a window.
func (c *Compactor[K]) failed(key K, v fold.View, p *pass[K], err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.remembered(key, v)
	b.backOff(v)
	if p == nil || p.overLimit || !errors.As(err, new(*SummarizerError)) {
		b.nextPass = b.nextCall
	}
	if p != nil && (p.about.UsedFallback || errors.Is(err, ErrVetoed) && b.failures >= maxVetoes) {
		if b.skipped == nil {
			b.skipped = map[string]uint64{}
		}
		for _, g := range p.window.Groups {
			for _, i := range g.Indices {
				b.skipped[v.At(i).ID()] = v.Seq() + maxBackoff
			}
		}
	}
	c.backoff[key] = b
}

// succeeded resets the backoff after a logged pass.
func (c *Compactor[K]) succeeded(p *pass[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch b := c.remembered(p.key, p.shape.view); {
	case p.failure != nil:
		b.backOff(p.shape.view)
		c.backoff[p.key] = b
	case p.answered && len(b.skipped) > 0:
		c.backoff[p.key] = backoff{creation: b.creation, skipped: b.skipped}
	case p.answered:
		delete(c.backoff, p.key)
	}
}

// backOff counts a failure.
func (b *backoff) backOff(v fold.View) {
	b.failures++
	b.nextCall = v.Seq() + min(maxBackoff, uint64(1)<<min(b.failures-1, 30))
}

// remembered returns the backoff of a session. The caller holds the mutex.
func (c *Compactor[K]) remembered(key K, v fold.View) backoff {
	if b := c.backoff[key]; b.creation == v.Creation() {
		return b
	}
	if len(c.backoff) >= maxRemembered {
		clear(c.backoff)
	}
	return backoff{creation: v.Creation()}
}
