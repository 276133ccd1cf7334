// Package faults has each write, sync and truncation of a store at work fail once, in each way
// that the system may have it fail, and then the power: the store goes on, what it acknowledged is
// there, and what it refused is not, before and after the power was cut.
//
//	go test ./fuzz/faults -run TestFaults$ -timeout 0 -rounds 20 -progress faults.json -v
//
// Twenty rounds are the calls of 200 commits. Linux makes them fail, which the process asks it to
// (seccomp); what a power failure leaves is drawn from a model of the disk, in which a sync that
// failed has lost what it was to write.
package faults
