// Package power is a harness: the power fails while a store is at work, and nothing that was
// acknowledged is lost, nothing is altered, no half of a commit shows. There are two of them.
//
//	go test ./fuzz/power -run 'TestStates$' -timeout 0 -rounds 1000 -progress states.json -v
//
// records what processes write and sync, and makes 100 states a round that a power failure may
// leave: what was not synced is there, in part, in another order, or not at all. It needs strace.
//
//	go test ./fuzz/power -run 'TestCuts$' -timeout 0 -rounds 2000 -progress cuts.json -v
//
// cuts the power of a file system, 2,000 times. It needs root and loop devices. Each goes on where
// it was stopped.
package power
