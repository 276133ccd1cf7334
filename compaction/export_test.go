package compaction

import "cmp"

// Limits returns the limits of a configuration. Tests lower them.
func (c *Config) Limits() *limits {
	c.limits = cmp.Or(c.limits, defaultLimits)
	return &c.limits
}

// SetFallback sets the summarizer that replaces [Extractive] when Summarizer fails.
func (c *Config) SetFallback(s Summarizer) { c.fallback = s }

var DefaultLimits = defaultLimits

// Limit sets the maximum number of queued sessions, and the maximum number of sessions that are compacted in
// parallel. A value of 0 changes nothing.
func (w *Worker[K]) Limit(queue, parallel int) {
	w.capacity, w.parallel = cmp.Or(queue, w.capacity), cmp.Or(parallel, w.parallel)
}

// Invention is the error for a summary with identifiers that its events do not contain.
type Invention = inventionError

// MaxFocus is the maximum length in runes of the focus that a summarizer gets.
const MaxFocus = maxFocus
