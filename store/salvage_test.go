package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// salvaged salvages a file's bytes into a store in memory.
func salvaged(t *testing.T, data []byte) (*store.Store, store.Salvaged) {
	t.Helper()
	s, err := store.OpenMemory(store.Options{})
	testlog.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	out, err := s.SalvageFrom(ctx, bytes.NewReader(data), int64(len(data)), nil)
	testlog.NoError(t, err)
	return s, out
}

func exportOf(t *testing.T, s *store.Store, key store.Key) string {
	t.Helper()
	var b strings.Builder
	testlog.NoError(t, s.Export(ctx, key, &b, store.ExportOptions{}))
	return b.String()
}

// Before a gap the log is exact. What comes behind it is another session: events as they
// were, a patch as text.
func TestSalvageGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{})
	e := &env{T: t, store: s, path: path}
	e.create(map[string]any{"tenant": "t1"})
	e.append(says("a", 6)...)
	e.apply(parsePatch(`{"id":"p1","author":"<&>","patchType":"splice","start":0,"count":2,"replacement":[{"id":"r1","author":"x"}]}`))
	e.append(says("b", 2)...)
	before, fourth := e.records(key), e.storedForm(key, 4)
	e.no(s.Close())
	data := readFile(e, path)
	flip(fourth)(data)
	to, out := salvaged(t, data)
	if len(out.Sessions) != 1 || fmt.Sprint(out.Sessions[0].Lost) != "[{4 4}]" || out.Records != 8 {
		t.Fatalf("%+v", out)
	}
	rest := store.Key{App: "app", User: "user", Session: "session~from-5"}
	want := []store.SalvagedPart{
		{Key: key, Span: patch.Span{From: 1, To: 3}, Log: true},
		{Key: rest, Span: patch.Span{From: 5, To: 9}, Texts: 1},
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
	e.same("the events behind the gap", ids(viewOf(e, e.store, rest)), "a5 a6 p1 b1 b2")
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

// Two different records of one seq: the chain says which is the log's.
func TestSalvageTakesWhatTheChainSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{})
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
		return other.Put(k, sealRecord(k, form, "other"))
	})
	data := readFile(e, path)
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
	path := filepath.Join(t.TempDir(), "log.db")
	from := openStore(t, path, store.Options{})
	e := &env{T: t, store: from, path: path}
	e.create(nil)
	e.append(says("a", 2)...)
	e.no(from.Close())
	data := readFile(e, path)
	s := teststore.Memory(t, store.Options{})
	for n := range 2 {
		out, err := s.SalvageFrom(ctx, bytes.NewReader(data), int64(len(data)), nil)
		testlog.NoError(t, err)
		want := key.String()
		if n == 1 {
			want += "~2"
		}
		if got := out.Sessions[0].Parts[0].Key.String(); got != want {
			t.Errorf("it was written as %s, want %s", got, want)
		}
	}
	if _, err := s.SalvageFrom(ctx, nil, 3, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.SalvageFrom(done, bytes.NewReader(data), int64(len(data)), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v", err)
	}
}

// The end of a file has the pages that were written last, and with them those that name the sessions. A
// file without it gives its records back under their names.
func TestSalvageOfACutFileKeepsNames(t *testing.T) {
	const sessions, each = 60, 100
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{Durability: store.Relaxed, Snapshots: snapshot.Policy{Every: -1}})
	e := &env{T: t, store: s, path: path}
	of := func(i int) store.Key {
		return store.Key{App: "app", User: fmt.Sprint("user", i%7), Session: fmt.Sprint("session", i)}
	}
	for i := range sessions {
		e.must(s.Create(ctx, of(i), nil))
	}
	for n := range each / 10 {
		for i := range sessions {
			e.must(s.AppendEvents(ctx, of(i), store.AppendOptions{}, says(fmt.Sprint("n", n, "-"), 10)...))
		}
	}
	e.no(s.Close())
	data := readFile(e, path)
	used := int64(0)
	makeBolt(t, path, func(tx *bbolt.Tx) error {
		used = tx.Size()
		return nil
	})
	for _, share := range []int64{998, 990, 950} {
		_, out := salvaged(t, data[:used*share/1000])
		named, marked, records := 0, 0, 0
		for _, session := range out.Sessions {
			records += session.Records
			if !session.Nameless {
				named += session.Records
			}
			if session.MaybeDeleted {
				marked++
			}
		}
		t.Logf("cut to %d/1000: %d of %d records, %d under their names, %d sessions in doubt", share, records, sessions*each, named, marked)
		if int64(records) < sessions*each*share/1000*9/10 || named != records || len(out.Sessions) != sessions {
			t.Errorf("cut to %d/1000: %d of %d records, %d under their names, of %d sessions", share, records, sessions*each, named, len(out.Sessions))
		}
	}
}

// What was erased and is still in free pages does not come back by a salvage, as long as the blank
// of it is found, or the receipt; what was not erased comes.
func TestSalvageKeepsErased(t *testing.T) {
	for name, c := range map[string]struct {
		lost  func(page []byte) bool // of the file's pages
		comes bool                   // what was erased, since nothing says so any more
	}{
		"nothing":         {func([]byte) bool { return false }, false},
		"the metas":       {func(page []byte) bool { return bytes.Contains(page[:24], []byte{0xed, 0xda, 0x0c, 0xed}) }, false},
		"the ways":        {func(page []byte) bool { return page[8] == 1 || bytes.Contains(page, []byte("sharednames")) }, false},
		"ways and blanks": {func(page []byte) bool { return page[8] == 1 || bytes.Contains(page, []byte(patch.ErasedText)) }, false},
		"ways and receipts": {func(page []byte) bool {
			return page[8] == 1 || bytes.Contains(page, []byte("the receipt's reason"))
		}, false},
		"all of it": {func(page []byte) bool {
			return page[8] == 1 || bytes.Contains(page, []byte(patch.ErasedText)) || bytes.Contains(page, []byte("the receipt's reason"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.db")
			store.Uncompressed(t) // so that pages can be told by their text
			s := openStore(t, path, store.Options{})
			must(t)(s.Create(ctx, eraseKey, map[string]any{"k": "secret of 1"}))
			for i := range 60 { // the erased ones fill pages that nothing else is in
				text := fmt.Sprintf("kept of %d %0600d", i, i)
				if 20 <= i && i < 40 {
					text = "secret of 1 " + text
				}
				must(t)(s.AppendEvents(ctx, eraseKey, store.AppendOptions{}, said(t, fmt.Sprint("e", i), text)))
			}
			opts := store.EraseOptions{Reason: "the receipt's reason", Values: patch.NullValues}
			must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{Match: "secret of 1"}, opts))
			testlog.NoError(t, s.Close())
			data := readFile(t, path)
			size := os.Getpagesize()
			for page := range slices.Chunk(data, size) {
				if c.lost(page) {
					clear(page)
				}
			}
			if !bytes.Contains(data, []byte("secret of 1")) {
				t.Fatal("the file has nothing any more of what was erased; the test tests nothing")
			}
			m, out := salvaged(t, data)
			kept, came := map[uint64]bool{}, 0
			for _, session := range out.Sessions {
				for _, part := range session.Parts {
					for _, seq := range has(t, m, part.Key, "kept of") {
						kept[part.From+seq-1] = true
					}
					came += len(has(t, m, part.Key, "secret of 1"))
					initial, err := m.InitialState(ctx, part.Key)
					testlog.NoError(t, err)
					if v, ok := initial["k"]; ok && v.Any() != nil && !c.comes {
						t.Errorf("%v: the initial state has %v", part, v)
					}
				}
			}
			if c.comes != (came > 0) {
				t.Errorf("%d records of what was erased", came)
			}
			if len(kept) < 35 {
				t.Errorf("%d records of what was not erased: %v", len(kept), out.Sessions)
			}
		})
	}
}

// A receipt whose key has become that of another session erases nothing there.
func TestSalvageForeignReceipt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{})
	other := eraseKey
	other.Session = "other"
	for _, key := range []store.Key{eraseKey, other} {
		createWith(t, s, key, said(t, key.Session+"1", "text of "+key.Session), said(t, key.Session+"2", "more"))
	}
	must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{All: true}, store.EraseOptions{}))
	testlog.NoError(t, s.Close())
	data := readFile(t, path)
	key := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3} // number and seq of the receipt
	foreign := bytes.Clone(key)
	foreign[7] = 2
	if !bytes.Contains(data, key) {
		t.Fatal("the receipt is not found; the test tests nothing")
	}
	m, _ := salvaged(t, bytes.ReplaceAll(data, key, foreign))
	if got := has(t, m, other, "text of other"); len(got) == 0 {
		t.Error("a record of the other session is erased")
	}
}
