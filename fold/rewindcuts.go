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
		_, outside := w.runs(goes)
		if len(outside) == 0 {
			return w.cutAll(goes, patch.Drop)
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
// to any run, but none that carries state and is not to go. Of those that carry and are to
// go, outside are the patches whose markers stand in no run.
func (w *rewinding) runs(goes func(*node) bool) (all []indices, outside []*cut) {
	open := false
	visible := 0
	var trailing []*cut
	leave := func() { outside, trailing = append(outside, trailing...), nil }
	for n := range w.view.root.all {
		carries := n.event == nil && len(n.carries()) > 0
		switch {
		case n.event == nil && !carries:
		case !goes(n):
			open = false
			leave()
		case carries:
			trailing = append(trailing, n.cut)
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
	return all, outside
}

// cutAll cuts the runs of nodes that are to go.
func (w *rewinding) cutAll(goes func(*node) bool, policy patch.StatePolicy) error {
	all, _ := w.runs(goes)
	for _, run := range slices.Backward(all) { // so that earlier indices stay
		if err := w.do(patch.NewSplice(run.first, run.end-run.first).WithState(policy)); err != nil {
			return err
		}
	}
	return nil
}
