package store_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var (
	damages     = flag.Int("salvage.damages", 240, "how many damages salvage is tried on")
	damagesFrom = flag.Int("salvage.from", 0, "the damage to begin with, to go on after a run that was cut short")
)

// place is where a file has the copy of a record that is in use.
type place struct {
	number, seq uint64
	from, to    int64 // key and form
}

// wreck is a file with a known content, to be damaged.
type wreck struct {
	name   string
	data   []byte
	older  [][]byte // the same file after earlier commits
	places []place
	root   int64                        // where the page stands that leads to the buckets
	keys   map[uint64]store.Key         // of all sessions that ever were, by number
	live   map[uint64]bool              // numbers of those that are there
	logs   map[uint64]map[uint64][]byte // form by number and seq
}

// take reads what the store at path holds, and returns the bytes of the file.
func (w *wreck) take(t testing.TB, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	w.live, w.places = map[uint64]bool{}, nil
	used := int64(0)
	err = db.View(func(tx *bbolt.Tx) error {
		used = tx.Size()
		w.root = int64(tx.Cursor().Bucket().Root()) * pageBytes
		err := tx.Bucket([]byte("sessions")).ForEach(func(k, v []byte) error {
			parts := strings.Split(string(k), "\x00\x01")
			n := binary.BigEndian.Uint64(v)
			w.keys[n], w.live[n] = store.Key{App: parts[0], User: parts[1], Session: parts[2]}, true
			return nil
		})
		return errors.Join(err, tx.Bucket([]byte("records")).ForEach(func(k, v []byte) error {
			n, seq := binary.BigEndian.Uint64(k), binary.BigEndian.Uint64(k[8:])
			if w.logs[n] == nil {
				w.logs[n] = map[uint64][]byte{}
			}
			w.logs[n][seq] = bytes.Clone(v)
			from := int64(uintptr(unsafe.Pointer(&k[0])) - db.Info().Data)
			if w.live[n] {
				w.places = append(w.places, place{n, seq, from, from + int64(len(k)+len(v))})
			}
			return nil
		}))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Of a small bucket inside another one's value bbolt may give out copies.
	w.places = slices.DeleteFunc(w.places, func(p place) bool {
		return p.from < 0 || p.to > used || !bytes.HasSuffix(data[p.from:p.to], w.logs[p.number][p.seq])
	})
	if w.data != nil {
		w.older = append(w.older, w.data)
	}
	w.data = data[:used]
}

// newWreck makes a file of sessions, in rounds of which each is a closed file of its own, with
// records of both versions if there are several.
func newWreck(t testing.TB, name string, sessions, rounds, events, size int) *wreck {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log.db")
	w := &wreck{name: name, keys: map[uint64]store.Key{}, logs: map[uint64]map[uint64][]byte{}}
	rnd := rand.New(rand.NewPCG(1, uint64(sessions)))
	keyOf := func(i int) store.Key {
		return store.Key{App: "app", User: fmt.Sprint("user", i%3), Session: fmt.Sprint("session", i)}
	}
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	id := 0
	for round := range rounds {
		s, err := store.Open(path, store.Options{RecordVersion: 2 - round%2, Durability: store.Relaxed, Logger: slog.New(slog.DiscardHandler)})
		no(err)
		for i := range sessions {
			key := keyOf(i)
			if _, err := s.Create(ctx, key, map[string]any{"made": i, "app:name": "x", "user:n": round}); err != nil && !errors.Is(err, store.ErrExists) {
				t.Fatal(err)
			}
			for range events {
				id++
				text := make([]byte, rnd.IntN(size)+1)
				for i := range text {
					text[i] = "abcdefghijklmnopqrstuvwxyz     "[rnd.IntN(31)]
				}
				e := event(`{"id":"e%d","author":"user","content":{"role":"user","parts":[{"text":%q}]},"actions":{"stateDelta":{"k":%d,"user:n":%d}}}`, id, text, id, id)
				_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, e)
				no(err)
			}
			session, err := s.Get(ctx, key)
			no(err)
			if session.View.Len() > 3 {
				c, err := s.ApplyPatch(ctx, key, store.PatchOptions{On: session.View}, patch.NewSplice(1, 1, say(fmt.Sprint("r", id))))
				no(err)
				if round%2 == 1 {
					_, err := s.Revert(ctx, key, store.BackOptions{}, c.Records[0].ID())
					no(err)
				}
			}
		}
		no(s.Close())
		w.take(t, path)
		s, err = store.Open(path, store.Options{Durability: store.Relaxed, Logger: slog.New(slog.DiscardHandler)})
		no(err)
		no(s.Delete(ctx, keyOf(round%sessions))) // the next round creates it again
		no(s.Close())
		w.take(t, path)
	}
	return w
}

// damage is something that befalls a file.
type damage struct {
	name string
	do   func(r *rand.Rand, w *wreck, data []byte) []byte
}

const sector, pageBytes = 512, 4096

func pick(r *rand.Rand, data []byte, size int) []byte {
	if len(data) < size {
		return data
	}
	at := r.IntN(len(data)/size) * size
	return data[at : at+size]
}

func scramble(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func few(r *rand.Rand, f func()) {
	for range 1 + r.IntN(8) {
		f()
	}
}

func inPlace(do func(r *rand.Rand, w *wreck, data []byte)) func(r *rand.Rand, w *wreck, data []byte) []byte {
	return func(r *rand.Rand, w *wreck, data []byte) []byte {
		do(r, w, data)
		return data
	}
}

var metasGone = inPlace(func(_ *rand.Rand, _ *wreck, data []byte) { clear(data[:min(len(data), 2*pageBytes)]) })

var damageKinds = []damage{
	{"bits", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		few(r, func() { data[r.IntN(len(data))] ^= 1 << r.IntN(8) })
	})},
	{"bits of headers and elements", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		few(r, func() { pick(r, data, pageBytes)[r.IntN(64)] ^= 1 << r.IntN(8) })
	})},
	{"bits of keys", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		few(r, func() {
			if len(w.places) == 0 {
				return
			}
			if at := w.places[r.IntN(len(w.places))].from + int64(6+r.IntN(10)); at < int64(len(data)) {
				data[at] ^= 1 << r.IntN(4)
			}
		})
	})},
	{"bytes", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		few(r, func() { data[r.IntN(len(data))] = byte(r.Uint32()) })
	})},
	{"sectors zeroed", inPlace(func(r *rand.Rand, _ *wreck, data []byte) { few(r, func() { clear(pick(r, data, sector)) }) })},
	{"sectors scrambled", inPlace(func(r *rand.Rand, _ *wreck, data []byte) { few(r, func() { scramble(r, pick(r, data, sector)) }) })},
	{"pages zeroed", inPlace(func(r *rand.Rand, _ *wreck, data []byte) { few(r, func() { clear(pick(r, data, pageBytes)) }) })},
	{"pages scrambled", inPlace(func(r *rand.Rand, _ *wreck, data []byte) { few(r, func() { scramble(r, pick(r, data, pageBytes)) }) })},
	{"pages swapped", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		few(r, func() {
			a, b := pick(r, data, pageBytes), pick(r, data, pageBytes)
			before := bytes.Clone(a)
			copy(a, b)
			copy(b, before)
		})
	})},
	{"pages copied", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		few(r, func() { copy(pick(r, data, pageBytes), bytes.Clone(pick(r, data, pageBytes))) })
	})},
	{"pages stale", inPlace(func(r *rand.Rand, w *wreck, data []byte) {
		few(r, func() {
			older := w.older[r.IntN(len(w.older))]
			at := r.IntN(min(len(older), len(data))/pageBytes) * pageBytes
			copy(data[at:at+pageBytes], older[at:])
		})
	})},
	{"cut off", func(r *rand.Rand, _ *wreck, data []byte) []byte { return data[:r.IntN(len(data))] }},
	{"both meta pages zeroed", metasGone},
	{"one meta page zeroed", inPlace(func(r *rand.Rand, _ *wreck, data []byte) {
		at := r.IntN(2) * pageBytes
		clear(data[at : at+pageBytes])
	})},
	{"all headers zeroed", inPlace(func(_ *rand.Rand, _ *wreck, data []byte) {
		for at := 0; at+pageBytes <= len(data); at += pageBytes {
			clear(data[at : at+16])
		}
	})},
	{"cut off, and no meta pages", func(r *rand.Rand, w *wreck, data []byte) []byte {
		return metasGone(r, w, data[:r.IntN(len(data))])
	}},
}

// intact returns the places of the records that the damage has not touched.
func (w *wreck) intact(data []byte) (out []place) {
	for _, p := range w.places {
		if p.to <= int64(len(data)) && bytes.Equal(data[p.from:p.to], w.data[p.from:p.to]) {
			out = append(out, p)
		}
	}
	return out
}

// current reports whether the damage has left the pages that say what the newest commit is.
// Without them a file may well look as it did a commit earlier.
func (w *wreck) current(data []byte) bool {
	return int64(len(data)) >= w.root+pageBytes && bytes.Equal(data[:2*pageBytes], w.data[:2*pageBytes]) &&
		bytes.Equal(data[w.root:w.root+pageBytes], w.data[w.root:w.root+pageBytes])
}

// rescue salvages a damaged file, and reports what is not as it should be. It returns how
// many of the intact records it has got.
func (w *wreck) rescue(data []byte, intact []place) (got int, wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	s, err := store.OpenMemory(store.Options{MaxRecordBytes: patch.MaxRecordBytes, CacheBytes: -1})
	if err != nil {
		return 0, []string{err.Error()}
	}
	defer s.Close()
	out, err := s.SalvageFrom(ctx, bytes.NewReader(data), int64(len(data)), store.SalvageOptions{})
	if err != nil {
		return 0, []string{err.Error()}
	}
	numbers := map[store.Key][]uint64{} // that a key has had
	for n, key := range w.keys {
		numbers[key] = append(numbers[key], n)
		named := store.Key{App: "salvaged", User: "unknown", Session: fmt.Sprint("session-", n)}
		numbers[named] = append(numbers[named], n)
	}
	saved, current := map[uint64]map[uint64]bool{}, w.current(data)
	for _, session := range out.Sessions {
		own := numbers[session.Key]
		if len(own) == 0 && !session.Nameless {
			fail("session %s was never there", session.Key)
		}
		marked := session.Nameless || session.MaybeDeleted || !current
		if !marked && !w.isLive(session.Key) {
			fail("session %s had been deleted", session.Key)
		}
		for _, part := range session.Parts {
			n := uint64(0)
			for rec, err := range s.RawEvents(ctx, part.Key, 1) {
				if err != nil {
					fail("read %s: %v", part.Key, err)
					break
				}
				n++
				if rec.Seq != n {
					fail("%s: record %d at place %d", part.Key, rec.Seq, n)
				}
				seq := part.From + n - 1
				of, ok := w.from(own, seq, rec, part.Log)
				switch {
				case ok:
					if saved[of] == nil {
						saved[of] = map[uint64]bool{}
					}
					saved[of][seq] = true
					if !marked && !w.live[of] {
						fail("%s: record %d is of a session that was deleted", part.Key, seq)
					}
				case !session.Nameless && !part.Doubtful:
					fail("%s: record %d is not one that was written", part.Key, seq)
				}
			}
			if n != part.To-part.From+1 {
				fail("%s has %d records, the report says %s", part.Key, n, part.Span)
			}
		}
	}
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		fail("verify: %v %v", p, err)
	}
	for _, p := range intact {
		if saved[p.number][p.seq] {
			got++
		}
	}
	return got, wrong
}

// versions counts the records in use by their versions.
func (w *wreck) versions() map[byte]int {
	n := map[byte]int{}
	for _, p := range w.places {
		n[w.logs[p.number][p.seq][0]]++
	}
	return n
}

func (w *wreck) isLive(key store.Key) bool {
	for n := range w.live {
		if w.keys[n] == key {
			return true
		}
	}
	return false
}

// from returns the number of the session that the record is of.
func (w *wreck) from(numbers []uint64, seq uint64, rec patch.Record, log bool) (uint64, bool) {
	for _, n := range numbers {
		want, err := patch.DecodeRecord(w.logs[n][seq])
		if err != nil {
			continue
		}
		if want.Patch != nil && !log {
			var own struct {
				Patchlog struct {
					Salvaged struct {
						Seq   uint64
						Patch json.RawMessage
					}
				}
			}
			if rec.Event.Decode("customMetadata", &own) != nil || own.Patchlog.Salvaged.Seq != seq || rec.ID() != want.ID() {
				continue
			}
			if text, err := want.MarshalJSON(); err == nil && bytes.Equal(text, own.Patchlog.Salvaged.Patch) {
				return n, true
			}
			continue
		}
		got := rec
		got.Seq = seq
		form, err := patch.AppendRecord(nil, got)
		written, errWritten := patch.AppendRecord(nil, want)
		if err == nil && errWritten == nil && bytes.Equal(form, written) {
			return n, true
		}
	}
	return 0, false
}

// export is what a salvage that trusts the tree would be: it reads the sessions as they are
// listed. It returns how many of the intact records it has got.
func (w *wreck) export(t *testing.T, data []byte, intact []place) (got int) {
	path := filepath.Join(t.TempDir(), "damaged.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(path, store.Options{ReadOnly: true, LockTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0
	}
	defer s.Close()
	saved := map[string]bool{}
	for info, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			continue
		}
		for rec, err := range s.RawEvents(ctx, info.Key, 1) {
			if err != nil {
				break
			}
			saved[fmt.Sprint(info.Key, rec.Seq)] = true
		}
	}
	for _, p := range intact {
		if saved[fmt.Sprint(w.keys[p.number], p.seq)] {
			got++
		}
	}
	return got
}

// Whatever befalls a file, of the records that it did not touch all are salvaged but one in
// a thousand, and none comes out that was not written there. A record is untouched if none of
// the bytes of its key and its form have changed where they stand; its page's header, and
// all that leads to it, may have. What trusts the tree fails.
func TestSalvageDamagedFiles(t *testing.T) {
	wrecks := []*wreck{
		newWreck(t, "small", 3, 3, 2, 200),
		newWreck(t, "middle", 12, 4, 8, 1500),
		newWreck(t, "large records", 4, 3, 3, 20000),
	}
	for _, w := range wrecks {
		if n := w.versions(); n[1] < 2 || n[2] < 2 {
			t.Errorf("%s has records of versions %v", w.name, n)
		}
	}
	byKind := map[string][3]int{}
	trusted, asked := 0, 0
	for i := *damagesFrom; i < *damagesFrom+*damages; i++ {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		w, kind := wrecks[i%len(wrecks)], damageKinds[i/len(wrecks)%len(damageKinds)]
		data := kind.do(r, w, bytes.Clone(w.data))
		if len(data) > 0 && r.IntN(10) == 0 { // one more
			second := damageKinds[r.IntN(len(damageKinds))]
			if len(data) >= 4*pageBytes {
				data = second.do(r, w, data)
			}
		}
		intact := w.intact(data)
		got, wrong := w.rescue(data, intact)
		for _, text := range wrong {
			t.Errorf("damage %d, %s, %s: %s", i, w.name, kind.name, text)
		}
		if got < len(intact) {
			t.Logf("damage %d, %s, %s: %d of %d", i, w.name, kind.name, got, len(intact))
		}
		count := byKind[kind.name]
		byKind[kind.name] = [3]int{count[0] + 1, count[1] + len(intact), count[2] + got}
		if i%10 == 0 {
			trusted += w.export(t, data, intact)
			asked += len(intact)
		}
	}
	all, salvaged := 0, 0
	for _, kind := range damageKinds {
		n := byKind[kind.name]
		t.Logf("%-28s %5d files, %8d records untouched, %8d of them salvaged", kind.name, n[0], n[1], n[2])
		all, salvaged = all+n[1], salvaged+n[2]
	}
	t.Logf("%d damages: %d of %d salvaged; what trusts the tree: %d of %d", *damages, salvaged, all, trusted, asked)
	if (all-salvaged)*1000 > all {
		t.Errorf("%d of %d untouched records were not salvaged", all-salvaged, all)
	}
	if (asked-trusted)*1000 <= asked {
		t.Errorf("what trusts the tree got %d of %d; the test tests nothing", trusted, asked)
	}
}
