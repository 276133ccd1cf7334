package bolt_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// Damage of the pages that lead to the buckets, which no single bit makes: a root on the
// list of free pages, a root that two buckets have, an entry that stands elsewhere.
func TestOpenChecksRoots(t *testing.T) {
	le := binary.NativeEndian
	for name, damage := range map[string]func(root []byte, at, pos int, free uint64){
		"none":       func(root []byte, at, pos int, free uint64) {},
		"free":       func(root []byte, at, pos int, free uint64) { le.PutUint64(root[at:], free) },
		"root again": func(root []byte, at, pos int, free uint64) { le.PutUint64(root[at:], le.Uint64(root)) },
		"elsewhere":  func(root []byte, at, pos int, free uint64) { le.PutUint32(root[pos:], le.Uint32(root[pos:])+1) },
		"overflow":   func(root []byte, at, pos int, free uint64) { le.PutUint32(root[12:], 1) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.db")
			fill(t, path)
			db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
			testlog.NoError(t, err)
			var rootAt int64
			var free uint64
			err = errors.Join(db.View(func(tx *bbolt.Tx) error {
				rootAt = int64(tx.Cursor().Bucket().Root()) * int64(os.Getpagesize())
				for id := 2; ; id++ {
					if p, err := tx.Page(id); err != nil || p == nil {
						t.Fatal("no free page; the test tests nothing")
					} else if p.Type == "free" {
						free = uint64(id)
						return nil
					}
				}
			}), db.Close())
			testlog.NoError(t, err)
			file := testlog.Must(os.OpenFile(path, os.O_RDWR, 0))(t)
			defer file.Close()
			root := make([]byte, os.Getpagesize())
			testlog.NoError(t, testlog.ErrorOf(file.ReadAt(root, rootAt)))
			// The first bucket whose root has a page of its own.
			at, pos := 0, 0
			for i := range int(le.Uint16(root[10:])) {
				element := 16 + 16*i
				value := element + int(le.Uint32(root[element+4:])) + int(le.Uint32(root[element+8:]))
				if le.Uint64(root[value:]) != 0 {
					at, pos = value, element+4
					break
				}
			}
			if at == 0 {
				t.Fatal("no bucket has a page; the test tests nothing")
			}
			damage(root, at, pos, free)
			testlog.NoError(t, testlog.ErrorOf(file.WriteAt(root, rootAt)))
			b, err := bolt.Open(path, bolt.Options{ReadOnly: true, Logger: quiet})
			if err == nil {
				err = b.Close()
			}
			if name == "none" && err != nil || name != "none" && !errors.Is(err, backend.ErrDamaged) {
				t.Errorf("error %v", err)
			}
		})
	}
}
