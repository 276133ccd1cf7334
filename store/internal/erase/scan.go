package erase

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/traces"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// Reasons for erasing an event.
const (
	WhySelected   = "selected"
	WhyReplaces   = "stands for an erased event"
	WhyCopy       = "copy of an erased event"
	WhyToolResult = "brought by a tool from an erased event"
	WhyShown      = "summarizer was shown an erased event or summary"
	WhySameEvent  = "same event in another session"
)

// Choose selects content of a record. own reports whether to select the content of a patch apart from its events.
// which reports whether to select event i of the record.
type Choose func(r patch.Record) (own bool, which func(i int, e *patch.Event) bool)

// Scan collects the content to erase while a log is read.
type Scan struct {
	Receipts        []receipt.Receipt
	Selected        map[fold.Ref]string // the content to erase and the reason; Index -1 means the content of a patch apart from its events
	Blank           map[fold.Ref]bool   // content that is already erased
	ids             map[fold.Ref]string // ids of events in patches, of copies, and of events in Selected
	inserted        map[uint64]int      // number of events that a patch inserts, by the patch's seq
	summaries       map[fold.Ref]bool
	sources         map[fold.Ref]summarySource // of the summaries that patches inserted
	copies          []copyOf
	originals       map[fold.Ref]string // the ids of the originals, by marked copy
	traces          traces.Traces
	blankSinceCache map[fold.Ref]uint64 // cache of blankSince

	latest time.Time            // the latest time of the records so far
	times  map[uint64]time.Time // key: the seq of a patch; value: the latest time of the records up to it
}

// NewScan begins a scan.
func NewScan() *Scan {
	return &Scan{Selected: map[fold.Ref]string{}, Blank: map[fold.Ref]bool{}, ids: map[fold.Ref]string{}, inserted: map[uint64]int{},
		summaries: map[fold.Ref]bool{}, sources: map[fold.Ref]summarySource{}, originals: map[fold.Ref]string{}, blankSinceCache: map[fold.Ref]uint64{}, times: map[uint64]time.Time{}}
}

// copyOf is an event that is a copy of another event or contains some of its text.
type copyOf struct {
	ref fold.Ref
	of  string   // id of the other event; not used if at.Seq is not 0
	at  fold.Ref // seq and index of the other event
	why string
}

// branch identifies events that compaction never summarises together with events of another branch.
type branch struct{ name, scope string }

// summarySource describes the events that a summary was made from.
type summarySource struct {
	branch  branch
	windows int         // number of summaries of raw events merged into the summary
	shown   [][2]uint64 // spans of seqs of raw events that the summarizer was shown, besides the events that it summarised
}

func decodeSummarySource(e *patch.Event) summarySource {
	var own struct {
		Windows int
		Shown   [][2]uint64
	}
	var all map[string]json.RawMessage
	text, _ := e.Field("customMetadata")
	if json.Unmarshal(text, &all) != nil || json.Unmarshal(all[patch.OwnMetadata], &own) != nil {
		own.Windows, own.Shown = 0, nil
	}
	return summarySource{branch{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}, own.Windows, own.Shown}
}

// Record adds the next record of the log. The argument values determines whether state values are erased.
func (s *Scan) Record(r patch.Record, choose Choose, values patch.ValuePolicy) {
	if at := records.Envelope(r).Timestamp(); at.After(s.latest) {
		s.latest = at
	}
	if r.Patch != nil {
		s.times[r.Seq] = s.latest
	}
	if receipt.IsReceipt(r) {
		s.Receipts = append(s.Receipts, receipt.Decode(r))
		return
	}
	own, which := choose(r)
	events := r.Events()
	if r.Patch != nil {
		ref := fold.Ref{Seq: r.Seq, Index: -1}
		if _, erased := r.Patch.ErasedBy(); erased {
			s.Blank[ref] = true
		}
		if s.inserted[r.Seq] = len(events); own {
			s.Selected[ref], s.ids[ref] = WhySelected, r.ID()
		}
	}
	for i, e := range events {
		ref := fold.Ref{Seq: r.Seq, Index: i}
		if e.IsBlank(values) {
			s.Blank[ref] = true
		}
		if e.IsSummary() || r.Patch != nil && r.Patch.Type() == patch.Summarise {
			s.summaries[ref] = true
			if r.Patch != nil {
				s.sources[ref] = decodeSummarySource(e)
			}
		}
		chosen := which(i, e)
		if chosen {
			s.Selected[ref] = WhySelected
		}
		if copies := s.addCopies(ref, e); copies || chosen || r.Patch != nil {
			s.ids[ref] = e.ID()
		}
	}
}

// addCopies records which events e was copied from or contains text of.
func (s *Scan) addCopies(ref fold.Ref, e *patch.Event) bool {
	before := len(s.copies)
	if o, ok := e.Origin(); ok {
		s.copies, s.originals[ref] = append(s.copies, copyOf{ref: ref, of: o.ID, why: WhyCopy}), o.ID
	} else if original, ok := records.Recalled(e); ok {
		s.copies = append(s.copies, copyOf{ref: ref, of: original, why: WhyCopy})
	}
	for _, h := range s.traces.Of(e) {
		s.copies = append(s.copies, copyOf{ref, h.ID, fold.Ref{Seq: h.Seq, Index: h.Index}, WhyToolResult})
	}
	return len(s.copies) > before
}

// coverWithSummaries removes an event from Blank if the newest receipt that covers the event kept its summaries. The
// event is then covered again.
func (s *Scan) coverWithSummaries() {
	for ref := range s.Blank {
		if ref.Index >= 0 && s.keptSummaries(ref) {
			delete(s.Blank, ref)
		}
	}
}

func (s *Scan) keptSummaries(ref fold.Ref) bool {
	for _, r := range slices.Backward(s.Receipts) {
		if r.Covers(ref) {
			return r.KeepsSummaries()
		}
	}
	return false
}

// blankSince returns the ClosedAt of the first closed receipt that covers an event. Without such a receipt, it
// returns [math.MaxUint64].
func (s *Scan) blankSince(ref fold.Ref) uint64 {
	at, known := s.blankSinceCache[ref]
	if !known {
		at = math.MaxUint64
		for _, r := range s.Receipts {
			if r.Erasure.ClosedAt > 0 && r.Covers(ref) {
				at = min(at, r.Erasure.ClosedAt)
			}
		}
		s.blankSinceCache[ref] = at
	}
	return at
}

// unit is a patch or a group of patches. Each event that the unit inserts replaces all events that the unit
// removed.
type unit struct {
	cuts     []fold.Cut
	inserted []fold.Ref
}

func unitsIn(v fold.View) ([]*unit, error) {
	cuts, err := v.Cuts()
	if err != nil {
		return nil, err
	}
	var all []*unit
	groups := map[string]*unit{}
	for cut := range cuts {
		u := groups[cut.Group]
		if u == nil {
			u = &unit{}
			all = append(all, u)
			if cut.Group != "" {
				groups[cut.Group] = u
			}
		}
		u.cuts = append(u.cuts, cut)
		for i := range cut.Added {
			u.inserted = append(u.inserted, fold.Ref{Seq: cut.Seq, Index: i})
		}
	}
	return slices.DeleteFunc(all, func(u *unit) bool { return len(u.inserted) == 0 }), nil
}

// Spread extends Selected to all content made from selected content, at any depth: events that patches inserted in its
// place, copies, and summaries whose summarizer was shown a selected raw event. If context is set, it also adds
// summaries whose summarizer was shown a selected summary. Content made after an event was blank does not derive from
// that event. v is the view of the log.
func (s *Scan) Spread(v fold.View, context bool) error {
	units, err := unitsIn(v)
	if err != nil {
		return err
	}
	refs := map[string]fold.Ref{} // the selected content, by id
	for ref := range s.Selected {
		refs[s.ids[ref]] = ref
	}
	more := true
	add := func(ref fold.Ref, why string, original fold.Ref) {
		if _, found := s.Selected[ref]; !found && ref.Seq <= s.blankSince(original) {
			s.Selected[ref], refs[s.ids[ref]], more = why, ref, true
		}
	}
	for more {
		more = false
		for _, u := range units {
			s.spreadUnit(u, refs, add)
		}
		for _, c := range s.copies {
			if at, found := refs[c.of]; c.at.Seq == 0 && found {
				add(c.ref, c.why, at)
			} else if _, found := s.Selected[c.at]; found {
				add(c.ref, c.why, c.at)
			}
		}
		for ref, t := range s.sources {
			for _, span := range t.shown {
				for seq := span[0]; seq <= span[1] && seq < ref.Seq; seq++ {
					at := fold.Ref{Seq: seq}
					if _, found := s.Selected[at]; found && s.inserted[seq] == 0 {
						add(ref, WhyShown, at)
					}
				}
			}
		}
		if context {
			s.spreadContext(add)
		}
	}
	return nil
}

func (s *Scan) spreadUnit(u *unit, refs map[string]fold.Ref, add func(ref fold.Ref, why string, original fold.Ref)) {
	for _, cut := range u.cuts {
		for ref := range cut.Removed {
			if _, selected := s.Selected[ref]; !selected {
				continue
			}
			for _, inserted := range u.inserted {
				// A copy stands only for its original.
				if original, isCopy := s.originals[inserted]; isCopy {
					if _, selected := refs[original]; !selected {
						continue
					}
				}
				add(inserted, WhyReplaces, ref)
			}
		}
	}
}

// spreadContext adds the summaries that follow an erased summary of the same branch, because their summarizers were
// shown the erased summary. It adds only summaries of raw events. The summarizer of a merged summary is shown only
// the summaries that it merges.
func (s *Scan) spreadContext(add func(ref fold.Ref, why string, original fold.Ref)) {
	first := map[branch]fold.Ref{}
	for ref := range s.Selected {
		t, ok := s.sources[ref]
		if before, known := first[t.branch]; ok && s.blankSince(ref) == math.MaxUint64 && (!known || ref.Seq < before.Seq) {
			first[t.branch] = ref
		}
	}
	for ref, t := range s.sources {
		if before, ok := first[t.branch]; ok && t.windows == 1 && before.Seq < ref.Seq {
			add(ref, WhyShown, before)
		}
	}
}

// Event is an event to erase, and the reason.
type Event struct {
	fold.Ref
	ID, Why string
	Summary bool
}

// Events returns the selected content, in log order. If blank is false, blank content is omitted.
func (s *Scan) Events(blank bool) (events []Event) {
	for ref, why := range s.Selected {
		if blank || !s.Blank[ref] {
			events = append(events, Event{ref, s.ids[ref], why, s.summaries[ref]})
		}
	}
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Index, b.Index))
	})
	return events
}

// Cover sets the records and events that a receipt covers.
func (s *Scan) Cover(original *patch.Erasure, events []Event) {
	for i := 0; i < len(events); {
		seq := events[i].Seq
		var within []int
		for ; i < len(events) && events[i].Seq == seq; i++ {
			if events[i].Index >= 0 {
				within = append(within, events[i].Index)
			}
		}
		if n, ok := s.inserted[seq]; ok && len(within) < n {
			if original.EventIndices == nil {
				original.EventIndices = map[uint64][]int{}
			}
			original.EventIndices[seq] = within
		}
		if last := len(original.Seqs) - 1; last >= 0 && original.Seqs[last].To+1 == seq {
			original.Seqs[last].To = seq
		} else {
			original.Seqs = append(original.Seqs, patch.Span{From: seq, To: seq})
		}
	}
}

// chooseHidden selects the events that were hidden by patches whose time is not after the time at. The time of a
// patch counts as at least the time of every record before it.
func (s *Scan) chooseHidden(v fold.View, at time.Time) error {
	since, err := v.HiddenSince()
	for ref, by := range since {
		if !s.times[by].After(at) {
			s.Selected[ref] = WhySelected
		}
	}
	return err
}
