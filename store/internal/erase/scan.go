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
	Selected  = "selected"
	StandsFor = "stands for an erased event"
	Copy      = "copy of an erased event"
	Brought   = "brought by a tool from an erased event"
	Shown     = "summarizer was shown an erased event or summary"
	Same      = "same event in another session"
)

// Choose selects content of a record. own reports whether to select the content of a patch apart from its events.
// which reports whether to select event i of the record.
type Choose func(r patch.Record) (own bool, which func(i int, e *patch.Event) bool)

// Scan collects the content to erase while a log is read.
type Scan struct {
	Receipts []receipt.Receipt
	Set      map[fold.Ref]string // the content to erase and the reason; Index -1 means the content of a patch apart from its events
	Blank    map[fold.Ref]bool   // content that is already erased
	ids      map[fold.Ref]string // ids of events in patches, of copies, and of events in Set
	puts     map[uint64]int      // number of events that a patch inserts, by the patch's seq
	told     map[fold.Ref]telling
	copies   []copyOf
	copied   map[fold.Ref]string // the ids of the originals, by marked copy
	traces   traces.Traces
	since    map[fold.Ref]uint64 // cache of blankSince

	latest time.Time            // the latest time of the records so far
	times  map[uint64]time.Time // by the seq of a patch: the latest time of the records up to it
}

// NewScan begins a scan.
func NewScan() *Scan {
	return &Scan{Set: map[fold.Ref]string{}, Blank: map[fold.Ref]bool{}, ids: map[fold.Ref]string{}, puts: map[uint64]int{},
		told: map[fold.Ref]telling{}, copied: map[fold.Ref]string{}, since: map[fold.Ref]uint64{}, times: map[uint64]time.Time{}}
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

// telling describes the events that a summary was made from.
type telling struct {
	of      branch
	windows int         // number of summaries of raw events merged into the summary
	shown   [][2]uint64 // spans of seqs of raw events that the summarizer was shown, besides the events that it summarised
}

func tellingOf(e *patch.Event) telling {
	var own struct {
		Windows int
		Shown   [][2]uint64
	}
	var all map[string]json.RawMessage
	text, _ := e.Field("customMetadata")
	if json.Unmarshal(text, &all) != nil || json.Unmarshal(all[patch.OwnMetadata], &own) != nil {
		own.Windows, own.Shown = 0, nil
	}
	return telling{branch{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}, own.Windows, own.Shown}
}

// Record adds the next record of the log. The argument values determines whether state values are erased.
func (s *Scan) Record(r patch.Record, choose Choose, values patch.ValuePolicy) {
	if at := records.Envelope(r).Timestamp(); at.After(s.latest) {
		s.latest = at
	}
	if r.Patch != nil {
		s.times[r.Seq] = s.latest
	}
	if receipt.Is(r) {
		s.Receipts = append(s.Receipts, receipt.Of(r))
		return
	}
	own, which := choose(r)
	events := r.Events()
	if r.Patch != nil {
		ref := fold.Ref{Seq: r.Seq, Index: -1}
		if _, erased := r.Patch.ErasedBy(); erased {
			s.Blank[ref] = true
		}
		if s.puts[r.Seq] = len(events); own {
			s.Set[ref], s.ids[ref] = Selected, r.ID()
		}
	}
	for i, e := range events {
		ref := fold.Ref{Seq: r.Seq, Index: i}
		if e.IsBlank(values) {
			s.Blank[ref] = true
		}
		if r.Patch != nil && (r.Patch.Type() == patch.Summarise || e.IsSummary()) {
			s.told[ref] = tellingOf(e)
		}
		chosen := which(i, e)
		if chosen {
			s.Set[ref] = Selected
		}
		if copies := s.copy(ref, e); copies || chosen || r.Patch != nil {
			s.ids[ref] = e.ID()
		}
	}
}

// copy records which events e was copied from or contains text of.
func (s *Scan) copy(ref fold.Ref, e *patch.Event) bool {
	before := len(s.copies)
	if o, ok := e.Origin(); ok {
		s.copies, s.copied[ref] = append(s.copies, copyOf{ref: ref, of: o.ID, why: Copy}), o.ID
	} else if of, ok := records.Recalled(e); ok {
		s.copies = append(s.copies, copyOf{ref: ref, of: of, why: Copy})
	}
	for _, h := range s.traces.Of(e) {
		s.copies = append(s.copies, copyOf{ref, h.ID, fold.Ref{Seq: h.Seq, Index: h.Index}, Brought})
	}
	return len(s.copies) > before
}

// If the newest receipt that covers an event kept the event's summaries, coverKept removes the event from Blank. The
// event is then covered again.
func (s *Scan) coverKept() {
	for ref := range s.Blank {
		if ref.Index >= 0 && s.keptAt(ref) {
			delete(s.Blank, ref)
		}
	}
}

func (s *Scan) keptAt(ref fold.Ref) bool {
	for _, r := range slices.Backward(s.Receipts) {
		if r.Covers(ref) {
			return r.Keeps()
		}
	}
	return false
}

// blankSince returns the ClosedAt of the first closed receipt that covers an event. Without such a receipt, it
// returns [math.MaxUint64].
func (s *Scan) blankSince(ref fold.Ref) uint64 {
	at, known := s.since[ref]
	if !known {
		at = math.MaxUint64
		for _, r := range s.Receipts {
			if r.Of.ClosedAt > 0 && r.Covers(ref) {
				at = min(at, r.Of.ClosedAt)
			}
		}
		s.since[ref] = at
	}
	return at
}

// unit is a patch or a group of patches. Each event that the unit inserts stands for all events that the unit
// removed.
type unit struct {
	out  []fold.Cut
	puts []fold.Ref
}

func unitsOf(v fold.View) ([]*unit, error) {
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
		u.out = append(u.out, cut)
		for i := range cut.Added {
			u.puts = append(u.puts, fold.Ref{Seq: cut.Seq, Index: i})
		}
	}
	return slices.DeleteFunc(all, func(u *unit) bool { return len(u.puts) == 0 }), nil
}

// Spread extends Set to all content made from content in Set, at any depth: events that patches inserted in its
// place, copies, and summaries whose summarizer was shown a raw event in Set. If context is set, it also adds
// summaries whose summarizer was shown a summary in Set. Content made after an event was blank does not derive from
// that event. v is the view of the log.
func (s *Scan) Spread(v fold.View, context bool) error {
	units, err := unitsOf(v)
	if err != nil {
		return err
	}
	places := map[string]fold.Ref{} // the content in Set, by id
	for ref := range s.Set {
		places[s.ids[ref]] = ref
	}
	more := true
	add := func(ref fold.Ref, why string, of fold.Ref) {
		if _, there := s.Set[ref]; !there && ref.Seq <= s.blankSince(of) {
			s.Set[ref], places[s.ids[ref]], more = why, ref, true
		}
	}
	for more {
		more = false
		for _, u := range units {
			s.spreadUnit(u, places, add)
		}
		for _, c := range s.copies {
			if at, there := places[c.of]; c.at.Seq == 0 && there {
				add(c.ref, c.why, at)
			} else if _, there := s.Set[c.at]; there {
				add(c.ref, c.why, c.at)
			}
		}
		for ref, t := range s.told {
			for _, span := range t.shown {
				for seq := span[0]; seq <= span[1] && seq < ref.Seq; seq++ {
					at := fold.Ref{Seq: seq}
					if _, there := s.Set[at]; there && s.puts[seq] == 0 {
						add(ref, Shown, at)
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

func (s *Scan) spreadUnit(u *unit, places map[string]fold.Ref, add func(ref fold.Ref, why string, of fold.Ref)) {
	for _, cut := range u.out {
		for ref := range cut.Removed {
			if _, goes := s.Set[ref]; !goes {
				continue
			}
			for _, put := range u.puts {
				// A copy stands only for its original.
				if of, says := s.copied[put]; says {
					if _, goes := places[of]; !goes {
						continue
					}
				}
				add(put, StandsFor, ref)
			}
		}
	}
}

// spreadContext adds the summaries that follow an erased summary of the same branch, because their summarizers were
// shown the erased summary. It adds only summaries of raw events. The summarizer of a merged summary is shown only
// the summaries that it merges.
func (s *Scan) spreadContext(add func(ref fold.Ref, why string, of fold.Ref)) {
	first := map[branch]fold.Ref{}
	for ref := range s.Set {
		t, ok := s.told[ref]
		if before, known := first[t.of]; ok && s.blankSince(ref) == math.MaxUint64 && (!known || ref.Seq < before.Seq) {
			first[t.of] = ref
		}
	}
	for ref, t := range s.told {
		if before, ok := first[t.of]; ok && t.windows == 1 && before.Seq < ref.Seq {
			add(ref, Shown, before)
		}
	}
}

// Event is an event to erase, and the reason.
type Event struct {
	fold.Ref
	ID, Why string
}

// Events returns the content in Set, in log order. If blank is false, blank content is omitted.
func (s *Scan) Events(blank bool) (events []Event) {
	for ref, why := range s.Set {
		if blank || !s.Blank[ref] {
			events = append(events, Event{ref, s.ids[ref], why})
		}
	}
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Index, b.Index))
	})
	return events
}

// Cover sets the records and events that a receipt covers.
func (s *Scan) Cover(of *patch.Erasure, events []Event) {
	for i := 0; i < len(events); {
		seq := events[i].Seq
		var within []int
		for ; i < len(events) && events[i].Seq == seq; i++ {
			if events[i].Index >= 0 {
				within = append(within, events[i].Index)
			}
		}
		if n, ok := s.puts[seq]; ok && len(within) < n {
			if of.EventIndices == nil {
				of.EventIndices = map[uint64][]int{}
			}
			of.EventIndices[seq] = within
		}
		if last := len(of.Seqs) - 1; last >= 0 && of.Seqs[last].To+1 == seq {
			of.Seqs[last].To = seq
		} else {
			of.Seqs = append(of.Seqs, patch.Span{From: seq, To: seq})
		}
	}
}

// chooseHidden selects the events that were hidden by patches whose time is not after the time at. The time of a
// patch counts as at least the time of every record before it.
func (s *Scan) chooseHidden(v fold.View, at time.Time) error {
	since, err := v.HiddenSince()
	for ref, by := range since {
		if !s.times[by].After(at) {
			s.Set[ref] = Selected
		}
	}
	return err
}
