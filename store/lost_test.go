package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// changeFile closes the store, changes rows of its file and opens it again.
func (e *env) changeFile(change func(t *testing.T, path string)) {
	e.Helper()
	e.no(e.store.Close())
	change(e.T, e.path)
	e.store = openStore(e, e.path, e.opts)
}

func dropName(bucket, part string) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		makeBoltChange(t, path, bucket, func(k, v []byte) []byte {
			if strings.Contains(string(k), part) {
				return nil
			}
			return v
		})
	}
}

// Where the ids of a record are damaged, the log knows of each id where it is.
func TestRetryOverDamagedIndex(t *testing.T) {
	onFile(t, func(e *env) {
		var log bytes.Buffer
		e.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		e.create(nil)
		e.append(says("a", 5)...)
		e.changeFile(changeID)
		for i, event := range says("a", 5) {
			if done := e.append(event); done.Records[0].Seq != uint64(i+1) {
				e.Errorf("a retry of event %d landed at %d", i+1, done.Records[0].Seq)
			}
		}
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, sets("a4", `{"other":1}`))
		e.is(err, store.ErrDuplicateID)
		e.append(say("a6"))
		if done := e.append(say("a6")); done.Records[0].Seq != 6 {
			e.Errorf("a retry of a new event landed at %d", done.Records[0].Seq)
		}
		e.same("visible", ids(e.view()), "a1 a2 a3 a4 a5 a6")
		if !strings.Contains(log.String(), "the index of ids is damaged") {
			e.Errorf("the log says %q", log.String())
		}
		if len(e.verify(store.VerifyOptions{Key: key})) == 0 {
			e.Error("Verify finds nothing")
		}
	})
}

// A session of which one bucket has lost the name is there, damaged, and others are well.
func TestLostNameOfSession(t *testing.T) {
	for _, bucket := range []string{"sessions", "heads"} {
		t.Run(bucket, func(t *testing.T) {
			onFile(t, func(e *env) {
				e.create(nil)
				e.append(says("a", 6)...)
				e.must(e.store.Create(ctx, elsewhere, nil))
				e.changeFile(dropName(bucket, "session"))
				_, err := e.store.Get(ctx, key)
				e.is(err, store.ErrCorrupt, key.String())
				_, err = e.store.Info(ctx, key)
				e.is(err, store.ErrCorrupt, key.String())
				_, err = e.store.Create(ctx, key, nil)
				e.is(err, store.ErrExists)
				_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("new"))
				e.is(err, store.ErrCorrupt, key.String())
				n := 0
				for r, err := range e.store.RawEvents(ctx, key, 1) {
					if err != nil {
						e.is(err, store.ErrCorrupt, key.String())
						break
					}
					n++
					e.same("id", r.ID(), fmt.Sprint("a", n))
				}
				if want := map[string]int{"sessions": 0, "heads": 6}[bucket]; n != want {
					e.Errorf("%d records can be read, want %d", n, want)
				}
				var listed, damaged []string
				for i, err := range e.store.List(ctx, store.ListOptions{}) {
					if err != nil {
						e.is(err, store.ErrCorrupt, key.String())
						damaged = append(damaged, i.Key.String())
					} else {
						listed = append(listed, i.Key.String())
					}
				}
				e.same("damaged", fmt.Sprint(damaged), fmt.Sprint([]store.Key{key}))
				e.same("listed", fmt.Sprint(listed), fmt.Sprint([]store.Key{elsewhere}))
			})
		})
	}
}

// A shared value that is damaged or lost is named by what reads it, and by Verify; other
// apps do not notice, and writing it anew heals it.
func TestDamagedSharedValue(t *testing.T) {
	far := store.Key{App: "far", User: "u", Session: "s"}
	for name, change := range map[string]func(t *testing.T, path string){
		"lost": dropName("shared", "app:x"),
		"renamed": func(t *testing.T, path string) {
			makeBolt(t, path, func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("shared"))
				k, v := b.Cursor().First()
				k, v = bytes.Clone(k), bytes.Clone(v)
				return errors.Join(b.Delete(k), b.Put(bytes.Replace(k, []byte("app\x00\x01app"), []byte("app\x00\x01far"), 1), v))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(e *env) {
				e.create(map[string]any{"app:x": 1})
				e.must(e.store.Create(ctx, far, nil))
				e.changeFile(change)
				_, err := e.store.Get(ctx, key)
				e.is(err, store.ErrCorrupt, key.String(), "app:x")
				session := sessionOf(e, e.store, far)
				if n := len(session.Values()); n != 0 {
					e.Errorf("another app has %d values", n)
				}
				if found := e.verify(store.VerifyOptions{}); !strings.Contains(fmt.Sprint(found), "app/app/app:x") {
					e.Errorf("problems %v, want one that names app/app/app:x", found)
				}
				e.append(sets("a1", `{"app:x":2}`))
				if v, _ := e.get().Value("app:x"); fmt.Sprint(v.Any()) != "2" {
					e.Errorf("app:x is %v, want 2", v)
				}
			})
		})
	}
}

// A record with a checksum of its own that is not the one that was written there.
func TestRecordOfAnotherLog(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		e.changeFile(changeRecord(3, anotherRecord3))
		_, err := e.store.Get(ctx, key)
		e.is(err, store.ErrCorrupt, key.String(), "another chain")
		e.is(e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{}), store.ErrCorrupt, "another chain")
	})
}

// wrongIndex says of every id that record 2 has it.
type wrongIndex struct{ backend.Backend }

func (w wrongIndex) Lookup(_ context.Context, _, _ string, ids []string) ([]uint64, error) {
	return slices.Repeat([]uint64{2}, len(ids)), nil
}

// An index that turns out wrong while the file is open is not believed either.
func TestRetryOverIndexThatGoesWrong(t *testing.T) {
	onEach(t, func(e *env) {
		e.opts.Logger = slog.New(slog.DiscardHandler)
		e.create(nil)
		e.append(says("a", 3)...)
		e.backend.Backend = wrongIndex{e.engine}
		e.open()
		if done := e.append(say("a3")); done.Records[0].Seq != 3 {
			e.Errorf("a retry landed at %d", done.Records[0].Seq)
		}
		e.append(say("a4"))
		e.backend.Backend = e.engine
		e.same("visible", ids(e.view()), "a1 a2 a3 a4")
	})
}
