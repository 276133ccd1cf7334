package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
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
	s := openStore(t, filepath.Join(t.TempDir(), "log.db"), store.Options{Durability: store.Relaxed})
	e := &env{T: t, store: s}
	defer func() { e.no(s.Close()) }()
	e.create(nil)
	const events, bytes = 60, 300_000
	for i := range events {
		e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"id":"e%d","content":{"parts":[{"text":"%0*d"}]}}`, i, bytes, i)))
		if i > 0 {
			made, err := s.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 1))
			e.no(err)
			if i == 40 {
				e.must(s.Revert(ctx, key, store.UndoOptions{}, made.Records[0].ID()))
			}
		}
	}
	runtime.GC() // twice: pools keep what compressing took for one
	runtime.GC()
	var before, most uint64
	runtime.GC() // what pools hold is freed by the second collection
	_ = weighing{ctx, &before}.Err()
	for p, err := range s.Verify(weighing{ctx, &most}, store.VerifyOptions{}) {
		t.Fatal(fmt.Sprint(p, err))
	}
	if took := most - before; most < before+bytes || took > events*bytes/3 {
		t.Errorf("%d bytes are held while %d events of %d bytes are verified, of which two are visible", took, events, bytes)
	}
}

// To verify a log takes, beside what is read at once, a few dozen bytes for each visible event, however
// long they are.
func TestVerifyHoldsNoBodies(t *testing.T) {
	testlog.OneGoroutine(t)
	path := filepath.Join(t.TempDir(), "log.db")
	opts := store.Options{Durability: store.Relaxed}
	s := openStore(t, path, opts)
	e := &env{T: t, store: s}
	defer func() { e.no(e.store.Close()) }()
	e.create(nil)
	const records, batch = 40_000, 4_000
	for i := 0; i < records; i += batch {
		var events []*patch.Event
		for n := range batch {
			events = append(events, event(`{"id":"event %d","author":"user","content":{"role":"user","parts":[{"text":"%0*d"}]}}`, i+n, 500, i))
		}
		e.must(s.AppendEvents(ctx, key, store.AppendOptions{}, events...))
	}
	for _, id := range []string{"event 20000", "event 30000"} {
		e.must(s.ApplyPatch(ctx, key, asOfNow, patch.NewPin(id)))
	}
	e.no(s.Close()) // its view goes
	e.store = openStore(e, path, opts)
	var before, most uint64
	for range 3 { // what the closed store had goes with its finalizers
		before = 0
		_ = weighing{ctx, &before}.Err()
	}
	looks := 0
	for p, err := range e.store.Verify(calling{ctx, func() {
		if looks++; looks%8 == 0 {
			_ = weighing{ctx, &most}.Err()
		}
	}}, store.VerifyOptions{}) {
		t.Fatal(fmt.Sprint(p, err))
	}
	const perRecord, page = 64, 4 << 20
	took := int64(most) - int64(before)
	t.Logf("%d bytes a record", took/records)
	if looks < 64 || took > records*perRecord+page {
		t.Errorf("%d bytes are held while %d records are verified, of which %d are looked at", took, records, looks)
	}
}

// calling is a context that calls a function wherever its holder looks whether to go on.
type calling struct {
	context.Context
	call func()
}

func (n calling) Err() error {
	n.call()
	return n.Context.Err()
}
