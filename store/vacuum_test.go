package store_test

import (
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

// Views, watches and copies that know the log go on while a vacuum replaces the file.
func TestVacuumIsNotSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	open := func() *store.Store {
		s := openStore(t, path, store.Options{})
		return s
	}
	s := open()
	e := &env{T: t, store: s}
	add(t, s, key, map[string]any{"app:k": 1}, 600)
	text := e.export()
	before := sessionOf(e, s, key)
	watch, stop := iter.Pull2(s.Watch(ctx, key, 1))
	defer stop()
	seen := func(n int) {
		t.Helper()
		for range n {
			if _, err, ok := watch(); err != nil || !ok {
				t.Fatalf("the watch ends: %v", err)
			}
		}
	}
	seen(300)
	e.no(s.Vacuum(ctx))
	seen(300)
	e.same("export", e.export(), text)
	after, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say("later"))
	e.no(err)
	seen(1)
	if before.View.Len()+1 != after.View.Len() {
		t.Errorf("%d events became %d", before.View.Len(), after.View.Len())
	}
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Error(p, err)
	}
	e.no(s.Close())
	e.store = open()
	defer e.store.Close()
	if !strings.HasPrefix(e.export(), text) {
		t.Error("opened anew, the log is another one")
	}
}
