package fold

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

var someEvent = func() *patch.Event {
	e, err := patch.NewEvent(patch.Fields{ID: "e"})
	if err != nil {
		panic(err)
	}
	return e
}()

// check reports whether the vertex says what is below it, and whether all leaves are
// equally deep.
func (t *tree) check() (depth int, err error) {
	if t == nil {
		return 0, nil
	}
	var below sums
	switch {
	case t.fill() == 0 || t.fill() > maxFill || len(t.nodes) > 0 && len(t.kids) > 0:
		return 0, fmt.Errorf("a vertex with %d nodes and %d kids", len(t.nodes), len(t.kids))
	case t.kids == nil:
		below = sumsOf(t.nodes)
	}
	for i, k := range t.kids {
		d, err := k.check()
		if err != nil {
			return 0, err
		}
		if i > 0 && d != depth {
			return 0, fmt.Errorf("leaves at depths %d and %d", depth, d)
		}
		depth = d
		below.add(k.sums)
	}
	if below != t.sums {
		return 0, fmt.Errorf("a vertex says %+v; below it are %+v", t.sums, below)
	}
	return depth + 1, nil
}

// The tree is a slice: after any splices, with or without an owner, it holds what a
// plain slice holds, and older trees what they held.
func TestPropertyTreeIsSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr *tree
		var plain []node
		type version struct {
			tree  *tree
			nodes []node
		}
		var versions []version
		var own *owner
		seq := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "splices") {
			if rapid.Bool().Draw(t, "owner") {
				if own == nil {
					own = &owner{}
				}
			} else {
				own = nil
			}
			lo := rapid.IntRange(0, len(plain)).Draw(t, "lo")
			if rapid.IntRange(0, 3).Draw(t, "at the end") == 0 {
				lo = len(plain)
			}
			hi := lo + rapid.IntRange(0, min(len(plain)-lo, rapid.SampledFrom([]int{1, 8, 2000}).Draw(t, "most"))).Draw(t, "count")
			others := make([]node, rapid.SampledFrom([]int{0, 1, 2, 5, 40, 400}).Draw(t, "others"))
			for i := range others {
				seq++
				others[i].seq = seq
				if rapid.IntRange(0, 5).Draw(t, "visible") > 0 {
					others[i].event = someEvent
				}
			}
			if own != nil && lo == len(plain) && rapid.Bool().Draw(t, "append") {
				rest := tr.appendInPlace(own, others)
				tr = tr.splice(own, tr.len(), tr.len(), rest)
			} else {
				tr = tr.splice(own, lo, hi, others)
			}
			plain = slices.Concat(plain[:lo], others, plain[hi:])
			if own == nil {
				versions = append(versions, version{tr, plain})
			}
			if _, err := tr.check(); err != nil {
				t.Fatal(err)
			}
			compare(t, tr, plain)
		}
		for _, v := range versions {
			compare(t, v.tree, v.nodes)
		}
	})
}

func compare(t *rapid.T, tr *tree, plain []node) {
	if got := tr.slice(0, tr.len()); !slices.Equal(got, plain) {
		t.Fatalf("the tree has %d nodes, the slice %d, or others", len(got), len(plain))
	}
	visible := 0
	for rank := range plain {
		if plain[rank].event == nil {
			continue
		}
		if n, r := tr.at(visible); r != rank || n.seq != plain[rank].seq {
			t.Fatalf("visible node %d has rank %d and seq %d, want %d and %d", visible, r, n.seq, rank, plain[rank].seq)
		}
		visible++
	}
	if tr.visibleLen() != visible {
		t.Fatalf("%d visible nodes, want %d", tr.visibleLen(), visible)
	}
	if n := len(plain); n > 3 {
		if got := tr.slice(1, n-1); !slices.Equal(got, plain[1:n-1]) {
			t.Fatal("a slice from the middle differs")
		}
	}
}

// Random edits keep the tree shallow.
func TestTreeStaysShallow(t *testing.T) {
	var tr *tree
	n := 0
	for i := range 20_000 {
		at := i * 7919 % (n + 1)
		if i%3 == 2 && at < n {
			tr = tr.splice(nil, at, at+1, nil)
			n--
			continue
		}
		tr = tr.splice(nil, at, at, []node{{event: someEvent}})
		n++
	}
	depth, err := tr.check()
	if err != nil {
		t.Fatal(err)
	}
	// With at least minFill/2 entries a vertex, 6,700 nodes need at most 7 levels.
	if depth > 7 {
		t.Errorf("%d nodes lie %d levels deep", n, depth)
	}
}

// A chain of summaries of summaries neither recurses without bound nor loses state.
func TestLongChainOfKeptCuts(t *testing.T) {
	v := New("", nil)
	first, err := patch.NewEvent(patch.Fields{ID: "first", Actions: patch.Actions{StateDelta: map[string]any{"k": 1}}})
	if err != nil {
		t.Fatal(err)
	}
	records := []patch.Record{{Seq: 1, Event: first}}
	for i := range 100_000 {
		records = append(records, patch.Record{Seq: uint64(i + 2), Patch: patch.NewSplice(0, 1, someEvent).WithState(patch.Keep)})
	}
	if v, err = v.Apply(records...); err != nil {
		t.Fatal(err)
	}
	if v.Len() != 1 || v.State()["k"] != 1 {
		t.Errorf("%d visible events, state %v", v.Len(), v.State())
	}
}
