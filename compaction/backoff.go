package compaction

import (
	"errors"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
)

// backoff is the retry state of a session whose passes failed. A retry is delayed until the log has reached a given
// seq.
type backoff struct {
	creation         string            // creation id of the session; a recreated session has no backoff
	failures         int               // number of consecutive failures
	nextCall         uint64            // seq that the log must reach before the next call of the summarizer
	nextPass         uint64            // seq that the log must reach before the next pass
	skipped          map[string]uint64 // key: event id; value: seq at which the event's window is no longer skipped
	blanksCheckedSeq uint64            // seq of the newest patch when no blank summary could be reverted
}

const (
	// maxBackoffSessions is the maximum number of sessions with a backoff. If there are more, the compactor discards
	// all backoffs.
	maxBackoffSessions = 1 << 16

	// maxBackoffRecords is the maximum number of records by which a retry is delayed.
	maxBackoffRecords = 64

	// maxVetoes is the number of consecutive vetoes after which a window is skipped.
	maxVetoes = 3
)

// backoffStatus reports whether the session must grow before the next pass (skipPass), and before the next call of the
// summarizer (skipSummarizer).
func (c *Compactor[K]) backoffStatus(key K, v fold.View) (skipPass, skipSummarizer bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		return false, false
	}
	return v.Seq() < b.nextPass, v.Seq() < b.nextCall
}

// skippedIDs returns the ids of the events in skipped windows.
func (c *Compactor[K]) skippedIDs(key K, v fold.View) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoff[key]
	if b.creation != v.Creation() {
		return nil
	}
	maps.DeleteFunc(b.skipped, func(_ string, until uint64) bool { return v.Seq() >= until })
	return slices.Collect(maps.Keys(b.skipped))
}

// recordFailure records a failed pass. If the pass failed before it planned a window, p is nil.
func (c *Compactor[K]) recordFailure(key K, v fold.View, p *pass[K], err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.backoffOf(key, v)
	b.backOff(v)
	if p == nil || p.overLimit || !errors.As(err, new(*SummarizerError)) {
		b.nextPass = b.nextCall
	}
	if p != nil && (p.written.UsedFallback || errors.Is(err, ErrVetoed) && b.failures >= maxVetoes) {
		if b.skipped == nil {
			b.skipped = map[string]uint64{}
		}
		for _, g := range p.window.Groups {
			for _, i := range g.Indices {
				b.skipped[v.At(i).ID()] = v.Seq() + maxBackoffRecords
			}
		}
	}
	c.backoff[key] = b
}

// recordSuccess resets the backoff of a session after one of its passes was logged.
func (c *Compactor[K]) recordSuccess(p *pass[K]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch b := c.backoffOf(p.key, p.planner.view); {
	case p.summarizerErr != nil:
		b.backOff(p.planner.view)
		c.backoff[p.key] = b
	case p.answerAccepted && len(b.skipped) > 0:
		c.backoff[p.key] = backoff{creation: b.creation, skipped: b.skipped}
	case p.answerAccepted:
		delete(c.backoff, p.key)
	}
}

// backOff counts a failure and delays the next call of the summarizer.
func (b *backoff) backOff(v fold.View) {
	b.failures++
	b.nextCall = v.Seq() + min(maxBackoffRecords, uint64(1)<<min(b.failures-1, 30))
}

// backoffOf returns the backoff of a session. The caller holds the mutex.
func (c *Compactor[K]) backoffOf(key K, v fold.View) backoff {
	if b := c.backoff[key]; b.creation == v.Creation() {
		return b
	}
	if len(c.backoff) >= maxBackoffSessions {
		clear(c.backoff)
	}
	return backoff{creation: v.Creation()}
}
