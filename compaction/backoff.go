package compaction

import (
	"errors"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
)

// backoff is what a compactor remembers of a session whose passes failed. Seqs are of records
// that the log must have before something is tried again.
type backoff struct {
	creation string            // of the session; one that was created again starts anew
	failures int               // in a row
	nextCall uint64            // the seq from which on the summarizer is called again
	nextPass uint64            // the same of any pass
	skipped  map[string]uint64 // the same of windows, by the ids of their events
	noBlanks uint64            // the seq of the patch after which no blank summary could be reverted
}

const (
	// maxRemembered sessions are remembered; past that all are forgotten, and tried once more.
	maxRemembered = 1 << 16

	// maxBackoff is how many records a session has to grow by at most before the next attempt.
	maxBackoff = 64

	// maxVetoes in a row, and a window is skipped.
	maxVetoes = 3
)

// waits reports whether a session has not grown enough for a pass since the last failure, or not
// enough for a call of the summarizer.
func (c *Compactor[K]) waits(key K, v fold.View) (rests, backsOff bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		return false, false
	}
	return v.Seq() < b.nextPass, v.Seq() < b.nextCall
}

// skipped returns the ids of the events of windows that are skipped.
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

// failed notes a failed pass, which p is if there was a window.
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

// succeeded notes a pass that was logged.
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
