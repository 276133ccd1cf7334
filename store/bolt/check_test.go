package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// Check reports damage of any kind of row. If Copy or Vacuum would copy the damaged row, it fails with ErrDamaged
// and does not change the file.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, bucket string
		damage       func(b *bbolt.Bucket) error
		wantErr      string // "" if there is no damage
	}{
		{"none", "records", func(b *bbolt.Bucket) error { return nil }, ""},
		{"record removed", "records", func(b *bbolt.Bucket) error { return b.Delete(rowKey(1, 2)) }, "record 3 follows record 1"},
		{"first record removed", "records", func(b *bbolt.Bucket) error { return b.Delete(rowKey(1, 1)) }, "record 2 follows record 0"},
		{"last record removed", "records", func(b *bbolt.Bucket) error { return b.Delete(rowKey(1, 3)) }, "the last record is 2, but the head names 3"},
		{"label removed", "records", func(b *bbolt.Bucket) error { return b.Delete(rowKey(1, 0)) }, "is missing among its records"},
		{"label of another", "records", func(b *bbolt.Bucket) error { return b.Put(rowKey(1, 0), b.Get(rowKey(2, 0))) }, "missing among its records"},
		{"record without a session", "records", func(b *bbolt.Bucket) error { return b.Put(rowKey(7, 1), nil) }, "key 00000000000000070000000000000001, which belongs to no session"},
		{"record key", "records", func(b *bbolt.Bucket) error { return b.Put([]byte("short"), nil) }, "key 73686f7274"},
		{"ids changed", "records", func(b *bbolt.Bucket) error {
			row := bytes.Clone(b.Get(rowKey(1, 2)))
			row[len(row)-9] ^= 1
			return b.Put(rowKey(1, 2), row)
		}, "ids is damaged: session \"a\", record 2"},
		{"session entry", "sessions", func(b *bbolt.Bucket) error { return b.Put([]byte("a"), []byte("garbage of some length")) }, `"a"`},
		{"session entry cut off", "sessions", func(b *bbolt.Bucket) error { return b.Put([]byte("a"), []byte("x")) }, `"a"`},
		{"session renamed", "sessions", func(b *bbolt.Bucket) error {
			return errors.Join(b.Put([]byte("c"), b.Get([]byte("a"))), b.Delete([]byte("a")))
		}, `"c"`},
		{"session removed", "sessions", func(b *bbolt.Bucket) error { return b.Delete([]byte("a")) }, "which belongs to no session"},
		{"numbers given out", "sessions", func(b *bbolt.Bucket) error { return b.SetSequence(1) }, "was never assigned"},
		{"head removed", "heads", func(b *bbolt.Bucket) error { return b.Delete([]byte("a")) }, "has no head"},
		{"head without an entry", "heads", func(b *bbolt.Bucket) error { return b.Put([]byte("c"), b.Get([]byte("a"))) }, `session "c" has a head but no entry`},
		{"head", "heads", func(b *bbolt.Bucket) error { return b.Put([]byte("a"), b.Get([]byte("b"))) }, `session "a", number 0000000000000001, has no head, or its checksum is wrong`},
		{"records appended", "records", func(b *bbolt.Bucket) error { return b.Put(rowKey(1, 4), nil) }, "follows the last record that the head names"},
		{"numbers noted", "patchlog", func(b *bbolt.Bucket) error { return b.Put([]byte("numbers"), rowKey(9)) }, "session number differ: 2 and 0000000000000009"},
		{"shared value", "shared", func(b *bbolt.Bucket) error { return b.Put([]byte("v"), []byte("12345")) }, `shared value "v" is missing or damaged (its row is intact: false; the row of its name: true)`},
		{"shared value removed", "shared", func(b *bbolt.Bucket) error { return b.Delete([]byte("v")) }, `shared value "v" is missing or damaged (its row is intact: false; the row of its name: true)`},
		{"shared name", "sharednames", func(b *bbolt.Bucket) error { return b.Put([]byte("v"), []byte("1234")) }, `shared value "v" is missing or damaged (its row is intact: true; the row of its name: false)`},
		{"shared name removed", "sharednames", func(b *bbolt.Bucket) error { return b.Delete([]byte("v")) }, `shared value "v" is missing or damaged (its row is intact: true; the row of its name: false)`},
		{"snapshot without a session", "snapshots", func(b *bbolt.Bucket) error { return b.Put(rowKey(7), []byte("s")) }, "key 0000000000000007, which belongs to no session"},
		{"session's names", "sessions", func(b *bbolt.Bucket) error {
			return errors.Join(b.Delete([]byte("a")), b.Tx().Bucket([]byte("heads")).Delete([]byte("a")))
		}, "which belongs to no session"},
		{"unlinked number", "unlinked", func(b *bbolt.Bucket) error { return b.Put(rowKey(7), []byte("no sum")) }, "deleted session number"},
		{"unknown kind of rows", "shared", func(b *bbolt.Bucket) error { _, err := b.Tx().CreateBucket([]byte("newer")); return err }, "newer"},
		{"record beyond the last", "records", func(b *bbolt.Bucket) error { return b.Put(rowKey(1, 4), []byte("record 4")) }, "follows the last record"},
		{"snapshot", "snapshots", func(b *bbolt.Bucket) error { return b.Put(rowKey(2), []byte("12345")) }, "the checksum of the snapshot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, path := openWithSession(t)
			testlog.NoError(t, errors.Join(b.Append(ctx, "a", batch(1)), b.Append(ctx, "a", batch(2)),
				b.Append(ctx, "b", backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record(1)}, Shared: []backend.Value{{Name: "v", Data: []byte("x")}}}),
				b.PutSnapshot(ctx, "b", "c", backend.Snapshot{Seq: 1, Data: []byte("s")}), b.Close()))
			updateFile(t, path, func(tx *bbolt.Tx) error { return c.damage(tx.Bucket([]byte(c.bucket))) })
			before := testlog.Must(os.ReadFile(path))(t)
			b = testlog.Must(bolt.Open(path, bolt.Options{}))(t)
			switch err := b.Check(ctx); {
			case c.wantErr == "" && err != nil:
				t.Errorf("Check: %v", err)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("Check: error %v, want one with %q", err, c.wantErr)
			}
			copied := false
			err := b.Copy(ctx, noSum, func(backend.Backend, io.Reader) error {
				copied = true
				return nil
			})
			// Copy omits labels and snapshots.
			copyable := c.wantErr == "" || strings.HasPrefix(c.name, "label") || strings.HasPrefix(c.name, "snapshot")
			if copied != copyable || copyable && err != nil || !copyable && !errors.Is(err, backend.ErrDamaged) {
				t.Errorf("copied %t: %v", copied, err)
			}
			if !copyable || c.name == "snapshot without a session" {
				testlog.ErrorIs(t, b.Vacuum(ctx, noSum), backend.ErrDamaged, "vacuum")
			}
			testlog.WantNil(t, b.Close())
			if after := testlog.Must(os.ReadFile(path))(t); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			wantOnlyFile(t, path)
		})
	}
}

func TestCheckManyFindings(t *testing.T) {
	b, path := openWithSession(t)
	testlog.NoError(t, b.Close())
	updateFile(t, path, func(tx *bbolt.Tx) (err error) {
		for i := range byte(100) {
			err = errors.Join(err, tx.Bucket([]byte("records")).Put([]byte{'x', i}, nil))
		}
		return err
	})
	b = testlog.Must(bolt.Open(path, bolt.Options{}))(t)
	defer b.Close()
	if err := b.Check(ctx); err == nil || !strings.Contains(err.Error(), "80 more problems") || strings.Count(err.Error(), "\n") > 30 {
		t.Errorf("Check: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	testlog.ErrorIs(t, b.Check(cancelled), context.Canceled, "Check")
}
