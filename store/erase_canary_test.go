package store_test

import (
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/canary"
)

// Of 10,000 canaries, in what users and tools said, in data, compressed or not, in state, summaries, snapshots and
// forks, no file of the store has one after they were erased and it was vacuumed. Without the
// vacuum some are there: the scan would find them.
func TestEraseCanaries(t *testing.T) {
	testlog.OneGoroutine(t)
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	dir := t.TempDir()
	b, err := bolt.Open(filepath.Join(dir, "a.db"), bolt.Options{NoSync: true})
	no(t, err)
	s := newStore(t, b, store.Options{Snapshots: snapshot.Policy{Every: 100, Share: 1}})
	defer s.Close()
	canary.Plant(t, s, n)
	stored := canary.EndsOf(t, b)
	if got := canary.Find(t, dir, stored); got < n {
		t.Fatalf("%d canaries and records that have one are found, of %d", got, n)
	}
	must(t)(s.EraseUser(ctx, canary.App, canary.User, store.EraseOptions{}))
	verified(t, s)
	if got := canary.Find(t, dir, stored); got == 0 {
		t.Error("without a vacuum none is found: the scan does not look where they are")
	} else {
		t.Logf("%d canaries are found before the vacuum", got)
	}
	no(t, s.Vacuum(ctx))
	if got := canary.Find(t, dir, stored); got != 0 {
		t.Errorf("%d canaries are found after the vacuum", got)
	}
	no(t, s.Close())
	if got := canary.Find(t, dir, stored); got != 0 {
		t.Errorf("%d canaries are found after closing", got)
	}
}
