package compaction

import "cmp"

// Limits returns the limits of a configuration. Tests make them smaller.
func (c *Config) Limits() *limits {
	c.limits = cmp.Or(c.limits, defaultLimits)
	return &c.limits
}

// SetFallback sets the summarizer that replaces [Extractive] when Summarizer fails.
func (c *Config) SetFallback(s Summarizer) { c.fallback = s }

var DefaultLimits = defaultLimits

// Limit sets the maximum numbers of queued sessions and of sessions compacted at once. A value of 0 changes nothing.
func (w *Worker[K]) Limit(queue, parallel int) {
	w.capacity, w.parallel = cmp.Or(queue, w.capacity), cmp.Or(parallel, w.parallel)
}

// Invention is the error for an answer with invented identifiers.
type Invention = inventionError

// MaxFocus is the maximum number of runes of a focus that a summarizer gets.
const MaxFocus = maxFocus
