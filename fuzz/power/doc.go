// Package power tests what a crash of the machine leaves of a store, and what a failing disk does to
// it. System calls of this process are recorded and made to fail (seccomp), and a model of the disk
// says what a power cut leaves. Nothing that was acknowledged is lost, no commit is there in part,
// and what was in flight takes effect once when it is repeated.
//
//	go test ./fuzz/power -run 'TestStates$' -timeout 0 -rounds 1000 -v
//
// checks 100 states a round that a power cut may leave: what was not synced is there, in part, in
// another order, or not at all; half of the rounds have a crash of the process and a recovery before.
//
//	go test ./fuzz/power -run 'TestFaults$' -timeout 0 -rounds 20 -v
//
// makes each write, sync, truncation and change of names of 200 commits fail, in each way, and cuts
// the power then. Both need Linux 5.7.
//
//	go test ./fuzz/power -run 'TestCuts$' -timeout 0 -rounds 2000 -v
//
// cuts the power of an ext4 file system. It needs root and loop devices.
package power
