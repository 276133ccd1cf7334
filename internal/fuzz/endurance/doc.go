// Package endurance tests long sessions and large stores: sessions of a million events, with and without
// compaction, and stores with a hundred thousand sessions. Reads must return the written content. The memory that
// a call allocates must be proportional to its result. The package has only tests:
//
//	go test ./internal/fuzz/endurance -timeout 0 -rounds 1 -v
package endurance
