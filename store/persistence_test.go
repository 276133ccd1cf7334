package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

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
		no(t, os.WriteFile(path(name), data, 0o600))
		return path(name)
	}
	foreign := path("foreign")
	makeBolt(t, foreign, func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("widgets"))
		return err
	})
	newer := path("newer")
	s := openStore(t, newer, store.Options{})
	no(t, s.Close())
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
	no(t, err)
	no(t, errors.Join(db.Update(change), db.Close()))
}

func copyOf(t *testing.T, from, to string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	no(t, err)
	return to
}
