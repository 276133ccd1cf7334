package kill_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/fuzz/kill"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

var harness = kill.Harness{Open: open, Backups: true}

func init() { harness.Child() }

func open(place, flaw string) (*store.Store, error) {
	logger := slog.New(slog.DiscardHandler)
	opts := store.Options{
		NoSync: filepath.Base(place) == "relaxed.db", LockTimeout: 5 * time.Second, Logger: logger,
		Snapshots: snapshot.Policy{Every: 8, MinPercent: 1}, CacheBytes: 1 << 18,
	}
	if flaw == "" {
		return store.Open(place, opts)
	}
	b, err := bolt.Open(place, bolt.Options{LockTimeout: opts.LockTimeout, Logger: logger})
	if err != nil {
		return nil, err
	}
	return store.New(ops.Flaws[flaw](b), opts)
}

func TestKilled(t *testing.T) {
	few := 4
	if testing.Short() {
		few = 2
	}
	harness.Check(t, few, 25, func() string { return filepath.Join(t.TempDir(), "synced.db") })
}

// Data that was passed to the operating system survives the end of the process, even if the data was not synced.
func TestKilledNoSync(t *testing.T) {
	few := 2
	if testing.Short() {
		few = 1
	}
	harness.Check(t, few, 25, func() string { return filepath.Join(t.TempDir(), "relaxed.db") })
}

// The harness detects stores with planted flaws.
func TestControls(t *testing.T) {
	for _, flaw := range []string{"early", "half", "sparing"} {
		t.Run(flaw, func(t *testing.T) {
			harness.Finds(t, flaw, filepath.Join(t.TempDir(), "synced.db"))
		})
	}
}
