package memory_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestBackend(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		return &memory.Backend{}, nil
	})
}

// A faulty backend with nothing planned is as good as the one in it.
func TestFaultyBackend(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		return &storetest.Faulty{Backend: &memory.Backend{}}, nil
	})
}
