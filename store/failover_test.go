package store_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// takenOver is a backend whose first head is that of a server which has a record more than the
// one that takes over at that moment.
type takenOver struct {
	backend.Backend
	heads atomic.Int64
}

func (b *takenOver) Head(ctx context.Context, session string) (backend.Head, error) {
	head, err := b.Backend.Head(ctx, session)
	if b.heads.Add(1) == 1 {
		head.Last, head.Token, head.Chain = head.Last+1, head.Token^1, head.Chain.Add(7)
	}
	return head, err
}

// A healthy log is not called damaged because its head was read before a failover and its
// records after it.
func TestReadAcrossFailover(t *testing.T) {
	shared := unclosed{&memory.Backend{}}
	opts := store.Options{Logger: slog.New(slog.DiscardHandler)}
	first, err := store.New(shared, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	e, err := patch.NewEvent(patch.Fields{Author: "user"})
	if err == nil {
		_, err = first.AppendEvents(t.Context(), key, store.AppendOptions{}, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	taken := func() *store.Store {
		s, err := store.New(&takenOver{Backend: shared}, opts)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if v, err := taken().View(t.Context(), key); err != nil || v.Seq() != 1 {
		t.Errorf("the view is of record %d, %v", v.Seq(), err)
	}
	n := 0
	for _, err := range taken().RawEvents(t.Context(), key, 1) {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}
