// Package power tests what a store has after a power failure or after errors of its disk. It records
// system calls of this process and makes them fail (seccomp); a model of the disk computes the states
// that a power cut may leave. Nothing that was acknowledged is lost, no commit is there in part, and
// operations in flight take effect once when they are repeated.
//
//	go test ./internal/fuzz/power -run 'TestStates$' -timeout 0 -rounds 1000 -v
//
// checks 100 states per round: unsynced writes are there, in part, in another order, or not at all. In
// half of the rounds, the process crashes and recovers first. Only a commit that was read before the sync
// of its meta page ended, and not acknowledged, may be lost.
//
//	go test ./internal/fuzz/power -run 'TestFaults$' -timeout 0 -rounds 20 -v
//
// makes each write, sync, truncation and rename of 200 commits fail, and then cuts the power: with each
// error, or, of the pages of a draft in the middle of other writes to it, with one error. Both need
// Linux 5.7.
//
//	go test ./internal/fuzz/power -run 'TestCuts$' -timeout 0 -rounds 2000 -v
//
// cuts the power of an ext4 file system. It needs root and loop devices.
package power
