package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

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
			no(t, s.Close())
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
					no(t, err)
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
	no(t, s.Close())
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
