package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// weighing is a context whose holder's memory is weighed wherever it looks whether to go on.
type weighing struct {
	context.Context
	most *uint64
}

func (w weighing) Err() error {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*w.most = max(*w.most, m.HeapAlloc)
	return w.Context.Err()
}

// To verify a session takes memory for what is visible and what is read at once, not for all that
// patches have hidden. What a revert brings back is read again.
func TestVerifyHoldsWhatIsVisible(t *testing.T) {
	s, err := store.Open(filepath.Join(t.TempDir(), "log.db"), store.Options{Durability: store.Relaxed})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, store: s}
	defer func() { e.no(s.Close()) }()
	e.create(nil)
	const events, bytes = 60, 300_000
	for i := range events {
		_, err := s.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"id":"e%d","content":{"parts":[{"text":"%0*d"}]}}`, i, bytes, i))
		e.no(err)
		if i > 0 {
			made, err := s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1))
			e.no(err)
			if i == 40 {
				_, err = s.Revert(ctx, key, store.BackOptions{}, made.Records[0].ID())
				e.no(err)
			}
		}
	}
	var before, most uint64
	_ = weighing{ctx, &before}.Err()
	for p, err := range s.Verify(weighing{ctx, &most}, store.VerifyOptions{}) {
		t.Fatal(fmt.Sprint(p, err))
	}
	if took := most - before; most < before+bytes || took > events*bytes/3 {
		t.Errorf("%d bytes are held while %d events of %d bytes are verified, of which two are visible", took, events, bytes)
	}
}
