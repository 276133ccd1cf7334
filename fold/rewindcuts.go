package fold

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// dropAgain cuts the old nodes that are to be dropped again. A cut takes no marker beyond
// its first or last event: where such a marker, of those that are to go, carries state,
// its patch is reverted first, and what that brings back goes.
func (w *rewinding) dropAgain() error {
	goes := func(n *node) bool { return w.drop[n.id()] }
	for {
		var outside []*cut
		all := w.runs(goes, &outside)
		if len(outside) == 0 {
			return w.cutAll(all, patch.Drop)
		}
		for n := range outside[0].tookOut {
			w.drop[n.id()] = true
		}
		if err := w.doRevert(outside[0]); err != nil {
			return err
		}
	}
}

// indices is a run of nodes to cut, as visible indices.
type indices struct{ first, end int }

// runs returns the runs of visible nodes that are to go, as long as can be. Markers belong
// to any run, but none that carries state and is not to go. Those that carry, are to go,
// and stand in no run are added to outside.
func (w *rewinding) runs(goes func(*node) bool, outside *[]*cut) []indices {
	var all []indices
	open := false
	visible := 0
	var trailing []*cut
	leave := func() {
		if outside != nil {
			*outside = append(*outside, trailing...)
		}
		trailing = nil
	}
	for n := range w.view.root.all {
		carries := n.event == nil && len(n.carries()) > 0
		switch {
		case n.event == nil && !carries:
		case !goes(n):
			open = false
			leave()
		case carries:
			trailing = append(trailing, n.cut)
			if !open {
				leave()
			}
		case open:
			all[len(all)-1].end, trailing = visible+1, nil
		default:
			leave()
			all, open = append(all, indices{visible, visible + 1}), true
		}
		if n.event != nil {
			visible++
		}
	}
	leave()
	return all
}

func (w *rewinding) cutAll(all []indices, policy patch.StatePolicy) error {
	for _, run := range slices.Backward(all) { // so that earlier indices stay
		if err := w.do(patch.NewSplice(run.first, run.end-run.first).WithState(policy)); err != nil {
			return err
		}
	}
	return nil
}
