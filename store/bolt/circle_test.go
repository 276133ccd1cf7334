package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// Where branches lead in a circle every call ends, without much memory, and says what is damaged;
// what the circle does not lead to can be read.
func TestCircle(t *testing.T) {
	path := fillPages(t, 2000)
	calls := map[string][]func(b *bolt.Backend) error{
		"records": {
			func(b *bolt.Backend) error {
				h, err := b.Head(ctx, "a")
				return errors.Join(err, b.Append(ctx, "a", backend.Batch{Creation: "c", After: h.Last, Records: longRecords(h.Last, 1)}))
			},
			func(b *bolt.Backend) error { _, err := b.Read(ctx, "a", "c", 1, 9, 999); return err },
			func(b *bolt.Backend) error { _, err := b.Pick(ctx, "b", "c", []uint64{7, 1500}, 9999); return err },
			func(b *bolt.Backend) error { h, err := b.Head(ctx, "b"); return errors.Join(err, h.Err()) },
			func(b *bolt.Backend) error { return b.Delete(ctx, "a", "c", nil) },
			func(b *bolt.Backend) error {
				return b.Replace(ctx, "b", backend.Replacement{Creation: "c", Last: 2000, Records: []backend.Replaced{{Seq: 7, Old: longRecords(6, 1)[0].Data, Data: []byte("new")}}})
			},
		},
		"ids": {
			func(b *bolt.Backend) error { _, err := b.Lookup(ctx, "b", "c", []string{"id7"}); return err },
			func(b *bolt.Backend) error {
				return b.Append(ctx, "b", backend.Batch{Creation: "c", After: 2000, Records: longRecords(2000, 1)})
			},
			func(b *bolt.Backend) error { return b.Delete(ctx, "b", "c", nil) },
		},
	}
	for bucket, all := range calls {
		for _, when := range []string{"closed", "open"} {
			t.Run(bucket+", "+when, func(t *testing.T) {
				damaged := filepath.Join(t.TempDir(), "log.db")
				whole, err := os.ReadFile(path)
				no(t, err)
				no(t, os.WriteFile(damaged, whole, 0o600))
				harm := func() {
					now, err := os.ReadFile(damaged) // which may be locked
					no(t, err)
					copied := filepath.Join(t.TempDir(), "copied.db")
					no(t, os.WriteFile(copied, now, 0o600))
					l := layoutOf(t, copied)
					for id := 2; id < len(l.file)/l.page; id++ {
						if l.at(id)[8] != 1 || !slices.Contains(l.leaves[bucket], l.child(id, 0)) {
							continue
						}
						for i := range l.count(id) {
							l.lead(id, i, id)
						}
						writeAt(t, damaged, int64(id*l.page), l.at(id)...)
					}
				}
				if when == "closed" {
					harm()
				}
				b := open(t, damaged)
				defer b.Close()
				if when == "open" {
					no(t, b.Append(ctx, "a", backend.Batch{Creation: "c", After: 2000, Records: longRecords(2000, 1)}))
					no(t, b.Stage(ctx, "new", 0, longRecords(0, 1)))
					harm()
				}
				inTime(t, bucket, func() {
					if when == "open" && bucket == "ids" { // staged ids are put without a look at what is there
						if err := b.Append(ctx, "new", backend.Batch{Creation: "new", Create: true, After: 1}); !errors.Is(err, backend.ErrDamaged) {
							t.Errorf("append what is staged: error %v", err)
						}
					}
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					circle := false
					for i, call := range all {
						err := call(b)
						if !errors.Is(err, backend.ErrDamaged) {
							t.Errorf("call %d: error %v", i, err)
						}
						circle = circle || strings.Contains(fmt.Sprint(err), "circle")
					}
					if !circle {
						t.Error("no call says that there is a circle")
					}
					if err := b.Check(ctx); err == nil {
						t.Error("Check finds nothing")
					}
					runtime.ReadMemStats(&after)
					if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
						t.Errorf("it took %d bytes", took)
					}
					if values, err := b.Shared(ctx, ""); err != nil || len(values) != 2 {
						t.Errorf("shared values %v (%v)", values, err)
					}
				})
			})
		}
	}
}

// A file without a list of free pages is refused before bbolt has it, which would follow its pages to
// make one.
func TestNoListOfFreePages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	no(t, open(t, path).Close())
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	no(t, err)
	no(t, errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("shared")).Put([]byte("k"), nil) }), db.Close()))
	l := layoutOf(t, path)
	for id := 2; id < len(l.file)/l.page; id++ { // every page that may be the root
		l.at(id)[8], l.at(id)[10], l.at(id)[11] = 1, 1, 0
		l.lead(id, 0, id)
		writeAt(t, path, int64(id*l.page), l.at(id)...)
	}
	inTime(t, "Open", func() {
		if _, err := bolt.Open(path, bolt.Options{Logger: quiet}); !errors.Is(err, backend.ErrDamaged) || !strings.Contains(err.Error(), "no list of free pages") {
			t.Errorf("error %v", err)
		}
	})
}
