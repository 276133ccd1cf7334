package store

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/recordform"
)

// Handles returns how many sessions are in use or cached.
func Handles(s *Store) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return len(s.cache.handles)
}

// Uncompressed has stores write records as they are until the test ends.
func Uncompressed(t testing.TB) {
	compressRecord = func(form []byte) []byte { return form }
	t.Cleanup(func() { compressRecord = recordform.Compress })
}
