package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// damaged is a backend that reads a record otherwise than it was written.
type damaged struct {
	backend.Backend
	seq    uint64
	change func(r *backend.Record)
}

func (d *damaged) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	records, err := d.Backend.Read(ctx, session, creation, seqs, maxBytes)
	for i := range records {
		if records[i].Seq == d.seq {
			d.change(&records[i])
		}
	}
	return records, err
}

func TestDamagedRecord(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		e.apply(patch.NewSplice(0, 1).WithID("p"))
		read, err := e.engine.Read(ctx, e.nameOf(store.Info{Key: key, Creation: e.view().Creation()}), e.view().Creation(), []uint64{3}, 1<<20)
		e.no(err)
		form := read[0].Data
		d := &damaged{Backend: e.engine, seq: 3}
		e.backend.Backend = d
		for at := range form { // each byte
			d.change = func(r *backend.Record) { r.Data[at] ^= 1 << (at % 8) }
			e.open() // forgets the view
			e.isDamagedAt(3)
		}
		for name, change := range map[string]func(r *backend.Record){
			"cut off": func(r *backend.Record) { r.Data = r.Data[:len(r.Data)-1] },
			"empty":   func(r *backend.Record) { r.Data = nil },
			"longer":  func(r *backend.Record) { r.Data = append(r.Data, 0) },
			"zeros":   func(r *backend.Record) { clear(r.Data) },
			"another record": func(r *backend.Record) {
				r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 4, Event: say("a3")})
			},
			"another place": func(r *backend.Record) { r.Seq = 7 },
			"larger than any": func(r *backend.Record) {
				r.Data = make([]byte, patch.MaxRecordBytes+1)
				copy(r.Data, form)
			},
		} {
			d.change = change
			e.open()
			if !e.isDamagedAt(3) {
				e.Errorf("… with the record %s", name)
			}
		}
		e.reopen()
		e.same("visible", ids(e.view()), "a2 a3 a4 a5")
	})
}

// isDamagedAt checks that a record cannot be read, that the error says which, and that
// what is before it can.
func (e *env) isDamagedAt(seq uint64) bool {
	e.Helper()
	failedBefore := e.Failed()
	calls := map[string]error{}
	_, calls["Get"] = e.store.Get(ctx, key)
	_, calls["ViewAt"] = e.store.ViewAt(ctx, key, seq)
	_, calls["AppendEvents"] = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("new"))
	_, calls["ApplyPatch"] = e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1))
	calls["Export"] = e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{})
	var n uint64
	for r, err := range e.store.RawEvents(ctx, key, 1) {
		if err != nil {
			calls["RawEvents"] = err
			continue
		}
		n++
		if r.Seq != n || r.ID() != fmt.Sprint("a", n) {
			e.Errorf("record %d is %q", r.Seq, r.ID())
		}
	}
	if n != seq-1 {
		e.Errorf("%d records could be read before record %d", n, seq)
	}
	for name, err := range calls {
		var corrupt *store.CorruptError
		if !errors.Is(err, store.ErrCorrupt) || !errors.As(err, &corrupt) {
			e.Errorf("%s: error %v, want a CorruptError", name, err)
			continue
		}
		if corrupt.Seq != seq || corrupt.Key != key || !strings.Contains(err.Error(), key.String()) || !strings.Contains(err.Error(), fmt.Sprint(seq)) {
			e.Errorf("%s: error %v of session %s, record %d; want %d", name, err, corrupt.Key, corrupt.Seq, seq)
		}
	}
	v, err := e.store.ViewAt(ctx, key, seq-1)
	e.no(err)
	if v.Seq() != seq-1 {
		e.Errorf("a view at %d, want %d", v.Seq(), seq-1)
	}
	return e.Failed() == failedBefore
}

// damageFile closes the store, changes the file's content and opens it again.
func (e *env) damageFile(change func(data []byte)) {
	e.Helper()
	e.no(e.store.Close())
	data := readFile(e, e.path)
	change(data)
	e.no(os.WriteFile(e.path, data, 0o600))
	e.store = openStore(e, e.path, e.opts)
}

// onFile runs a test on a file that it may damage.
func onFile(t *testing.T, run func(e *env)) { onFileWith(t, store.Options{}, run) }

func onFileWith(t *testing.T, opts store.Options, run func(e *env)) {
	e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db"), opts: opts}
	e.opts.Now = func() time.Time { return now }
	e.store = openStore(e, e.path, e.opts)
	defer func() {
		if err := e.store.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	}()
	run(e)
}

// flip changes each place where the text stands: pages are copied on write, so there may be
// old ones.
func flip(text string) func([]byte) {
	return func(data []byte) {
		for at := 0; ; at += len(text) {
			i := bytes.Index(data[at:], []byte(text))
			if i < 0 {
				return
			}
			at += i
			data[at+len(text)/2] ^= 4
		}
	}
}

// storedForm returns the bytes of a record as a store keeps them.
func (e *env) storedForm(key store.Key, seq uint64) string {
	e.Helper()
	form, err := patch.AppendRecord(nil, e.records(key)[seq-1])
	e.no(err)
	return string(recordform.Compress(form))
}

func TestDamagedFile(t *testing.T) {
	other := store.Key{App: "app", User: "user", Session: "other"}
	fill := func(e *env) {
		e.create(map[string]any{"tenant": "the initial state"})
		e.append(says("a", 5)...)
		e.must(e.store.Create(ctx, other, map[string]any{"app:x": "a shared value"}))
		e.must(e.store.AppendEvents(ctx, other, store.AppendOptions{}, says("b", 3)...))
	}
	record := func(t *testing.T, stored func(e *env) string) {
		onFile(t, func(e *env) {
			fill(e)
			e.damageFile(flip(stored(e)))
			e.isDamagedAt(3)
			// All else is well.
			if n := len(e.records(other)); n != 3 {
				e.Errorf("%d records of the other session, want 3", n)
			}
			e.same("listing", e.list(store.ListOptions{}), "app/user/other 3, app/user/session 5")
			e.must(e.store.InitialState(ctx, key))
			e.no(e.store.Delete(ctx, key))
			e.create(nil)
		})
	}
	t.Run("record", func(t *testing.T) {
		store.Uncompressed(t)
		record(t, func(*env) string { return "this is a3" })
	})
	t.Run("compressed record", func(t *testing.T) {
		record(t, func(e *env) string { return e.storedForm(key, 3) })
	})
	t.Run("initial state", func(t *testing.T) {
		onFile(t, func(e *env) {
			fill(e)
			e.damageFile(flip("the initial state"))
			_, err := e.store.Get(ctx, key)
			e.is(err, store.ErrCorrupt, key.String())
			e.must(e.store.Get(ctx, other))
		})
	})
	t.Run("creation", func(t *testing.T) {
		onFile(t, func(e *env) {
			fill(e)
			creation := e.view().Creation()
			e.damageFile(flip(creation))
			_, err := e.store.Get(ctx, key)
			e.is(err, store.ErrCorrupt, key.String())
			_, err = e.store.Create(ctx, key, nil)
			e.is(err, store.ErrExists)
		})
	})
	t.Run("number", func(t *testing.T) {
		onFile(t, func(e *env) {
			// A session must not seem empty because its number is another.
			fill(e)
			e.no(e.store.Close())
			makeBoltChange(t, e.path, "sessions", func(k, v []byte) []byte {
				v[7] ^= 64
				return v
			})
			var err error
			e.store = openStore(e, e.path, e.opts)
			_, err = e.store.Get(ctx, key)
			e.is(err, store.ErrCorrupt, key.String())
			for _, err = range e.store.List(ctx, store.ListOptions{}) {
			}
			e.is(err, store.ErrCorrupt)
		})
	})
	t.Run("shared value", func(t *testing.T) {
		onFile(t, func(e *env) {
			fill(e)
			e.damageFile(flip("a shared value"))
			_, err := e.store.Get(ctx, key)
			e.is(err, store.ErrCorrupt, key.String(), "app:x")
			if n := len(e.records(key)); n != 5 {
				e.Errorf("%d records, want 5", n)
			}
		})
	})
	t.Run("record missing", func(t *testing.T) {
		onFile(t, func(e *env) {
			fill(e)
			e.no(e.store.Close())
			makeBoltChange(t, e.path, "records", func(k, v []byte) []byte {
				if binary.BigEndian.Uint64(k[8:]) == 3 {
					return nil
				}
				return v
			})
			e.store = openStore(e, e.path, e.opts)
			e.isDamagedAt(3)
		})
	})
	t.Run("last record missing", func(t *testing.T) {
		onFile(t, func(e *env) {
			fill(e)
			e.no(e.store.Close())
			makeBoltChange(t, e.path, "records", func(k, v []byte) []byte {
				if binary.BigEndian.Uint64(k[8:]) == 5 {
					return nil
				}
				return v
			})
			var err error
			e.store = openStore(e, e.path, e.opts)
			// Its id is still taken, so a retry does not take it for new.
			_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("a5"))
			e.is(err, store.ErrCorrupt, "5")
		})
	})
}

// makeBoltChange changes or, where change returns nil, removes the values of a bucket.
func makeBoltChange(t *testing.T, path, bucket string, change func(k, v []byte) []byte) {
	t.Helper()
	makeBolt(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		changed := map[string][]byte{}
		err := b.ForEach(func(k, v []byte) error {
			changed[string(k)] = change(bytes.Clone(k), bytes.Clone(v))
			return nil
		})
		for k, v := range changed {
			if v == nil {
				err = errors.Join(err, b.Delete([]byte(k)))
			} else {
				err = errors.Join(err, b.Put([]byte(k), v))
			}
		}
		return err
	})
}
