package fold

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

var someEvent = func() *patch.Event {
	e, err := patch.NewEvent(patch.Fields{ID: "e"})
	if err != nil {
		panic(err)
	}
	return e
}()

// check verifies the invariants of the tree.
func (s *sequence) check() error {
	if s == nil {
		return nil
	}
	_, err := s.checkTree()
	return err
}

func (s *sequence) checkTree() (height int, err error) {
	again := sequence{nodes: s.nodes, kids: s.kids}
	again.count()
	if w := len(s.nodes) + len(s.kids); w == 0 || w > maxWidth || s.nodes != nil && s.kids != nil || again.counts != s.counts {
		return 0, fmt.Errorf("a part of width %d has the counts %+v, but stores %+v", w, again.counts, s.counts)
	}
	for i, k := range s.kids {
		if k.counts != k.tree.counts {
			return 0, fmt.Errorf("of a child with %+v, %+v is said", k.tree.counts, k.counts)
		}
		below, err := k.tree.checkTree()
		if err != nil {
			return 0, err
		}
		if i > 0 && below+1 != height {
			return 0, fmt.Errorf("children of heights %d and %d", height-1, below)
		}
		height = below + 1
	}
	return height, nil
}

// leaves returns the number of leaves.
func (s *sequence) leaves() (n int) {
	if s.kids == nil {
		return 1
	}
	for _, k := range s.kids {
		n += k.tree.leaves()
	}
	return n
}

// After any splices, a sequence contains the same nodes as a plain slice. Splices do not change older sequences.
func TestPropertySequenceMatchesSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s *sequence
		var own *owner
		var plain []node
		type version struct {
			sequence *sequence
			nodes    []node
		}
		var versions []version
		seq := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "splices") {
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
			if !rapid.Bool().Draw(t, "owner") {
				own = nil
			} else if own == nil {
				own = &owner{}
			}
			s = s.splice(own, lo, hi, others)
			plain = slices.Concat(plain[:lo], others, plain[hi:])
			if own == nil {
				versions = append(versions, version{s, plain})
			}
			testlog.NoError(t, s.check())
			compare(t, s, plain)
			clear(others) // the sequence has copied the nodes
		}
		for _, v := range versions {
			compare(t, v.sequence, v.nodes)
		}
	})
}

func compare(t *rapid.T, s *sequence, plain []node) {
	if got := s.slice(0, s.len()); !slices.Equal(got, plain) {
		t.Fatalf("the sequence has %d nodes, the slice %d, or others", len(got), len(plain))
	}
	visible := 0
	for rank := range plain {
		if s.visibleBefore(rank) != visible || s.nodeAt(rank).seq != plain[rank].seq {
			t.Fatalf("before rank %d are %d visible nodes, want %d", rank, s.visibleBefore(rank), visible)
		}
		if plain[rank].event == nil {
			continue
		}
		if n, r := s.visibleAt(visible); r != rank || n.seq != plain[rank].seq {
			t.Fatalf("visible node %d has rank %d and seq %d, want %d and %d", visible, r, n.seq, rank, plain[rank].seq)
		}
		visible++
	}
	if s.visibleLen() != visible || s.visibleBefore(len(plain)) != visible {
		t.Fatalf("%d visible nodes, want %d", s.visibleLen(), visible)
	}
	if n := len(plain); n > 3 {
		if got := s.slice(1, n-1); !slices.Equal(got, plain[1:n-1]) {
			t.Fatal("a slice from the middle differs")
		}
	}
}

// slice returns the nodes in [lo, hi).
func (s *sequence) slice(lo, hi int) (out []node) {
	s.walk(lo, hi, func(n *node) bool {
		out = append(out, *n)
		return true
	})
	return out
}

// After many random edits, leaves are at least a third full on average. After appends, they are full.
func TestLeavesStayLarge(t *testing.T) {
	var s *sequence
	n := 0
	for i := range 20_000 {
		at := i * 7919 % (n + 1)
		if i%3 == 2 && at < n {
			s = s.splice(nil, at, at+1, nil)
			n--
			continue
		}
		s = s.splice(nil, at, at, []node{{event: someEvent}})
		n++
	}
	testlog.NoError(t, s.check())
	if leaves := s.leaves(); n < leaves*maxWidth/3 {
		t.Errorf("%d nodes are in %d leaves", n, leaves)
	}
	for _, own := range []*owner{nil, {}} {
		s = nil
		for n := range 5000 {
			s = s.splice(own, n, n, []node{{event: someEvent}})
		}
		if leaves := s.leaves(); leaves > 5000/maxWidth+1 {
			t.Errorf("5,000 appended nodes are in %d leaves", leaves)
		}
	}
}

// A long chain of summaries of summaries keeps the state and does not overflow the stack.
func TestLongChainOfKeptCuts(t *testing.T) {
	v := New("", nil)
	first := testlog.Must(patch.NewEvent(patch.Fields{ID: "first", Actions: patch.Actions{StateDelta: map[string]any{"k": 1}}}))(t)
	records := []patch.Record{{Seq: 1, Event: first}}
	for i := range 100_000 {
		records = append(records, patch.Record{Seq: uint64(i + 2), Patch: patch.NewSplice(0, 1, someEvent).WithState(patch.Keep)})
	}
	v = testlog.Must(v.Apply(records...))(t)
	if v.Len() != 1 || v.State()["k"] != 1 {
		t.Errorf("%d visible events, state %v", v.Len(), v.State())
	}
}
