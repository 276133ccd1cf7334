package store_test

import (
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A reader that stalls in the middle of a log, for as long as it likes, keeps no page of
// the file from being used again: commits go on, and the file grows as it would without
// the reader. A read transaction that stayed open would make it many times as large.
func TestStalledReader(t *testing.T) {
	commits := 20_000
	if testing.Short() {
		commits = 2_000
	}
	run := func(stall func(e *env)) int64 {
		e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db")}
		e.opts = store.Options{Durability: store.Relaxed, Logger: slog.New(slog.DiscardHandler)}
		var err error
		e.store, err = store.Open(e.path, e.opts)
		e.no(err)
		e.create(nil)
		e.append(says("a", 1000)...) // more than a page
		stall(e)
		for i := range commits {
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say(fmt.Sprint("b", i)))
			e.no(err)
		}
		info, err := os.Stat(e.path)
		e.no(err)
		return info.Size()
	}
	finish := func(e *env) { e.no(e.store.Close()) }
	plain := run(func(e *env) { e.Cleanup(func() { finish(e) }) })

	stalled := run(func(e *env) {
		// Two readers, left in the first and in the second page, which go on when all is
		// written.
		pull := func(from uint64) {
			next, stop := iter.Pull2(e.store.RawEvents(ctx, key, from))
			n := 0
			read := func(r patch.Record, err error, ok bool) bool {
				if !ok {
					return false
				}
				e.no(err)
				if n++; r.Seq != from+uint64(n)-1 {
					e.Errorf("record %d, want %d", r.Seq, from+uint64(n)-1)
				}
				return true
			}
			for range 100 {
				read(next())
			}
			e.Cleanup(func() {
				defer stop()
				for read(next()) {
				}
				if want := 1000 - int(from) + 1; n != want {
					e.Errorf("%d records from %d on were read, want the %d that were there at the start", n, from, want)
				}
			})
		}
		e.Cleanup(func() { finish(e) }) // runs last
		pull(1)
		pull(600)
	})
	t.Logf("%d bytes with readers that stall, %d without", stalled, plain)
	if stalled > 2*plain {
		t.Errorf("the file takes %d bytes with readers that stall, %d without", stalled, plain)
	}
}
