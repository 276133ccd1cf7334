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

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// So many rows a commit removes at most.
const mostRemoved = 2048

func many(after uint64, n int) []backend.Record {
	var out []backend.Record
	for i := range uint64(n) {
		out = append(out, record(after+i+1))
	}
	return out
}

func no(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf counts the rows that sessions have under their numbers, but for their labels.
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

// inFile calls f with the file at path, which nobody has open, as bbolt sees it.
func inFile(t *testing.T, path string, f func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	no(t, err)
	no(t, errors.Join(db.Update(f), db.Close()))
}

// copies makes a copy of the file after each commit: what a crash leaves that comes
// then.
func copies(t *testing.T, b *bolt.Backend, path string) *[]string {
	var made []string
	b.SetCommit(func(tx *bbolt.Tx) error {
		err := tx.Commit()
		data, readErr := os.ReadFile(path)
		to := filepath.Join(t.TempDir(), fmt.Sprint("copy", len(made), ".db"))
		if err := errors.Join(readErr, os.WriteFile(to, data, 0o600)); err != nil {
			t.Error(err)
		}
		made = append(made, to)
		return err
	})
	return &made
}

// recovers checks that the file that a crash left is sound, that opening it writes
// nothing, and that when it is closed it has rows of the records of the sessions and no others.
func recovers(t *testing.T, path string, records int) {
	t.Helper()
	before, err := os.ReadFile(path)
	no(t, err)
	b := open(t, path)
	no(t, b.Check(ctx))
	after, err := os.ReadFile(path)
	no(t, err)
	if !bytes.Equal(before, after) {
		t.Error("opening has written something")
	}
	no(t, b.Close())
	b = open(t, path)
	no(t, b.Check(ctx))
	no(t, b.Close())
	inFile(t, path, func(tx *bbolt.Tx) error {
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

// A crash between any two steps of a deletion leaves a file in which the session is gone,
// and whose next writer removes the rest.
func TestCrashWhileDeleting(t *testing.T) {
	b, path := openWith(t) // a has one record
	const n = 5000
	no(t, b.Append(ctx, "large", backend.Batch{Creation: "l", Create: true, Records: many(0, n)}))
	no(t, b.PutSnapshot(ctx, "large", "l", backend.Snapshot{Seq: 1, Data: []byte("snapshot")}))
	crashes := copies(t, b, path)
	no(t, b.Delete(ctx, "large", "l", nil))
	no(t, b.Close())
	if steps, want := len(*crashes), n/mostRemoved+1; steps < want || steps > want+1 {
		t.Errorf("%d commits, want %d", steps, want)
	}
	for _, path := range *crashes {
		b := open(t, path)
		if _, err := b.Head(ctx, "large"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("the session after a crash: %v", err)
		}
		if n := last(t, b, "a"); n != 1 {
			t.Errorf("another session has %d records, want 1", n)
		}
		no(t, b.Close())
		recovers(t, path, 1)
	}
	recovers(t, path, 1)
}

// The room that a deleted session took up is used again.
func TestDeletedRoomIsUsedAgain(t *testing.T) {
	b, path := openWith(t)
	var sizes []int64
	for i := range 4 {
		no(t, b.Append(ctx, "large", backend.Batch{Creation: fmt.Sprint(i), Create: true, Records: many(0, 40_000)}))
		no(t, b.Delete(ctx, "large", fmt.Sprint(i), nil))
		no(t, b.Close())
		b = open(t, path)
		inUse := int64(0)
		inFileOpen(t, b, func(tx *bbolt.Tx) { inUse = tx.Size() })
		sizes = append(sizes, inUse)
	}
	if sizes[3] > sizes[0]*3/2 {
		t.Errorf("the file's pages take %d bytes, a round each", sizes)
	}
	closeAndCheck(t, b, path)
}

func inFileOpen(t *testing.T, b *bolt.Backend, f func(tx *bbolt.Tx)) {
	t.Helper()
	no(t, b.InTx(f))
}

// While a large session is being removed, who wants to write waits for one commit. No
// commit removes more than its share.
func TestWritersBetweenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, path := openWith(t)
		no(t, b.Append(ctx, "large", backend.Batch{Creation: "l", Create: true, Records: many(0, 8000)}))
		var wg sync.WaitGroup
		var mu sync.Mutex
		commits, rows, waiting := 0, 0, map[uint64]int{} // record → commit in which it began to wait
		inFileOpen(t, b, func(tx *bbolt.Tx) { rows = rowsOf(tx) })
		b.SetCommit(func(tx *bbolt.Tx) error {
			commits++
			mu.Lock()
			for seq, since := range waiting {
				if commits > since+2 { // the next commit is its own, and this one comes after
					t.Errorf("commit %d: record %d waits since commit %d", commits, seq, since)
				}
			}
			now := rowsOf(tx)
			if rows-now > mostRemoved {
				t.Errorf("commit %d removes %d rows", commits, rows-now)
			}
			rows = now
			own := last(t, b, "a")
			if len(waiting) == 0 && own < 9 {
				waiting[own+1] = commits
				wg.Go(func() {
					if err := b.Append(ctx, "a", batch(own)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					delete(waiting, own+1)
				})
			}
			mu.Unlock()
			synctest.Wait()
			return tx.Commit()
		})
		no(t, b.Delete(ctx, "large", "l", nil))
		wg.Wait()
		b.SetCommit(nil)
		if n := last(t, b, "a"); n < 5 {
			t.Errorf("%d records were written between the steps, want at least 4", n-1)
		}
		closeAndCheck(t, b, path)
	})
}

// stageAll stages n records in pieces.
func stageAll(t *testing.T, b *bolt.Backend, creation string, n, piece int) {
	t.Helper()
	for after := 0; after < n; after += piece {
		no(t, b.Stage(ctx, creation, uint64(after), many(uint64(after), min(piece, n-after))))
	}
}

// A crash between any two steps of staging a session leaves no session, and a crash
// after the last one leaves a whole one.
func TestCrashWhileStaging(t *testing.T) {
	b, path := openWith(t)
	crashes := copies(t, b, path)
	const n, piece = 5000, 1000
	stageAll(t, b, "s", n, piece)
	no(t, b.Append(ctx, "staged", backend.Batch{Creation: "s", Create: true, After: n, Records: many(n, 1)}))
	no(t, b.Close())
	if steps, want := len(*crashes), n/piece+1; steps != want { // records, and the session
		t.Errorf("%d commits, want %d", steps, want)
	}
	for i, path := range *crashes {
		b := open(t, path)
		_, err := b.Head(ctx, "staged")
		listed, _ := b.List(ctx, "", "", 9)
		whole := i == len(*crashes)-1
		if (err == nil) != whole || (len(listed) == 2) != whole {
			t.Errorf("after commit %d: %v, sessions %v", i+1, err, listed)
		}
		no(t, b.Close())
		records := 1
		if whole {
			records += n + 1
		}
		recovers(t, path, records)
	}
}

// What is staged when the backend is closed, or dropped, goes.
func TestStagedGoes(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		b, path := openWith(t)
		stageAll(t, b, "s", 100, 50)
		no(t, b.Close())
		recovers(t, path, 1)
	})
	t.Run("dropped", func(t *testing.T) {
		b, path := openWith(t)
		stageAll(t, b, "s", 5000, 1000)
		b.Unstage("s")
		no(t, b.Close())
		inFile(t, path, func(tx *bbolt.Tx) error {
			if n := rowsOf(tx); n != 1 {
				t.Errorf("%d rows, want 1", n)
			}
			return nil
		})
	})
	// A sweep for another session's sake leaves alone what is being staged.
	t.Run("kept", func(t *testing.T) {
		b, path := openWith(t)
		stageAll(t, b, "s", 100, 50)
		no(t, b.Append(ctx, "large", backend.Batch{Creation: "l", Create: true, Records: many(0, 3000)}))
		no(t, b.Delete(ctx, "large", "l", nil))
		no(t, b.Append(ctx, "staged", backend.Batch{Creation: "s", Create: true, After: 100}))
		if n := last(t, b, "staged"); n != 100 {
			t.Errorf("%d records, want 100", n)
		}
		closeAndCheck(t, b, path)
		recovers(t, path, 101)
	})
}

// After a step of which the outcome is unknown the session cannot be created any more,
// and nothing of it is left.
func TestStagingFails(t *testing.T) {
	for name, way := range ways {
		for step, do := range map[string]func(b *bolt.Backend) error{
			"first":  func(b *bolt.Backend) error { return b.Stage(ctx, "new", 0, many(0, 10)) },
			"second": func(b *bolt.Backend) error { return b.Stage(ctx, "s", 20, many(20, 10)) },
		} {
			t.Run(step+" "+name, func(t *testing.T) {
				b, path := openWith(t)
				stageAll(t, b, "s", 20, 20)
				b.SetCommit(way.commit)
				if err := do(b); !errors.Is(err, backend.ErrUnknown) {
					t.Errorf("error %v, want %v", err, backend.ErrUnknown)
				}
				b.SetCommit(nil)
				if _, err := b.Head(ctx, "staged"); !errors.Is(err, backend.ErrNotFound) {
					t.Errorf("the session: %v", err)
				}
				for _, creation := range []string{"s", "new"} {
					b.Unstage(creation)
					err := b.Append(ctx, "staged", backend.Batch{Creation: creation, Create: true, After: 20})
					if !errors.Is(err, backend.ErrMoved) {
						t.Errorf("creating it after %s: %v, want %v", creation, err, backend.ErrMoved)
					}
				}
				no(t, b.Append(ctx, "a", batch(1)))
				closeAndCheck(t, b, path)
				recovers(t, path, 2)
			})
		}
	}
}

// A creation of which the outcome is unknown uses up what was staged: another one does not
// get the same records.
func TestCreatingStagedFails(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			b, path := openWith(t)
			stageAll(t, b, "s", 20, 20)
			b.SetCommit(way.commit)
			staged := backend.Batch{Creation: "s", Create: true, After: 20}
			if err := b.Append(ctx, "staged", staged); !errors.Is(err, backend.ErrUnknown) {
				t.Errorf("error %v, want %v", err, backend.ErrUnknown)
			}
			b.SetCommit(nil)
			if err := b.Append(ctx, "other", staged); !errors.Is(err, backend.ErrMoved) {
				t.Errorf("another session: %v, want %v", err, backend.ErrMoved)
			}
			records := 1
			if _, err := b.Head(ctx, "staged"); (err == nil) != way.landed {
				t.Errorf("the session: %v", err)
			}
			if way.landed {
				records += 20
			}
			closeAndCheck(t, b, path)
			recovers(t, path, records)
		})
	}
}

// An unlinked number that damage has made a session's is left alone, and found.
func TestDamagedUnlinkedNumber(t *testing.T) {
	b, path := openWith(t)
	no(t, b.Close())
	var live []byte
	inFile(t, path, func(tx *bbolt.Tx) error {
		r, _ := tx.Bucket([]byte("records")).Cursor().First()
		live = bytes.Clone(r[:8])
		return tx.Bucket([]byte("unlinked")).Put(live, bolt.Seal('u', []byte("\x00\x00\x00\x00\x00\x00\x00\x02"), nil))
	})
	b = open(t, path)
	no(t, b.Append(ctx, "a", batch(1)))
	no(t, b.Close())
	b = open(t, path)
	if n := last(t, b, "a"); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
	if err := b.Check(ctx); err == nil || !bytes.Contains([]byte(err.Error()), fmt.Appendf(nil, "unlinked number %x", live)) {
		t.Errorf("Check: %v", err)
	}
	no(t, b.Close())
}
