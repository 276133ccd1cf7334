package bolt_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func open(t *testing.T, path string) *bolt.Backend {
	t.Helper()
	b, err := bolt.Open(path, bolt.Options{NoSync: true})
	no(t, err)
	return b
}

func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		path := filepath.Join(t.TempDir(), "log.db")
		b := open(t, path)
		t.Cleanup(func() {
			// Some tests have closed it.
			if err := b.Close(); err != nil && !errors.Is(err, backend.ErrClosed) {
				t.Errorf("Close: %v", err)
			}
			b = open(t, path)
			if err := b.Check(context.Background()); err != nil {
				t.Errorf("Check: %v", err)
			}
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		return b, func() backend.Backend {
			no(t, b.Close())
			b = open(t, path)
			return b
		}
	})
}
