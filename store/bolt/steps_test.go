package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// maxRowsPerCommit is the maximum number of rows that a commit may remove.
const maxRowsPerCommit = 2048

func makeRecords(after uint64, n int) []backend.Record {
	var out []backend.Record
	for i := range uint64(n) {
		out = append(out, record(after+i+1))
	}
	return out
}

// rowsOf counts the rows whose keys begin with a session number, except labels.
func rowsOf(tx *bbolt.Tx) int {
	n := 0
	for _, name := range []string{"records", "snapshots"} {
		no := tx.Bucket([]byte(name)).Cursor()
		for k, _ := no.First(); k != nil; k, _ = no.Next() {
			if len(k) < 16 || binary.BigEndian.Uint64(k[8:]) > 0 {
				n++
			}
		}
	}
	return n
}

// updateFile calls f with a write transaction of bbolt on the closed file at path.
func updateFile(t *testing.T, path string, f func(tx *bbolt.Tx) error) {
	t.Helper()
	db := testlog.Must(bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true}))(t)
	testlog.NoError(t, errors.Join(db.Update(f), db.Close()))
}

// copyAfterEachCommit copies the file after each commit. Each copy is the file that a crash at that moment would
// leave.
func copyAfterEachCommit(t *testing.T, b *bolt.Backend, path string) *[]string {
	var made []string
	b.SetCommit(func(tx *bbolt.Tx) error {
		err := tx.Commit()
		data, readErr := os.ReadFile(path)
		to := filepath.Join(t.TempDir(), fmt.Sprint("copy", len(made), ".db"))
		testlog.WantNil(t, errors.Join(readErr, os.WriteFile(to, data, 0o600)))
		made = append(made, to)
		return err
	})
	return &made
}

// checkAfterCrash checks a file that a crash has left. The file must be sound, and opening must not change the file.
// After the file is closed, it must have only the rows of the given number of records.
func checkAfterCrash(t *testing.T, path string, records int) {
	t.Helper()
	before := testlog.Must(os.ReadFile(path))(t)
	b := open(t, path)
	testlog.NoError(t, b.Check(ctx))
	after := testlog.Must(os.ReadFile(path))(t)
	if !bytes.Equal(before, after) {
		t.Error("opening has written something")
	}
	testlog.NoError(t, b.Close())
	b = open(t, path)
	testlog.NoError(t, b.Check(ctx))
	testlog.NoError(t, b.Close())
	updateFile(t, path, func(tx *bbolt.Tx) error {
		if n := rowsOf(tx); n != records {
			t.Errorf("%d rows, want %d", n, records)
		}
		if unlinked := tx.Bucket([]byte("unlinked")); unlinked != nil {
			if k, _ := unlinked.Cursor().First(); k != nil {
				t.Errorf("number %x is still unlinked", k)
			}
		}
		return nil
	})
}

// If the process crashes between two commits of a deletion, the session is gone. The next writer removes the rows
// that remain.
func TestCrashDuringDelete(t *testing.T) {
	t.Parallel()
	b, path := openWithSession(t)
	const n = 5000
	testlog.NoError(t, b.Append(ctx, "large", backend.Batch{Creation: "l", Create: true, Records: makeRecords(0, n)}))
	testlog.NoError(t, b.PutSnapshot(ctx, "large", "l", backend.Snapshot{Seq: 1, Data: []byte("snapshot")}))
	crashes := copyAfterEachCommit(t, b, path)
	testlog.NoError(t, b.Delete(ctx, "large", "l", nil))
	testlog.NoError(t, b.Close())
	if steps, want := len(*crashes), n/maxRowsPerCommit+1; steps < want || steps > want+1 {
		t.Errorf("%d commits, want %d", steps, want)
	}
	for _, path := range *crashes {
		b := open(t, path)
		testlog.ErrorIs(t, testlog.ErrorOf(backend.FetchHead(ctx, b, "large")), backend.ErrNotFound, "the session after a crash")
		wantLast(t, b, 1)
		testlog.NoError(t, b.Close())
		checkAfterCrash(t, path, 1)
	}
	checkAfterCrash(t, path, 1)
}

func inReadTx(t *testing.T, b *bolt.Backend, f func(tx *bbolt.Tx)) {
	t.Helper()
	testlog.NoError(t, b.InTx(f))
}

// While the rows of a large session are being removed, a writer waits for at most one commit. No commit removes more
// rows than the limit.
func TestWritesDuringDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, path := openWithSession(t)
		testlog.NoError(t, b.Append(ctx, "large", backend.Batch{Creation: "l", Create: true, Records: makeRecords(0, 8000)}))
		var wg sync.WaitGroup
		var mu sync.Mutex
		// For each seq whose append waits: the number of commits when the append was called.
		commits, rows, waiting := 0, 0, map[uint64]int{}
		inReadTx(t, b, func(tx *bbolt.Tx) { rows = rowsOf(tx) })
		b.SetCommit(func(tx *bbolt.Tx) error {
			commits++
			mu.Lock()
			for seq, since := range waiting {
				// Commit since+1 was running already or is the append's own, and the entry may remain until commit
				// since+2.
				if commits > since+2 {
					t.Errorf("commit %d: record %d waits since commit %d", commits, seq, since)
				}
			}
			now := rowsOf(tx)
			if rows-now > maxRowsPerCommit {
				t.Errorf("commit %d removes %d rows", commits, rows-now)
			}
			rows = now
			own := last(t, b, "a")
			if len(waiting) == 0 && own < 9 {
				waiting[own+1] = commits
				wg.Go(func() {
					testlog.WantNil(t, b.Append(ctx, "a", batch(own)))
					mu.Lock()
					defer mu.Unlock()
					delete(waiting, own+1)
				})
			}
			mu.Unlock()
			synctest.Wait()
			return tx.Commit()
		})
		testlog.NoError(t, b.Delete(ctx, "large", "l", nil))
		wg.Wait()
		b.SetCommit(nil)
		if n := last(t, b, "a"); n < 5 {
			t.Errorf("%d records were written between the steps, want at least 4", n-1)
		}
		closeAndCheck(t, b, path)
	})
}

// appendStaged adds records to a staged session.
func appendStaged(b *bolt.Backend, creation string, after uint64, records []backend.Record) error {
	return b.Append(ctx, "staged "+creation, backend.Batch{Creation: creation, Create: after == 0, ExpectedLast: after, Records: records})
}

func deleteStaged(b *bolt.Backend, creation string) error {
	return b.Delete(ctx, "staged "+creation, creation, nil)
}

func stageAll(t *testing.T, b *bolt.Backend, creation string, n, piece int) {
	t.Helper()
	for after := 0; after < n; after += piece {
		testlog.NoError(t, appendStaged(b, creation, uint64(after), makeRecords(uint64(after), min(piece, n-after))))
	}
}

// Damage can turn the number of a deleted session into the number of an existing session. The rows of the existing
// session are then kept, and Check reports the damage.
func TestDamagedUnlinkedNumber(t *testing.T) {
	b, path := openWithSession(t)
	testlog.NoError(t, b.Close())
	var live []byte
	updateFile(t, path, func(tx *bbolt.Tx) error {
		r, _ := tx.Bucket([]byte("records")).Cursor().First()
		live = bytes.Clone(r[:8])
		return tx.Bucket([]byte("unlinked")).Put(live, bolt.Seal('u', []byte("\x00\x00\x00\x00\x00\x00\x00\x02"), nil))
	})
	b = open(t, path)
	testlog.NoError(t, b.Append(ctx, "a", batch(1)))
	testlog.NoError(t, b.Close())
	b = open(t, path)
	wantLast(t, b, 2)
	if err := b.Check(ctx); err == nil || !bytes.Contains([]byte(err.Error()), fmt.Appendf(nil, "deleted session number %x", live)) {
		t.Errorf("Check: %v", err)
	}
	testlog.NoError(t, b.Close())
}
