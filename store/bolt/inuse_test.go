package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

type filePages struct {
	size, list int64            // page size in bytes, and number of the first page of the free list
	free       []int64          // numbers of the free pages
	leaves     map[string]int64 // key: key in bucketRecords; value: the number of the leaf page
	first      []string         // the first key of each leaf, in order
}

const perSession = 57 // with this number, no page begins with the first record of a session

// createLargeFile creates a file that has some free pages, and sessions s1, s2, … of perSession records each.
func createLargeFile(t *testing.T) (path string, p filePages) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.db")
	b := open(t, path)
	for i := 1; i <= 9; i++ {
		name := fmt.Sprint("s", i)
		var records []backend.Record
		for seq := range uint64(perSession) {
			r := record(seq + 1)
			r.Data = append(r.Data, bytes.Repeat([]byte{byte(i)}, 300)...)
			records = append(records, r)
		}
		testlog.NoError(t, b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Meta: []byte("meta"), Records: records}))
	}
	testlog.NoError(t, errors.Join(b.Delete(ctx, "s9", "c", nil), b.Close()))
	return path, pageLayout(t, path)
}

func pageLayout(t *testing.T, path string) (p filePages) {
	t.Helper()
	l := readLayout(t, path)
	p.size, p.list, p.leaves = int64(l.page), int64(l.freelist), map[string]int64{}
	for i := range l.count(l.freelist) {
		p.free = append(p.free, int64(l.freePage(i)))
	}
	for _, leaf := range l.leaves["records"] {
		p.first = append(p.first, l.key(leaf, 0))
		for i := range l.count(leaf) {
			p.leaves[l.key(leaf, i)] = int64(leaf)
		}
	}
	if len(p.free) < 8 || len(p.first) < 20 {
		t.Fatalf("%d free pages, %d leaves: too few for the test", len(p.free), len(p.first))
	}
	return p
}

func writeAt(t *testing.T, path string, at int64, data ...byte) {
	t.Helper()
	file := testlog.Must(os.OpenFile(path, os.O_RDWR, 0))(t)
	testlog.NoError(t, errors.Join(testlog.ErrorOf(file.WriteAt(data, at)), file.Close()))
}

func word(n int64) []byte { return binary.NativeEndian.AppendUint64(nil, uint64(n)) }

// Open fails if the free list contains a page of a long record.
func TestFreePageInLongRecord(t *testing.T) {
	t.Parallel()
	path, _ := createLargeFile(t)
	b := open(t, path)
	long := backend.Record{Seq: perSession + 1, IDs: []string{"long"}, Data: bytes.Repeat([]byte("long"), 10<<10)}
	testlog.NoError(t, errors.Join(b.Append(ctx, "s2", backend.Batch{Creation: "c", ExpectedLast: perSession, Records: []backend.Record{long}}), b.Close()))
	p := pageLayout(t, path)
	whole := testlog.Must(os.ReadFile(path))(t)
	first := int64(bytes.Index(whole, long.Data)) / p.size
	for page := first; page < first+10; page++ {
		writeAt(t, path, p.list*p.size+10, 1, 0)
		writeAt(t, path, p.list*p.size+16, word(page)...)
		b, err := bolt.Open(path, bolt.Options{NoSync: true, Logger: discardLogger})
		if !errors.Is(err, backend.ErrDamaged) {
			t.Errorf("page %d of a record that begins in page %d: error %v, want %v", page, first, err, backend.ErrDamaged)
		}
		if err == nil {
			b.Close()
		}
		testlog.NoError(t, os.WriteFile(path, whole, 0o600))
	}
}

// If a page cannot be read, only the rows in that page are lost. All other sessions can be read, and so can the
// earlier records of the same session.
func TestDamagedRecordLeaf(t *testing.T) {
	t.Parallel()
	path, p := createLargeFile(t)
	for _, key := range p.first {
		at := p.leaves[key] * p.size
		header := make([]byte, 8)
		data := testlog.Must(os.ReadFile(path))(t)
		copy(header, data[at:])
		writeAt(t, path, at, bytes.Repeat([]byte{0xee}, 8)...)
		b := open(t, path)
		lost := map[uint64]uint64{} // key: session number; value: the seq of the first record in the damaged page
		for k, leaf := range p.leaves {
			n, seq := binary.BigEndian.Uint64([]byte(k)), binary.BigEndian.Uint64([]byte(k)[8:])
			if leaf == p.leaves[key] && seq > 0 && (lost[n] == 0 || seq < lost[n]) {
				lost[n] = seq
			}
		}
		listed, err := b.List(ctx, "", "", 99)
		if err != nil || len(listed) != 8 {
			t.Errorf("leaf of %x: %d sessions are listed, %v", key, len(listed), err)
		}
		for n := uint64(1); n <= 8; n++ {
			want := uint64(perSession)
			if lost[n] > 0 {
				want = lost[n] - 1
			}
			got, err := b.Read(ctx, fmt.Sprint("s", n), "c", backend.Range(1, 99), 1<<20)
			if uint64(len(got)) != want || err != nil && want > 0 {
				t.Errorf("leaf of %x: %d records of session %d, want %d (%v)", key, len(got), n, want, err)
			}
			if err := listed[n-1].Err; err != nil && lost[n] == 0 {
				t.Errorf("leaf of %x: session %d is listed with %v", key, n, err)
			}
			if got, err := b.Read(ctx, fmt.Sprint("s", n), "c", []uint64{1}, 1<<20); lost[n] != 1 && (err != nil || len(got) != 1) {
				t.Errorf("leaf of %x: record 1 of session %d: %d, %v", key, n, len(got), err)
			}
		}
		testlog.NoError(t, b.Close())
		writeAt(t, path, at, header...)
	}
}

// After a deletion, bbolt may merge a page with its sibling. If the sibling is damaged, Delete fails and deletes
// nothing.
func TestDeleteNextToDamagedPage(t *testing.T) {
	t.Parallel()
	whole, p := createLargeFile(t)
	data := testlog.Must(os.ReadFile(whole))(t)
	refused := 0
	for n := uint64(2); n < 8; n++ {
		first := slices.Index(p.leavesInOrder(), p.leaves[string(rowKey(n, 1))])
		last := slices.Index(p.leavesInOrder(), p.leaves[string(rowKey(n, perSession))])
		for _, i := range []int{first - 1, first, last, last + 1} {
			// Damage the offset of the page's second row.
			leaf := p.leavesInOrder()[i]
			path, damaged := filepath.Join(t.TempDir(), "log.db"), bytes.Clone(data)
			damaged[leaf*p.size+16+16+4] ^= 0xff
			testlog.NoError(t, os.WriteFile(path, damaged, 0o600))
			b := open(t, path)
			if err := b.Delete(ctx, fmt.Sprint("s", n), "c", nil); errors.Is(err, backend.ErrDamaged) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
			testlog.WantNil(t, b.Close())
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("session %d: leaf %d was damaged, and the file was changed (%v)", n, leaf, err)
			}
		}
	}
	if refused < 20 {
		t.Errorf("%d of 24 were refused", refused)
	}
}

func (p filePages) leavesInOrder() (out []int64) {
	for _, key := range p.first {
		out = append(out, p.leaves[key])
	}
	return out
}

// Open refuses a file without a free list before it calls bbolt. bbolt would visit all pages to build a list.
func TestMissingFreelist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	testlog.NoError(t, open(t, path).Close())
	db := testlog.Must(bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true}))(t)
	testlog.NoError(t, errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("shared")).Put([]byte("k"), nil) }), db.Close()))
	l := readLayout(t, path)
	for id := 2; id < len(l.file)/l.page; id++ { // every page that could be the root
		l.at(id)[8], l.at(id)[10], l.at(id)[11] = 1, 1, 0
		l.setChild(id, 0, id)
		writeAt(t, path, int64(id*l.page), l.at(id)...)
	}
	failIfHangs(t, "Open", func() {
		if _, err := bolt.Open(path, bolt.Options{Logger: discardLogger}); !errors.Is(err, backend.ErrDamaged) || !strings.Contains(err.Error(), "no list of free pages") {
			t.Errorf("error %v", err)
		}
	})
}
