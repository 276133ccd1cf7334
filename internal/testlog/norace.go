//go:build !race

package testlog

// Race says whether the race detector is on, which takes memory of its own and much time.
const Race = false
