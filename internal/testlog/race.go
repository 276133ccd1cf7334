//go:build race

package testlog

// Race reports whether the race detector is on, which takes memory and much time.
const Race = true
