package bolt_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func open(t *testing.T, path string) *bolt.Backend {
	t.Helper()
	b := testlog.Must(bolt.Open(path, bolt.Options{NoSync: true}))(t)
	return b
}

func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		path := filepath.Join(t.TempDir(), "log.db")
		b := open(t, path)
		t.Cleanup(func() {
			if err := b.Close(); err != nil && !errors.Is(err, backend.ErrClosed) {
				t.Errorf("Close: %v", err)
			}
			b = open(t, path)
			testlog.WantNil(t, b.Check(context.Background()))
			testlog.WantNil(t, b.Close())
		})
		return b, func() backend.Backend {
			testlog.NoError(t, b.Close())
			b = open(t, path)
			return b
		}
	})
}
