package compaction

import "math"

// Limits returns the limits of a configuration, for tests to make them smaller.
func (c *Config) Limits() *limits { return &c.limits }

// Passes are made at any cost unless a test says otherwise: few tests are about costs.
func init() { defaultLimits.Trifle = math.MaxInt }

// Trifle is the limit outside tests.
var Trifle = defaultLimits.Trifle

// DefaultLimits are the limits of a configuration that has no others.
var DefaultLimits = defaultLimits
