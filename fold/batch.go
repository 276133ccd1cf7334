package fold

import (
	"maps"
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
	return at, v.CheckOrphans(at, opts)
}

// CheckOrphans reports whether several patches, which lead from the view to after, leave a
// function call or response as no patch may; nil means that they do not. It judges what
// they do together: a call that one takes out and a response that another does are no
// orphans. The error is an *[OrphanError] without a suggestion. It takes time linear in
// the number of visible events of both views.
func (v View) CheckOrphans(after View, opts CheckOptions) error {
	if opts.AllowOrphans {
		return nil
	}
	if orphans := v.orphansIn(after, opts); len(orphans) > 0 {
		return &OrphanError{Orphans: orphans, fixed: true}
	}
	return nil
}

// partID is a function part's identity.
type partID struct {
	nodeID
	part int
}

func (v View) partIDs(parts []part, nodes []*node) []partID {
	ids := make([]partID, len(parts))
	for i, p := range parts {
		ids[i] = partID{nodes[p.pos].id(), p.Index}
	}
	return ids
}

// orphansIn lists what a change of the view into another one does to function calls that
// no patch may do: what [span.orphans] lists for a single patch.
func (v View) orphansIn(after View, opts CheckOptions) []Orphan {
	var out []Orphan
	was, is := v.visibleNodes(), after.visibleNodes()
	pairsWas, pairsIs := v.pairing(), newPairing(after)
	keys := map[callKey]struct{}{}
	for key := range pairsWas.byKey {
		keys[key] = struct{}{}
	}
	for key := range pairsIs.byKey {
		keys[key] = struct{}{}
	}
	for _, key := range sortedKeys(keys) {
		before, parts := pairsWas.byKey[key], pairsIs.byKey[key]
		idsWas, idsIs := v.partIDs(before, was), after.partIDs(parts, is)
		if slices.Equal(idsWas, idsIs) {
			continue // nothing of it has changed
		}
		place := map[partID]int{}
		for i, id := range idsWas {
			place[id] = i
		}
		change := pairChange{before: before, after: parts, was: make([]int, len(parts)), partnerWas: pair(before), partner: pair(parts)}
		for i, id := range idsIs {
			change.was[i] = unpaired
			if old, ok := place[id]; ok {
				change.was[i] = old
				delete(place, id)
				parts[i].pos = before[old].pos // as orphans are named
			} else {
				parts[i].pos = -1
			}
		}
		out = append(out, change.orphans()...)
		for _, i := range slices.Sorted(maps.Values(place)) {
			if v.mustStay(before, change.partnerWas, i, opts) {
				out = append(out, before[i].orphan(problemOpen))
			}
		}
	}
	out = append(out, misplacedIn(was, is)...)
	sortOrphans(out)
	return out
}

// misplacedIn lists function calls of nodes that stand where a model's API accepts none,
// and did not before.
func misplacedIn(was, is []*node) []Orphan {
	place := make(map[nodeID]int, len(was))
	for i, n := range was {
		place[n.id()] = i
	}
	problem := func(nodes []*node, i int) string {
		switch {
		case i == 0:
			return problemFirst
		case nodes[i-1].event.Role() == "model" && nodes[i-1].isSummary():
			return problemAfter
		}
		return ""
	}
	var out []Orphan
	for i, n := range is {
		now := problem(is, i)
		if now == "" {
			continue
		}
		old, stood := place[n.id()]
		switch {
		case !stood:
			out = append(out, callsOf(n.event, -1, now)...)
		case problem(was, old) == "":
			out = append(out, callsOf(n.event, old, now)...)
		}
	}
	return out
}
