package store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// salvaged salvages a file's bytes into a store in memory.
func salvaged(t *testing.T, data []byte) (*store.Store, store.Salvaged) {
	t.Helper()
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	out, err := s.SalvageFrom(ctx, bytes.NewReader(data), int64(len(data)), store.SalvageOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s, out
}

func exportOf(t *testing.T, s *store.Store, key store.Key) string {
	t.Helper()
	var b strings.Builder
	if err := s.Export(ctx, key, &b, store.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A sound file comes out as it is: sessions, their times, initial states and records, and
// shared values. What was deleted stays deleted, though its pages are still there.
func TestSalvageSoundFile(t *testing.T) {
	for _, golden := range []string{oldDB, goldenDB} {
		packed, err := os.Open(golden)
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		packed.Close()
		s, out := salvaged(t, data)
		want, err := os.ReadFile(goldenText)
		if err != nil {
			t.Fatal(err)
		}
		if got := exportOf(t, s, goldenKey); got != string(want) {
			t.Errorf("%s: exported\n%s\nwant\n%s", golden, got, want)
		}
		if golden == goldenDB && (len(out.Sessions) != 1 || !out.Sessions[0].Whole() || len(out.Shared.Maybe)+len(out.Shared.Lost) > 0) {
			t.Errorf("%s: %+v", golden, out)
		}
	}
	w := newWreck(t, "sound", 4, 3, 4, 500)
	path := filepath.Join(t.TempDir(), "sound.db")
	if err := os.WriteFile(path, w.data, 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	s, out := salvaged(t, w.data)
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
		if !session.Whole() {
			t.Errorf("%+v", session)
		}
	}
}

// Before a gap the log is exact. What comes behind it is another session: events as they
// were, a patch as text.
func TestSalvageGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s, path: path}
	e.create(map[string]any{"tenant": "t1"})
	e.append(says("a", 6)...)
	e.apply(parsePatch(`{"id":"p1","author":"<&>","patchType":"splice","start":0,"count":2,"replacement":[{"id":"r1","author":"x"}]}`))
	e.append(says("b", 2)...)
	before, fourth := e.records(key), e.storedForm(key, 4)
	e.no(s.Close())
	data, err := os.ReadFile(path)
	e.no(err)
	flip(fourth)(data)
	to, out := salvaged(t, data)
	if len(out.Sessions) != 1 || fmt.Sprint(out.Sessions[0].Lost) != "[4]" || out.Records != 8 {
		t.Fatalf("%+v", out)
	}
	rest := store.Key{App: "app", User: "user", Session: "session~from-5"}
	want := []store.SalvagedPart{
		{Key: key, Span: store.Span{From: 1, To: 3}, Log: true},
		{Key: rest, Span: store.Span{From: 5, To: 9}, Texts: 1},
	}
	if fmt.Sprint(out.Sessions[0].Parts) != fmt.Sprint(want) {
		t.Errorf("parts %+v, want %+v", out.Sessions[0].Parts, want)
	}
	e = &env{T: t, store: to}
	for i, r := range e.records(key) {
		if !patch.Same(r, before[i]) || r.ID() != before[i].ID() {
			t.Errorf("record %d is %v, want %v", i+1, r, before[i])
		}
	}
	after := e.records(rest)
	e.same("the events behind the gap", ids(mustView(e, rest)), "a5 a6 p1 b1 b2")
	if !patch.Same(patch.Record{Event: after[0].Event}, patch.Record{Event: before[4].Event}) {
		t.Errorf("the event behind the gap is %v, want %v", after[0].Event, before[4].Event)
	}
	text, err := before[6].MarshalJSON()
	e.no(err)
	if line := after[2].Event.String(); !strings.Contains(line, string(text)) || !strings.Contains(line, `"author":"<&>"`) {
		t.Errorf("the patch is kept as %s, want %s in it", line, text)
	}
	for p, err := range to.Verify(ctx, store.VerifyOptions{}) {
		t.Error(p, err)
	}
}

func mustView(e *env, key store.Key) fold.View {
	e.Helper()
	s, err := e.store.Get(ctx, key)
	e.no(err)
	return s.View
}

// Two different records of one seq: the chain says which is the log's.
func TestSalvageTakesWhatTheChainSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s, path: path}
	e.create(nil)
	e.append(says("a", 5)...)
	want := e.export()
	e.no(s.Close())
	makeBolt(t, path, func(tx *bbolt.Tx) error {
		// In front of the other pages of the bucket, and in use.
		k := bytes.Clone(first(tx.Bucket([]byte("records"))))
		k[15] = 3
		form, err := patch.AppendRecord(nil, patch.Record{Seq: 3, Event: say("other")})
		if err != nil {
			return err
		}
		other, err := tx.CreateBucketIfNotExists([]byte("aaa"))
		if err != nil {
			return err
		}
		return other.Put(k, form)
	})
	data, err := os.ReadFile(path)
	e.no(err)
	to, out := salvaged(t, data)
	e.same("the log", exportOf(t, to, key), want)
	if len(out.Sessions[0].Parts) != 2 || !out.Sessions[0].Parts[1].Doubtful || out.Sessions[0].Parts[1].From != 3 {
		t.Errorf("the other record is to be kept, and marked: %+v", out)
	}
}

func first(b *bbolt.Bucket) []byte {
	k, _ := b.Cursor().First()
	return k
}

// What is in the way in the new store stays, and bad arguments are refused.
func TestSalvageIntoWhatIsThere(t *testing.T) {
	w := newWreck(t, "there", 1, 2, 2, 50)
	w.data = w.older[len(w.older)-1] // before the last session was deleted
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range 2 {
		out, err := s.SalvageFrom(ctx, bytes.NewReader(w.data), int64(len(w.data)), store.SalvageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := "app/user0/session0"
		if n == 1 {
			want += "~2"
		}
		if got := out.Sessions[0].Parts[0].Key.String(); got != want {
			t.Errorf("it was written as %s, want %s", got, want)
		}
	}
	if _, err := s.SalvageFrom(ctx, nil, 3, store.SalvageOptions{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.SalvageFrom(done, bytes.NewReader(w.data), int64(len(w.data)), store.SalvageOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v", err)
	}
}

// badDisk fails to read some blocks.
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

// A disk that does not give some blocks costs what is in them.
func TestSalvageBadDisk(t *testing.T) {
	w := newWreck(t, "disk", 3, 2, 10, 2000)
	for bad := int64(0); bad < int64(len(w.data)); bad += 3 * pageBytes {
		s, err := store.OpenMemory(store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.SalvageFrom(ctx, badDisk{bytes.NewReader(w.data), bad}, int64(len(w.data)), store.SalvageOptions{})
		if err != nil || out.Unread == 0 || out.Records < len(w.places)/2 {
			t.Errorf("block at %d: %d of %d records, %d bytes unread, %v", bad, out.Records, len(w.places), out.Unread, err)
		}
		s.Close()
	}
}

// Whatever a file is made of, salvaging ends, and takes no more memory than a few times its
// length.
func FuzzSalvage(f *testing.F) {
	w := newWreck(f, "seed", 2, 2, 2, 100)
	f.Add(w.data)
	for i, kind := range damageKinds {
		f.Add(kind.do(rand.New(rand.NewPCG(uint64(i), 1)), w, bytes.Clone(w.data)))
	}
	f.Add(hostilePages(false))
	f.Add(hostilePages(true))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := store.OpenMemory(store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := s.SalvageFrom(ctx, bytes.NewReader(data), int64(len(data)), store.SalvageOptions{}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapSys) - int64(before.HeapSys); held > 8*int64(len(data))+64<<20 {
			t.Errorf("%d bytes of memory for a file of %d", held, len(data))
		}
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			t.Error(p, err)
		}
	})
}

// hostilePages returns a file of pages that each claim as much as they can: all of the
// file, by as many elements as a page can count.
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
			if leaves { // flags, place, length of the key, of the value
				put(at, 4, uint64(at/16%2))
				put(at+4, 4, uint64(pageBytes))
				put(at+8, 4, 16)
				put(at+12, 4, uint64(len(data)/2))
			} else { // place, length, page
				put(at, 4, uint64(pageBytes-at))
				put(at+4, 4, 16)
				put(at+8, 8, 2+uint64(page+at)%200)
			}
		}
	}
	return data
}

// Where nothing is left of a page but its rows, they are found byte by byte.
func TestSalvageWithoutTables(t *testing.T) {
	w := newWreck(t, "tables", 4, 3, 8, 300)
	if n := w.versions(); n[1] < 5 || n[2] < 5 {
		t.Errorf("the file has records of versions %v", n)
	}
	data := bytes.Clone(w.data)
	first := map[int64]int64{} // place of the first key by page
	for _, p := range w.places {
		if at, ok := first[p.from/pageBytes]; !ok || p.from < at {
			first[p.from/pageBytes] = p.from
		}
	}
	for page, at := range first {
		clear(data[page*pageBytes : at])
	}
	intact := w.intact(data)
	got, wrong := w.rescue(data, intact)
	if len(intact) != len(w.places) || got != len(intact) || len(wrong) > 0 {
		t.Errorf("%d of %d salvaged, of %d; %q", got, len(intact), len(w.places), wrong)
	}
}

// everyCopy calls change with each copy of a record in a file, from its key on.
func everyCopy(data, form []byte, change func(row []byte)) {
	for i := 0; ; {
		n := bytes.Index(data[i:], form)
		if n < 0 {
			return
		}
		i += n + len(form)
		change(data[i-len(form)-16 : i])
	}
}

// A record whose key becomes one of another session is none of that session's, though it has
// lost its own.
func TestSalvageKeyOfAnotherSession(t *testing.T) {
	w := newWreck(t, "keys", 3, 1, 5, 200)
	data := bytes.Clone(w.data)
	from, to := w.places[0].number, uint64(0)
	for n := range w.live {
		if n != from {
			to = n
		}
	}
	lost := []uint64{3, uint64(len(w.logs[to]))} // so that no chain tells
	for _, seq := range lost {
		everyCopy(data, w.logs[to][seq], func(row []byte) { row[len(row)-1] ^= 1 })
	}
	everyCopy(data, w.logs[from][3], func(row []byte) { row[7] = byte(to) })
	intact := w.intact(data)
	if got, wrong := w.rescue(data, intact); got != len(intact) || len(wrong) > 0 || got != len(w.places)-3 {
		t.Errorf("%d of %d salvaged; %q", got, len(intact), wrong)
	}
}

// A record in the place of another one, with a checksum and an id of its own, is found by the
// heads of earlier commits, where the log's own cannot tell.
func TestSalvageRecordInAnothersPlace(t *testing.T) {
	w := newWreck(t, "place", 3, 2, 5, 200)
	data := append(bytes.Clone(w.data), w.older[0]...) // pages of earlier commits
	n, last := uint64(0), uint64(0)
	for _, p := range w.places {
		if w.keys[p.number].Session == "session2" { // which neither round has deleted
			n, last = p.number, p.seq
		}
	}
	rec, err := patch.DecodeRecord(w.logs[n][2])
	if err != nil {
		t.Fatal(err)
	}
	text := rec.Event.String()
	old := w.logs[n][2]
	var other []byte
	for c := 'a'; len(other) != len(old) || bytes.Equal(other, old); c++ { // until it takes as many bytes
		if c > 'z' {
			t.Fatal("no other record is as long")
		}
		at := strings.Index(text, `"text":"`) + len(`"text":"`)
		rec.Event = event("%s", text[:at]+string(c)+text[at+1:])
		if other, err = patch.AppendRecord(nil, rec); err != nil {
			t.Fatal(err)
		}
		if old[0] == 2 {
			other = patch.CompressRecord(other)
		}
	}
	everyCopy(data, old, func(row []byte) { copy(row[16:], other) })
	everyCopy(data, w.logs[n][last], func(row []byte) { row[len(row)-1] ^= 1 })
	intact := w.intact(data)
	if got, wrong := w.rescue(data, intact); got != len(intact) || len(wrong) > 0 || got != len(w.places)-2 {
		t.Errorf("%d of %d salvaged; %q", got, len(intact), wrong)
	}
}

// What is salvaged is written in the version that the store writes, whatever it was, and is the
// same log.
func TestSalvageBetweenVersions(t *testing.T) {
	from := filepath.Join(t.TempDir(), "log.db")
	text := ""
	for version := 1; version <= 2; version++ {
		s, err := store.Open(from, store.Options{RecordVersion: version})
		e := &env{T: t, store: s}
		e.no(err)
		if version == 1 {
			e.create(nil)
		}
		e.append(says(fmt.Sprint("a", version, "-"), 600)...) // more than one commit has
		text = e.export()
		e.no(s.Close())
	}
	if n := versionsOf(t, from); n[1] != 600 || n[2] != 600 {
		t.Fatalf("the file has records of versions %v", n)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for version := byte(1); version <= 2; version++ {
		path := filepath.Join(t.TempDir(), "new.db")
		s, err := store.Open(path, store.Options{RecordVersion: int(version)})
		e := &env{T: t, store: s}
		e.no(err)
		out, err := s.SalvageFrom(ctx, bytes.NewReader(data), int64(len(data)), store.SalvageOptions{})
		e.no(err)
		if out.Records != 1200 || len(out.Sessions) != 1 || !out.Sessions[0].Whole() {
			t.Errorf("salvaged %+v", out)
		}
		e.same("export", e.export(), text)
		e.no(s.Close())
		if n := versionsOf(t, path); n[version] != 1200 {
			t.Errorf("a store that writes version %d has salvaged into versions %v", version, n)
		}
	}
}
