// Package endurance makes one session as long, and a store as full, as they get in years: a
// million events, with compaction as it goes and without, and a hundred thousand sessions. What is
// read is what was written; what a call allocates grows no more than what it is about.
//
//	go test ./fuzz/endurance -timeout 0 -rounds 1 -v
package endurance
