// Package power tests a store after power failures and disk errors. It intercepts system calls of this process with
// seccomp, records them, and makes some of them fail. From the recorded calls, a model of the disk computes the
// states that a power cut may leave. No acknowledged write may be lost, and no commit may exist in part. If
// operations in flight are repeated, they must take effect once.
//
// This command checks 100 states per round. In these states, unsynced writes are present, partial, reordered or
// missing:
//
//	go test ./internal/fuzz/power -run 'TestStates$' -timeout 0 -rounds 1000 -v
//
// In half of the rounds, the process crashes and recovers before the power cut. A commit that a client has read may
// be lost only if it was not acknowledged, and if it was read before the sync of its meta page ended.
//
// This command makes each write, sync, truncation and rename of 200 commits fail, and then cuts the power:
//
//	go test ./internal/fuzz/power -run 'TestFaults$' -timeout 0 -rounds 20 -v
//
// Each call fails once with each error, except a write to a draft between two other writes to the same draft. Such a
// write fails with only one error. TestStates and TestFaults need Linux 5.7.
//
// This command cuts the power of an ext4 file system. It needs root and loop devices:
//
//	go test ./internal/fuzz/power -run 'TestCuts$' -timeout 0 -rounds 2000 -v
package power
