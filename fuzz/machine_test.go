package fuzz_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/fuzz/machine"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// Random operations run on a store on bbolt, on up to three stores that share an in-memory backend,
// and on the reference model; all answers and all intermediate states must agree.
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
