package present

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Effect is the effect of a record on the visible log.
type Effect struct {
	Record  patch.Record
	Applied bool
	Reason  patch.Flaw     // why the patch was not applied, or ""
	Start   int            // index of the first hidden or added event
	Hidden  []*patch.Event // in order; the first was at index Start of the view before
	Added   []*patch.Event // in order; the first is at index Start of the view after
}

// EffectOf returns the effect of a record, given the views before and after it. For a patch it takes time
// linear in the visible events. Errors come from [fold.View.Skipped].
func EffectOf(before, after fold.View, r patch.Record) (Effect, error) {
	effect := Effect{Record: r, Applied: true}
	if r.Event != nil {
		effect.Start, effect.Added = before.Len(), []*patch.Event{r.Event}
		return effect, nil
	}
	if after.SkippedCount() > before.SkippedCount() {
		skipped, err := after.Skipped()
		if err != nil {
			return Effect{}, err
		}
		effect.Applied, effect.Reason = false, skipped[len(skipped)-1].Reason
		return effect, nil
	}
	// The views differ in one span at most.
	old, now := eventKeys(before), eventKeys(after)
	for effect.Start < min(len(old), len(now)) && old[effect.Start] == now[effect.Start] {
		effect.Start++
	}
	first, end, last := effect.Start, len(old), len(now)
	for end > first && last > first && old[end-1] == now[last-1] {
		end, last = end-1, last-1
	}
	for n := first; n < end; n++ {
		effect.Hidden = append(effect.Hidden, before.At(n))
	}
	for n := first; n < last; n++ {
		effect.Added = append(effect.Added, after.At(n))
	}
	return effect, nil
}

// eventKey identifies an event of a log.
type eventKey struct {
	seq uint64
	id  string
}

func eventKeys(v fold.View) []eventKey {
	places := make([]eventKey, 0, v.Len())
	for _, e := range v.Entries() {
		places = append(places, eventKey{e.Seq, e.Event.ID()})
	}
	return places
}

// NoteKind is the topic of a [Note].
type NoteKind string

// The topics of notes.
const (
	NoteGroup   NoteKind = "group"   // the group of the patch
	NoteSkipped NoteKind = "skipped" // why the patch was not applied
	NoteHidden  NoteKind = "hidden"  // the events that the patch hid
	NoteAdded   NoteKind = "added"   // an event that the patch added
)

// Note is a line about the effect of a patch.
type Note struct {
	Kind NoteKind `json:"kind"`
	Text string   `json:"text"`
}

// Notes returns the lines that 'patchlog audit' prints below a patch. For an event it returns none.
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
	hidden := "hid nothing"
	if n := len(f.Hidden); n > 0 {
		hidden = "hid " + Counted(n, "visible event") + ": index " + IndexRange(f.Start, n)
	}
	note(NoteHidden, hidden)
	for i, e := range f.Added {
		text := EntryText(fold.Entry{Event: e, Summary: p.Type() == patch.Summarise || e.IsSummary()})
		note(NoteAdded, fmt.Sprintf("added at index %d, id %s: %s", f.Start+i, Printable(e.ID()), text))
	}
	return notes
}

// PatchText describes a patch in one printable line.
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

// eraseText says which records a receipt covers, and why they were erased.
func eraseText(p *patch.PatchEvent) string {
	e, ok := p.Erasure()
	if !ok {
		return "malformed"
	}
	var ranges []string
	for _, s := range e.Seqs[:min(len(e.Seqs), 8)] {
		if s.From == s.To {
			ranges = append(ranges, strconv.FormatUint(s.From, 10))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d–%d", s.From, s.To))
		}
	}
	text := "records " + strings.Join(ranges, ", ")
	if n := len(e.Seqs) - len(ranges); n > 0 {
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
