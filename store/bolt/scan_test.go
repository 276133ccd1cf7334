package bolt_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

func scan(t *testing.T, file []byte) *bolt.Scan {
	t.Helper()
	return testlog.Must(bolt.ScanFile(ctx, bytes.NewReader(file), int64(len(file)), bolt.Decoders{
		RecordSeq: func([]byte) (uint64, bool) { return 1, true },
		IsValue:   func([]byte) bool { return false },
		MaxBytes:  1 << 20,
	}))(t)
}

// If both meta pages are lost, ScanFile finds the existing sessions through the newest root in the file.
func TestScanFindsNewestRoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	for n := range uint64(12) {
		b := open(t, path)
		testlog.NoError(t, b.Append(ctx, fmt.Sprint("s", n), backend.Batch{Creation: "c", Create: true}))
		testlog.NoError(t, b.Close())
		file := testlog.Must(os.ReadFile(path))(t)
		clear(file[:2*os.Getpagesize()])
		s := scan(t, file)
		if now, next := s.StateOf(n+1), s.StateOf(n+2); now != bolt.SessionExists || next != bolt.SessionUnassigned {
			t.Errorf("session %d is %d, and the next one %d", n+1, now, next)
		}
	}
}

// If damage copies a page in use over a free page, ScanFile does not rank the rows of that copy as free.
func TestScanMovedPage(t *testing.T) {
	path, p := createLargeFile(t)
	file := testlog.Must(os.ReadFile(path))(t)
	from, to := p.leaves[string(rowKey(3, 1))]*p.size, p.free[0]*p.size
	copy(file[to:to+p.size], file[from:from+p.size])
	clear(file[from : from+p.size])
	for _, r := range scan(t, file).Records {
		if r.Number == 3 && r.Seq == 1 && r.At >= to && r.At < to+p.size && r.Rank == bolt.Unknown {
			return
		}
	}
	t.Error("the record is not found, or taken for one of a free page")
}
