// Package blanks plans reverts of visible summaries that are blank after an erasure. Such a revert restores the
// events that the summary covered and that still have content. A store logs these reverts when it completes an
// erasure, and compaction logs them before it plans. See docs/SEMANTICS.md, "Erasure".
package blanks

import (
	"cmp"
	"errors"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// DefaultMaxGrowth is the default of [Options.MaxGrowth]. It equals the maximum input of a compactor's
// summarizer.
const DefaultMaxGrowth = 50_000

// Options configures [PlanReverts].
type Options struct {
	// MaxGrowth is the maximum growth of the visible log in tokens.
	MaxGrowth int

	// ErasedIDs contains the ids of events that will be erased, and that therefore count as blank.
	ErasedIDs map[string]bool

	// Read returns the records with the given seqs, which are in ascending order.
	Read func(seqs []uint64) ([]patch.Record, error)
}

// Plan contains the reverts to log.
type Plan struct {
	Reverts     []*patch.PatchEvent // reverts to log together, in this order
	Summaries   []string            // ids of the summaries that are reverted
	After       fold.View
	NotReverted []string // ids of the blank summaries that are still visible in After, with the newest last
}

// PlanReverts plans the reverts of a view's visible blank summaries. It begins with the newest summary, and then
// continues with summaries that become visible.
//
// A summary is reverted together with its group. Three conditions must hold:
//
//   - All patches of the group keep the state and add only summaries.
//   - At least one event that the summary covers is not blank.
//   - The revert can be applied.
//
// PlanReverts stops before the visible log would grow by more than MaxGrowth tokens. However, it always follows at
// least one path of nested summaries to its end.
func PlanReverts(v fold.View, opts Options) (Plan, error) {
	p := planner{Options: opts}
	plan := Plan{After: v}
	queue, size := p.blankSummaries(v)
	if len(queue) > 0 {
		if err := p.loadUnits(v); err != nil {
			return Plan{}, err
		}
	}
	pathStart, onPath := 0, true // length of the queue at the beginning of the current path
	for grown := 0; len(queue) > 0; {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		reverts, next, err := p.revert(plan.After, s)
		if err != nil {
			return Plan{}, err
		}
		if reverts == nil {
			continue
		}
		summaries, newSize := p.blankSummaries(next)
		onPath = onPath && len(queue) >= pathStart
		if grown += newSize - size; grown > p.MaxGrowth && !onPath {
			break
		}
		visible := visibleIDs(plan.After)
		pathStart = len(queue)
		queue = append(queue, slices.DeleteFunc(summaries, func(s summary) bool { return visible[s.id] })...)
		plan.Reverts, plan.Summaries, plan.After = append(plan.Reverts, reverts...), append(plan.Summaries, s.id), next
		size = newSize
	}
	plan.NotReverted = p.blankSummaryIDs(plan.After)
	return plan, nil
}

// VisibleSummaries returns the ids of a view's visible blank summaries, with the newest last. Events with the given ids
// count as blank.
func VisibleSummaries(v fold.View, erasedIDs map[string]bool) []string {
	return (&planner{Options: Options{ErasedIDs: erasedIDs}}).blankSummaryIDs(v)
}

func (p *planner) blankSummaryIDs(v fold.View) (ids []string) {
	all, _ := p.blankSummaries(v)
	for _, s := range all {
		ids = append(ids, s.id)
	}
	return ids
}

// summary is a visible blank summary.
type summary struct {
	seq uint64 // seq of the patch that added the summary
	id  string
}

// blankSummaries returns a view's visible blank summaries, with the newest last, and the number of tokens in the view.
func (p *planner) blankSummaries(v fold.View) (all []summary, tokens int) {
	for _, e := range v.Entries() {
		event := p.afterErasure(e.Event)
		tokens += event.EstimatedTokens()
		if e.Summary && event.IsBlank(patch.KeepValues) {
			all = append(all, summary{e.Seq, e.Event.ID()})
		}
	}
	slices.SortStableFunc(all, func(a, b summary) int { return cmp.Compare(a.seq, b.seq) })
	return all, tokens
}

// afterErasure returns an event as it will be after the erasure.
func (p *planner) afterErasure(e *patch.Event) *patch.Event {
	if p.ErasedIDs[e.ID()] {
		return e.Blank("", patch.KeepValues)
	}
	return e
}

func visibleIDs(v fold.View) map[string]bool {
	ids := map[string]bool{}
	for _, e := range v.Events() {
		ids[e.ID()] = true
	}
	return ids
}

// planner caches the patches of a view's log.
type planner struct {
	Options
	units map[uint64]*unit // key: seq of a patch of the unit
}

// unit contains the patches of a group, or a single patch without a group.
type unit struct {
	cuts                           []fold.Cut
	read                           bool // whether the fields below are set
	ids                            []string
	isSummary                      bool // whether all patches keep the state and add only summaries
	contentChecked, contentRemains bool // cached result of [planner.hidesContent]
}

func (p *planner) loadUnits(v fold.View) error {
	cuts, err := v.Cuts()
	if err != nil {
		return err
	}
	p.units = map[uint64]*unit{}
	groups := map[string]*unit{}
	for cut := range cuts {
		u := groups[cut.Group]
		if u == nil {
			u = &unit{}
		}
		if cut.Group != "" {
			groups[cut.Group] = u
		}
		u.cuts = append(u.cuts, cut)
		p.units[cut.Seq] = u
	}
	return nil
}

// revert returns the reverts of a summary's unit, and the view after them. If the unit cannot be reverted, it
// returns no reverts.
func (p *planner) revert(v fold.View, s summary) ([]*patch.PatchEvent, fold.View, error) {
	u := p.units[s.seq]
	if u == nil {
		return nil, v, nil
	}
	if err := p.readUnit(u); err != nil || !u.isSummary {
		return nil, v, err
	}
	targets, err := v.RevertTargets(u.idOf(s.seq))
	if err != nil || slices.ContainsFunc(targets, func(id string) bool { return !slices.Contains(u.ids, id) }) {
		return nil, v, corruptOnly(err)
	}
	if ok, err := p.hidesContent(u); err != nil || !ok {
		return nil, v, err
	}
	reverts := make([]*patch.PatchEvent, len(targets))
	for i, id := range targets {
		reverts[i] = patch.NewRevert(id)
	}
	var supplied []patch.Record
	for {
		next, err := v.WithRecords(supplied).Preview(reverts, fold.CheckOptions{AllowOrphans: true})
		var need *fold.MissingRecordsError
		if !errors.As(err, &need) {
			if err != nil {
				return nil, v, corruptOnly(err)
			}
			return reverts, next, nil
		}
		if supplied, err = p.Read(need.Seqs); err != nil {
			return nil, v, err
		}
	}
}

// corruptOnly returns err if err reports damage. It returns nil for other errors, which mean that the revert is
// refused.
func corruptOnly(err error) error {
	if errors.Is(err, patch.ErrCorrupt) {
		return err
	}
	return nil
}

// idOf returns the id of the unit's patch with the given seq.
func (u *unit) idOf(seq uint64) string {
	return u.ids[slices.IndexFunc(u.cuts, func(c fold.Cut) bool { return c.Seq == seq })]
}

// readUnit reads the patches of a unit.
func (p *planner) readUnit(u *unit) error {
	if u.read {
		return nil
	}
	seqs := make([]uint64, len(u.cuts))
	for i, c := range u.cuts {
		seqs[i] = c.Seq
	}
	records, err := p.Read(seqs)
	if err != nil {
		return err
	}
	u.read, u.isSummary = true, true
	for _, r := range records {
		u.ids = append(u.ids, r.ID())
		addsOtherEvents := r.Patch.Type() != patch.Summarise && slices.ContainsFunc(r.Patch.NewEvents(), func(e *patch.Event) bool { return !e.IsSummary() })
		u.isSummary = u.isSummary && r.Patch.StatePolicy() == patch.Keep && !addsOtherEvents
	}
	return nil
}

// hidesContent reports whether a unit removed an event that is not blank, at any depth.
func (p *planner) hidesContent(u *unit) (bool, error) {
	if u.contentChecked {
		return u.contentRemains, nil
	}
	u.contentChecked = true
	var nested []*unit
	for _, cut := range u.cuts {
		var refs []fold.Ref
		for ref := range cut.Removed {
			refs = append(refs, ref)
		}
		for some := range slices.Chunk(refs, 64) {
			events, err := p.events(some)
			if err != nil {
				return false, err
			}
			for ref, e := range events {
				if !p.afterErasure(e).IsBlank(patch.KeepValues) {
					u.contentRemains = true
					return true, nil
				}
				if of := p.units[ref.Seq]; of != nil {
					nested = append(nested, of)
				}
			}
		}
	}
	for _, of := range nested {
		if ok, err := p.hidesContent(of); err != nil || ok {
			u.contentRemains = ok
			return ok, err
		}
	}
	return false, nil
}

// events reads the events that refs name. Markers have no event.
func (p *planner) events(refs []fold.Ref) (map[fold.Ref]*patch.Event, error) {
	var seqs []uint64
	for _, ref := range refs {
		seqs = append(seqs, ref.Seq)
	}
	slices.Sort(seqs)
	records, err := p.Read(slices.Compact(seqs))
	if err != nil {
		return nil, err
	}
	at := map[uint64][]*patch.Event{}
	for _, r := range records {
		at[r.Seq] = r.Events()
	}
	out := map[fold.Ref]*patch.Event{}
	for _, ref := range refs {
		if events := at[ref.Seq]; ref.Index < len(events) {
			out[ref] = events[ref.Index]
		}
	}
	return out, nil
}
