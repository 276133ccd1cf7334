package store_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// isLocked opens the file in vain, which takes at least so long: it waits for the lock.
func (e *env) isLocked(path string, timeout, least time.Duration) {
	e.Helper()
	start := time.Now()
	_, err := store.Open(path, store.Options{LockTimeout: timeout})
	e.is(err, store.ErrLocked, path)
	if took := time.Since(start); took < least {
		e.Errorf("it took %v to find the file locked, want at least %v", took, least)
	}
}

// holdFile opens the file, says so, and holds it until its input ends.
func holdFile(path string) error {
	s, err := store.Open(path, store.Options{})
	if err != nil {
		return err
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Close()
}

// openFile opens the file and closes it.
func openFile(path string) error {
	s, err := store.Open(path, store.Options{LockTimeout: 300 * time.Millisecond})
	if err != nil {
		if errors.Is(err, store.ErrLocked) {
			fmt.Println("locked")
		}
		return err
	}
	return s.Close()
}

func TestFileHeldByAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	e := &env{T: t}
	holder := child(t, "hold", path)
	in, err := holder.StdinPipe()
	e.no(err)
	out, err := holder.StdoutPipe()
	e.no(err)
	e.no(holder.Start())
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	e.isLocked(path, 0, 900*time.Millisecond)
	e.no(in.Close())
	e.no(holder.Wait())

	// And the other way round.
	s := openStore(e, path, store.Options{})
	if out, err := child(t, "open", path).Output(); err == nil || string(out) != "locked\n" {
		t.Errorf("the other process says %q, %v", out, err)
	}
	e.no(s.Close())
	if out, err := child(t, "open", path).CombinedOutput(); err != nil {
		t.Errorf("the other process: %v\n%s", err, out)
	}
}

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
	lacking := copyOf(t, newer, path("lacking"))
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
		{"no buckets", unmade, "without a bucket", store.ErrNotDatabase},
		{"newer version", newer, "version", store.ErrCorrupt},
		{"bucket missing", lacking, `"unlinked"`, store.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &env{T: t}
			before := readFile(e, c.path)
			for range 2 { // what fails leaves no lock behind
				s, err := store.Open(c.path, store.Options{LockTimeout: 200 * time.Millisecond})
				if err == nil {
					e.no(s.Close())
				}
				e.is(err, c.want, c.path, c.says)
			}
			after := readFile(e, c.path)
			if string(after) != string(before) {
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

func copyOf(t *testing.T, from, to string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	testlog.NoError(t, err)
	return to
}

// A backup of what is damaged is none: it names session and record, and writes nothing.
func TestBackupOfADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s, err := store.Open(path, store.Options{})
	e := &env{T: t, store: s}
	e.no(err)
	e.create(nil)
	e.append(says("needle-", 9)...)
	var whole bytes.Buffer
	e.no(s.Backup(ctx, &whole))
	fourth := e.storedForm(key, 4)
	e.no(s.Close())
	data := readFile(e, path)
	flip(fourth)(data)
	e.no(os.WriteFile(path, data, 0o600))
	s = openStore(e, path, store.Options{})
	var w bytes.Buffer
	err = s.Backup(ctx, &w)
	var corrupt *store.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Key != key || corrupt.Seq != 4 || w.Len() > 0 {
		t.Errorf("backup: %v, %d bytes", err, w.Len())
	}
	e.no(s.Close())
}

type fullWriter struct{ after int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

var errFull = errors.New("no space left")

// Errors of a backup are those of what failed, and nothing stays behind.
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
	e.is(s.Vacuum(ctx), store.ErrClosed)
	_, err = s.Space(ctx)
	e.is(err, store.ErrClosed)

	memory, err := store.OpenMemory(store.Options{})
	e.no(err)
	e.is(memory.Backup(ctx, io.Discard), errors.ErrUnsupported, "export")
	e.is(memory.Vacuum(ctx), errors.ErrUnsupported)
	_, err = memory.Space(ctx)
	e.is(err, errors.ErrUnsupported)
	e.no(memory.Close())
}

// Views, watches and copies that know the log go on while a vacuum replaces the file.
func TestVacuumIsNotSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	open := func() *store.Store {
		s := openStore(t, path, store.Options{})
		return s
	}
	s := open()
	e := &env{T: t, store: s}
	add(t, s, key, map[string]any{"app:k": 1}, 600)
	text := e.export()
	before := sessionOf(e, s, key)
	watch, stop := iter.Pull2(s.Watch(ctx, key, 1))
	defer stop()
	seen := func(n int) {
		t.Helper()
		for range n {
			if _, err, ok := watch(); err != nil || !ok {
				t.Fatalf("the watch ends: %v", err)
			}
		}
	}
	seen(300)
	e.no(s.Vacuum(ctx))
	seen(300)
	e.same("export", e.export(), text)
	after, err := s.AppendEvents(ctx, key, store.AppendOptions{}, say("later"))
	e.no(err)
	seen(1)
	if before.View.Len()+1 != after.View.Len() {
		t.Errorf("%d events became %d", before.View.Len(), after.View.Len())
	}
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Error(p, err)
	}
	e.no(s.Close())
	e.store = open()
	defer e.store.Close()
	if !strings.HasPrefix(e.export(), text) {
		t.Error("opened anew, the log is another one")
	}
}

// With this flag the golden file is written anew, which is for a change of the format.
var writeGolden = flag.Bool("write-golden", false, "write the golden database and its export")

const (
	goldenDB   = "testdata/golden.db.gz" // a database
	goldenText = "testdata/golden.jsonl" // what the session in it exports
)

var goldenKey = store.Key{App: "app", User: "a user/b", Session: "golden"}

// A database reads as it was written: Go types, ids, shared state, a snapshot.
func TestGoldenFile(t *testing.T) {
	if *writeGolden {
		makeGolden(t, filepath.Join(t.TempDir(), "golden.db"))
	}
	ctx := context.Background()
	s := openStore(t, teststore.Unpack(t, goldenDB), store.Options{})
	defer s.Close()
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v (%v)", p, err)
	}
	var text bytes.Buffer
	testlog.NoError(t, s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	want := readFile(t, goldenText)
	if !bytes.Equal(text.Bytes(), want) {
		t.Errorf("it exports\n%s\nwant\n%s", text.Bytes(), want)
	}
	session := sessionOf(t, s, goldenKey)
	if state := fmt.Sprintf("%#v", session.State()["count"]); state != "7" {
		t.Errorf("count is %s, want an int 7", state)
	}
	if v, ok := session.Value("user:name"); !ok || v.Any() != "Ann" {
		t.Errorf("user:name is %v", v)
	}
	// A retry finds the ids.
	e, err := patch.NewEvent(patch.Fields{ID: "e1", InvocationID: "inv1", Author: "user", Content: patch.Text("user", "hello")})
	testlog.NoError(t, err)
	c, err := s.AppendEvents(ctx, goldenKey, store.AppendOptions{}, e)
	if err != nil || c.Records[0].Seq != 1 {
		t.Errorf("a retry: %v, %v", c.Records, err)
	}
}

func makeGolden(t *testing.T, path string) {
	t.Helper()
	ctx := context.Background()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_000_007, time.UTC)
	s := openStore(t, path, store.Options{Snapshots: snapshot.Policy{Every: 6, Share: 1}, Now: func() time.Time { return now }})
	check := func(err error) {
		t.Helper()
		testlog.NoError(t, err)
	}
	_, err := s.Create(ctx, goldenKey, map[string]any{"tenant": "t1", "user:name": "Ann", "tags": []string{"a", "b"}})
	check(err)
	event := func(f patch.Fields) *patch.Event {
		e, err := patch.NewEvent(f)
		check(err)
		return e
	}
	call := map[string]any{"role": "model", "parts": []any{map[string]any{"functionCall": map[string]any{"id": "c1", "name": "look", "args": map[string]any{"n": int8(3)}}}}}
	_, err = s.AppendEvents(ctx, goldenKey, store.AppendOptions{},
		event(patch.Fields{ID: "e1", InvocationID: "inv1", Author: "user", Content: patch.Text("user", "hello")}),
		event(patch.Fields{ID: "e2", InvocationID: "inv1", Author: "agent", Branch: "a.b", Content: call, LongRunningToolIDs: []string{}}),
		event(patch.Fields{ID: "e3", InvocationID: "inv1", Author: "agent", Content: json.RawMessage(`{"parts":[{"functionResponse":{"id":"c1","name":"look","response":{"found":true}}}],"role":"user"}`)}),
		event(patch.Fields{ID: "e4", InvocationID: "inv2", Author: "agent", Actions: patch.Actions{StateDelta: map[string]any{"count": 7, "x": nil}}}),
	)
	check(err)
	foreign, err := patch.ParseEvent([]byte(`{"id":"e5","author":"agent","timestamp":"2023-11-14T22:13:20.25Z","content":{"parts":[],"novel":[1.0,1e2,9007199254740993]},"unknown":{"a":{}}}`))
	check(err)
	_, err = s.AppendEvents(ctx, goldenKey, store.AppendOptions{}, foreign)
	check(err)
	summary := event(patch.Fields{ID: "s1", Author: "user", Content: patch.Text("user", "they looked"),
		Actions: patch.Actions{Compaction: &patch.EventCompaction{StartTimestamp: 1, EndTimestamp: 2.5}}})
	_, err = s.ApplyPatch(ctx, goldenKey, store.PatchOptions{AsOfNow: true},
		patch.NewSummarise(1, 2, summary).WithID("p1"), patch.NewTruncateBefore("s1").WithID("p2").WithState(patch.Keep))
	check(err)
	check(s.Close())

	s, err = store.Open(path, store.Options{})
	check(err)
	var text bytes.Buffer
	check(s.Export(ctx, goldenKey, &text, store.ExportOptions{}))
	check(s.Close())
	check(os.WriteFile(goldenText, text.Bytes(), 0o600))
	data, err := os.ReadFile(path)
	check(err)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(data)
	check(err)
	check(w.Close())
	check(os.WriteFile(goldenDB, packed.Bytes(), 0o600))
}
