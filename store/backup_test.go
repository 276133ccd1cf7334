package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// bustle is writers that do all there is to do, each after its own plan.
type bustle struct {
	t     *testing.T
	store *store.Store
	stop  atomic.Bool
	wg    sync.WaitGroup

	tried, acknowledged [pairs]atomic.Int64 // events of each first session
}

const (
	pairs    = 8   // writers who write to a first session, and then to a second one
	imported = 700 // events of an import: more than one commit has
)

func oneOf(kind string, w int) store.Key {
	return store.Key{App: "app", User: "user", Session: fmt.Sprint(kind, w)}
}

func startBustle(t *testing.T, s *store.Store) *bustle {
	c := &bustle{t: t, store: s}
	for w := range pairs {
		for _, kind := range []string{"first", "second"} {
			must(t)(s.Create(ctx, oneOf(kind, w), nil))
		}
	}
	must(t)(s.Create(ctx, oneOf("patched", 0), nil))
	for w := range pairs {
		c.run(func(ctx context.Context, n int) error { return c.pair(ctx, w) })
	}
	for w := range 2 {
		c.run(func(ctx context.Context, n int) error { return c.patch(ctx) })
		c.run(func(ctx context.Context, n int) error { return c.createAndDelete(ctx, w) })
		c.run(func(ctx context.Context, n int) error { return c.fork(ctx, w) })
		c.run(func(ctx context.Context, n int) error { return c.importAndDelete(ctx, w) })
	}
	return c
}

// run calls do until the bustle ends. One call in eight is abandoned.
func (c *bustle) run(do func(ctx context.Context, n int) error) {
	c.wg.Go(func() {
		for n := 0; !c.stop.Load(); n++ {
			ctx, cancel := context.WithCancel(ctx)
			if rand.IntN(8) == 0 {
				go cancel()
			}
			err := do(ctx, n)
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				c.t.Error(err)
				return
			}
		}
	})
}

func (c *bustle) end() {
	c.stop.Store(true)
	c.wg.Wait()
}

func (c *bustle) pair(ctx context.Context, w int) error {
	n := c.acknowledged[w].Load() + 1
	c.tried[w].Store(n)
	e := event(`{"id":"n%d","actions":{"stateDelta":{"app:of%d":%d}}}`, n, w, n)
	if _, err := c.store.AppendEvents(ctx, oneOf("first", w), store.AppendOptions{}, e); err != nil {
		return err
	}
	c.acknowledged[w].Store(n)
	_, err := c.store.AppendEvents(context.WithoutCancel(ctx), oneOf("second", w), store.AppendOptions{}, event(`{"id":"n%d"}`, n))
	return err
}

func (c *bustle) patch(ctx context.Context) error {
	key := oneOf("patched", 0)
	if _, err := c.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"author":"a"}`), event(`{"author":"b"}`)); err != nil {
		return err
	}
	_, err := c.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1))
	return err
}

func (c *bustle) createAndDelete(ctx context.Context, w int) error {
	key := oneOf("brief", w)
	if err := c.store.Delete(ctx, key); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, err := c.store.Create(ctx, key, map[string]any{"k": w}); err != nil {
		return err
	}
	_, err := c.store.AppendEvents(ctx, key, store.AppendOptions{}, says("e", 5)...)
	return err
}

func (c *bustle) fork(ctx context.Context, w int) error {
	if err := c.store.Delete(ctx, oneOf("fork", w)); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	_, err := c.store.Fork(ctx, oneOf("first", w), oneOf("fork", w), store.ForkOptions{})
	return err
}

func (c *bustle) importAndDelete(ctx context.Context, w int) error {
	if err := c.store.Delete(ctx, oneOf("import", w)); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	text := `{"patchlog":1}` + "\n"
	for i := range imported {
		text += fmt.Sprintf(`{"id":"i%d"}`+"\n", i)
	}
	_, err := c.store.Import(ctx, oneOf("import", w), strings.NewReader(text), store.ImportOptions{})
	return err
}

// counts returns how many events of the first sessions there are at least, or at most.
func counts(of *[pairs]atomic.Int64) (n [pairs]int64) {
	for w := range n {
		n[w] = of[w].Load()
	}
	return n
}

// judge says what is wrong with a file that is to be a backup: made after least was
// acknowledged, before more than most was tried.
func judge(path string, least, most [pairs]int64) error {
	s, err := store.Open(path, store.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer s.Close()
	for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
		if err != nil {
			return err
		}
		return errors.New(p.String())
	}
	records := func(kind string, w int) (n int64, err error) {
		for r, err := range s.RawEvents(ctx, oneOf(kind, w), 1) {
			if errors.Is(err, store.ErrNotFound) {
				return -1, nil
			}
			if err != nil {
				return 0, err
			}
			if n++; (kind == "first" || kind == "second") && r.ID() != fmt.Sprint("n", n) {
				return 0, fmt.Errorf("record %d of %s%d is %s", n, kind, w, r.ID())
			}
		}
		return n, nil
	}
	for w := range pairs {
		first, err := records("first", w)
		second, err2 := records("second", w)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if first < least[w] || first > most[w] {
			return fmt.Errorf("pair %d: %d events; %d were acknowledged before, %d tried until the end", w, first, least[w], most[w])
		}
		if second > first || second < first-1 {
			return fmt.Errorf("pair %d: %d events in the first session, and %d in the second, which comes later", w, first, second)
		}
		got, err := s.Get(ctx, oneOf("first", w))
		if err != nil {
			return err
		}
		if n := fmt.Sprint(got.State()[fmt.Sprint("app:of", w)]); first > 0 && n != fmt.Sprint(first) {
			return fmt.Errorf("pair %d: the shared value is %s after %d events", w, n, first)
		}
	}
	for w := range 2 {
		brief, err := records("brief", w)
		imports, err2 := records("import", w)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if brief > 0 && brief != 5 || imports >= 0 && imports != imported {
			return fmt.Errorf("%d events of 5, %d of %d that were imported", brief, imports, imported)
		}
	}
	return nil
}

// A backup of a file that 16 writers write to is whole: it has all that was acknowledged when
// it began, of everything the beginning, and nothing without what came before it. A copy of
// the open file is not.
func TestBackupWhileOthersWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log.db")
	s := openStore(t, path, store.Options{Durability: store.Relaxed})
	defer s.Close()
	sessions := 10
	if testlog.Race {
		sessions = 3
	}
	fillLarge(t, s, sessions, 500)
	c := startBustle(t, s)
	defer c.end()
	tries := 6
	if testing.Short() {
		tries = 2
	}
	unusable := 0
	for i := range tries {
		to := filepath.Join(dir, fmt.Sprint("backup", i))
		file, err := os.Create(to)
		no(t, err)
		c.wait(100)
		least := counts(&c.acknowledged)
		no(t, errors.Join(s.Backup(ctx, file), file.Close()))
		if err := judge(to, least, counts(&c.tried)); err != nil {
			t.Errorf("backup %d: %v", i, err)
		}
		to = filepath.Join(dir, fmt.Sprint("copy", i))
		least = counts(&c.acknowledged)
		c.copyOpen(path, to)
		if err := judge(to, least, counts(&c.tried)); err != nil {
			unusable++
		}
		if i%2 == 1 {
			if err := s.Vacuum(ctx); err != nil {
				t.Errorf("vacuum: %v", err)
			}
		}
	}
	t.Logf("of %d copies of the open file %d were of no use", tries, unusable)
	if unusable == 0 {
		t.Error("copies of the open file are as good as backups; the test tests nothing")
	}
	c.end()
	least, most := counts(&c.acknowledged), counts(&c.tried)
	no(t, s.Close())
	if err := judge(path, least, most); err != nil {
		t.Errorf("the file itself: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("beside the file there is %v (%v)", left, err)
	}
}

// copyOpen copies the file in pieces, between which others have written: as on a slow disk.
func (c *bustle) copyOpen(from, to string) {
	c.t.Helper()
	in, err := os.Open(from)
	if err != nil {
		c.t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		c.t.Fatal(err)
	}
	for err == nil {
		if _, err = io.CopyN(out, in, 256<<10); err == nil {
			c.wait(20)
		}
	}
	if err := out.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// wait waits until so many events more have been acknowledged.
func (c *bustle) wait(n int64) {
	sum := func() (sum int64) {
		for _, n := range counts(&c.acknowledged) {
			sum += n
		}
		return sum
	}
	for start := sum(); sum() < start+n && !c.t.Failed(); {
		time.Sleep(time.Millisecond)
	}
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
