package fuzz_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/fuzz/machine"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// The model, a store on bbolt, and up to three stores that share a backend in memory give the same results and the
// same states for random operations.
func TestPropertyStoresMatchReference(t *testing.T) {
	machine.Check(t, func(t *rapid.T) []backend.Backend {
		first := &memory.Backend{}
		peers := []backend.Backend{first}
		for range rapid.IntRange(0, 2).Draw(t, "more peers") {
			peers = append(peers, first.Peer())
		}
		return peers
	})
}
