// Package power tests a store after a power failure or disk errors. It records system calls of this
// process and makes them fail (seccomp); a model of the disk computes the states that a power cut may
// leave. Nothing acknowledged is lost, no commit is there in part, and in-flight operations take effect
// once when they are repeated.
//
//	go test ./internal/fuzz/power -run 'TestStates$' -timeout 0 -rounds 1000 -v
//
// checks 100 states per round: unsynced writes are present, partial, reordered or missing. In half of the
// rounds, the process crashes and recovers first. Only an unacknowledged commit that was read before the
// sync of its meta page ended may be lost.
//
//	go test ./internal/fuzz/power -run 'TestFaults$' -timeout 0 -rounds 20 -v
//
// makes each write, sync, truncation and rename of 200 commits fail, and then cuts the power. Each call
// fails with each error; but writes of a draft between other writes to it fail with only one error. Both
// need Linux 5.7.
//
//	go test ./internal/fuzz/power -run 'TestCuts$' -timeout 0 -rounds 2000 -v
//
// cuts the power of an ext4 file system. It needs root and loop devices.
package power
