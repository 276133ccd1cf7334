package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

func TestOpenWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, data []byte) string {
		testlog.NoError(t, os.WriteFile(path(name), data, 0o600))
		return path(name)
	}
	foreign := path("foreign")
	makeBolt(t, foreign, func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("widgets"))
		return err
	})
	newer := path("newer")
	s := openStore(t, newer, store.Options{})
	testlog.NoError(t, s.Close())
	whole := readFile(t, newer)
	unmade := path("unmade")
	makeBolt(t, unmade, func(*bbolt.Tx) error { return nil })
	lacking := write("lacking", whole)
	makeBolt(t, newer, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("patchlog")).Put([]byte("version"), []byte{0, 0, 0, 0, 0, 0, 0, 99})
	})
	makeBolt(t, lacking, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("unlinked")) })
	for _, c := range []struct {
		name, path string
		says       string
		want       error
	}{
		{"empty", write("empty", nil), "empty", store.ErrCorrupt},
		{"text", write("text", []byte("hello, this is no store\n")), "", store.ErrNotDatabase},
		{"one byte", write("byte", []byte("x")), "", store.ErrNotDatabase},
		{"zeros", write("zeros", make([]byte, 100_000)), "", store.ErrNotDatabase},
		{"noise", write("noise", []byte(strings.Repeat("\xde\xad\xbe\xef\x01", 20_000))), "", store.ErrNotDatabase},
		{"noise of two pages", write("two pages", []byte(strings.Repeat("0123456789abcdef", 512))), "", store.ErrNotDatabase},
		{"no meta pages", write("no meta pages", append([]byte(strings.Repeat("\x00", 2*os.Getpagesize())), whole[2*os.Getpagesize():]...)), "", store.ErrCorrupt},
		{"another program's", foreign, "another program", store.ErrNotDatabase},
		{"no buckets", unmade, "it has no buckets", store.ErrNotDatabase},
		{"newer version", newer, "version", store.ErrCorrupt},
		{"bucket missing", lacking, `"unlinked"`, store.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &env{T: t}
			before := readFile(e, c.path)
			for range 2 { // if Open fails, it releases the file's lock, so the second iteration fails in the same way
				s, err := store.Open(c.path, store.Options{LockTimeout: 200 * time.Millisecond})
				if err == nil {
					e.no(s.Close())
				}
				e.is(err, c.want, c.path, c.says)
			}
			if !bytes.Equal(readFile(e, c.path), before) {
				e.Error("the file was changed")
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		e := &env{T: t}
		_, err := store.Open(dir, store.Options{})
		if err == nil || !strings.Contains(err.Error(), "is a directory") || errors.Is(err, store.ErrCorrupt) {
			e.Errorf("error %v", err)
		}
	})
	t.Run("in no directory", func(t *testing.T) {
		e := &env{T: t}
		_, err := store.Open(path("none/log.db"), store.Options{})
		e.is(err, os.ErrNotExist, "none")
	})
}

func makeBolt(t *testing.T, path string, change func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	testlog.NoError(t, err)
	testlog.NoError(t, errors.Join(db.Update(change), db.Close()))
}

type fullWriter struct{ after int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

var errFull = errors.New("no space left")

// If a backup fails, it returns the error of its cause and leaves no file behind.
func TestBackupFails(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(filepath.Join(dir, "log.db"), store.Options{})
	e := &env{T: t, store: s}
	e.no(err)
	e.create(nil)
	e.append(says("e", 99)...)
	for _, after := range []int{0, 40_000} {
		e.is(s.Backup(ctx, &fullWriter{after}), errFull)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	e.is(s.Backup(cancelled, io.Discard), context.Canceled)
	e.no(s.Backup(ctx, io.Discard))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the file there is %v (%v)", left, err)
	}
	e.no(s.Close())
	e.is(s.Backup(ctx, io.Discard), store.ErrClosed)
	e.is(testlog.ErrorOf(s.Vacuum(ctx, store.VacuumOptions{})), store.ErrClosed)
	_, err = s.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	e.is(err, store.ErrClosed)

	memory, err := store.OpenMemory(store.Options{})
	e.no(err)
	e.is(memory.Backup(ctx, io.Discard), errors.ErrUnsupported, "export")
	e.is(testlog.ErrorOf(memory.Vacuum(ctx, store.VacuumOptions{})), errors.ErrUnsupported)
	_, err = memory.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	e.is(err, errors.ErrUnsupported)
	e.no(memory.Close())
}

// While a vacuum replaces the file, a watch and other reads continue.
func TestVacuumIsNotSeen(t *testing.T) {
	onFile(t, func(e *env) {
		add(t, e.store, key, map[string]any{"app:k": 1}, 600)
		text := e.export()
		watch, stop := iter.Pull2(e.store.Watch(ctx, key, 1))
		defer stop()
		for seq := uint64(1); seq <= 601; seq++ {
			switch seq {
			case 301:
				e.no(testlog.ErrorOf(e.store.Vacuum(ctx, store.VacuumOptions{})))
			case 601:
				e.same("export", e.export(), text)
				testlog.Equal(t, "events", e.append(say("later")).View.Len(), 601)
			}
			if r, err, ok := watch(); err != nil || !ok || r.Seq != seq {
				t.Fatalf("the watch yields record %d, %v, in place of record %d", r.Seq, err, seq)
			}
		}
		verified(t, e.store)
		e.changeFile(func(*testing.T, string) {})
		if !strings.HasPrefix(e.export(), text) {
			t.Error("opened anew, the log is another one")
		}
	})
}

// changing returns a read hook that changes the record with the given seq.
func changing(seq uint64, change func(r *backend.Record)) func(records []backend.Record) []backend.Record {
	return func(records []backend.Record) []backend.Record {
		for i := range records {
			if records[i].Seq == seq {
				change(&records[i])
			}
		}
		return records
	}
}

func TestDamagedRecord(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		e.apply(patch.NewSplice(0, 1).WithID("p"))
		d := &hooked{Backend: e.engine}
		e.backend.Backend = d
		for name, change := range map[string]func(r *backend.Record){
			"flipped": func(r *backend.Record) { r.Data[len(r.Data)/2] ^= 4 }, // patch.TestEverySingleBitFlipIsRefused flips every other bit
			"cut off": func(r *backend.Record) { r.Data = r.Data[:len(r.Data)-1] },
			"empty":   func(r *backend.Record) { r.Data = nil },
			"longer":  func(r *backend.Record) { r.Data = append(r.Data, 0) },
			"zeros":   func(r *backend.Record) { clear(r.Data) },
			"another record": func(r *backend.Record) {
				r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 4, Event: say("a3")})
			},
			"another place": func(r *backend.Record) { r.Seq = 7 },
			"larger than any": func(r *backend.Record) {
				r.Data = append(r.Data, make([]byte, patch.MaxRecordBytes)...)
			},
		} {
			d.read = changing(3, change)
			e.open() // drops the cached view
			e.isDamagedAt(name, 3)
		}
		e.reopen()
		e.same("visible", ids(e.view()), "a2 a3 a4 a5")
	})
}

// isDamagedAt checks that the record with the given seq cannot be read and that the error names it. The records
// before it must be readable.
func (e *env) isDamagedAt(how string, seq uint64) {
	e.Helper()
	calls := map[string]error{}
	_, calls["Get"] = e.store.Get(ctx, key)
	_, calls["ViewAt"] = e.store.ViewAt(ctx, key, seq)
	_, calls["AppendEvents"] = e.store.AppendEvents(ctx, key, []*patch.Event{say("new")}, store.AppendOptions{})
	_, calls["ApplyPatch"] = e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, asOfNow)
	calls["Export"] = e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{})
	var n uint64
	for r, err := range e.store.RawEvents(ctx, key, 1) {
		if err != nil {
			calls["RawEvents"] = err
			continue
		}
		n++
		if r.Seq != n || r.ID() != fmt.Sprint("a", n) {
			e.Errorf("%s: record %d is %q", how, r.Seq, r.ID())
		}
	}
	testlog.Equal(e, how+": records that could be read", n, seq-1)
	for name, err := range calls {
		var corrupt *store.CorruptError
		if !errors.Is(err, store.ErrCorrupt) || !errors.As(err, &corrupt) {
			e.Errorf("%s: %s: error %v, want a CorruptError", how, name, err)
			continue
		}
		if corrupt.Seq != seq || corrupt.Key != key || !strings.Contains(err.Error(), key.String()) || !strings.Contains(err.Error(), fmt.Sprint(seq)) {
			e.Errorf("%s: %s: error %v of session %s, record %d; want %d", how, name, err, corrupt.Key, corrupt.Seq, seq)
		}
	}
	testlog.Equal(e, "a view", testlog.Must(e.store.ViewAt(ctx, key, seq-1))(e).Seq(), seq-1)
}

// damageFile closes the store, changes the content of its file and opens it again.
func (e *env) damageFile(change func(data []byte)) {
	e.Helper()
	e.changeFile(func(t *testing.T, path string) {
		data := readFile(t, path)
		change(data)
		testlog.NoError(t, os.WriteFile(path, data, 0o600))
	})
}

// onFile runs a test on a file that the test may damage.
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

// flip returns a function that changes every occurrence of a text in a file. Old copies of pages may contain the
// text too.
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

// storedForm returns a record's bytes as the store writes them.
func (e *env) storedForm(key store.Key, seq uint64) string {
	e.Helper()
	form, err := patch.AppendRecord(nil, e.records(key)[seq-1])
	e.no(err)
	return string(recordform.Compress(form))
}

// makeBoltChange changes the values of a bucket. It removes a value if the function change returns nil.
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

// changeFile closes the store, changes its file and opens it again.
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

// If the stored ids of a record are damaged, the session can be read but not written, because the store cannot
// recognise a retry.
func TestWriteOverDamagedIndex(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		e.changeFile(changeID)
		for _, event := range []*patch.Event{say("a4"), say("a6")} {
			e.is(e.try(event), store.ErrCorrupt, "the index of ids is damaged")
		}
		e.same("visible", ids(e.view()), "a1 a2 a3 a4 a5")
		e.problems(e.verify(store.VerifyOptions{Key: key}), []string{"app/user/session 0 ids"})
		e.problems(e.verify(store.VerifyOptions{}), []string{"app/user/session 0 ids"})
	})
}

// If a session's entry is lost, its records can still be read. Get fails, and Verify reports the loss.
func TestLostEntry(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(map[string]any{"tenant": "t1"})
		e.append(says("a", 5)...)
		e.changeFile(dropName("sessions", "session"))
		testlog.Equal(e, "records", len(e.records(key)), 5)
		e.is(errOf(e.store.Get(ctx, key)), store.ErrCorrupt, "no entry")
		if len(e.verify(store.VerifyOptions{})) == 0 || len(e.verify(store.VerifyOptions{Key: key})) == 0 {
			e.Error("Verify finds nothing")
		}
	})
}

// If a shared value is damaged or lost, Verify and the calls that read it name it. Other apps are not affected. A
// new write of the value repairs it.
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
				e.must(e.store.Create(ctx, far, nil, store.CreateOptions{}))
				e.changeFile(change)
				e.is(errOf(e.store.Get(ctx, key)), store.ErrCorrupt, key.String(), "app:x")
				testlog.Equal(e, "values of another app", len(sessionOf(e, e.store, far).Values()), 0)
				if found := e.verify(store.VerifyOptions{}); !strings.Contains(fmt.Sprint(found), "app/app/app:x") {
					e.Errorf("problems %v, want one that names app/app/app:x", found)
				}
				e.append(sets("a1", `{"app:x":2}`))
				e.same("state", e.state(), `{"app:x":2}`)
			})
		})
	}
}

// If a record has a valid checksum but belongs to another log, reads report damage.
func TestRecordOfAnotherLog(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		e.changeFile(replaceRecord3)
		e.is(errOf(e.store.Get(ctx, key)), store.ErrCorrupt, key.String(), "their checksums do not match the chain")
		e.is(e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{}), store.ErrCorrupt, "their checksums do not match the chain")
		e.problems(e.verify(store.VerifyOptions{Key: key}), []string{"app/user/session 5 their checksums do not match the chain"})
	})
}

// If the index of ids contradicts the log while the file is open, the store reports damage and does not trust the
// index.
func TestRetryOverIndexThatGoesWrong(t *testing.T) {
	onEach(t, func(e *env) {
		e.opts.Logger = slog.New(slog.DiscardHandler)
		e.create(nil)
		e.append(says("a", 3)...)
		e.backend.Backend = &hooked{Backend: e.engine, found: func(_ []string, seqs []uint64) { copy(seqs, slices.Repeat([]uint64{2}, len(seqs))) }}
		e.open()
		e.is(e.try(say("a3")), store.ErrCorrupt, "the index of ids")
		e.backend.Backend = e.engine
		e.same("visible", ids(e.view()), "a1 a2 a3")
	})
}

func (e *env) verify(opts store.VerifyOptions) (found []store.Problem) {
	e.Helper()
	for p, err := range e.store.Verify(ctx, opts) {
		e.no(err)
		found = append(found, p)
	}
	return found
}

// forgetful returns a backend whose index of ids lacks an id.
func forgetful(engine backend.Backend, id string) backend.Backend {
	return &hooked{Backend: engine, found: func(ids []string, seqs []uint64) {
		if i := slices.Index(ids, id); i >= 0 {
			seqs[i] = 0
		}
	}}
}

// damaged returns a backend whose Read returns a changed record.
func damaged(engine backend.Backend, seq uint64, change func(r *backend.Record)) backend.Backend {
	return &hooked{Backend: engine, read: changing(seq, change)}
}

func TestVerify(t *testing.T) {
	keys := []store.Key{{App: "a", User: "u", Session: "1"}, {App: "a", User: "u", Session: "2"}}
	for _, c := range []struct {
		name   string
		damage func(engine backend.Backend) backend.Backend
		want   []string // key, seq and text of each problem
	}{
		{"nothing", func(engine backend.Backend) backend.Backend { return engine }, nil},
		{"record", func(engine backend.Backend) backend.Backend {
			return damaged(engine, 3, func(r *backend.Record) { r.Data[9] ^= 1 })
		}, []string{"a/u/1 3 checksum", "a/u/2 3 checksum"}},
		{"record in another's place", func(engine backend.Backend) backend.Backend {
			return damaged(engine, 5, func(r *backend.Record) { r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 4, Event: say("x")}) })
		}, []string{"a/u/1 5 stored at seq 5", "a/u/2 5 stored at seq 5"}},
		{"two damages", func(engine backend.Backend) backend.Backend {
			first := damaged(engine, 1, func(r *backend.Record) { r.Data = nil })
			return damaged(first, 4, func(r *backend.Record) { r.Data[0] = 99 })
		}, []string{"a/u/1 1 ", "a/u/1 4 form 99", "a/u/2 1 ", "a/u/2 4 form 99"}},
		{"id not known", func(engine backend.Backend) backend.Backend { return forgetful(engine, "e2") }, []string{"a/u/1 2 e2", "a/u/2 2 e2"}},
		{"nested id not known", func(engine backend.Backend) backend.Backend { return forgetful(engine, "r") }, []string{"a/u/1 6 r", "a/u/2 6 r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *env) {
				for _, k := range keys {
					e.must(e.store.Create(ctx, k, map[string]any{"tenant": "t1"}, store.CreateOptions{}))
					e.must(e.store.AppendEvents(ctx, k, says("e", 5), store.AppendOptions{}))
					e.must(e.store.ApplyPatch(ctx, k, []*patch.PatchEvent{patch.NewSplice(0, 1, say("r")).WithID("p")}, asOfNow))
				}
				e.backend.Backend = c.damage(e.engine)
				e.open()
				var seen []string
				found := e.verify(store.VerifyOptions{Progress: func(k store.Key) { seen = append(seen, k.String()) }})
				e.problems(found, c.want)
				e.same("progress", strings.Join(seen, " "), "a/u/1 a/u/2")
				// Verify one session only.
				e.problems(e.verify(store.VerifyOptions{Key: keys[1]}),
					slices.DeleteFunc(slices.Clone(c.want), func(w string) bool { return !strings.HasPrefix(w, "a/u/2") }))
				for range e.store.Verify(ctx, store.VerifyOptions{}) {
					break // the loop may end early
				}
				e.reopen()
				for _, k := range keys {
					e.no(e.store.Delete(ctx, k)) // deletes the damaged rows too
				}
			})
		})
	}
}

func (e *env) problems(found []store.Problem, want []string) {
	e.Helper()
	if len(found) != len(want) {
		e.Errorf("problems %v, want %q", found, want)
		return
	}
	for i, p := range found {
		says := strings.SplitN(want[i], " ", 3) // key, seq and text
		if p.Key.String() != says[0] || fmt.Sprint(p.Seq) != says[1] || !strings.Contains(p.String(), says[2]) || !strings.Contains(p.String(), says[0]) {
			e.Errorf("problem %q of %s, record %d, want %q", p, p.Key, p.Seq, says)
		}
	}
}

// changeRecord returns a function that changes the row of a record, in the session that was created first.
func changeRecord(seq uint64, change func(v []byte) []byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		makeBoltChange(t, path, "records", func(k, v []byte) []byte {
			if bytes.Equal(k, recordKey(seq)) {
				return change(v)
			}
			return v
		})
	}
}

// replaceRecord3 replaces record 3 with record 3 of another log.
func replaceRecord3(t *testing.T, path string) {
	row := anotherRecord3(t)
	changeRecord(3, func([]byte) []byte { return row })(t, path)
}

// changeID changes an id in the row of record 4.
func changeID(t *testing.T, path string) {
	changeRecord(4, func(v []byte) []byte {
		v[len(v)-9] ^= 2 // a byte of the last hash, which precedes the number of hashes and the checksum
		return v
	})(t, path)
}

// recordKey returns the key of a record of the session that was created first.
func recordKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 1), seq)
}

// anotherRecord3 returns the row of record 3 in another file.
func anotherRecord3(t *testing.T) (row []byte) {
	t.Helper()
	path, _ := fileOf(t, nil, func(e *env) { e.append(say("a1"), say("a2"), sets("a3", `{"other":1}`)) })
	makeBolt(t, path, func(tx *bbolt.Tx) error {
		row = bytes.Clone(tx.Bucket([]byte("records")).Get(recordKey(3)))
		return nil
	})
	return row
}

// fillTwo creates a file with two sessions, and with snapshots if the options enable them.
func (e *env) fillTwo() {
	e.Helper()
	e.store = openStore(e, e.path, e.opts)
	e.create(map[string]any{"tenant": "t1"})
	e.append(says("a", 5)...)
	e.apply(patch.NewSplice(0, 1).WithID("p"))
	e.must(e.store.Create(ctx, elsewhere, nil, store.CreateOptions{}))
	e.must(e.store.AppendEvents(ctx, elsewhere, says("a", 5), store.AppendOptions{}))
	e.no(e.store.Close())
}

// Verify reports a snapshot that has a valid checksum but contradicts the log.
func TestVerifySnapshotThatDiffers(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		e.anew(snapshot.Policy{Every: -1})
		e.create(map[string]any{"k": 1})
		e.append(says("a", 4)...)
		records := e.records(key)
		for _, differs := range []fold.View{
			e.refold(slices.Concat(records[:3], []patch.Record{{Seq: 4, Patch: patch.NewSplice(0, 1)}})),
			e.refold(slices.Concat(records[:2], []patch.Record{{Seq: 3, Patch: patch.NewSplice(0, 1)}})),
			e.refold([]patch.Record{{Seq: 1, Event: event(`{"invocationId":"another"}`)}}),
		} {
			e.putSnapshot(testlog.Must(snapshot.Encode(differs))(e))
			e.problems(e.verify(store.VerifyOptions{}), []string{fmt.Sprintf("%s 0 the snapshot at record %d", key, differs.Seq())})
		}
		data := testlog.Must(snapshot.Encode(e.refold(records)))(e)
		damaged := slices.Clone(data)
		damaged[len(data)-1] ^= 1
		e.putSnapshot(damaged)
		e.problems(e.verify(store.VerifyOptions{}), []string{key.String() + " 0 checksum"})
		e.putSnapshot(data)
		verified(e, e.store)
	})
}

// failingChecker is a backend whose structure is damaged.
type failingChecker struct{ backend.Backend }

var errCheck = fmt.Errorf("%w: a page is amiss", backend.ErrDamaged)

func (failingChecker) Check(context.Context) error { return errCheck }

// If the backend's structure is damaged, Verify reports a problem without a session and still verifies the
// sessions. With VerifyOptions.Key, Verify does not check the structure.
func TestVerifyReportsCheck(t *testing.T) {
	e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db")}
	e.fillTwo()
	b := testlog.Must(bolt.Open(e.path, bolt.Options{}))(e)
	e.store = newStore(e, failingChecker{b}, e.opts)
	defer e.store.Close()
	seen := 0
	found := e.verify(store.VerifyOptions{Progress: func(store.Key) { seen++ }})
	if len(found) != 1 || found[0].Key != (store.Key{}) || !strings.HasSuffix(found[0].String(), "a page is amiss") || seen != 2 {
		e.Errorf("%d sessions, problems %q", seen, found)
	}
	e.problems(e.verify(store.VerifyOptions{Key: key}), nil)
}

// If a problem of the file's structure concerns a session, the problem names the session's key.
func TestVerifyStructureNamesSession(t *testing.T) {
	onFile(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.changeFile(func(t *testing.T, path string) {
			makeBolt(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("records")).Delete(recordKey(3)) })
		})
		found := e.verify(store.VerifyOptions{})
		if len(found) == 0 || found[0].Key != (store.Key{}) || !strings.Contains(found[0].String(), `session "app/user/session"`) {
			t.Errorf("problems %q", found)
		}
	})
}

// If Verify cannot continue, it yields one error and no problem.
func TestVerifyEnds(t *testing.T) {
	e := &env{T: t, path: filepath.Join(t.TempDir(), "log.db")}
	e.fillTwo()
	ends := func(s *store.Store, ctx context.Context, opts store.VerifyOptions, want error) {
		t.Helper()
		n := 0
		for p, err := range s.Verify(ctx, opts) {
			if n++; n > 1 || p != (store.Problem{}) {
				t.Errorf("yield %d: problem %v", n, p)
			}
			e.is(err, want)
		}
		testlog.Equal(t, "yields", n, 1)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	file := openStore(e, e.path, e.opts)
	memory := testlog.Must(store.OpenMemory(e.opts))(e)
	e.must(memory.Create(ctx, key, nil, store.CreateOptions{}))
	for _, s := range []*store.Store{file, memory} {
		for _, opts := range []store.VerifyOptions{{}, {Key: key}} {
			ends(s, cancelled, opts, context.Canceled)
		}
		ends(s, ctx, store.VerifyOptions{Key: store.Key{App: "a", User: "u", Session: "none"}}, store.ErrNotFound)
		ends(s, ctx, store.VerifyOptions{Key: store.Key{App: "a"}}, store.ErrInvalid)
		halfway, cancel := context.WithCancel(ctx)
		ends(s, halfway, store.VerifyOptions{Progress: func(store.Key) { cancel() }}, context.Canceled)
		e.no(s.Close())
		for _, opts := range []store.VerifyOptions{{}, {Key: key}} {
			ends(s, ctx, opts, store.ErrClosed)
		}
	}
}

// If the backend returns an error that does not report damage, such as a timeout, Verify ends with this error. It
// reports no problem of a session.
func TestVerifyTimeout(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 5)...)
		for _, call := range []string{"Read", "Lookup", "Fetch", "List"} {
			timeout := errors.New("canceling statement due to statement timeout")
			e.hook().set(failing(call, timeout))
			for p, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
				if e.is(err, timeout); p != (store.Problem{}) {
					e.Errorf("%s times out: problem %v", call, p)
				}
			}
			e.reopen()
		}
	})
}

// salvaged salvages the bytes of a file into a store in memory.
func salvaged(t *testing.T, data []byte) (*store.Store, store.Salvaged) {
	t.Helper()
	s := inMemory(t)
	out := testlog.Must(store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{}))(t)
	return s, out
}

// fileOf creates a file with one session, and returns its path and its bytes.
func fileOf(t *testing.T, state map[string]any, fill func(e *env)) (path string, data []byte) {
	t.Helper()
	onFile(t, func(e *env) {
		path = e.path
		e.create(state)
		fill(e)
		e.no(e.store.Close())
		data = readFile(e, path)
	})
	return path, data
}

// Salvage recovers the log before a gap exactly. The records after the gap become another session, in which events
// are unchanged and patches are text.
func TestSalvageGap(t *testing.T) {
	var before []patch.Record
	var fourth string
	_, data := fileOf(t, map[string]any{"tenant": "t1"}, func(e *env) {
		e.append(says("a", 6)...)
		e.apply(parsePatch(`{"id":"p1","author":"<&>","patchType":"splice","start":0,"count":2,"replacement":[{"id":"r1","author":"x"}]}`))
		e.append(says("b", 2)...)
		before, fourth = e.records(key), e.storedForm(key, 4)
	})
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
	testlog.Equal(t, "parts", out.Sessions[0].Parts, want)
	e := &env{T: t, store: to}
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
	text := strconv.Quote(string(testlog.Must(before[6].MarshalJSON())(e)))
	if line := after[2].Event.String(); !strings.Contains(line, text) || !strings.Contains(line, `"author":"<&>"`) {
		t.Errorf("the patch is kept as %s, want %s in it", line, text)
	}
	verified(t, to)
}

// A page of the directory may come from an earlier commit and list a deleted session. If the pages of all its
// records are free, Salvage reports that the session may have been deleted.
func TestSalvageStaleDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	within := func(do func(s *store.Store)) (data []byte, roots map[string]int) {
		s := openStore(t, path, store.Options{})
		do(s)
		testlog.NoError(t, s.Close())
		roots = map[string]int{}
		makeBolt(t, path, func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
				roots[string(name)] = int(bucket.Root()) * os.Getpagesize()
				return nil
			})
		})
		return readFile(t, path), roots
	}
	keyOf := func(n int) store.Key { return store.Key{App: "app", User: "user", Session: fmt.Sprint("s", n)} }
	older, was := within(func(s *store.Store) {
		for n := range 20 {
			must(t)(s.Create(ctx, keyOf(n), nil, store.CreateOptions{}))
			for i := range 10 {
				must(t)(s.AppendEvents(ctx, keyOf(n), []*patch.Event{said(fmt.Sprint("e", i), fmt.Sprintf("%0900d", i))}, store.AppendOptions{}))
			}
		}
	})
	data, is := within(func(s *store.Store) { testlog.NoError(t, s.Delete(ctx, keyOf(7))) })
	if was["heads"] == 0 || was["heads"] == is["heads"] {
		t.Fatalf("the heads were at byte %d, and are at %d", was["heads"], is["heads"])
	}
	copy(data[is["heads"]+8:is["heads"]+os.Getpagesize()], older[was["heads"]+8:]) // after the page number
	clear(data[is["sessions"] : is["sessions"]+os.Getpagesize()])
	_, out := salvaged(t, data)
	for _, session := range out.Sessions {
		testlog.Equal(t, session.Key.Session+" may have been deleted", session.MaybeDeleted, session.Key == keyOf(7))
	}
	if n := len(out.Sessions); n != 19 && n != 20 { // one session may be deleted; it is missing if all of its pages were reused
		t.Errorf("%d sessions", n)
	}
}

// Salvage recovers the sessions of a truncated file under their own keys, unless a page shows that they were
// deleted. The result reports which sessions may have been deleted. Listings count the visible events of the
// recovered sessions.
func TestSalvageCutFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{Now: func() time.Time { return now }})
	const sessions = 40
	want := map[store.Key]store.Info{}
	for n := range sessions {
		k := store.Key{App: "app", User: "user", Session: fmt.Sprint("s", n)}
		must(t)(s.Create(ctx, k, map[string]any{"n": n}, store.CreateOptions{}))
		for i := range 30 {
			must(t)(s.AppendEvents(ctx, k, []*patch.Event{said(fmt.Sprint("e", i), fmt.Sprintf("text %d %0500d", i, i))}, store.AppendOptions{}))
		}
		must(t)(s.ApplyPatch(ctx, k, []*patch.PatchEvent{patch.NewSplice(0, 5).WithID("p1")}, asOfNow))
		must(t)(s.ApplyPatch(ctx, k, []*patch.PatchEvent{patch.NewSummarise(0, 10, summary("sum")).WithID("p2")}, asOfNow))
		must(t)(s.Revert(ctx, k, "p2", store.UndoOptions{}))
		want[k] = infoOf(t, s, k)
	}
	testlog.NoError(t, s.Close())
	data := readFile(t, path)
	used := len(bytes.TrimRight(data, "\x00")) // the file is longer than its content, because it grows in steps
	allDoubtful := 0
	for tenths := 5; tenths < 10; tenths++ {
		cut := data[:used*tenths/10]
		to, out := salvaged(t, cut)
		own, doubtful := 0, 0
		for _, session := range out.Sessions {
			if session.MaybeDeleted {
				doubtful++
			}
			for _, part := range session.Parts {
				if strings.Contains(part.Key.Session, "deleted") {
					t.Errorf("%d tenths: %s: nothing says that it had been deleted", tenths, part.Key)
				}
				if part.Key == session.Key {
					own += int(part.To)
				}
			}
			info, err := to.Info(ctx, session.Key)
			if was := want[session.Key]; err == nil && session.Records == int(was.Seq) && len(session.Parts) == 1 {
				info.Creation = was.Creation
				testlog.Equal(t, "listed", info, was)
			}
		}
		if own < out.Records*8/10 || out.Records < sessions*10 {
			t.Errorf("%d tenths: %d of %d records come back under their own keys", tenths, own, out.Records)
		}
		verified(t, to)
		m := inMemory(t)
		sure := testlog.Must(store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(cut), 0, int64(len(cut))), m, store.SalvageOptions{LeaveOutDoubtful: true}))(t)
		if sure.LeftOut != doubtful || len(sure.Sessions) != len(out.Sessions)-doubtful {
			t.Errorf("without the doubtful ones: %d left out, %d sessions; want %d left out of %d", sure.LeftOut, len(sure.Sessions), doubtful, len(out.Sessions))
		}
		allDoubtful += doubtful
	}
	if allDoubtful == 0 {
		t.Error("no session may have been deleted; the test tests nothing")
	}
}

// The error of an open file reports only once that the file is in use.
func TestLockedText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{})
	defer s.Close()
	err := testlog.ErrorOf(store.Open(path, store.Options{LockTimeout: time.Millisecond}))
	testlog.ErrorIs(t, err, store.ErrLocked, "a second holder")
	if want := "file is locked: " + path + " is in use by "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s…", err, want)
	}
}

// If the lost part of a file contained all records of a session, Salvage reports the session as lost, not as
// deleted.
func TestSalvageLostSessions(t *testing.T) {
	store.Uncompressed(t) // so that the test can find a record by its text
	s := openStore(t, filepath.Join(t.TempDir(), "log.db"), store.Options{})
	const sessions, records = 5, 30
	for n := range sessions {
		var events []*patch.Event
		for i := range records {
			events = append(events, said(fmt.Sprint("e", i), fmt.Sprintf("text of s%d %0*d", n, os.Getpagesize()/4, i)))
		}
		createWith(t, s, sibling(fmt.Sprint("s", n)), events...)
	}
	var copied bytes.Buffer
	testlog.NoError(t, s.Backup(ctx, &copied))
	testlog.NoError(t, s.Close())
	data := copied.Bytes()
	_, out := salvaged(t, data[:bytes.Index(data, []byte("text of s2"))/os.Getpagesize()*os.Getpagesize()])
	if out.Deleted > 0 || len(out.Sessions) != sessions {
		t.Errorf("%d sessions, %d deleted; want %d and none", len(out.Sessions), out.Deleted, sessions)
	}
	for _, session := range out.Sessions {
		lost := 0
		for _, span := range session.Lost {
			lost += int(span.To - span.From + 1)
		}
		if session.MaybeDeleted || session.EndUnknown || session.Records+lost != records || session.Records > 0 && session.Key.Session > "s2" {
			t.Errorf("%+v", session)
		}
	}
}

// If two different records have the same seq, the chain determines which record belongs to the log.
func TestSalvageTakesWhatTheChainSays(t *testing.T) {
	var want string
	path, _ := fileOf(t, nil, func(e *env) {
		e.append(says("a", 5)...)
		want = e.export()
	})
	row := anotherRecord3(t)
	makeBolt(t, path, func(tx *bbolt.Tx) error { // the new page is before the other pages of the bucket, and in use
		other, err := tx.CreateBucketIfNotExists([]byte("aaa"))
		return errors.Join(err, other.Put(recordKey(3), row))
	})
	to, out := salvaged(t, readFile(t, path))
	testlog.Equal(t, "the log", exportOf(t, to, key, store.ExportOptions{}), want)
	if len(out.Sessions[0].Parts) != 2 || !out.Sessions[0].Parts[1].Doubtful || out.Sessions[0].Parts[1].From != 3 {
		t.Errorf("the other record is to be kept, and marked: %+v", out)
	}
}

// Salvage does not overwrite any session of the target store, and it refuses invalid arguments.
func TestSalvageIntoWhatIsThere(t *testing.T) {
	_, data := fileOf(t, nil, func(e *env) { e.append(says("a", 2)...) })
	s := inMemory(t)
	for n := range 2 {
		out := testlog.Must(store.Salvage(ctx, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{}))(t)
		want := key.String()
		if n == 1 {
			want += "~2"
		}
		testlog.Equal(t, "it was written as", out.Sessions[0].Parts[0].Key.String(), want)
	}
	testlog.ErrorIs(t, testlog.ErrorOf(store.Salvage(ctx, nil, s, store.SalvageOptions{})), store.ErrInvalid, "no file")
	done, cancel := context.WithCancel(ctx)
	cancel()
	testlog.ErrorIs(t, testlog.ErrorOf(store.Salvage(done, io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data))), s, store.SalvageOptions{})), context.Canceled, "after the context has ended")
}

// If Salvage finds the blanks of erased events or the receipt, it does not restore these events from free pages.
// It recovers the other events. If a receipt is lost, Salvage reports the blanks as Verify does.
func TestSalvageKeepsErased(t *testing.T) {
	for name, c := range map[string]struct {
		lost  func(page []byte) bool // selects the pages that are lost
		comes bool                   // whether the erased events are recovered, because neither their blanks nor the receipt remain
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
			store.Uncompressed(t) // so that the test can find pages by their text
			s := openStore(t, path, store.Options{})
			must(t)(s.Create(ctx, eraseKey, map[string]any{"k": "secret of 1"}, store.CreateOptions{}))
			for i := range 60 { // makes the erased events fill whole pages
				text := fmt.Sprintf("kept of %d %0600d", i, i)
				if 20 <= i && i < 40 {
					text = "secret of 1 " + text
				}
				must(t)(s.AppendEvents(ctx, eraseKey, []*patch.Event{said(fmt.Sprint("e", i), text)}, store.AppendOptions{}))
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
			problems := map[store.Key][]uint64{} // seqs by session
			for p, err := range m.Verify(ctx, store.VerifyOptions{}) {
				testlog.NoError(t, err)
				problems[p.Key] = append(problems[p.Key], p.Seq)
			}
			if name == "ways and receipts" && len(problems) == 0 {
				t.Error("no blank record lacks its receipt; the test tests nothing")
			}
			kept, came := map[uint64]bool{}, 0
			for _, session := range out.Sessions {
				var reported, verified []uint64
				for _, span := range session.ReceiptLost {
					for seq := span.From; seq <= span.To; seq++ {
						reported = append(reported, seq)
					}
				}
				testlog.Equal(t, "whole without a receipt", session.Whole && len(reported) > 0, false)
				for _, part := range session.Parts {
					for _, seq := range problems[part.Key] {
						verified = append(verified, part.From+seq-1)
					}
				}
				testlog.Equal(t, "blank records without a receipt", reported, verified)
				for _, part := range session.Parts {
					for _, seq := range has(t, m, part.Key, "kept of") {
						kept[part.From+seq-1] = true
					}
					came += len(has(t, m, part.Key, "secret of 1"))
					start, err := m.ViewAt(ctx, part.Key, 0)
					initial := maps.Collect(start.Values())
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

// If damage moves a receipt to another session, the receipt erases nothing there.
func TestSalvageForeignReceipt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := openStore(t, path, store.Options{})
	other := sibling("other")
	for _, key := range []store.Key{eraseKey, other} {
		createWith(t, s, key, said(key.Session+"1", "text of "+key.Session), said(key.Session+"2", "more"))
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
