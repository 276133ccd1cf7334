// Package endurance tests long sessions and large stores: a million events, with and without compaction,
// and a hundred thousand sessions. Reads return what was written, and the memory that a call allocates
// is bounded by its result. The package has only tests:
//
//	go test ./internal/fuzz/endurance -timeout 0 -rounds 1 -v
package endurance
