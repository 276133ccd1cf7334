package compaction

// Limits returns the limits of a configuration, for tests to make them smaller.
func (c *Config) Limits() *limits { return &c.limits }

// DefaultLimits are the limits of a configuration that has no others.
var DefaultLimits = defaultLimits
