package damage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/fuzz/memory"
	"github.com/patchlog-dev/patchlog/store"
)

// salvaged returns a store in memory with the content that Salvage recovers from a file.
func salvaged(t *testing.T, data []byte) (*store.Store, store.Salvaged) {
	t.Helper()
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	out, err := store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s, out
}

// Salvage recovers the whole content of an undamaged file: the sessions with their times, initial states and
// records, and the shared values. Deleted sessions stay deleted, even if the file still has their pages.
func TestSalvageSoundFile(t *testing.T) {
	w := newWreck(t, shape{"sound", 4, 3, 4, 500})
	path := filepath.Join(t.TempDir(), "sound.db")
	if err := os.WriteFile(path, w.Data, 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	s, out := salvaged(t, w.Data)
	if out.Deleted == 0 || out.BrokenPages > 0 || out.Metas != 2 || out.Unread > 0 {
		t.Errorf("%+v", out)
	}
	n := 0
	for info, err := range source.List(ctx, store.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		got, err := s.Info(ctx, info.Key)
		if err != nil || !got.Created.Equal(info.Created) {
			t.Errorf("%s: created %v, want %v (%v)", info.Key, got.Created, info.Created, err)
		}
		if a, b := exportOf(t, s, info.Key), exportOf(t, source, info.Key); a != b {
			t.Errorf("%s:\n%s\nwant\n%s", info.Key, a, b)
		}
		one, err1 := source.Get(ctx, info.Key)
		other, err2 := s.Get(ctx, info.Key)
		if err := errors.Join(err1, err2); err != nil || fmt.Sprint(one.State()) != fmt.Sprint(other.State()) {
			t.Errorf("%s: state %v, want %v (%v)", info.Key, other.State(), one.State(), err)
		}
	}
	if len(out.Sessions) != n {
		t.Errorf("%d sessions, want %d", len(out.Sessions), n)
	}
	for _, session := range out.Sessions {
		if !session.Whole {
			t.Errorf("%+v", session)
		}
	}
}

func exportOf(t *testing.T, s *store.Store, key store.Key) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Export(ctx, key, &b, store.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// badDisk is a file with some blocks that cannot be read.
type badDisk struct {
	io.ReaderAt
	bad int64
}

func (d badDisk) ReadAt(p []byte, at int64) (int, error) {
	if at < d.bad+1 && at+int64(len(p)) > d.bad {
		return 0, errors.New("input/output error")
	}
	return d.ReaderAt.ReadAt(p, at)
}

// If blocks cannot be read, Salvage loses only the content of these blocks.
func TestSalvageBadDisk(t *testing.T) {
	w := newWreck(t, shape{"disk", 3, 2, 10, 2000})
	for bad := int64(0); bad < int64(len(w.Data)); bad += 3 * int64(pageBytes) {
		s, err := store.OpenMemory(store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := store.Salvage(ctx, io.NewSectionReader(badDisk{bytes.NewReader(w.Data), bad}, 0, int64(len(w.Data))), s, store.SalvageOptions{})
		if err != nil || out.Unread == 0 || out.Records < len(w.places())/2 {
			t.Errorf("block at %d: %d of %d records, %d bytes unread, %v", bad, out.Records, len(w.places()), out.Unread, err)
		}
		s.Close()
	}
}

// If the header and the table of a page are damaged, Salvage still finds the rows in the page.
func TestSalvageWithoutTables(t *testing.T) {
	w := newWreck(t, shape{"tables", 4, 3, 8, 300})
	data := bytes.Clone(w.Data)
	first := map[int]int{} // key: page; value: offset of the first key
	for _, p := range w.places() {
		if at, ok := first[p.from/pageBytes]; !ok || p.from < at {
			first[p.from/pageBytes] = p.from
		}
	}
	for page, at := range first {
		clear(data[page*pageBytes : at])
	}
	intact := w.intactRecords(data)
	got, wrong := w.salvageRecords(data, intact)
	if len(intact) != len(w.places()) || got != len(intact) || len(wrong) > 0 {
		t.Errorf("%d of %d salvaged, of %d; %q", got, len(intact), len(w.places()), wrong)
	}
}

// everyCopy calls change for each copy of a record in a file. The argument row starts at the key of the copy.
func everyCopy(data []byte, form string, change func(row []byte)) {
	for i := 0; ; {
		n := bytes.Index(data[i:], []byte(form))
		if n < 0 {
			return
		}
		i += n + len(form)
		change(data[i-len(form)-16 : i])
	}
}

// Damage can turn the key of a record into a key of another session. Salvage does not assign the record to the other
// session, even if the other session lacks a record with that seq.
func TestSalvageKeyOfAnotherSession(t *testing.T) {
	w := newWreck(t, shape{"keys", 3, 1, 5, 200})
	data := bytes.Clone(w.Data)
	from, to := w.places()[0].number, uint64(0)
	for n := range w.Live {
		if n != from {
			to = n
		}
	}
	lost := []uint64{3, uint64(len(w.Forms[to]))} // without these records, the chain of ids does not show which session the record belongs to
	for _, seq := range lost {
		everyCopy(data, w.Forms[to][seq], func(row []byte) { row[len(row)-1] ^= 1 })
	}
	everyCopy(data, w.Forms[from][3], func(row []byte) { row[7] = byte(to) })
	intact := w.intactRecords(data)
	if got, wrong := w.salvageRecords(data, intact); got != len(intact) || len(wrong) > 0 || got != len(w.places())-3 {
		t.Errorf("%d of %d salvaged; %q", got, len(intact), wrong)
	}
}

// If a record is replaced by a record of another session, the checksum and the id are valid. Salvage detects the
// replacement through heads of earlier commits, even if the newest head is damaged.
func TestSalvageRecordInAnothersPlace(t *testing.T) {
	w := newWreck(t, shape{"place", 8, 2, 5, 1})
	data := append(bytes.Clone(w.Data), w.Older[0]...) // append the pages of earlier commits
	own, others := sessionsOfEqualLength(w)
	if own == 0 {
		t.Fatal("no two sessions have a second record of one length")
	}
	everyCopy(data, w.Forms[own][2], func(row []byte) { copy(row[16:], w.Forms[others][2]) })
	everyCopy(data, w.Forms[own][uint64(len(w.Forms[own]))], func(row []byte) { row[len(row)-1] ^= 1 })
	intact := w.intactRecords(data)
	if got, wrong := w.salvageRecords(data, intact); got != len(intact) || len(wrong) > 0 || got != len(w.places())-2 {
		t.Errorf("%d of %d salvaged; %q", got, len(intact), wrong)
	}
}

// sessionsOfEqualLength returns two sessions whose second records have the same length.
func sessionsOfEqualLength(w *wreck) (uint64, uint64) {
	for a := range w.Live {
		for b := range w.Live {
			if a != b && len(w.Forms[a][2]) == len(w.Forms[b][2]) && w.Forms[a][2] != w.Forms[b][2] {
				return a, b
			}
		}
	}
	return 0, 0
}

// Salvage of any file ends, and needs memory for at most a few times the size of the file.
func FuzzSalvage(f *testing.F) {
	w := newWreck(f, shape{"seed", 2, 2, 2, 100})
	f.Add(w.Data)
	for i, kind := range kinds {
		f.Add(kind.do(rand.New(rand.NewPCG(uint64(i), 1)), w, bytes.Clone(w.Data)))
	}
	f.Add(hostilePages(false))
	f.Add(hostilePages(true))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := store.OpenMemory(store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		memory.Within(t, len(data), func() {
			if _, err := store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			t.Error(p, err)
		}
	})
}

// hostilePages returns a file whose pages claim to have as much content as possible. Each page has the maximum
// number of elements, and each element claims a large part of the file.
func hostilePages(leaves bool) []byte {
	data := make([]byte, 64<<10)
	for page := 0; page < len(data)/pageBytes; page++ {
		p := data[page*pageBytes:]
		put := func(at, size int, v uint64) {
			for i := range size {
				p[at+i] = byte(v >> (8 * i))
			}
		}
		put(0, 8, uint64(page))
		put(8, 2, 1)
		if leaves {
			put(8, 2, 2)
		}
		put(10, 2, 0xffff)
		put(12, 4, 1<<31)
		for at := 16; at+16 <= pageBytes; at += 16 {
			if leaves { // flags, position, length of the key, length of the value
				put(at, 4, uint64(at/16%2))
				put(at+4, 4, uint64(pageBytes))
				put(at+8, 4, 16)
				put(at+12, 4, uint64(len(data)/2))
			} else { // position, length, number of the child page
				put(at, 4, uint64(pageBytes-at))
				put(at+4, 4, 16)
				put(at+8, 8, 2+uint64(page+at)%200)
			}
		}
	}
	return data
}
