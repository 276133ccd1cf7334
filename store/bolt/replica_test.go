package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// noSum is a checksum function for records whose Sum is 0.
func noSum([]byte) uint32 { return 0 }

// sumRecorder is a backend that stores the checksums of the records appended to it.
type sumRecorder struct {
	*bolt.Backend
	sums *sync.Map
}

func (s sumRecorder) storeSums(records []backend.Record) {
	for _, r := range records {
		s.sums.Store(string(r.Data), r.Sum)
	}
}

func (s sumRecorder) Append(ctx context.Context, name string, b backend.Batch) error {
	s.storeSums(b.Records)
	return s.Backend.Append(ctx, name, b)
}

func (s sumRecorder) Replace(ctx context.Context, name, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	return s.Backend.Replace(ctx, name, creation, func(head backend.Head) (backend.Replacement, error) {
		r, err := make(head)
		for _, x := range r.Records {
			s.sums.Store(string(x.Data), x.Sum)
		}
		s.storeSums(r.Appended)
		return r, err
	})
}

func (s sumRecorder) sum(data []byte) uint32 {
	sum, _ := s.sums.Load(string(data))
	return sum.(uint32)
}

// A vacuum keeps the whole content of a backend, in the open backend and after reopening.
func TestVacuumedBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		path := filepath.Join(t.TempDir(), "log.db")
		b := sumRecorder{open(t, path), &sync.Map{}}
		t.Cleanup(func() { _ = b.Close() })
		return b, func() backend.Backend {
			testlog.NoError(t, b.Vacuum(ctx, b.sum))
			testlog.NoError(t, b.Check(ctx))
			testlog.NoError(t, b.Close())
			b.Backend = open(t, path)
			testlog.NoError(t, b.Check(ctx))
			return b
		}
	})
}

// outline returns the content of a backend as text, without the snapshots.
func outline(t *testing.T, b backend.Backend) string {
	t.Helper()
	var out strings.Builder
	listed := testlog.Must(b.List(ctx, "", "", 1<<20))(t)
	for _, l := range listed {
		testlog.NoError(t, l.Err)
		fmt.Fprintf(&out, "%s %s %q %d %v:", l.Session, l.Creation, l.Meta, l.Last, l.Chain)
		records := testlog.Must(b.Read(ctx, l.Session, l.Creation, backend.Range(1, 1<<16), 1<<30))(t)
		var ids []string
		for _, r := range records {
			fmt.Fprintf(&out, " %d %s", r.Seq, r.Data)
			ids = append(ids, record(r.Seq).IDs...)
		}
		seqs := testlog.Must(b.Lookup(ctx, l.Session, l.Creation, append(ids, record(l.Last+1).IDs...)))(t)
		fmt.Fprintln(&out, seqs)
	}
	values := testlog.Must(backend.FetchShared(ctx, b, ""))(t)
	fmt.Fprintln(&out, values)
	return out.String()
}

// openCrowded opens a file that has a large session, several small sessions and staged sessions.
func openCrowded(t *testing.T) (b *bolt.Backend, path string) {
	t.Helper()
	b, path = openWithSession(t)
	testlog.NoError(t, b.Append(ctx, "large", backend.Batch{Creation: "l", Create: true, Records: makeRecords(0, 3000), Shared: []backend.Value{{Name: "x", Data: []byte("1")}}}))
	testlog.NoError(t, b.Append(ctx, "victim", backend.Batch{Creation: "v", Create: true, Records: makeRecords(0, 700), Shared: []backend.Value{{Name: "y", Data: []byte("1")}}}))
	testlog.NoError(t, b.Append(ctx, "empty", backend.Batch{Creation: "e", Create: true, Meta: []byte("meta")}))
	stageAll(t, b, "s", 500, 100)
	stageAll(t, b, "dropped", 100, 100)
	return b, path
}

// concurrentCalls has calls to make during a copy. The key of a call is the number of checksums that the copy
// computes before the call. The calls 10, 20 and 30 fall in the first round of copying.
var concurrentCalls = map[int]func(t *testing.T, b *bolt.Backend){
	10: func(t *testing.T, b *bolt.Backend) { testlog.NoError(t, b.Delete(ctx, "victim", "v", nil)) },
	20: func(t *testing.T, b *bolt.Backend) {
		testlog.NoError(t, b.Append(ctx, "victim", backend.Batch{Creation: "again", Create: true, Records: makeRecords(0, 3)}))
		testlog.NoError(t, b.Append(ctx, "a", backend.Batch{Creation: "c", ExpectedLast: 1, Records: makeRecords(1, 5000), Shared: []backend.Value{{Name: "x", Data: []byte("2")}}}))
		testlog.NoError(t, b.PutSnapshot(ctx, "a", "c", backend.Snapshot{Seq: 5001, Data: []byte("snapshot")}))
	},
	30: func(t *testing.T, b *bolt.Backend) {
		testlog.NoError(t, b.Append(ctx, "new", backend.Batch{Creation: "n", Create: true, Records: makeRecords(0, 2), Shared: []backend.Value{{Name: "z", Data: []byte("1")}}}))
		testlog.NoError(t, appendStaged(b, "s", 500, makeRecords(500, 100)))
		testlog.NoError(t, appendStaged(b, "late", 0, makeRecords(0, 40)))
		testlog.NoError(t, deleteStaged(b, "dropped"))
	},
	// The second round copies the rows added during the first round.
	5000: func(t *testing.T, b *bolt.Backend) {
		testlog.NoError(t, b.Append(ctx, "a", backend.Batch{Creation: "c", ExpectedLast: 5001, Records: makeRecords(5001, 1)}))
		testlog.NoError(t, b.Append(ctx, "new", backend.Batch{Creation: "n", ExpectedLast: 2, Records: makeRecords(2, 1), Shared: []backend.Value{{Name: "x", Data: []byte("3")}}}))
		testlog.NoError(t, b.Delete(ctx, "victim", "again", nil))
		testlog.NoError(t, b.Append(ctx, "late", backend.Batch{Creation: "late", Create: true, RenameFrom: "staged late", ExpectedLast: 40, Records: makeRecords(40, 1)}))
		testlog.NoError(t, appendStaged(b, "s", 600, makeRecords(600, 1)))
	},
	// The third round is the last round in which other calls can write.
	9447: func(t *testing.T, b *bolt.Backend) {
		testlog.NoError(t, b.Append(ctx, "large", backend.Batch{Creation: "l", ExpectedLast: 3000, Records: makeRecords(3000, 1)}))
	},
}

// sumWithConcurrentCalls returns a checksum function that makes the calls in concurrentCalls.
func sumWithConcurrentCalls(t *testing.T, b *bolt.Backend, made *int) func([]byte) uint32 {
	calls := 0
	return func([]byte) uint32 {
		if call := concurrentCalls[calls]; call != nil {
			var others sync.WaitGroup
			others.Go(func() { call(t, b) })
			others.Wait()
			*made++
		}
		calls++
		return 0
	}
}

// A copy has the content of the backend at the beginning of the copy, whatever is written, deleted and staged
// meanwhile. The backend keeps these changes, and removes the deleted rows in the end.
func TestCopyDuringWrites(t *testing.T) {
	t.Parallel()
	b, path := openCrowded(t)
	want := outline(t, b)
	done, used := 0, 0
	testlog.NoError(t, b.Copy(ctx, sumWithConcurrentCalls(t, b, &done), func(c backend.Backend, file io.Reader) error {
		used++
		if got := outline(t, c); got != want {
			t.Errorf("the copy differs from the content at its beginning: %d bytes, want %d", len(got), len(want))
		}
		testlog.NoError(t, c.(*bolt.Backend).Check(ctx))
		inReadTx(t, c.(*bolt.Backend), func(tx *bbolt.Tx) {
			if k, _ := tx.Bucket([]byte("unlinked")).Cursor().First(); k != nil {
				t.Error("the copy has rows of deleted sessions")
			}
		})
		data := testlog.Must(io.ReadAll(file))(t)
		to := filepath.Join(t.TempDir(), "copy.db")
		testlog.NoError(t, os.WriteFile(to, data, 0o600))
		writable := open(t, to)
		testlog.NoError(t, writable.Append(ctx, "a", batch(1)))
		testlog.NoError(t, writable.Append(ctx, "other", backend.Batch{Creation: "o", Create: true, Records: makeRecords(0, 1)}))
		closeAndCheck(t, writable, to)
		return nil
	}))
	if done != 3 || used != 1 {
		t.Fatalf("%d of 3 writes were made during the copy, and the copy was used %d times, want once", done, used)
	}
	inReadTx(t, b, func(tx *bbolt.Tx) {
		if k, _ := tx.Bucket([]byte("records")).Cursor().Seek(rowKey(3)); bytes.HasPrefix(k, rowKey(3)) {
			t.Error("rows deleted during the copy still exist")
		}
	})
	deleteStagedAndCheck(t, b, path)
}

// wantOnlyFile checks that the file's directory has no other files.
func wantOnlyFile(t *testing.T, path string) {
	t.Helper()
	if left := testlog.Must(os.ReadDir(filepath.Dir(path)))(t); len(left) != 1 {
		t.Errorf("the directory has other files: %v", left)
	}
}

// deleteStagedAndCheck deletes the staged sessions and fails the test if rows of deleted sessions remain.
func deleteStagedAndCheck(t *testing.T, b *bolt.Backend, path string) {
	t.Helper()
	for _, creation := range []string{"s", "late", "dropped"} {
		if err := deleteStaged(b, creation); !errors.Is(err, backend.ErrNotFound) {
			testlog.NoError(t, err)
		}
	}
	testlog.NoError(t, b.Append(ctx, "next", backend.Batch{Creation: "next", Create: true}))
	inReadTx(t, b, func(tx *bbolt.Tx) {
		if k, _ := tx.Bucket([]byte("unlinked")).Cursor().First(); k != nil {
			t.Errorf("number %x is still unlinked", k)
		}
	})
	testlog.NoError(t, b.Close())
	b = open(t, path)
	closeAndCheck(t, b, path)
	wantOnlyFile(t, path)
}

// After a vacuum, the file has all writes that were made during the vacuum. A staged session can still be completed.
// The vacuum replaces the file by a new, shorter file.
func TestVacuumDuringWrites(t *testing.T) {
	t.Parallel()
	b, path := openCrowded(t)
	twin, twinPath := openCrowded(t)
	before := testlog.Must(os.Stat(path))(t)
	for _, at := range []int{10, 20, 30, 5000, 9447} {
		concurrentCalls[at](t, twin)
	}
	done := 0
	// The new file directly after the rename. The next commit may extend it by 16 MiB, as bbolt does.
	var after os.FileInfo
	bolt.SetSyncDir(b, func(dir string) (err error) {
		after, err = os.Stat(path)
		return err
	})
	testlog.NoError(t, b.Vacuum(ctx, sumWithConcurrentCalls(t, b, &done)))
	if done != 5 {
		t.Fatalf("%d of 5 writes were made during the vacuum", done)
	}
	if os.SameFile(before, after) || after.Size() >= before.Size() {
		t.Errorf("%d bytes, before %d", after.Size(), before.Size())
	}
	testlog.NoError(t, b.Check(ctx))
	for _, b := range []*bolt.Backend{b, twin} {
		testlog.NoError(t, b.Append(ctx, "staged", backend.Batch{Creation: "s", Create: true, RenameFrom: "staged s", ExpectedLast: 601, Records: makeRecords(601, 1)}))
		testlog.NoError(t, b.Append(ctx, "a", batch(5002)))
	}
	if got, want := outline(t, b), outline(t, twin); got != want {
		t.Errorf("the vacuum has changed the content:\n%.2000s\nwant\n%.2000s", got, want)
	}
	deleteStagedAndCheck(t, b, path)
	deleteStagedAndCheck(t, twin, twinPath)
}

func rowKey(numbers ...uint64) (key []byte) {
	for _, n := range numbers {
		for i := range 8 {
			key = append(key, byte(n>>(56-8*i)))
		}
	}
	return key
}

// Copy and Vacuum report damage if the checksums of a session's records do not match the chain in its head.
func TestCopyChecksChain(t *testing.T) {
	b, path := openCrowded(t)
	n := 0
	wrongSum := func([]byte) uint32 {
		if n++; n == 1700 {
			return 1
		}
		return 0
	}
	if err := b.Copy(ctx, wrongSum, nil); !errors.Is(err, backend.ErrDamaged) || !strings.Contains(err.Error(), `"large"`) {
		t.Errorf("copy: %v", err)
	}
	if n = 0; !errors.Is(b.Vacuum(ctx, wrongSum), backend.ErrDamaged) {
		t.Error("the vacuum succeeded")
	}
	deleteStagedAndCheck(t, b, path)
}

// If a process waits for the lock of a file while a vacuum replaces that file, the process opens the new file. It
// does so only after the lock of the new file is released.
func TestVacuumHandsOverLock(t *testing.T) {
	t.Parallel()
	b, path := openCrowded(t)
	countOpen := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("needs to know which files are open")
		}
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(to, path) {
				n++
			}
		}
		return n
	}
	type opened struct {
		b   *bolt.Backend
		err error
	}
	got := make(chan opened, 1)
	before := countOpen()
	go func() {
		second, err := bolt.Open(path, bolt.Options{NoSync: true, LockTimeout: time.Minute})
		got <- opened{second, err}
	}()
	for countOpen() == before {
		time.Sleep(time.Millisecond)
	}
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	select {
	case o := <-got:
		t.Fatalf("the file is open twice (%v)", o.err)
	case <-time.After(300 * time.Millisecond): // the function lock has tried six times by now
	}
	testlog.NoError(t, b.Append(ctx, "a", batch(1)))
	testlog.NoError(t, b.Close())
	o := <-got
	testlog.NoError(t, o.err)
	wantLast(t, o.b, 2)
	testlog.NoError(t, o.b.Append(ctx, "a", batch(2)))
	closeAndCheck(t, o.b, path)
	b = testlog.Must(bolt.Open(path, bolt.Options{NoSync: true}))(t)
	wantLast(t, b, 3)
	testlog.NoError(t, b.Close())
}

// Vacuum fails and changes nothing if the context is cancelled, if the backend is read-only or closed, or if the
// path names another file.
func TestVacuumRefused(t *testing.T) {
	b, path := openCrowded(t)
	want := outline(t, b)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	testlog.ErrorIs(t, b.Vacuum(cancelled, noSum), context.Canceled, "cancelled")
	soon, cancel := context.WithCancel(ctx)
	testlog.ErrorIs(t, b.Vacuum(soon, func([]byte) uint32 { cancel(); return 0 }), context.Canceled, "cancelled later")
	testlog.ErrorIs(t, b.Copy(soon, noSum, nil), context.Canceled, "copy, cancelled")
	testlog.NoError(t, os.Rename(path, path+".away"))
	testlog.ErrorIs(t, b.Vacuum(ctx, noSum), os.ErrNotExist, "without a file")
	testlog.NoError(t, os.WriteFile(path, []byte("another file"), 0o600))
	testlog.ErrorIs(t, b.Vacuum(ctx, noSum), backend.ErrDamaged, "with another file")
	testlog.NoError(t, os.Rename(path+".away", path))
	if got := outline(t, b); got != want {
		t.Error("the content has changed")
	}
	testlog.NoError(t, b.Append(ctx, "a", batch(1)))
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	testlog.NoError(t, b.Close())
	testlog.ErrorIs(t, b.Vacuum(ctx, noSum), backend.ErrClosed, "closed")
	b = testlog.Must(bolt.Open(path, bolt.Options{ReadOnly: true}))(t)
	testlog.ErrorIs(t, b.Vacuum(ctx, noSum), backend.ErrReadOnly, "read only")
	testlog.NoError(t, b.Close())
	wantOnlyFile(t, path)
}

// If the path is a symbolic link, a vacuum replaces the target of the link. It also removes the draft that a crashed
// vacuum has left.
func TestVacuumSymlink(t *testing.T) {
	b, path := openCrowded(t)
	testlog.NoError(t, b.Close())
	link := filepath.Join(t.TempDir(), "link.db")
	testlog.NoError(t, os.Symlink(path, link))
	testlog.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".log.db.vacuum"), []byte("left from a crash"), 0o600))
	b = open(t, link)
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	testlog.NoError(t, b.Append(ctx, "a", batch(1)))
	testlog.NoError(t, b.Close())
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v (%v)", info, err)
	}
	b = open(t, path)
	wantLast(t, b, 2)
	closeAndCheck(t, b, path)
	wantOnlyFile(t, path)
}

// A vacuum after a failed commit keeps the content that is on disk. A commit that fails after a vacuum does not
// affect later commits.
func TestVacuumAfterFailedCommit(t *testing.T) {
	for name, failure := range commitFailures {
		t.Run(name, func(t *testing.T) {
			b, path := openWithSession(t)
			b.SetCommit(failure.commit)
			if err := b.Append(ctx, "a", batch(1)); err == nil {
				t.Fatal("no error")
			}
			b.SetCommit(nil)
			testlog.NoError(t, b.Vacuum(ctx, noSum))
			if n := last(t, b, "a"); (n == 2) != failure.landed {
				t.Errorf("%d records", n)
			}
			b.SetCommit(failure.commit)
			if err := b.Append(ctx, "a", batch(last(t, b, "a"))); err == nil {
				t.Fatal("no error")
			}
			b.SetCommit(nil)
			testlog.NoError(t, b.Append(ctx, "a", batch(last(t, b, "a"))))
			closeAndCheck(t, b, path)
		})
	}
}

// Space reports the effects of deletions and of a vacuum.
func TestSpace(t *testing.T) {
	b, path := openWithSession(t)
	const sessions = 40
	for i := range sessions {
		var records []backend.Record
		for seq := range uint64(200) {
			records = append(records, backend.Record{Seq: seq + 1, IDs: record(seq + 1).IDs, Data: bytes.Repeat([]byte{byte(i)}, 500)})
		}
		testlog.NoError(t, b.Append(ctx, fmt.Sprint(i), backend.Batch{Creation: "c", Create: true, Records: records}))
	}
	full := testlog.Must(b.Space(ctx))(t)
	const each = 200 * (16 + 13 + 500 + 16 + 8)
	if want := int64(sessions * each); full.Live < want || full.Live > want+want/50 {
		t.Errorf("%d bytes live, want %d and a little", full.Live, want)
	}
	for i := range sessions * 3 / 4 {
		testlog.NoError(t, b.Delete(ctx, fmt.Sprint(i), "c", nil))
	}
	deleted := testlog.Must(b.Space(ctx))(t)
	if gone := full.Live - deleted.Live; gone < sessions*3/4*each || deleted.Free < full.Free+gone {
		t.Errorf("after deleting %+v, before %+v", deleted, full)
	}
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	after := testlog.Must(b.Space(ctx))(t)
	info := testlog.Must(os.Stat(path))(t)
	if after.Live > deleted.Live || after.File > 2*after.Live || after.Free > after.File/10 || after.File != info.Size() {
		t.Errorf("after a vacuum %+v, before %+v, length %d", after, deleted, info.Size())
	}
	testlog.NoError(t, b.Vacuum(ctx, noSum))
	again := testlog.Must(b.Space(ctx))(t)
	if again.File > after.File+after.File/10 {
		t.Errorf("after another vacuum %+v, before %+v", again, after)
	}
	testlog.NoError(t, b.Append(ctx, "39", backend.Batch{Creation: "c", ExpectedLast: 200, Records: makeRecords(200, 1)}))
	closeAndCheck(t, b, path)
}
