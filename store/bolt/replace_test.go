package bolt_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// A vacuum does not lower the edition of a session, although transaction numbers start again at 1 in the new file. A
// Replace that is called during a copy waits until the copy ends.
func TestReplaceAndVacuum(t *testing.T) {
	b := testlog.Must(bolt.Open(filepath.Join(t.TempDir(), "a.db"), bolt.Options{NoSync: true}))(t)
	defer b.Close()
	record := func(data string, sum uint32) backend.Record {
		return backend.Record{Seq: 1, IDs: []string{"id"}, Sum: sum, Data: []byte(data)}
	}
	testlog.NoError(t, b.Append(t.Context(), "s", backend.Batch{Creation: "c", Create: true, Records: []backend.Record{record("a", 'a')}}))
	replace := func(ctx context.Context, old, data string) error {
		return b.Replace(ctx, "s", "c", func(backend.Head) (backend.Replacement, error) {
			return backend.Replacement{Records: []backend.Replaced{{Seq: 1, Old: []byte(old), Data: []byte(data), OldSum: uint32(old[0]), Sum: uint32(data[0])}}}, nil
		})
	}
	edition := func() uint64 {
		t.Helper()
		head := testlog.Must(backend.FetchHead(t.Context(), b, "s"))(t)
		return head.Edition
	}
	sum := func(record []byte) uint32 { return uint32(record[0]) }
	for i, data := range []string{"b", "c", "d"} {
		if err := replace(t.Context(), string(data[0]-1), data); err != nil || edition() != uint64(i+1) {
			t.Fatalf("replaced: edition %d, %v", edition(), err)
		}
		if err := b.Vacuum(t.Context(), sum); err != nil || edition() != uint64(i+1) {
			t.Fatalf("after a vacuum: edition %d, %v", edition(), err)
		}
	}

	copying := make(chan error)
	reached := make(chan struct{})
	go func() {
		first := true
		copying <- b.Vacuum(t.Context(), func(record []byte) uint32 {
			if first {
				first = false
				close(reached)
				<-copying
			}
			return sum(record)
		})
	}()
	<-reached
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	testlog.ErrorIs(t, replace(ctx, "d", "e"), context.DeadlineExceeded, "replaced during a vacuum")
	copying <- nil
	testlog.NoError(t, <-copying)
	if err := replace(t.Context(), "d", "e"); err != nil || edition() != 4 {
		t.Errorf("replaced after a vacuum: edition %d, %v", edition(), err)
	}
}
