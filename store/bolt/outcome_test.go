package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

var (
	ctx     = context.Background()
	errDisk = errors.New("the disk is gone")
)

func record(seq uint64) backend.Record {
	return backend.Record{Seq: seq, IDs: []string{fmt.Sprint("id", seq)}, Data: fmt.Append(nil, "record ", seq)}
}

func batch(after uint64) backend.Batch {
	return backend.Batch{Creation: "c", ExpectedLast: after, Records: []backend.Record{record(after + 1)}}
}

// openWithSession opens a file that has a session "a" with one record.
func openWithSession(t *testing.T) (b *bolt.Backend, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.db")
	b = testlog.Must(bolt.Open(path, bolt.Options{NoSync: true, LockTimeout: 100 * time.Millisecond}))(t)
	testlog.NoError(t, b.Append(ctx, "a", backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record(1)}}))
	return b, path
}

func last(t *testing.T, b *bolt.Backend, name string) uint64 {
	t.Helper()
	head := testlog.Must(backend.FetchHead(ctx, b, name))(t)
	return head.Last
}

func wantLast(t *testing.T, b *bolt.Backend, want uint64) {
	t.Helper()
	if n := last(t, b, "a"); n != want {
		t.Errorf("%d records, want %d", n, want)
	}
}

func closeAndCheck(t *testing.T, b *bolt.Backend, path string) {
	t.Helper()
	testlog.WantNil(t, b.Close())
	b = testlog.Must(bolt.Open(path, bolt.Options{}))(t)
	testlog.WantNil(t, errors.Join(b.Check(ctx), b.Close()))
}

var commitFailures = map[string]struct {
	commit func(tx *bbolt.Tx) error
	landed bool
}{
	"lost":              {func(tx *bbolt.Tx) error { return errors.Join(tx.Rollback(), errDisk) }, false},
	"landed":            {func(tx *bbolt.Tx) error { return errors.Join(tx.Commit(), errDisk) }, true},
	"panics":            {func(tx *bbolt.Tx) error { panic("page 7 already freed") }, false},
	"panics after that": {func(tx *bbolt.Tx) error { _ = tx.Commit(); panic("page 7 already freed") }, true},
}

// If a commit fails, Append reports that the outcome is unknown, even if the commit renames a staged session. The
// next call reopens the file and returns what is on disk.
func TestFailedCommit(t *testing.T) {
	for name, failure := range commitFailures {
		for call, write := range map[string]func(b *bolt.Backend) error{
			"Append": func(b *bolt.Backend) error { return b.Append(ctx, "a", batch(1)) },
			"Delete": func(b *bolt.Backend) error { return b.Delete(ctx, "a", "c", nil) },
			"PutSnapshot": func(b *bolt.Backend) error {
				return b.PutSnapshot(ctx, "a", "c", backend.Snapshot{Seq: 1, Data: []byte("snapshot")})
			},
			"Rename": func(b *bolt.Backend) error {
				return b.Append(ctx, "new", backend.Batch{Creation: "s", Create: true, RenameFrom: "staged s", ExpectedLast: 20, Records: makeRecords(20, 1)})
			},
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				b, path := openWithSession(t)
				stageAll(t, b, "s", 20, 10)
				var handles []*bbolt.DB
				b.SetCommit(func(tx *bbolt.Tx) error {
					handles = append(handles, tx.DB())
					if len(handles) == 1 {
						return failure.commit(tx)
					}
					return tx.Commit()
				})
				err := write(b)
				var unknown *backend.UnknownError
				if !errors.Is(err, backend.ErrUnknown) || !errors.As(err, &unknown) || unknown.Cause == nil {
					t.Fatalf("error %v, want %v", err, backend.ErrUnknown)
				}
				if strings.HasPrefix(name, "panics") == errors.Is(err, errDisk) {
					t.Errorf("error %v does not say why", err)
				}
				head, headErr := backend.FetchHead(ctx, b, "a")
				snapshot, _ := backend.FetchSnapshot(ctx, b, "a", "c")
				renamed, newErr := backend.FetchHead(ctx, b, "new")
				if _, err := backend.FetchHead(ctx, b, "staged s"); (err == nil) == (newErr == nil) || newErr == nil && renamed.Last != 21 {
					t.Errorf("the old name: %v, the new one: %v, with %d records", err, newErr, renamed.Last)
				}
				landed := head.Last == 2 || newErr == nil || errors.Is(headErr, backend.ErrNotFound) || snapshot.Data != nil
				if landed != failure.landed {
					t.Errorf("landed: %t, want %t", landed, failure.landed)
				}
				// The backend has reopened the file, so the next write succeeds.
				testlog.NoError(t, b.Append(ctx, "b", backend.Batch{Creation: "c", Create: true}))
				if len(handles) != 2 || handles[0] == handles[1] {
					t.Error("the handle that failed is still used")
				}
				b.SetCommit(nil)
				closeAndCheck(t, b, path)
			})
		}
	}
}

// Writers that waited while a commit failed do not write through the failed handle. Each writer gets the result of
// its own batch.
func TestFailedGroupCommit(t *testing.T) {
	for name, failure := range commitFailures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, path := openWithSession(t)
				free := make(chan struct{})
				var handles []*bbolt.DB
				b.SetCommit(func(tx *bbolt.Tx) error {
					handles = append(handles, tx.DB())
					switch len(handles) {
					case 1: // make the first commit wait until all other calls are queued
						<-free
					case 2:
						return failure.commit(tx)
					}
					return tx.Commit()
				})
				var wg sync.WaitGroup
				errs := make([]error, 8)
				start := func(i int, do func() error) {
					wg.Go(func() { errs[i] = do() })
					synctest.Wait()
				}
				start(0, func() error { return b.Append(ctx, "a", batch(1)) })
				for i := 1; i <= 3; i++ {
					start(i, func() error { return b.Append(ctx, "a", batch(uint64(i)+1)) })
				}
				start(4, func() error { return b.Append(ctx, "a", batch(1)) }) // must fail with ErrMoved
				start(5, func() error { return b.Append(ctx, "new", backend.Batch{Creation: "n", Create: true}) })
				start(6, func() error { return b.Append(ctx, "none", batch(0)) })
				start(7, func() error { return b.Delete(ctx, "none", "c", nil) }) // runs in its own commit
				close(free)
				wg.Wait()

				if errs[0] != nil {
					t.Errorf("the first: %v", errs[0])
				}
				for _, i := range []int{1, 2, 3, 5} {
					if !errors.Is(errs[i], backend.ErrUnknown) {
						t.Errorf("batch %d: %v, want %v", i, errs[i], backend.ErrUnknown)
					}
				}
				for i, want := range map[int]error{4: backend.ErrMoved, 6: backend.ErrNotFound, 7: backend.ErrNotFound} {
					if !errors.Is(errs[i], want) || errors.Is(errs[i], backend.ErrUnknown) {
						t.Errorf("batch %d: %v, want %v", i, errs[i], want)
					}
				}
				want := uint64(2)
				if failure.landed {
					want = 5
				}
				wantLast(t, b, want)
				if _, err := backend.FetchHead(ctx, b, "new"); (err == nil) != failure.landed {
					t.Errorf("the new session: %v", err)
				}
				testlog.WantNil(t, b.Append(ctx, "a", batch(want)))
				if n := len(handles); n != 3 || handles[1] == handles[2] {
					t.Errorf("%d commits; with the handle that failed: %t", n, n == 3 && handles[1] == handles[2])
				}
				closeAndCheck(t, b, path)
			})
		})
	}
}

// Batches that wait at the same time share a commit. If one batch is refused, the other batches are still committed.
func TestSharedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, path := openWithSession(t)
		free := make(chan struct{})
		commits := 0
		b.SetCommit(func(tx *bbolt.Tx) error {
			if commits++; commits == 1 {
				<-free
			}
			return tx.Commit()
		})
		var wg sync.WaitGroup
		results := map[string]error{}
		var mu sync.Mutex
		start := func(name string, do func() error) {
			wg.Go(func() {
				err := do()
				mu.Lock()
				defer mu.Unlock()
				results[name] = err
			})
			synctest.Wait()
		}
		refused := func(name string, batch backend.Batch) {
			batch.Creation, batch.ExpectedLast = "c", 3
			start(name, func() error { return b.Append(ctx, "a", batch) })
		}
		cancelled, cancel := context.WithCancel(ctx)
		long := strings.Repeat("x", backend.MaxNameBytes+1)
		start("first", func() error { return b.Append(ctx, "a", batch(1)) })
		start("next", func() error { return b.Append(ctx, "a", batch(2)) })
		start("moved", func() error { return b.Append(ctx, "a", batch(2)) })
		refused("gap", backend.Batch{Records: []backend.Record{record(9)}})
		refused("long id", backend.Batch{Records: []backend.Record{{Seq: 4, IDs: []string{long}}}})
		start("long name", func() error { return b.Append(ctx, long, backend.Batch{Creation: "c", Create: true}) })
		start("no name", func() error { return b.Append(ctx, "", backend.Batch{Creation: "c", Create: true}) })
		refused("long shared name", backend.Batch{Shared: []backend.Value{{Name: long}}})
		start("gone", func() error { return b.Append(cancelled, "a", batch(3)) })
		start("new", func() error { return b.Append(ctx, "new", backend.Batch{Creation: "n", Create: true}) })
		start("new again", func() error { return b.Append(ctx, "new", backend.Batch{Creation: "m", Create: true}) })
		start("last", func() error { return b.Append(ctx, "a", batch(3)) })
		start("snapshot", func() error { return b.PutSnapshot(ctx, "a", "c", backend.Snapshot{Seq: 1, Data: []byte("s")}) })
		start("snapshot of none", func() error { return b.PutSnapshot(ctx, "none", "c", backend.Snapshot{Seq: 1, Data: []byte("s")}) })
		cancel()
		synctest.Wait()
		close(free)
		wg.Wait()
		for name, want := range map[string]error{
			"first": nil, "next": nil, "new": nil, "last": nil, "snapshot": nil,
			"moved": backend.ErrMoved, "gone": context.Canceled, "new again": backend.ErrExists, "snapshot of none": backend.ErrNotFound,
		} {
			if !errors.Is(results[name], want) || want == nil && results[name] != nil {
				t.Errorf("%s: %v, want %v", name, results[name], want)
			}
		}
		for _, name := range []string{"gap", "long id", "long name", "no name", "long shared name"} {
			if results[name] == nil || errors.Is(results[name], backend.ErrUnknown) {
				t.Errorf("%s: %v, want a refusal", name, results[name])
			}
		}
		if commits != 2 {
			t.Errorf("%d commits, want 2", commits)
		}
		wantLast(t, b, 4)
		closeAndCheck(t, b, path)
	})
}

// While the file cannot be reopened, calls fail with the error from opening. Once the file can be reopened, calls
// succeed.
func TestReopenFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		block func(t *testing.T, path string) (unblock func())
		want  error
	}{
		{"damaged", func(t *testing.T, path string) func() {
			testlog.NoError(t, os.WriteFile(path, []byte(strings.Repeat("garbage", 10_000)), 0o600))
			return func() {}
		}, backend.ErrDamaged},
		{"another's", func(t *testing.T, path string) func() {
			other := testlog.Must(bolt.Open(path, bolt.Options{}))(t)
			return func() {
				testlog.NoError(t, other.Close())
			}
		}, backend.ErrDamaged},
		{"not there", func(t *testing.T, path string) func() {
			return func() {
				testlog.ErrorIs(t, testlog.ErrorOf(os.Lstat(path)), os.ErrNotExist, "a file was created")
			}
		}, os.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, path := openWithSession(t)
			unblock := func() {}
			b.SetCommit(func(tx *bbolt.Tx) error {
				err := errors.Join(tx.Commit(), errDisk)
				testlog.WantNil(t, os.Rename(path, path+".away"))
				unblock = c.block(t, path)
				return err
			})
			testlog.ErrorIs(t, b.Append(ctx, "a", batch(1)), backend.ErrUnknown)
			for range 2 {
				_, err := backend.FetchHead(ctx, b, "a")
				if !errors.Is(err, c.want) || !errors.Is(err, errDisk) {
					t.Errorf("error %v, want %v and why", err, c.want)
				}
				if err := b.Append(ctx, "a", batch(2)); !errors.Is(err, c.want) || errors.Is(err, backend.ErrUnknown) {
					t.Errorf("error %v, want %v", err, c.want)
				}
			}
			unblock()
			other := testlog.Must(bolt.Open(path+".away", bolt.Options{NoSync: true}))(t)
			testlog.NoError(t, os.Rename(path+".away", path))
			if _, err := backend.FetchHead(ctx, b, "a"); !errors.Is(err, backend.ErrLocked) || !errors.Is(err, errDisk) {
				t.Errorf("error %v, want %v and why", err, backend.ErrLocked)
			}
			testlog.NoError(t, other.Close())
			b.SetCommit(nil)
			testlog.WantNil(t, b.Append(ctx, "a", batch(2)))
			wantLast(t, b, 3)
			closeAndCheck(t, b, path)
		})
	}
	t.Run("closed", func(t *testing.T) {
		b, path := openWithSession(t)
		b.SetCommit(commitFailures["lost"].commit)
		testlog.ErrorIs(t, b.Append(ctx, "a", batch(1)), backend.ErrUnknown)
		b.SetCommit(nil)
		closeAndCheck(t, b, path)
		testlog.ErrorIs(t, testlog.ErrorOf(backend.FetchHead(ctx, b, "a")), backend.ErrClosed)
	})
}
