package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// A file that is read as of the commit before its last is opened with a warning, and
// Verify lists it; a store that reads only does both too.
func TestOlderMetaPage(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"))
		e.append(say("a2"))
		e.no(e.store.Close())
		data := readFile(e, e.path)
		page := os.Getpagesize()
		newer := 0
		if data[page+64] > data[64] {
			newer = page
		}
		data[newer+40] ^= 1
		e.no(os.WriteFile(e.path, data, 0o600))
		for _, readOnly := range []bool{true, false} {
			var log bytes.Buffer
			e.opts.Logger, e.opts.ReadOnly = slog.New(slog.NewTextHandler(&log, nil)), readOnly
			e.store = openStore(e, e.path, e.opts)
			e.same("visible", ids(e.view()), "a1")
			if !strings.Contains(log.String(), "the last commit may be missing") {
				e.Errorf("the log says %q", &log)
			}
			var problems []string
			for p, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
				e.no(err)
				problems = append(problems, p.String())
			}
			if len(problems) != 1 || !strings.Contains(problems[0], "the last commit may be missing") {
				e.Errorf("Verify lists %q", problems)
			}
			e.no(e.store.Close())
		}
	})
}

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
