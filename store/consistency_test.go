package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// checkAll checks that each session folds to what the store shows of it, and that the
// index of ids holds those of its records and no others.
func (e *env) checkAll() {
	e.Helper()
	if e.Failed() {
		return
	}
	shown := map[store.Key]string{}
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		if errors.Is(err, store.ErrClosed) {
			break
		}
		e.no(err)
		session := sessionOf(e, e.store, info.Key)
		shown[info.Key] = e.viewText(session.View)
	}
	e.reopen()
	e.same("problems", fmt.Sprint(e.verify(store.VerifyOptions{})), "[]")
	ids := 0
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		session := sessionOf(e, e.store, info.Key)
		if before, ok := shown[info.Key]; ok {
			e.same("view of "+info.Key.String()+" read anew", e.viewText(session.View), before)
		}
		ids += e.checkSession(info, session.View)
	}
	e.no(e.store.Close())
	if e.path == "" {
		return
	}
	b := openBoltAt(e.T, e.path)
	if err := b.(*bolt.Backend).Check(ctx); err != nil {
		e.Errorf("the file is damaged: %v", err)
	}
	e.no(b.Close())
	if n := countIDs(e.T, e.path); n != ids {
		e.Errorf("the index holds %d ids, the records %d", n, ids)
	}
}

// checkSession returns the number of ids that the session's records take.
func (e *env) checkSession(info store.Info, v fold.View) int {
	e.Helper()
	records := e.records(info.Key)
	if n := uint64(len(records)); n != info.Seq || n != v.Seq() {
		e.Errorf("session %s: %d records, but the listing says %d and the view %d", info.Key, n, info.Seq, v.Seq())
	}
	initial, err := e.store.InitialState(ctx, info.Key)
	e.no(err)
	want, err := fold.New(info.Creation, initial).Apply(records...)
	e.no(err)
	e.same("view of "+info.Key.String(), e.viewText(v), e.viewText(want))

	taken := map[string]uint64{}
	for _, r := range records {
		for id := range r.IDs() {
			if taken[id] != 0 {
				e.Errorf("session %s: id %q is in records %d and %d", info.Key, id, taken[id], r.Seq)
			}
			taken[id] = r.Seq
		}
		if r.Patch != nil && r.Patch.Group() != "" {
			group := strings.Repeat("\x00", patch.MaxIDBytes+1) + r.Patch.Group()
			if taken[group] == 0 {
				taken[group] = r.Seq
			}
		}
	}
	ids := slices.Sorted(maps.Keys(taken))
	seqs, err := e.backend.Lookup(ctx, e.nameOf(info), info.Creation, ids)
	e.no(err)
	for i, id := range ids {
		if seqs[i] != taken[id] {
			e.Errorf("session %s: the index has id %q in record %d, but it is in record %d", info.Key, id, seqs[i], taken[id])
		}
	}
	return len(ids)
}

// nameOf returns the backend's name of a session.
func (e *env) nameOf(info store.Info) string {
	e.Helper()
	listed, err := e.backend.List(ctx, "", "", 1<<20)
	e.no(err)
	for _, l := range listed {
		if l.Creation == info.Creation {
			return l.Session
		}
	}
	e.Fatalf("session %s is not in the backend", info.Key)
	return ""
}

func countIDs(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true})
	testlog.NoError(t, err)
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("records")).ForEach(func(k, row []byte) error {
			if binary.BigEndian.Uint64(k[8:]) > 0 { // their number stands before the last checksum
				n += int(binary.BigEndian.Uint32(row[len(row)-8:]))
			}
			return nil
		})
	})
	testlog.NoError(t, err)
	return n
}
