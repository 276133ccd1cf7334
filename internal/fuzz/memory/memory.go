// Package memory holds functions to what memory they may take for their input.
package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The memory that may be held for an input of n bytes: Factor n, and a constant.
const (
	Factor   = 8
	Constant = 32 << 20
)

// Within calls f, which reads an input of the given number of bytes, and fails the test if f holds more
// memory at a time than it may. f is called once more if it allocates so much in all that
// this cannot be ruled out, and must do the same then. Nothing else should allocate meanwhile.
func Within(t testing.TB, input int, f func()) {
	t.Helper()
	most := uint64(Factor*input + Constant)
	before := allocated()
	f()
	if allocated()-before <= most {
		return
	}
	if peak := peakOf(f, most); peak > most {
		t.Errorf("%d bytes of memory for %d bytes of input; %d are allowed", peak, input, most)
	}
}

// allocated returns how many bytes have been allocated on the heap in all.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// peakOf returns by how much the heap grows while f runs, with little garbage in it: near most bytes the collector's
// limit has allocations wait for it, also on a busy machine.
func peakOf(f func(), most uint64) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(before.Sys - before.HeapReleased + most/10*9)))
	f()
	runtime.ReadMemStats(&after)
	held, was := after.HeapSys-after.HeapReleased, before.HeapSys-before.HeapReleased
	return max(held, was) - was
}
