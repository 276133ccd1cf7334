package bolt_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// unsyncedFile simulates a file and its page cache. As on Linux, a failed sync marks the pages as clean although
// they are not on disk.
type unsyncedFile struct {
	cache, disk []byte
	dirty       map[int]bool // key: number of a page that the next sync writes to disk
	failSync    bool
	canWrite    bool
}

var errSync = errors.New("sync failed")

func (c *unsyncedFile) WriteAt(p []byte, at int64) (int, error) {
	if !c.canWrite {
		return 0, errSync
	}
	for i := range p {
		c.cache[int(at)+i] = p[i]
		c.dirty[(int(at)+i)/os.Getpagesize()] = true
	}
	return len(p), nil
}

func (c *unsyncedFile) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(c.cache).ReadAt(p, at)
}

func (c *unsyncedFile) Sync() error {
	defer clear(c.dirty)
	if c.failSync {
		return errSync
	}
	for page := range c.dirty {
		copy(c.disk[page*os.Getpagesize():][:os.Getpagesize()], c.cache[page*os.Getpagesize():])
	}
	return nil
}

// If the last sync of a commit fails, rewriting the meta page makes the commit durable. A second sync alone does
// not.
func TestRewriteMeta(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	fill(t, path)
	durable := testlog.Must(os.ReadFile(path))(t) // all pages of the last commit except its meta page
	b := testlog.Must(bolt.Open(path, bolt.Options{NoSync: true}))(t)
	testlog.NoError(t, errors.Join(b.Delete(ctx, "third", "c", nil), b.Close()))
	after := testlog.Must(os.ReadFile(path))(t)
	durable = append(durable, make([]byte, len(after)-len(durable))...)
	copy(durable[2*os.Getpagesize():], after[2*os.Getpagesize():])
	onDisk := func(c *unsyncedFile) (sessions int) {
		disk := filepath.Join(t.TempDir(), "disk.db")
		testlog.NoError(t, os.WriteFile(disk, c.disk, 0o600))
		b := testlog.Must(bolt.Open(disk, bolt.Options{ReadOnly: true}))(t)
		got, err := list(b)
		testlog.NoError(t, errors.Join(err, b.Close()))
		return len(got)
	}
	c := &unsyncedFile{cache: bytes.Clone(after), disk: bytes.Clone(durable), dirty: map[int]bool{}, canWrite: true}
	if err := c.Sync(); err != nil || onDisk(c) != 2 {
		t.Fatalf("a sync alone: %d sessions, want 2, or the test proves nothing; %v", onDisk(c), err)
	}
	for _, failure := range []struct{ failing, writes bool }{{true, true}, {false, false}} {
		c.failSync, c.canWrite = failure.failing, failure.writes
		if err := bolt.RewriteMeta(c); !errors.Is(err, errSync) || onDisk(c) != 2 {
			t.Errorf("%+v: %v, %d sessions on disk", failure, err, onDisk(c))
		}
	}
	c.failSync, c.canWrite = false, true
	if err := bolt.RewriteMeta(c); err != nil || onDisk(c) != 1 {
		t.Errorf("rewritten: %v, %d sessions on disk, want 1", err, onDisk(c))
	}
	if !bytes.Equal(c.cache, after) {
		t.Error("rewriting changed what the file holds")
	}
}

// Open fails if the file cannot be made durable. After a failed commit, all calls fail until the file can be made
// durable.
func TestRewriteMetaFails(t *testing.T) {
	for name, commit := range map[string]func(tx *bbolt.Tx) error{"lost": commitFailures["lost"].commit, "landed": commitFailures["landed"].commit} {
		t.Run(name, func(t *testing.T) {
			first, path := openWithSession(t)
			testlog.NoError(t, first.Close())
			b := testlog.Must(bolt.Open(path, bolt.Options{}))(t)
			b.SetCommit(commit)
			if err := b.Append(ctx, "a", batch(1)); err == nil {
				t.Fatal("no error")
			}
			b.SetCommit(nil)
			restore := bolt.FailRewriteMeta(b, errSync)
			for range 2 {
				_, err := backend.FetchHead(ctx, b, "a")
				testlog.ErrorIs(t, err, errSync, "Head")
				testlog.ErrorIs(t, err, errDisk, "Head")
				testlog.ErrorIs(t, b.Append(ctx, "a", batch(1)), errSync, "Append")
			}
			restore()
			if n := last(t, b, "a"); (n == 2) != (name == "landed") {
				t.Errorf("%d records", n)
			}
			closeAndCheck(t, b, path)
		})
	}
}

// If a commit fails while an older copy is renamed over the file, the backend neither reads nor overwrites the copy.
// The backend would otherwise take the content of the copy for the outcome of the commit.
func TestFileReplacedDuringFailedCommit(t *testing.T) {
	b, path := openWithSession(t)
	backup := testlog.Must(os.ReadFile(path))(t)
	for i := range uint64(3) {
		testlog.NoError(t, b.Append(ctx, "a", batch(1+i)))
	}
	b.SetCommit(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Rollback(), os.WriteFile(path, backup, 0o600), errDisk)
	})
	testlog.ErrorIs(t, b.Append(ctx, "a", batch(4)), errDisk)
	for name, call := range map[string]func() error{
		"Append": func() error { return b.Append(ctx, "a", batch(1)) },
		"Head":   func() error { _, err := backend.FetchHead(ctx, b, "a"); return err },
	} {
		if err := call(); !errors.Is(err, backend.ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want %v of %s", name, err, backend.ErrDamaged, path)
		}
	}
	testlog.WantNil(t, b.Close())
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, backup) {
		t.Errorf("the file was written to; %v", err)
	}
	b = testlog.Must(bolt.Open(path, bolt.Options{NoSync: true}))(t)
	closeAndCheck(t, b, path)
}

// If Vacuum cannot sync the directory, it fails. All later calls fail until the directory can be synced.
func TestVacuumSyncsDirectory(t *testing.T) {
	first, path := openWithSession(t)
	testlog.NoError(t, first.Close())
	b := testlog.Must(bolt.Open(path, bolt.Options{}))(t)
	renamed := false
	restore := bolt.SetSyncDir(b, func(dir string) error {
		if _, err := os.Stat(filepath.Join(dir, ".log.db.vacuum")); err == nil {
			return nil
		}
		renamed = true
		return errSync
	})
	testlog.ErrorIs(t, b.Vacuum(ctx, func([]byte) uint32 { return 0 }), errSync, "Vacuum")
	testlog.ErrorIs(t, b.Append(ctx, "a", batch(1)), errSync, "Append")
	if !renamed {
		t.Error("the file was not renamed")
	}
	restore()
	testlog.NoError(t, b.Append(ctx, "a", batch(1)))
	wantLast(t, b, 2)
	closeAndCheck(t, b, path)
}
