package damage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

var (
	ctx   = context.Background()
	quiet = slog.New(slog.DiscardHandler)
)

// wreck is a file with known content that is to be damaged. It is sent to other processes in the gob format.
type wreck struct {
	Name   string
	Data   []byte
	Older  [][]byte // content of the file after each of some earlier commits
	Keys   map[uint64]store.Key
	Live   map[uint64]bool              // set of the numbers of existing sessions
	Logs   map[uint64]map[uint64]string // key: session number and seq; value: the JSON of every record ever written
	Forms  map[uint64]map[uint64]string // key: session number and seq; value: the stored form of the record
	Want   map[query]string             // correct result of each query
	Before []map[query]string           // results of the queries after earlier commits

	tree *tree // parsed from Data
}

// place is the position of a record in the file. Copies of the record that are not in use do not count.
type place struct {
	number, seq uint64
	from, to    int // offsets where the key begins and the form ends
}

// places returns the places of the records of existing sessions.
func (w *wreck) places() (out []place) {
	for _, row := range w.tree.rows {
		if row.bucket == "records" && w.Live[numberOf(row.key)] {
			out = append(out, place{numberOf(row.key), numberOf(row.key[8:]), row.from, row.to})
		}
	}
	return out
}

// inUse returns the offsets of the bytes in which a flipped bit can matter. They are all bytes of rows, and the
// headers and non-zero bytes of the pages on the paths to rows.
func (w *wreck) inUse() []int {
	in := map[int]bool{}
	for page := range w.tree.pages {
		for at := range 16 {
			in[page*pageBytes+at] = true
		}
	}
	for at, b := range w.Data {
		if page := at / pageBytes; b != 0 && (page < 2 || page == w.tree.free || w.tree.pages[page]) {
			in[at] = true
		}
	}
	for _, row := range w.tree.rows {
		for at := row.from; at < row.to; at++ {
			in[at] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

// numberOf returns the session number at the start of a key or value, or 0 if the key or value is too short.
func numberOf(s string) uint64 {
	if len(s) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(s))
}

func storeOptions() store.Options {
	return store.Options{NoSync: true, Logger: quiet, LockTimeout: 5 * time.Second, Snapshots: snapshot.Policy{Every: -1}}
}

// readFile sets the content of the wreck from the store at path.
func (w *wreck) readFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if w.Data != nil {
		w.Older = append(w.Older, w.Data)
		w.Before = append(w.Before, w.Want)
	}
	w.Data, w.tree, w.Live = data, treeOf(data), map[uint64]bool{}
	w.Data = w.tree.used(data)
	for _, row := range w.tree.rows {
		switch row.bucket {
		case "sessions":
			parts := strings.Split(row.key, "\x00\x01")
			n := numberOf(row.value[min(rowHeader, len(row.value)):])
			w.Keys[n], w.Live[n] = store.Key{App: parts[0], User: parts[1], Session: parts[2]}, true
		case "records":
			n := numberOf(row.key)
			if w.Forms[n] == nil {
				w.Forms[n], w.Logs[n] = map[uint64]string{}, map[uint64]string{}
			}
			w.Forms[n][numberOf(row.key[8:])] = row.value
		}
	}
	opts := storeOptions()
	opts.ReadOnly = true
	s, err := store.Open(path, opts)
	if err != nil {
		return err
	}
	defer s.Close()
	for n := range w.Live {
		for r, err := range s.RawEvents(ctx, w.Keys[n], 1) {
			if err != nil {
				return err
			}
			w.Logs[n][r.Seq] = textOf(r)
		}
	}
	w.Want = map[query]string{}
	for q, a := range readAll(s, w.keys()) {
		if a.Err != "" && !a.Absent {
			return fmt.Errorf("%s of a file that is whole: %s", q, a.Err)
		}
		w.Want[q] = a.Text
	}
	return nil
}

// highWater returns the number of pages as of the newest commit.
func highWater(data []byte) int {
	high := uint64(0)
	for id := range 2 {
		high = max(high, binary.NativeEndian.Uint64(data[id*pageBytes+16+40:]))
	}
	return int(high)
}

// keys returns the keys of all sessions, including deleted ones, and some keys of sessions that never existed.
func (w *wreck) keys() []store.Key {
	seen := map[store.Key]bool{{App: "app", User: "user0", Session: "none"}: true}
	for _, k := range w.Keys {
		seen[k] = true
	}
	return sortedKeys(seen)
}

// textOf returns a text that is the same for equal records.
func textOf(r patch.Record) string {
	text, err := r.MarshalJSON()
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// shape has the parameters of a wreck.
type shape struct {
	name                           string
	sessions, rounds, events, size int
}

var shapes = []shape{
	{"small", 3, 3, 2, 200},
	{"middle", 12, 4, 8, 1500},
	{"large records", 4, 3, 3, 20000},
}

// newWreck makes a file with sessions. It makes the file in rounds, and each round closes it.
func newWreck(t testing.TB, s shape) *wreck {
	t.Helper()
	w, err := s.makeWreck(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (sh shape) makeWreck(dir string) (*wreck, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "log.db")
	// The ids are deterministic, but the pages are not, because bbolt takes free pages from a map.
	uuid.SetRand(rand.NewChaCha8([32]byte{byte(sh.sessions)}))
	defer uuid.SetRand(nil)
	w := &wreck{
		Name: sh.name, Keys: map[uint64]store.Key{}, Logs: map[uint64]map[uint64]string{}, Forms: map[uint64]map[uint64]string{},
	}
	rnd := rand.New(rand.NewPCG(1, uint64(sh.sessions)))
	ids := 0
	open := func() (*store.Store, error) {
		opts := storeOptions()
		opts.NewID = func() string {
			ids++
			return fmt.Sprintf("id-%032d", ids)
		}
		opts.Now = func() time.Time { return time.Unix(1_800_000_000+int64(ids), 0) }
		return store.Open(path, opts)
	}
	within := func(do func(s *store.Store) error) error {
		s, err := open()
		if err != nil {
			return err
		}
		if err := errors.Join(do(s), s.Close()); err != nil {
			return err
		}
		return w.readFile(path)
	}
	keyOf := func(i int) store.Key {
		return store.Key{App: "app", User: fmt.Sprint("user", i%3), Session: fmt.Sprint("session", i)}
	}
	for round := range sh.rounds {
		if err := within(func(s *store.Store) error {
			for i := range sh.sessions {
				key := keyOf(i)
				if err := sh.grow(s, rnd, key, round, &ids, func() { w.addEarlier(s, key) }); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
		if err := within(func(s *store.Store) error { return s.Delete(ctx, keyOf(round%sh.sessions)) }); err != nil { // the next round creates the session again
			return nil, err
		}
	}
	// Every other session gets a snapshot.
	for i := 0; i < sh.sessions; i += 2 {
		s, err := store.Open(path, func() store.Options {
			opts := storeOptions()
			opts.Snapshots = snapshot.Policy{Every: 1, MinPercent: 1}
			return opts
		}())
		if err != nil {
			return nil, err
		}
		if _, err := s.Get(ctx, keyOf(i)); err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	if err := w.readFile(path); err != nil {
		return nil, err
	}
	return w, nil
}

// addEarlier adds the results of queries in the middle of a round. A damaged file may show this state, because its
// pages may still be in the file after they were freed.
func (w *wreck) addEarlier(s *store.Store, key store.Key) {
	results := map[query]string{}
	for q, a := range readAll(s, []store.Key{key}) {
		results[q] = a.Text
	}
	w.Before = append(w.Before, results)
}

// grow appends records to a session. It calls committed after each commit.
func (sh shape) grow(s *store.Store, rnd *rand.Rand, key store.Key, round int, ids *int, committed func()) error {
	if _, err := s.Create(ctx, key, map[string]any{"made": *ids, "app:name": "x", "user:n": round}, store.CreateOptions{}); err != nil && !errors.Is(err, store.ErrExists) {
		return err
	}
	committed()
	for range sh.events {
		*ids++
		text := make([]byte, rnd.IntN(sh.size)+1)
		for i := range text {
			text[i] = "abcdefghijklmnopqrstuvwxyz     "[rnd.IntN(31)]
		}
		e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":"user","invocationId":"i%d","content":{"role":"user","parts":[{"text":"record %s"}]},"actions":{"stateDelta":{"k":%d,"user:n":%d}}}`, *ids, round, text, *ids, *ids))
		if err != nil {
			return err
		}
		if _, err := s.AppendEvents(ctx, key, []*patch.Event{e}, store.AppendOptions{}); err != nil {
			return err
		}
		committed()
	}
	session, err := s.Get(ctx, key)
	if err != nil || session.View.Len() <= 3 {
		return err
	}
	c, err := s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(1, 1, newEvent(fmt.Sprint("r", *ids)))}, store.PatchOptions{On: session.View})
	committed()
	if err == nil && round%2 == 1 {
		_, err = s.Revert(ctx, key, c.Records[0].ID(), store.UndoOptions{})
	}
	return err
}

func newEvent(id string) *patch.Event {
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":%q,"author":"user","content":{"role":"user","parts":[{"text":"this is %s"}]}}`, id, id))
	if err != nil {
		panic(err)
	}
	return e
}
