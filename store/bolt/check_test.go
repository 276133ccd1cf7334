package bolt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// Each row does one damage that Check must find.
func TestCheck(t *testing.T) {
	t.Parallel()
	num := func(n ...uint64) (out []byte) {
		for _, v := range n {
			out = binary.BigEndian.AppendUint64(out, v)
		}
		return out
	}
	for _, c := range []struct {
		name, bucket string
		damage       func(b *bbolt.Bucket) error
		says         string // "" means that nothing is wrong
	}{
		{"none", "records", func(b *bbolt.Bucket) error { return nil }, ""},
		{"record removed", "records", func(b *bbolt.Bucket) error { return b.Delete(num(1, 2)) }, "record 3 after record 1"},
		{"first record removed", "records", func(b *bbolt.Bucket) error { return b.Delete(num(1, 1)) }, "record 2 after record 0"},
		{"last record removed", "records", func(b *bbolt.Bucket) error { return b.Delete(num(1, 3)) }, "its last record is 2, and its head says 3"},
		{"label removed", "records", func(b *bbolt.Bucket) error { return b.Delete(num(1, 0)) }, "missing beside its records"},
		{"label of another", "records", func(b *bbolt.Bucket) error { return b.Put(num(1, 0), b.Get(num(2, 0))) }, "beside its records"},
		{"record of nobody", "records", func(b *bbolt.Bucket) error { return b.Put(num(7, 1), nil) }, "key 00000000000000070000000000000001, of a session that is not there"},
		{"record key", "records", func(b *bbolt.Bucket) error { return b.Put([]byte("short"), nil) }, "key 73686f7274"},
		{"ids changed", "records", func(b *bbolt.Bucket) error {
			row := bytes.Clone(b.Get(num(1, 2)))
			row[len(row)-9] ^= 1
			return b.Put(num(1, 2), row)
		}, "the ids of record 2"},
		{"session entry", "sessions", func(b *bbolt.Bucket) error { return b.Put([]byte("a"), []byte("garbage of some length")) }, `"a"`},
		{"session entry cut off", "sessions", func(b *bbolt.Bucket) error { return b.Put([]byte("a"), []byte("x")) }, `"a"`},
		{"session renamed", "sessions", func(b *bbolt.Bucket) error {
			return errors.Join(b.Put([]byte("c"), b.Get([]byte("a"))), b.Delete([]byte("a")))
		}, `"c"`},
		{"session removed", "sessions", func(b *bbolt.Bucket) error { return b.Delete([]byte("a")) }, "of a session that is not there"},
		{"numbers given out", "sessions", func(b *bbolt.Bucket) error { return b.SetSequence(1) }, "was never given out"},
		{"head removed", "heads", func(b *bbolt.Bucket) error { return b.Delete([]byte("a")) }, "has no head"},
		{"head of nobody", "heads", func(b *bbolt.Bucket) error { return b.Put([]byte("c"), b.Get([]byte("a"))) }, `head of session "c"`},
		{"head", "heads", func(b *bbolt.Bucket) error { return b.Put([]byte("a"), b.Get([]byte("b"))) }, `session "a", number 0000000000000001, has no head, or its checksum is wrong`},
		{"records appended", "records", func(b *bbolt.Bucket) error { return b.Put(num(1, 4), nil) }, "is behind the last record that its head says"},
		{"numbers noted", "patchlog", func(b *bbolt.Bucket) error { return b.Put([]byte("numbers"), num(9)) }, "the last one given out is 2, or 0000000000000009"},
		{"shared value", "shared", func(b *bbolt.Bucket) error { return b.Put([]byte("v"), []byte("12345")) }, `the checksum of shared value "v"`},
		{"shared value removed", "shared", func(b *bbolt.Bucket) error { return b.Delete([]byte("v")) }, `shared value "v" is missing`},
		{"shared name", "sharednames", func(b *bbolt.Bucket) error { return b.Put([]byte("v"), []byte("1234")) }, `the checksum of the name of shared value "v"`},
		{"shared name removed", "sharednames", func(b *bbolt.Bucket) error { return b.Delete([]byte("v")) }, `shared value "v": its name is missing`},
		{"snapshot of nobody", "snapshots", func(b *bbolt.Bucket) error { return b.Put(num(7), []byte("s")) }, "key 0000000000000007, of a session that is not there"},
		{"snapshot", "snapshots", func(b *bbolt.Bucket) error { return b.Put(num(2), []byte("12345")) }, "the checksum of the snapshot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, path := openWith(t)
			err := errors.Join(b.Append(ctx, "a", batch(1)), b.Append(ctx, "a", batch(2)),
				b.Append(ctx, "b", backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record(1)}, Shared: []backend.Value{{Name: "v", Data: []byte("x")}}}),
				b.PutSnapshot(ctx, "b", "c", backend.Snapshot{Seq: 1, Data: []byte("s")}), b.Close())
			testlog.NoError(t, err)
			db, err := bbolt.Open(path, 0, nil)
			testlog.NoError(t, err)
			testlog.NoError(t, errors.Join(db.Update(func(tx *bbolt.Tx) error { return c.damage(tx.Bucket([]byte(c.bucket))) }), db.Close()))
			b = testlog.Must(bolt.Open(path, bolt.Options{}))(t)
			switch err := b.Check(ctx); {
			case c.says == "" && err != nil:
				t.Errorf("Check: %v", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("Check: %v, want it to say %q", err, c.says)
			}
			testlog.WantNil(t, b.Close())
		})
	}
}

func TestCheckManyFindings(t *testing.T) {
	b, path := openWith(t)
	testlog.NoError(t, b.Close())
	db, err := bbolt.Open(path, 0, nil)
	testlog.NoError(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		for i := range byte(100) {
			if err := tx.Bucket([]byte("records")).Put([]byte{'x', i}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	testlog.NoError(t, errors.Join(err, db.Close()))
	b = testlog.Must(bolt.Open(path, bolt.Options{}))(t)
	defer b.Close()
	if err := b.Check(ctx); err == nil || !strings.Contains(err.Error(), "and 80 more") || strings.Count(err.Error(), "\n") > 30 {
		t.Errorf("Check: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	testlog.Is(t, b.Check(cancelled), context.Canceled, "Check")
}

// Where damage has left a gap, Read gives what comes before it, and from there nothing.
func TestReadStopsAtGap(t *testing.T) {
	b, path := openWith(t)
	err := errors.Join(b.Append(ctx, "a", batch(1)), b.Append(ctx, "a", batch(2)), b.Append(ctx, "a", batch(3)), b.Close())
	testlog.NoError(t, err)
	db, err := bbolt.Open(path, 0, nil)
	testlog.NoError(t, err)
	third := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 1), 3)
	testlog.NoError(t, errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("records")).Delete(third) }), db.Close()))
	b = testlog.Must(bolt.Open(path, bolt.Options{}))(t)
	defer b.Close()
	for from, want := range map[uint64]int{1: 2, 2: 1, 3: 0, 4: 1} {
		got, err := b.Read(ctx, "a", "c", backend.Range(from, 99), 1<<20)
		if err != nil || len(got) != want {
			t.Errorf("from %d: %d records, %v; want %d", from, len(got), err, want)
		}
		for i, r := range got {
			if r.Seq != from+uint64(i) || string(r.Data) != string(record(r.Seq).Data) {
				t.Errorf("from %d: record %d with data %q", from, r.Seq, r.Data)
			}
		}
	}
	wantLast(t, b, 4)
}
