// Package teststore opens stores for tests, and closes them when the test ends. Package store/pg/pgtest does
// this for PostgreSQL.
package teststore

import (
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// Memory returns a store in memory. It does not log unless opts has a logger.
func Memory(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.OpenMemory(withoutLogs(opts))
	return closeAtEnd(t, s, err)
}

// File returns a store in a new file, and the file's path. The store does not log unless opts has a logger.
func File(t testing.TB, opts store.Options) (s *store.Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, withoutLogs(opts))
	return closeAtEnd(t, s, err), path
}

func withoutLogs(opts store.Options) store.Options {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// closeAtEnd closes a store when the test ends. The test may close it earlier.
func closeAtEnd(t testing.TB, s *store.Store, err error) *store.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// Gunzip decompresses a gzip file into a temporary directory of the test, and returns the path of the result.
func Gunzip(t testing.TB, packed string) (path string) {
	t.Helper()
	file, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "unpacked")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
