//go:build race

package testlog

// Race reports whether the race detector is on. It slows a test down and takes memory.
const Race = true
