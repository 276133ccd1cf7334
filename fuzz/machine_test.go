package fuzz_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/fuzz/machine"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// Random operations run on the model, on a store with bbolt, and on up to three stores that share a backend in
// memory. All results and all states must agree.
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
