package fuzz_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/fuzz/machine"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// A store on bbolt, up to three that share what is in memory, and the reference model go
// through the same random operations; each answer and each state in between must be the
// model's.
func TestPropertyStoresAreReference(t *testing.T) {
	machine.Check(t, func(t *rapid.T) []backend.Backend {
		first := &memory.Backend{}
		peers := []backend.Backend{first}
		for range rapid.IntRange(0, 2).Draw(t, "more peers") {
			peers = append(peers, first.Peer())
		}
		return peers
	})
}
