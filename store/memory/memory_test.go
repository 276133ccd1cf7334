package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestBackend(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		return &memory.Backend{}, nil
	})
}

// A Faulty backend with no planned faults behaves like the backend that it wraps.
func TestFaultyBackend(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (backend.Backend, func() backend.Backend) {
		return &storetest.Faulty{Backend: &memory.Backend{}}, nil
	})
}

// Read returns records up to exactly maxBytes and stops at a seq without a record, including 0.
func TestReadEnds(t *testing.T) {
	var b memory.Backend
	ctx := context.Background()
	records := []backend.Record{{Seq: 1, Data: make([]byte, 100)}, {Seq: 2, Data: make([]byte, 50)}, {Seq: 3, Data: make([]byte, 1)}}
	if err := b.Append(ctx, "a", backend.Batch{Creation: "c", Create: true, Records: records}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		seqs  []uint64
		bytes int
		want  []uint64
	}{
		{[]uint64{1, 2, 3}, 149, []uint64{1}},
		{[]uint64{1, 2, 3}, 150, []uint64{1, 2}},
		{[]uint64{1, 2, 3}, 151, []uint64{1, 2, 3}},
		{[]uint64{0, 1}, 1 << 20, nil},
		{[]uint64{3, 4}, 1 << 20, []uint64{3}},
	} {
		picked, err := b.Read(ctx, "a", "c", c.seqs, c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, r := range picked {
			got = append(got, r.Seq)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %d in %d bytes Read gives %d, want %d", c.seqs, c.bytes, got, c.want)
		}
	}
}

// Created and deleted sessions leave no memory in use.
func TestDeletionsTakeNoMemory(t *testing.T) {
	b := &memory.Backend{}
	defer b.Close()
	churn := func(n int) uint64 {
		for i := range n {
			creation := fmt.Sprint("creation ", i)
			if err := b.Append(t.Context(), "s", backend.Batch{Creation: creation, Create: true}); err != nil {
				t.Fatal(err)
			}
			if err := b.Delete(t.Context(), "s", creation, nil); err != nil {
				t.Fatal(err)
			}
			if fenced, err := b.Fence(t.Context(), "s", creation, 0, 9); err != nil || fenced {
				t.Fatalf("a fence of a creation that was deleted takes: %v", err)
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := churn(5000)
	if after := churn(50_000); after > before+1<<20 {
		t.Errorf("50,000 deletions take %d bytes", after-before)
	}
}
