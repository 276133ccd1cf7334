// Package memory checks how much memory a function needs, compared with the size of its input.
package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The memory limit for an input of n bytes is Factor·n + Constant.
const (
	Factor   = 8
	Constant = 32 << 20
)

// Within calls f, which reads an input of the given size. It fails the test if f needs more memory at any moment
// than the limit. If the sum of f's allocations exceeds the limit, Within calls f again to measure the peak, so f
// must be repeatable. No other goroutine should allocate meanwhile.
func Within(t testing.TB, input int, f func()) {
	t.Helper()
	limit := uint64(Factor*input + Constant)
	before := allocated()
	f()
	if allocated()-before <= limit {
		return
	}
	if peak := peakOf(f, limit); peak > limit {
		t.Errorf("%d bytes of memory for %d bytes of input; %d are allowed", peak, input, limit)
	}
}

// allocated returns the number of bytes that were allocated on the heap since the program started.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// peakOf returns the growth of the heap while f runs. It makes the collector run often, so that the heap has little
// garbage. If the size of the heap comes close to limit, allocations wait for a collection, even on a busy machine.
func peakOf(f func(), limit uint64) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(before.Sys - before.HeapReleased + limit/10*9)))
	f()
	runtime.ReadMemStats(&after)
	heapAfter, heapBefore := after.HeapSys-after.HeapReleased, before.HeapSys-before.HeapReleased
	return max(heapAfter, heapBefore) - heapBefore
}
