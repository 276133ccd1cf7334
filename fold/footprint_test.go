package fold_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// The footprint grows with visible events and shrinks when patches hide them. It includes the deltas that
// markers and summaries carry.
func TestFootprint(t *testing.T) {
	k := &keeper{t: t}
	v := fold.New("c", nil)
	add := func(r patch.Record) {
		r.Seq = v.Seq() + 1
		k.log = append(k.log, r)
		v = k.fold(v, k.log[r.Seq-1:])
	}
	text := strings.Repeat("x", 500)
	state := 0
	fill := func(n int) (size int) {
		for i := range n {
			e := testlog.Must(patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":%q,"actions":{"stateDelta":{"k%d":%q}}}`, len(k.log), text, i, text)))(t)
			size += patch.Record{Event: e}.Size()
			add(patch.Record{Event: e})
		}
		state += n
		return size
	}
	empty := v.Footprint()
	size := fill(100)
	full := v.Footprint() - empty
	if full < size || full > 4*size {
		t.Errorf("%d bytes for events of %d", full, size)
	}
	add(patch.Record{Patch: patch.NewSplice(0, 100).WithState(patch.Drop).WithID("p1")})
	if n := v.Footprint() - empty; n < 100 || n > size/20 {
		t.Errorf("%d bytes when all is hidden", n)
	}
	add(patch.Record{Patch: patch.NewRevert("p1").WithID("p2")})
	if n := v.Footprint() - empty; n < full || n > full+size/20 {
		t.Errorf("%d bytes when all is back, %d before", n, full)
	}
	add(patch.Record{Patch: patch.NewSplice(0, 100).WithState(patch.Keep).WithID("p3")})
	if n := k.restore(v).Footprint() - empty; n < 100*len(text) || n > full {
		t.Errorf("%d bytes of a view from a snapshot", n)
	}
	if n := v.Footprint() - empty; n < 100*len(text) || n > full {
		t.Errorf("%d bytes when the state of 100 keys of %d bytes is kept", n, len(text))
	}
}

// A patch that keeps the state keeps only the values in memory, not the events that set them.
func TestCutKeepsNoEvents(t *testing.T) {
	const events, bytes = 64, 128 << 10
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	v := fold.New("c", nil)
	before := heap()
	text := strings.Repeat("x", bytes)
	for i := range uint64(events) {
		e := testlog.Must(patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":%q,"actions":{"stateDelta":{"k%d":"v"}}}`, i, text, i)))(t)
		v = testlog.Must(v.Apply(patch.Record{Seq: i + 1, Event: e}))(t)
	}
	v = testlog.Must(v.Apply(patch.Record{Seq: events + 1, Patch: patch.NewSplice(0, events).WithState(patch.Keep).WithID("p")}))(t)
	if kept := heap() - before; kept > events*bytes/4 {
		t.Errorf("%d bytes are kept of %d events of %d bytes, which are hidden", kept, events, bytes)
	}
	if len(v.State()) != events {
		t.Errorf("%d keys of %d", len(v.State()), events)
	}
}
