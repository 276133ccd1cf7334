package fold

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// CheckAll reports whether an author may log the patches together, in their order, and
// returns the view after them; nil patches are none. Each is judged as [View.Check] does,
// on the log as the ones before leave it, but for two things: only the first one's base
// is looked at, since its author has seen the others; and neighbours of one group are
// judged as one patch in whether they orphan calls, after all else. The first refusal is
// the error. A *[NeedError] says what is needed up to there; when that is handed in, more
// may be.
func (v View) CheckAll(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	hand := slices.Clip(v.hand)
	for i, p := range patches { // a revert may need what those before it put in
		hand = append(hand, patch.Record{Seq: v.seq + 1 + uint64(i), Patch: p})
	}
	at := v.With(hand)
	at.plan = &needs{}
	for i := 0; i < len(patches); {
		end := i + 1
		for group := patches[i].Group(); group != "" && end < len(patches) && patches[end].Group() == group; {
			end++
		}
		next, err := at.checkGroup(patches[i:end], opts)
		if need := at.plan.upTo(v.seq); need != nil {
			return View{}, need // whatever was found: it was looked for in placeholders
		}
		if err != nil {
			return View{}, err
		}
		at, i, opts.AsOfNow = next, end, true
	}
	at.hand, at.plan = nil, nil
	return at, nil
}

// checkGroup judges patches as one.
func (v View) checkGroup(patches []*patch.PatchEvent, opts CheckOptions) (View, error) {
	if len(patches) == 1 {
		e, err := v.check(patches[0], opts)
		if err != nil {
			return View{}, err
		}
		return v.edited(e), nil
	}
	each := opts
	each.AllowOrphans = true
	at := v
	for _, p := range patches {
		e, err := at.check(p, each)
		if err != nil {
			return View{}, err
		}
		at, each.AsOfNow = at.edited(e), true
	}
	return at, v.checkChange(at, opts)
}
