package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

var everyBit = flag.Bool("every-bit", false, "damage every bit of a file, not only those that hold something")

var quiet = slog.New(slog.DiscardHandler)

// fill makes a small file with some of everything, and returns how many bytes of it are
// in use.
func fill(t *testing.T, path string) (used int64) {
	t.Helper()
	b, err := bolt.Open(path, bolt.Options{NoSync: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second", "third"} {
		err = errors.Join(err, b.Append(ctx, name, backend.Batch{Creation: "c", Create: true, Meta: []byte("meta of " + name),
			Shared: []backend.Value{{Name: "shared by " + name, Data: []byte("value")}}}), b.Append(ctx, name, batch(0)), b.Append(ctx, name, batch(1)))
	}
	err = errors.Join(err, b.PutSnapshot(ctx, "first", "c", backend.Snapshot{Seq: 1, Data: bytes.Repeat([]byte("snapshot"), 200)}), b.Delete(ctx, "second", "c", nil), b.Close())
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(db.View(func(tx *bbolt.Tx) error {
		used = tx.Size()
		return nil
	}), db.Close(), os.Truncate(path, used))
	if err != nil {
		t.Fatal(err)
	}
	return used
}

type listedSession struct{ name, creation, meta string }

func list(b *bolt.Backend) (out []listedSession, err error) {
	all, err := b.List(ctx, "", "", 99)
	for _, l := range all {
		if l.Err != nil { // the session is named, and said to be damaged
			return nil, l.Err
		}
		out = append(out, listedSession{l.Session, l.Creation, string(l.Meta)})
	}
	return out, err
}

// Whatever byte is zeroed and whatever bit flips: a listing tells the truth or fails, and
// to open the file and read it changes nothing in it.
func TestListingOfADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	used := fill(t, path)
	b, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	want, err := list(b)
	if err := errors.Join(err, b.Close()); err != nil || len(want) != 2 {
		t.Fatalf("%d sessions, %v", len(want), err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	whole := make([]byte, used)
	if _, err := file.ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	now := make([]byte, used)
	older := func(at int64) bool { return at < 2*int64(os.Getpagesize()) } // a meta page: the state before may be shown
	tried, refused := 0, 0
	try := func(at int64, value byte, readOnly bool) {
		if value == whole[at] {
			return
		}
		tried++
		if _, err := file.WriteAt([]byte{value}, at); err != nil {
			t.Fatal(err)
		}
		b, err := bolt.Open(path, bolt.Options{ReadOnly: readOnly, NoSync: true, Logger: quiet})
		var got []listedSession
		if err == nil {
			got, err = list(b)
			_, _ = b.Head(ctx, "first")
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		switch {
		case err != nil:
			refused++
			if !errors.Is(err, backend.ErrDamaged) {
				t.Errorf("byte %d as %#x instead of %#x: %v", at, value, whole[at], err)
			}
		case !reflect.DeepEqual(got, want) && !(older(at) && len(got) == 3):
			t.Errorf("byte %d as %#x instead of %#x: the sessions are %v", at, value, whole[at], got)
		}
		if _, err := file.ReadAt(now, 0); err != nil {
			t.Fatal(err)
		}
		if now[at] != value {
			t.Fatalf("byte %d as %#x instead of %#x: it was changed", at, value, whole[at])
		}
		now[at] = whole[at]
		if !bytes.Equal(now, whole) {
			t.Fatalf("byte %d as %#x instead of %#x: reading changed the file", at, value, whole[at])
		}
		if _, err := file.WriteAt(whole[at:at+1], at); err != nil {
			t.Fatal(err)
		}
	}
	for at := range used {
		try(at, 0, false)
		switch inPage := at % int64(os.Getpagesize()); {
		case whole[at] != 0 || inPage < 32 || *everyBit:
			for bit := range 8 {
				try(at, whole[at]^1<<bit, bit != 0)
			}
		case inPage%64 == 0:
			try(at, whole[at]^1, true)
		}
	}
	if refused == 0 {
		t.Error("nothing was found; the test tests nothing")
	}
	t.Logf("%d of %d damages were refused", refused, tried)
}

// inTime fails the test if f hangs.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute): // however busy the machine is
		t.Fatalf("%s hangs", what)
	}
}

// calls are all that may hang, writers first.
func calls(b *bolt.Backend) map[string]func() error {
	return map[string]func() error{
		"Append":      func() error { return b.Append(ctx, "new", backend.Batch{Creation: "n", Create: true}) },
		"Delete":      func() error { return b.Delete(ctx, "third", "c", nil) },
		"PutSnapshot": func() error { return b.PutSnapshot(ctx, "first", "c", backend.Snapshot{Seq: 1, Data: []byte("s")}) },
		"Head":        func() error { _, err := b.Head(ctx, "first"); return err },
		"Read":        func() error { _, err := b.Read(ctx, "first", "c", 1, 9, 999); return err },
		"List":        func() error { _, err := list(b); return err },
		"Shared":      func() error { _, err := b.Shared(ctx, ""); return err },
	}
}

// allFail checks that every call fails at once, and why, and that Close does not.
func allFail(t *testing.T, b *bolt.Backend, path string, first []string) {
	t.Helper()
	all := calls(b)
	for name := range all {
		first = append(first, name)
	}
	for _, name := range first {
		inTime(t, name, func() {
			if err := all[name](); !errors.Is(err, backend.ErrDamaged) || errors.Is(err, backend.ErrUnknown) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: error %v, want %v of %s", name, err, backend.ErrDamaged, path)
			}
		})
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := b.Delete(cancelled, "a", "c", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete with a cancelled context: %v", err)
	}
	inTime(t, "Check", func() {
		if err := b.Check(ctx); !errors.Is(err, backend.ErrDamaged) {
			t.Errorf("Check: %v", err)
		}
	})
	inTime(t, "Close", func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// isLetGo checks that others may open the file.
func isLetGo(t *testing.T, path string) {
	t.Helper()
	other, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond, NoSync: true, Logger: quiet})
	if errors.Is(err, backend.ErrLocked) {
		t.Errorf("the file is still locked: %v", err)
	}
	if err == nil {
		_ = other.Close()
	}
}

// What becomes of the meta pages under an open file: every bit of each, and of both.
func TestDamagedMetaUnderAnOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	fill(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	const header, end = 16, 80
	newer := int64(0)
	if whole[page+header+48] > whole[header+48] { // their transactions
		newer = 1
	}
	for bit := int64(0); bit < end*8; bit++ {
		if bit%8 != bit/8%8 && !*everyBit { // else one of each byte
			continue
		}
		for _, damaged := range [][]int64{{newer}, {1 - newer}, {0, 1}} {
			path := fmt.Sprint(path, bit, damaged) // each in its own: maps of abandoned files stay
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := bolt.Open(path, bolt.Options{NoSync: true, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range damaged {
				at := i*page + bit/8
				if _, err := file.WriteAt([]byte{whole[at] ^ 1<<(bit%8)}, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			// What does not matter to a reader is noticed by the first write.
			first := []string{"Head"}
			if damaged[0] == 1-newer && len(damaged) == 1 || bit < header*8 {
				first = []string{"Append"}
				if err := calls(b)["Head"](); err != nil {
					t.Errorf("bit %d of pages %v: %v", bit, damaged, err)
				}
			} else if bit%2 == 0 {
				first = []string{"PutSnapshot"}
			}
			if bit%3 == 0 {
				_ = calls(b)[first[0]]()
				isLetGo(t, path)
			}
			allFail(t, b, path, first)
			if t.Failed() {
				t.Fatalf("bit %d of meta pages %v", bit, damaged)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// While many read and write, the file is overwritten, cut off or emptied: nobody hangs.
func TestReplacedUnderAnOpenFile(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	fill(t, other)
	noise := filepath.Join(dir, "noise")
	if err := os.WriteFile(noise, bytes.Repeat([]byte("noise "), 20_000), 0o600); err != nil {
		t.Fatal(err)
	}
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
			if err := errors.Join(err, out.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	truncate := func(size int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Truncate(path, size); err != nil {
				t.Error(err)
			}
		}
	}
	page := int64(os.Getpagesize())
	for name, replace := range map[string]func(t *testing.T, path string){
		"another store": copyOver(other), "noise": copyOver(noise), "emptied": truncate(0), "one page": truncate(page), "two pages": truncate(2 * page),
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				path := filepath.Join(t.TempDir(), "log.db")
				b, err := bolt.Open(path, bolt.Options{NoSync: true, Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				for i := range uint64(300) {
					if err := b.Append(ctx, fmt.Sprint("s", i), backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record(1)}}); err != nil {
						t.Fatal(err)
					}
				}
				var wg, started sync.WaitGroup
				for i := range 6 {
					if i < 2 && strings.Contains(name, "page") {
						continue // a commit under way might write a meta page, or the root, where it was
					}
					started.Add(1)
					wg.Go(func() {
						for k := uint64(1); ; k++ {
							var err error
							if i < 2 {
								err = b.Append(ctx, fmt.Sprint("s", i), batch(k))
							} else {
								_, err = b.Read(ctx, fmt.Sprint("s", i), "c", 1, 9, 999)
							}
							if k == 1 {
								started.Done()
							}
							if err != nil {
								return
							}
						}
					})
				}
				started.Wait()
				replace(t, path)
				// One of them may still read what is left; a write notices.
				_ = b.Append(ctx, "new", backend.Batch{Creation: "c", Create: true})
				inTime(t, "a call", wg.Wait)
				if name != "two pages" { // there bbolt's begin finds nothing wrong
					isLetGo(t, path)
				}
				allFail(t, b, path, nil)
			}
		})
	}
}

// A damaged page of data fails the calls that need it, and no other.
func TestDamagedPageFailsOneCall(t *testing.T) {
	b, path := openWith(t)
	if err := b.PutSnapshot(ctx, "a", "c", backend.Snapshot{Seq: 1, Data: bytes.Repeat([]byte("s"), 9000)}); err != nil { // in a page of its own
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	whole := make([]byte, 64*os.Getpagesize())
	if _, err := file.ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, bytes.Repeat([]byte("s"), 100))
	at -= at % os.Getpagesize()
	if _, err := file.WriteAt([]byte{0xff}, int64(at)); err != nil { // it says that it is another page
		t.Fatal(err)
	}
	for range 3 {
		inTime(t, "Snapshot", func() {
			if _, err := b.Snapshot(ctx, "a", "c"); !errors.Is(err, backend.ErrDamaged) {
				t.Errorf("Snapshot: %v", err)
			}
		})
		if n := last(t, b, "a"); n == 0 {
			t.Error("no records")
		}
	}
	if err := b.Append(ctx, "a", batch(1)); err != nil {
		t.Errorf("Append: %v", err)
	}
	if n := b.OpenReads(); n != 0 {
		t.Errorf("%d read transactions are open", n)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// When one of the two meta pages is damaged, opening says so, with both transactions, and
// Check too; the next commit takes the damaged page's place.
func TestDamagedMetaIsReported(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, c := range []struct {
		newer    bool // the newer page is the damaged one
		says     string
		sessions int
	}{{true, "the last commit may be missing", 3}, {false, "nothing is missing", 2}} {
		path := filepath.Join(t.TempDir(), "log.db")
		fill(t, path)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ids := [2]byte{whole[16+48], whole[page+16+48]}
		i := int64(0)
		if (ids[1] > ids[0]) == c.newer {
			i = 1
		}
		whole[i*page+16+20] ^= 1
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{true, false} {
			var log bytes.Buffer
			b, err := bolt.Open(path, bolt.Options{ReadOnly: readOnly, NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			bad, good := fmt.Sprint("transaction ", ids[i]), fmt.Sprint("transaction ", ids[1-i])
			for _, says := range []string{"WARN", path, bad, good, c.says} {
				if !strings.Contains(log.String(), says) {
					t.Errorf("the log %q does not say %q", &log, says)
				}
			}
			if err := b.Check(ctx); err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), good) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Check: %v", err)
			}
			if got, err := list(b); err != nil || len(got) != c.sessions {
				t.Errorf("sessions %v, %v; want %d", got, err, c.sessions)
			}
			if !readOnly {
				err = errors.Join(b.Append(ctx, "new", backend.Batch{Creation: "c", Create: true}), b.Check(ctx))
			}
			if err := errors.Join(err, b.Close()); err != nil {
				t.Error(err)
			}
		}
		var log bytes.Buffer
		b, err := bolt.Open(path, bolt.Options{NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil || log.Len() > 0 {
			t.Errorf("after a commit: %s, %v", &log, err)
		}
	}
}
