package fold_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// listed is a log in memory, as a source.
type listed []patch.Record

func (l listed) Records(_ context.Context, seqs []uint64) ([]patch.Record, error) {
	var out []patch.Record
	for _, seq := range seqs {
		out = append(out, l[seq-1])
	}
	return out, nil
}

// What a view says that it takes grows with the visible events, and shrinks when patches
// hide them and it is released. What patches carry counts.
func TestFootprint(t *testing.T) {
	var log listed
	v := fold.New("c", nil)
	add := func(r patch.Record) {
		r.Seq = v.Seq() + 1
		log = append(log, r)
		next, err := v.Apply(r)
		if err != nil {
			t.Fatal(err)
		}
		v = next.Release(log)
	}
	text := strings.Repeat("x", 500)
	state := 0
	fill := func(n int) (size int) {
		for i := range n {
			e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":%q,"actions":{"stateDelta":{"k%d":%q}}}`, len(log), text, i, text))
			if err != nil {
				t.Fatal(err)
			}
			size += e.Size()
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
	restored, err := v.Skeleton().Restore(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	if n := restored.Footprint() - empty; n < 100*len(text) || n > full {
		t.Errorf("%d bytes of a view from a snapshot", n)
	}
	if n := v.Footprint() - empty; n < 100*len(text) || n > full {
		t.Errorf("%d bytes when the state of 100 keys of %d bytes is kept", n, len(text))
	}
}
