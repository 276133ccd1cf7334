package compaction

import "cmp"

// Limits returns the limits of a configuration, for tests to make them smaller.
func (c *Config) Limits() *limits {
	c.limits = cmp.Or(c.limits, defaultLimits)
	return &c.limits
}

// SetFallback sets the summarizer that is called in place of [Extractive] when Summarizer fails.
func (c *Config) SetFallback(s Summarizer) { c.fallback = s }

// DefaultLimits are the limits of a configuration that has no others.
var DefaultLimits = defaultLimits

// Limit sets how many sessions may wait and how many are compacted at once, where it is not 0.
func (w *Worker[K]) Limit(queue, parallel int) {
	w.capacity, w.parallel = cmp.Or(queue, w.capacity), cmp.Or(parallel, w.parallel)
}

// Invention is the error about an answer that invents.
type Invention = inventionError

// MaxFocus is how many runes of a focus a summarizer is told.
const MaxFocus = maxFocus
