package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// A file whose branches lead in a circle is refused: bbolt would go round in it until its stack overflows.
func TestCircle(t *testing.T) {
	path := fillPages(t, 2000)
	for _, bucket := range []string{"records", "shared"} {
		for _, all := range []bool{false, true} {
			damaged := filepath.Join(t.TempDir(), "log.db")
			whole, err := os.ReadFile(path)
			no(t, err)
			no(t, os.WriteFile(damaged, whole, 0o600))
			l := layoutOf(t, damaged)
			circles := 0
			for id := 2; id < len(l.file)/l.page; id++ {
				if l.at(id)[8] != 1 || !slices.Contains(l.leaves[bucket], l.child(id, 0)) {
					continue
				}
				for i := range l.count(id) {
					if all || i == l.count(id)/2 {
						l.lead(id, i, id)
						circles++
					}
				}
				writeAt(t, damaged, int64(id*l.page), l.at(id)...)
			}
			if circles == 0 {
				t.Fatal("no branch leads to these leaves; the test tests nothing")
			}
			inTime(t, "Open", func() {
				if _, err := bolt.Open(damaged, bolt.Options{Logger: quiet}); !errors.Is(err, backend.ErrDamaged) {
					t.Errorf("bucket %s, all children %v: error %v", bucket, all, err)
				}
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
