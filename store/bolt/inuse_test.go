package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// pagesOf is what a test must know of a file's pages.
type pagesOf struct {
	size, list int64            // bytes of a page; the number of the page that lists the free ones
	free, used []int64          // numbers of pages
	leaves     map[string]int64 // of the bucket of records: the leaf by each of its keys
	first      []string         // the first key of each, in order
}

const perSession = 57 // so that no page begins where a session does

// large makes a file with sessions s1, s2, … of perSession records, and some free pages.
func large(t *testing.T) (path string, p pagesOf) {
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
		if err := b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Meta: []byte("meta"), Records: records}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Delete(ctx, "s9", "c", nil), b.Close()); err != nil {
		t.Fatal(err)
	}
	return path, look(t, path)
}

func look(t *testing.T, path string) (p pagesOf) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p.size, p.leaves = int64(db.Info().PageSize), map[string]int64{}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		var leaves []int64
		for id := int64(2); id*p.size < tx.Size(); id++ {
			page, err := tx.Page(int(id))
			if err != nil {
				return err
			}
			switch page.Type {
			case "free":
				p.free = append(p.free, id)
			case "freelist":
				p.list = id
			case "leaf":
				leaves = append(leaves, id)
				fallthrough
			default:
				p.used = append(p.used, id)
			}
		}
		return tx.Bucket([]byte("records")).ForEach(func(k, v []byte) error {
			row := slices.Concat(k, v)
			for _, id := range leaves {
				if bytes.Contains(data[id*p.size:(id+1)*p.size], row) {
					p.leaves[string(k)] = id
					if n := len(p.first); n == 0 || p.leaves[p.first[n-1]] != id {
						p.first = append(p.first, string(k))
					}
				}
			}
			return nil
		})
	})
	if err != nil || p.list == 0 || len(p.free) < 8 || len(p.first) < 20 {
		t.Fatalf("%v: %d free pages, %d leaves; the test tests nothing", err, len(p.free), len(p.first))
	}
	return p
}

// writeAt changes bytes of a file from outside.
func writeAt(t *testing.T, path string, at int64, data ...byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(data, at)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func word(n int64) []byte { return binary.NativeEndian.AppendUint64(nil, uint64(n)) }

// A list of free pages that has a page in use, one twice, one that is not there, or more than
// there are, is not believed: the file is not opened, and nothing hangs.
func TestDamagedListOfFreePages(t *testing.T) {
	path, p := large(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ids := p.list*p.size + 16
	between := func(id int64) (at int64, ok bool) { // the place in the list of the free page before id
		i, _ := slices.BinarySearch(p.free, id)
		return ids + 8*int64(i-1), i > 0
	}
	tried := 0
	refused := func(what string) {
		t.Helper()
		tried++
		for _, readOnly := range []bool{false, true} {
			inTime(t, what, func() {
				b, err := bolt.Open(path, bolt.Options{ReadOnly: readOnly, NoSync: true, Logger: quiet})
				if err == nil {
					defer b.Close()
				}
				if !errors.Is(err, backend.ErrDamaged) {
					t.Errorf("%s: error %v, want %v", what, err, backend.ErrDamaged)
				}
			})
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range p.used { // in place of the free page before it, so that the order is right
		if at, ok := between(id); ok {
			writeAt(t, path, at, word(id)...)
			refused(fmt.Sprint("page ", id, " in use"))
		}
	}
	if tried < 5 {
		t.Errorf("%d pages in use were listed; the test tests little", tried)
	}
	last := ids + 8*int64(len(p.free)-1)
	writeAt(t, path, ids+8, word(p.free[0])...)
	refused("a page twice")
	writeAt(t, path, last, word(1<<42)...)
	refused("a page that is not there")
	writeAt(t, path, p.list*p.size+10, 0xff, 0xff)
	refused("a count that goes on")
	writeAt(t, path, p.list*p.size+12, 0, 0, 0, 0x7f)
	refused("a page that goes on for ever")
	writeAt(t, path, p.list*p.size+8, 2)
	refused("another kind of page")
	writeAt(t, path, p.list*p.size, word(77)...)
	refused("another page")
}

// A list that says that it goes on for a page more would have that freed.
func TestListOfFreePagesGoesOn(t *testing.T) {
	path, p := large(t)
	beside := map[bool]bool{} // whether the page behind the list is in use
	cases := 2
	if testing.Short() {
		cases = 1
	}
	for seq := uint64(perSession); len(beside) < cases && seq < perSession+200; seq++ {
		used := slices.Contains(p.used, p.list+1)
		if !beside[used] && (used || slices.Contains(p.free, p.list+1)) {
			beside[used] = true
			writeAt(t, path, p.list*p.size+12, 1)
			if _, err := bolt.Open(path, bolt.Options{Logger: quiet}); !errors.Is(err, backend.ErrDamaged) {
				t.Errorf("the page behind it is in use: %v; error %v", used, err)
			}
			writeAt(t, path, p.list*p.size+12, 0)
		}
		b := open(t, path)
		if err := errors.Join(b.Append(ctx, "s8", batch(seq)), b.Close()); err != nil {
			t.Fatal(err)
		}
		p = look(t, path)
	}
	if len(beside) < cases {
		t.Errorf("behind the list there was one in use: %v", beside)
	}
}

// A long record's pages are in use to the last, whichever of them is listed.
func TestFreePageWithinALongRecord(t *testing.T) {
	path, _ := large(t)
	b := open(t, path)
	long := backend.Record{Seq: perSession + 1, IDs: []string{"long"}, Data: bytes.Repeat([]byte("long"), 10<<10)}
	if err := errors.Join(b.Append(ctx, "s2", backend.Batch{Creation: "c", After: perSession, Records: []backend.Record{long}}), b.Close()); err != nil {
		t.Fatal(err)
	}
	p := look(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := int64(bytes.Index(whole, long.Data)) / p.size
	for page := first; page < first+10; page++ {
		writeAt(t, path, p.list*p.size+10, 1, 0)
		writeAt(t, path, p.list*p.size+16, word(page)...)
		b, err := bolt.Open(path, bolt.Options{NoSync: true, Logger: quiet})
		if !errors.Is(err, backend.ErrDamaged) {
			t.Errorf("page %d of a record that begins in page %d: error %v, want %v", page, first, err, backend.ErrDamaged)
		}
		if err == nil {
			b.Close()
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A page that cannot be read costs what is in it: other sessions are listed and read to their
// ends, and so is what comes before it in its own session.
func TestDamagedLeafOfRecords(t *testing.T) {
	path, p := large(t)
	for _, key := range p.first {
		at := p.leaves[key] * p.size
		header := make([]byte, 8)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(header, data[at:])
		writeAt(t, path, at, bytes.Repeat([]byte{0xee}, 8)...)
		b := open(t, path)
		lost := map[uint64]uint64{} // the first record of each session that is in the page
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
		no(t, b.Close())
		writeAt(t, path, at, header...)
	}
}

// What is left of pages after a session is deleted may be joined with what stands beside it. If
// that is damaged, nothing is deleted.
func TestDeleteBesideADamagedPage(t *testing.T) {
	whole, p := large(t)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := uint64(2); n < 8; n++ {
		first := slices.Index(p.leavesInOrder(), p.leaves[string(rowKey(n, 1))])
		last := slices.Index(p.leavesInOrder(), p.leaves[string(rowKey(n, perSession))])
		for _, i := range []int{first - 1, first, last, last + 1} {
			// The place of the page's second row is another one.
			leaf := p.leavesInOrder()[i]
			path, harmed := filepath.Join(t.TempDir(), "log.db"), bytes.Clone(data)
			harmed[leaf*p.size+16+16+4] ^= 0xff
			if err := os.WriteFile(path, harmed, 0o600); err != nil {
				t.Fatal(err)
			}
			b := open(t, path)
			if err := b.Delete(ctx, fmt.Sprint("s", n), "c", nil); errors.Is(err, backend.ErrDamaged) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, harmed) {
				t.Errorf("session %d: leaf %d was damaged, and the file was changed (%v)", n, leaf, err)
			}
		}
	}
	if refused < 20 {
		t.Errorf("%d of 24 were refused", refused)
	}
}

func (p pagesOf) leavesInOrder() (out []int64) {
	for _, key := range p.first {
		out = append(out, p.leaves[key])
	}
	return out
}
