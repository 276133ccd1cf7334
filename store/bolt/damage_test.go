package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

var discardLogger = slog.New(slog.DiscardHandler)

// fill creates a small file that has rows of every kind and whose last page is in use.
func fill(t *testing.T, path string) {
	t.Helper()
	b := testlog.Must(bolt.Open(path, bolt.Options{NoSync: true, Logger: discardLogger}))(t)
	for _, name := range []string{"first", "second", "third"} {
		testlog.NoError(t, errors.Join(b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Meta: []byte("meta of " + name),
			Shared: []backend.Value{{Name: "shared by " + name, Data: []byte("value")}}}), b.Append(ctx, name, batch(0)), b.Append(ctx, name, batch(1))))
	}
	testlog.NoError(t, errors.Join(b.PutSnapshot(ctx, "first", "c", backend.Snapshot{Seq: 1, Data: bytes.Repeat([]byte("snapshot"), 200)}), b.Delete(ctx, "second", "c", nil), b.Close()))
	db := testlog.Must(bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true}))(t)
	var used int64
	testlog.NoError(t, errors.Join(db.View(func(tx *bbolt.Tx) error {
		used = tx.Size()
		return nil
	}), db.Close(), os.Truncate(path, used)))
}

type listedSession struct{ name, creation, meta string }

func list(b *bolt.Backend) (out []listedSession, err error) {
	all, err := b.List(ctx, "", "", 99)
	for _, l := range all {
		if l.Err != nil { // List returned the session as damaged
			return nil, l.Err
		}
		out = append(out, listedSession{l.Session, l.Creation, string(l.Meta)})
	}
	return out, err
}

// failIfHangs fails the test if f hangs.
func failIfHangs(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute): // a busy machine may need minutes
		t.Fatalf("%s hangs", what)
	}
}

// calls returns calls of the backend, by name, that a damaged file must not block forever.
func calls(b *bolt.Backend) map[string]func() error {
	return map[string]func() error{
		"Append":      func() error { return b.Append(ctx, "new", backend.Batch{Creation: "n", Create: true}) },
		"Delete":      func() error { return b.Delete(ctx, "third", "c", nil) },
		"PutSnapshot": func() error { return b.PutSnapshot(ctx, "first", "c", backend.Snapshot{Seq: 1, Data: []byte("s")}) },
		"Head":        func() error { _, err := backend.FetchHead(ctx, b, "first"); return err },
		"Read":        func() error { _, err := b.Read(ctx, "first", "c", backend.Range(1, 9), 999); return err },
		"List":        func() error { _, err := list(b); return err },
		"Shared":      func() error { _, err := backend.FetchShared(ctx, b, ""); return err },
	}
}

func wantUnlocked(t *testing.T, path string) {
	t.Helper()
	other, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond, NoSync: true, Logger: discardLogger})
	if errors.Is(err, backend.ErrLocked) {
		t.Errorf("the file is still locked: %v", err)
	}
	if err == nil {
		_ = other.Close()
	}
}

// If another program overwrites, truncates or empties the file while goroutines read and write, the process neither
// crashes nor hangs. The calls may return any result.
func TestFileOverwrittenWhileOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	fill(t, other)
	noise := filepath.Join(dir, "noise")
	testlog.NoError(t, os.WriteFile(noise, bytes.Repeat([]byte("noise "), 20_000), 0o600))
	copyOver := func(from string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			in, err := os.Open(from)
			if err != nil {
				t.Error(err)
				return
			}
			defer in.Close()
			out, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = io.Copy(out, in)
			testlog.WantNil(t, errors.Join(err, out.Close()))
		}
	}
	truncate := func(size int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			testlog.WantNil(t, os.Truncate(path, size))
		}
	}
	rounds, page := 4, int64(os.Getpagesize())
	if testing.Short() {
		rounds = 1
	}
	for name, replace := range map[string]func(t *testing.T, path string){
		"another store": copyOver(other), "noise": copyOver(noise), "emptied": truncate(0), "one page": truncate(page), "two pages": truncate(2 * page),
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				path := filepath.Join(t.TempDir(), "log.db")
				b := testlog.Must(bolt.Open(path, bolt.Options{NoSync: true, Logger: discardLogger}))(t)
				for i := range uint64(300) {
					testlog.NoError(t, b.Append(ctx, fmt.Sprint("s", i), backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record(1)}}))
				}
				var wg, started sync.WaitGroup
				replaced := make(chan struct{})
				for i := range 6 {
					started.Add(1)
					wg.Go(func() {
						remaining := 50
						for k := uint64(1); remaining > 0; k++ {
							if i < 2 {
								_ = b.Append(ctx, fmt.Sprint("s", i), batch(k))
							} else {
								_, _ = b.Read(ctx, fmt.Sprint("s", i), "c", backend.Range(1, 9), 999)
							}
							if k == 1 {
								started.Done()
							}
							select {
							case <-replaced:
								remaining--
							default:
							}
						}
					})
				}
				started.Wait()
				replace(t, path)
				close(replaced)
				failIfHangs(t, "a call", wg.Wait)
				for name, call := range calls(b) {
					failIfHangs(t, name, func() { _ = call() })
				}
				failIfHangs(t, "Check", func() { _ = b.Check(ctx) })
				failIfHangs(t, "Close", func() { _ = b.Close() })
				wantUnlocked(t, path)
			}
		})
	}
}

// A damaged leaf page fails only the calls that need the page.
func TestDamagedPageFailsOnlyItsCalls(t *testing.T) {
	b, path := openWithSession(t)
	// The snapshot is long, so that it has its own pages.
	if err := b.PutSnapshot(ctx, "a", "c", backend.Snapshot{Seq: 1, Data: bytes.Repeat([]byte("s"), 9000)}); err != nil {
		t.Fatal(err)
	}
	testlog.NoError(t, b.Close())
	whole := testlog.Must(os.ReadFile(path))(t)
	at := bytes.Index(whole, bytes.Repeat([]byte("s"), 100))
	at -= at % os.Getpagesize()
	writeAt(t, path, int64(at), 0xff) // overwrite the page's own number
	b = open(t, path)
	for range 3 {
		failIfHangs(t, "Snapshot", func() {
			testlog.ErrorIs(t, testlog.ErrorOf(backend.FetchSnapshot(ctx, b, "a", "c")), backend.ErrDamaged, "Snapshot")
		})
		if n := last(t, b, "a"); n == 0 {
			t.Error("no records")
		}
	}
	testlog.WantNil(t, b.Append(ctx, "a", batch(1)))
	if n := b.OpenReads(); n != 0 {
		t.Errorf("%d read transactions are open", n)
	}
	testlog.WantNil(t, b.Close())
}

// If one of the two meta pages is damaged, Open logs the numbers of both transactions, and Check reports the damage.
// The next commit overwrites the damaged page.
func TestDamagedMetaReported(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, c := range []struct {
		newer    bool // damage the newer page instead of the older one
		wantText string
		sessions int
	}{{true, "the last commit may be missing", 3}, {false, "nothing is missing", 2}} {
		path := filepath.Join(t.TempDir(), "log.db")
		fill(t, path)
		content := testlog.Must(os.ReadFile(path))(t)
		ids := [2]byte{content[16+48], content[page+16+48]}
		i := int64(0)
		if (ids[1] > ids[0]) == c.newer {
			i = 1
		}
		content[i*page+16+20] ^= 1
		testlog.NoError(t, os.WriteFile(path, content, 0o600))
		for _, readOnly := range []bool{true, false} {
			var log bytes.Buffer
			b := testlog.Must(bolt.Open(path, bolt.Options{ReadOnly: readOnly, NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
			bad, good := fmt.Sprint("transaction ", ids[i]), fmt.Sprint("transaction ", ids[1-i])
			for _, wantText := range []string{"WARN", path, bad, good, c.wantText} {
				if !strings.Contains(log.String(), wantText) {
					t.Errorf("the log %q does not contain %q", &log, wantText)
				}
			}
			if err := b.Check(ctx); err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), good) || !strings.Contains(err.Error(), c.wantText) {
				t.Errorf("Check: %v", err)
			}
			if got, err := list(b); err != nil || len(got) != c.sessions {
				t.Errorf("sessions %v, %v; want %d", got, err, c.sessions)
			}
			if !readOnly {
				testlog.WantNil(t, b.Append(ctx, "new", backend.Batch{Creation: "c", Create: true}))
				testlog.WantNil(t, b.Check(ctx))
			}
			testlog.WantNil(t, b.Close())
		}
		var log bytes.Buffer
		b := testlog.Must(bolt.Open(path, bolt.Options{NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
		if err := b.Close(); err != nil || log.Len() > 0 {
			t.Errorf("after a commit: %s, %v", &log, err)
		}
	}
}
