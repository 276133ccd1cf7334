package present

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Effect is what a record did to the visible log.
type Effect struct {
	Record  patch.Record
	Applied bool
	Reason  patch.Flaw     // why it was not applied, or ""
	Start   int            // the index of the first event that was hidden or added
	Hidden  []*patch.Event // in order, from index Start on in the view before
	Added   []*patch.Event // in order, from index Start on in the view after
}

// EffectOf finds out what a record did, by the views before and after it. For a patch it takes time in the number of
// visible events. It fails as [fold.View.Skipped] does.
func EffectOf(before, after fold.View, r patch.Record) (Effect, error) {
	f := Effect{Record: r, Applied: true}
	if r.Event != nil {
		f.Start, f.Added = before.Len(), []*patch.Event{r.Event}
		return f, nil
	}
	if after.SkippedCount() > before.SkippedCount() {
		skipped, err := after.Skipped()
		if err != nil {
			return Effect{}, err
		}
		f.Applied, f.Reason = false, skipped[len(skipped)-1].Reason
		return f, nil
	}
	// Both have the same events but for one stretch.
	old, now := eventsOf(before), eventsOf(after)
	for f.Start < min(len(old), len(now)) && old[f.Start] == now[f.Start] {
		f.Start++
	}
	first, end, last := f.Start, len(old), len(now)
	for end > first && last > first && old[end-1] == now[last-1] {
		end, last = end-1, last-1
	}
	for n := first; n < end; n++ {
		f.Hidden = append(f.Hidden, before.At(n))
	}
	for n := first; n < last; n++ {
		f.Added = append(f.Added, after.At(n))
	}
	return f, nil
}

// place tells the events of a log apart.
type place struct {
	seq uint64
	id  string
}

func eventsOf(v fold.View) []place {
	places := make([]place, 0, v.Len())
	for _, e := range v.Entries() {
		places = append(places, place{e.Seq, e.Event.ID()})
	}
	return places
}

// NoteKind is what a [Note] is about.
type NoteKind string

// The kinds of notes.
const (
	NoteGroup   NoteKind = "group"   // which patches belong to it
	NoteSkipped NoteKind = "skipped" // why it was not applied
	NoteHidden  NoteKind = "hidden"  // what it took out
	NoteAdded   NoteKind = "added"   // an event that it put in
)

// Note is a line about what a patch did.
type Note struct {
	Kind NoteKind `json:"kind"`
	Text string   `json:"text"`
}

// Notes returns the lines that 'patchlog audit' writes below a patch. Below an event it writes
// none.
func (f Effect) Notes() []Note {
	p := f.Record.Patch
	if p == nil {
		return nil
	}
	var notes []Note
	note := func(kind NoteKind, text string) { notes = append(notes, Note{kind, text}) }
	if group := p.Group(); group != "" {
		note(NoteGroup, "group "+Printable(group))
	}
	if !f.Applied {
		note(NoteSkipped, "skipped: "+string(f.Reason))
		return notes
	}
	hid := "hid nothing"
	if n := len(f.Hidden); n > 0 {
		hid = "hid " + Counted(n, "visible event") + ": index " + IndexRange(f.Start, n)
	}
	note(NoteHidden, hid)
	for i, e := range f.Added {
		text := EntryText(fold.Entry{Event: e, Summary: p.Type() == patch.Summarise || e.IsSummary()})
		note(NoteAdded, fmt.Sprintf("added at index %d, id %s: %s", f.Start+i, Printable(e.ID()), text))
	}
	return notes
}

// PatchText says in one printable line what a patch asks for.
func PatchText(p *patch.PatchEvent) string {
	text := "state " + Printable(string(p.StatePolicy()))
	switch p.Type() {
	case patch.Splice, patch.Summarise:
		text = fmt.Sprintf("start %d, count %d, ", p.Start(), p.Count()) + text
	case patch.TruncateBefore:
		text = "event " + Printable(p.EventID()) + ", " + text
	case patch.Pin, patch.Unpin:
		text = "event " + Printable(p.EventID())
	case patch.Revert:
		text = "patch " + Printable(p.PatchID())
	case patch.Erase:
		text = eraseText(p)
	}
	if base, ok := p.Base(); ok {
		text += fmt.Sprintf(", base %d", base)
	}
	return text
}

// eraseText says which records a receipt is about, and why they were erased.
func eraseText(p *patch.PatchEvent) string {
	e, ok := p.Erasure()
	if !ok {
		return "malformed"
	}
	var of []string
	for _, s := range e.Seqs[:min(len(e.Seqs), 8)] {
		if s.From == s.To {
			of = append(of, strconv.FormatUint(s.From, 10))
		} else {
			of = append(of, fmt.Sprintf("%d–%d", s.From, s.To))
		}
	}
	text := "records " + strings.Join(of, ", ")
	if n := len(e.Seqs) - len(of); n > 0 {
		text += fmt.Sprintf(" and %s more", Counted(n, "range"))
	}
	switch e.Summaries {
	case patch.BlankSummaries:
		text += ", summaries blank"
	case patch.KeepSummaries:
		text += ", summaries kept"
	}
	if e.ClosedAt == 0 {
		text += ", not finished"
	}
	text += ", values " + string(e.Values)
	if e.Reason != "" {
		text += ", reason: " + Printable(e.Reason)
	}
	return text
}
