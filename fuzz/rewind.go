package fuzz

import (
	"slices"

	"github.com/patchlog-dev/patchlog/patch"
)

// Rewind returns the result of a rewind: the visible log, the state, and for each visible event whether it is
// pinned. The argument from is the seq of the first event of the invocation to undo. Rewind does not change the
// model.
func (r *Reference) Rewind(from uint64) (visible []*patch.Event, state map[string]patch.Value, pinned []bool) {
	after := r.rewound(from)
	return after.Visible(), after.State(), after.Pinned()
}

// rewound returns the model after the rewind. It cuts nodes one by one, which no patch of a log can do.
func (r *Reference) rewound(from uint64) *Reference {
	w := rewindRun{Reference: r.clone(), from: from, ages: map[*applied]age{}, active: filter(r.applied, r.isActive)}
	for _, a := range r.applied {
		w.ages[a] = w.ageOf(w.seqsOf(a, nil), a)
	}
	w.revertMixed()
	marks := w.nodesToRecut()
	for _, n := range slices.Clone(w.nodes) {
		switch policy, cut := marks[n]; {
		case w.isNew(n):
			w.cut(n, patch.Drop)
		case cut && (policy == patch.Drop || n.event != nil): // a marker keeps the state that it carries
			w.cut(n, policy)
		}
	}
	w.restorePins()
	return w.Reference
}

type rewindRun struct {
	*Reference
	from   uint64
	active []*applied // patches that were active before the first record of the rewind
	ages   map[*applied]age
	steps  int
}

// age classifies a patch and the nodes that it inserted. It compares the logged events that the patch removed, at
// any depth, with the first record of the rewind. If all these events precede that record, the age is old. If none
// of them precedes it, the age is young (called "new" in docs/SEMANTICS.md). Otherwise, the age is mixed.
type age int

const (
	old age = iota
	young
	mixed
)

func (w *rewindRun) ageOf(seqs []uint64, a *applied) age {
	var hasOld, hasYoung bool
	for _, seq := range seqs {
		hasOld = hasOld || seq < w.from
		hasYoung = hasYoung || seq >= w.from
	}
	switch {
	case hasOld && hasYoung:
		return mixed
	case hasYoung, !hasOld && a.seq >= w.from:
		return young
	}
	return old
}

// membersOf returns the patches that count as one patch with a. If a patch of a's group inserts events, these are
// the active patches of the group. Otherwise, membersOf returns only a.
func (w *rewindRun) membersOf(a *applied) []*applied {
	if group := w.mergedGroup(a); group != nil {
		return group
	}
	return []*applied{a}
}

// mergedGroup returns the active patches of a's group. It returns nil if at most one patch is active, or if none of
// them inserts events.
func (w *rewindRun) mergedGroup(a *applied) []*applied {
	group := filter(w.active, func(b *applied) bool { return a.group != "" && b.group == a.group && (b.isCut() || b.addsEvents()) })
	if len(group) > 1 && slices.Contains(group, a) && slices.ContainsFunc(group, (*applied).addsEvents) {
		return group
	}
	return nil
}

// seqsOf returns the seqs of logged events. These are the events that were removed, at any depth, by a and by the
// patches that count as one with a. An inserted event counts with the seq of its patch. The argument within has the
// patches whose seqs are being computed.
func (w *rewindRun) seqsOf(a *applied, within []*applied) []uint64 {
	members := w.membersOf(a)
	within = slices.Concat(within, members)
	var seqs []uint64
	for _, b := range members {
		for _, n := range b.out {
			switch {
			case n.insertedBy == nil:
				seqs = append(seqs, n.seq)
			case n.isRevertMarker, n.insertedBy.isCut() && n.insertedBy.dropsState, slices.Contains(within, n.insertedBy):
			default:
				inner := w.seqsOf(n.insertedBy, within)
				if len(inner) == 0 && n.event != nil {
					inner = []uint64{n.insertedBy.seq}
				}
				seqs = append(seqs, inner...)
			}
		}
	}
	return seqs
}

// revertMixed is step 1 of a rewind. Newest first, it reverts mixed patches that are not drop cuts, and young keep
// cuts.
func (w *rewindRun) revertMixed() {
	for {
		i := slices.IndexFunc(w.newestFirst(), w.mustRevert)
		if i < 0 {
			return
		}
		if a := w.newestFirst()[i]; w.ages[a] == mixed {
			w.revertMembers(a)
		} else {
			w.revert(a)
		}
	}
}

// newestFirst returns the patches of the log, without the patches that the rewind adds.
func (w *rewindRun) newestFirst() []*applied {
	patches := filter(w.applied, func(a *applied) bool { _, ok := w.ages[a]; return ok })
	slices.Reverse(patches)
	return patches
}

func (w *rewindRun) mustRevert(a *applied) bool {
	switch {
	case !w.isActive(a), a.target != nil, a.pin != nil:
		return false
	case w.ages[a] == mixed:
		return !a.isCut() || !a.dropsState // a group that inserts events is reverted as a whole
	}
	return w.ages[a] == young && a.isCut() && !a.dropsState
}

// revertMembers reverts the patches that count as one with a, newest first.
func (w *rewindRun) revertMembers(a *applied) {
	for _, b := range slices.Backward(w.membersOf(a)) {
		if w.isActive(b) {
			w.revert(b)
		}
	}
}

// revert reverts the patch. Before that, it reverts the patches that block the revert, whatever their age.
func (w *rewindRun) revert(a *applied) {
	for w.isActive(a) {
		if w.steps++; w.steps > 10*len(w.ages)+10 {
			panic("fuzz: a rewind does not end")
		}
		if s, reason, _ := w.revertStep(a); reason == "" {
			w.commit(s, applied{seq: w.nextSeq()})
			return
		}
		_, _, missing, between := w.insertedRange(a)
		for _, b := range w.blockersOf(a, missing, between) {
			w.revertMembers(b.root())
		}
	}
}

// nodesToRecut is step 3 of a rewind. It returns the nodes to cut again, and the policy for each of these nodes.
// They are the nodes in out() of the cuts that were reverted. If all nodes that a patch or group inserted are cut
// again, the nodes in its out() are cut again too.
func (w *rewindRun) nodesToRecut() map[*node]patch.StatePolicy {
	marks := map[*node]patch.StatePolicy{}
	mark := func(nodes []*node, drop bool) (changed bool) {
		for _, n := range nodes {
			policy := patch.Keep
			if drop || marks[n] == patch.Drop {
				policy = patch.Drop
			}
			changed = changed || marks[n] != policy
			marks[n] = policy
		}
		return changed
	}
	for _, a := range w.active {
		isDeliberate := a.isCut() || a.addsEvents() && !a.in[0].fromSummarise && a.dropsState && w.ages[a] == mixed
		if isDeliberate && !w.isActive(a) && w.mergedGroup(a) == nil {
			mark(a.out, a.dropsState)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, a := range w.active {
			if !a.isCut() && !a.addsEvents() {
				continue
			}
			var in, out []*node
			for _, b := range w.membersOf(a) {
				out = append(out, b.out...)
				if w.mergedGroup(a) == nil || b.addsEvents() {
					in = append(in, b.in...)
				}
			}
			isCut := func(n *node) bool { return marks[n] != "" }
			isKept := func(n *node) bool { return marks[n] != patch.Drop }
			if !slices.ContainsFunc(in, func(n *node) bool { return !isCut(n) }) {
				changed = mark(out, !slices.ContainsFunc(in, isKept)) || changed
			}
		}
	}
	return marks
}

func (w *rewindRun) isNew(n *node) bool {
	if n.insertedBy == nil {
		return n.seq >= w.from
	}
	return n.event != nil && w.ages[n.insertedBy] == young
}

// cut replaces the node by a marker.
func (w *rewindRun) cut(n *node, policy patch.StatePolicy) {
	marker := &node{}
	if policy == patch.Keep {
		marker.carriedState = net(nil, []*node{n})
	}
	i := slices.Index(w.nodes, n)
	after := slices.Clone(w.nodes)
	after[i] = marker
	w.commit(step{after: after, in: []*node{marker}, out: []*node{n}, newCount: 1, dropsState: policy == patch.Drop}, applied{seq: w.nextSeq()})
}

// restorePins is step 4 of a rewind. After this step, exactly those pins and unpins are active that were active
// before the first record of the rewind.
func (w *rewindRun) restorePins() {
	for _, a := range slices.Backward(slices.Clone(w.applied)) {
		if a.pin == nil || a.target != nil {
			continue
		}
		switch wasActive, isActive := a.seq < w.from && w.wasActiveBefore(a, w.from), w.isActive(a); {
		case isActive && !wasActive:
			w.revert(a)
		case wasActive && !isActive:
			for _, revert := range slices.Backward(w.revertsOf(a)) {
				w.revert(revert)
			}
		}
	}
}
