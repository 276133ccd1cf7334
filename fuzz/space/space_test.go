package space_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var ctx = context.Background()

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// relaxed stores do without syncs, which change nothing of what is tested here.
func relaxed() store.Options {
	return store.Options{Durability: store.Relaxed, Logger: quiet(), CacheBytes: 4 << 20, SearchBytes: 1 << 20}
}

func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) (s *store.Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, relaxed())
	no(t, err)
	t.Cleanup(func() { no(t, s.Close()) })
	return s, path
}

func keyOf(kind string, n int) store.Key {
	return store.Key{App: "app", User: "user", Session: fmt.Sprintf("%s-%06d", kind, n)}
}

// event returns one with a text of so many bytes.
func event(id string, size int) *patch.Event {
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":%q,"author":"user","invocationId":"i-%s","content":{"role":"user","parts":[{"text":"%0*d"}]}}`, id, id, size, len(id)))
	if err != nil {
		panic(err)
	}
	return e
}

// fill creates sessions with so many events of half a kilobyte.
func fill(t testing.TB, s *store.Store, sessions, events int) {
	t.Helper()
	for i := range sessions {
		_, err := s.Create(ctx, keyOf("filled", i), map[string]any{"user:k": i})
		no(t, err)
		for at := 0; at < events; at += 250 {
			var batch []*patch.Event
			for n := at; n < min(at+250, events); n++ {
				batch = append(batch, event(fmt.Sprint("f", n), 400))
			}
			_, err := s.AppendEvents(ctx, keyOf("filled", i), store.AppendOptions{}, batch...)
			no(t, err)
		}
	}
}

func sizeOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	no(t, err)
	return info.Size()
}

// verify returns what verifying finds.
func verify(ctx context.Context, s *store.Store) error {
	var found []error
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		if err != nil {
			return err
		}
		found = append(found, errors.New(p.String()))
	}
	return errors.Join(found...)
}

// backedUp makes a backup, and verifies it where it stands.
func backedUp(s *store.Store, dir string) error {
	var w bytes.Buffer
	if err := s.Backup(ctx, &w); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	path := filepath.Join(dir, "backup.db")
	if err := os.WriteFile(path, w.Bytes(), 0o600); err != nil {
		return err
	}
	opts := relaxed()
	opts.ReadOnly = true
	b, err := store.Open(path, opts)
	if err != nil {
		return fmt.Errorf("open a backup: %w", err)
	}
	if err := verify(ctx, b); err != nil {
		return errors.Join(fmt.Errorf("verify a backup: %w", err), b.Close())
	}
	return b.Close()
}

// longAsItMay is how long anything that has to happen is waited for: a machine that is busy
// with other things may take its time.
const longAsItMay = 30 * time.Second

// within reports whether f ends in time.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// writerFunc is an [io.Writer].
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var _ io.Writer = writerFunc(nil)
