package command

import (
	"iter"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction/foreign"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// estimateTokens estimates how many tokens events take in a model's prompt.
func estimateTokens(events iter.Seq[*patch.Event]) int {
	n := 0
	for e := range events {
		n += e.EstimatedTokens()
	}
	return n
}

// textBytes returns how many bytes the events take in the text form.
func textBytes(events iter.Seq[*patch.Event]) int {
	n := 0
	for e := range events {
		n += len(e.String()) + 1
	}
	return n
}

// visible yields the view's events.
func visible(v fold.View) iter.Seq[*patch.Event] {
	return func(yield func(*patch.Event) bool) {
		for _, e := range v.Events() {
			if !yield(e) {
				return
			}
		}
	}
}

// So many runes of a text or a document are looked at to describe it in a line: more
// than a terminal has columns.
const describedRunes = 400

// describe says in one printable line what is in an event.
func describe(e *patch.Event) string {
	var said []string
	say := func(kind, text string) {
		said = append(said, strings.TrimSpace(kind+printableUpTo(text, describedRunes)))
	}
	for _, p := range e.Content().Parts() {
		switch p.Kind() {
		case patch.PartCall:
			say("call "+printable(p.Name())+" ", string(p.Args()))
		case patch.PartResponse:
			say("result "+printable(p.Name())+" ", string(p.Response()))
		case patch.PartThought:
			say("(thought) ", p.Text())
		case patch.PartText:
			say("", p.Text())
		case patch.PartData:
			say("(inline data)", "")
		case patch.PartFile:
			say("(file) ", string(p.Value()))
		case patch.PartCode:
			say("(code) ", string(p.Value()))
		case patch.PartCodeResult:
			say("(code result) ", string(p.Value()))
		default:
			say("(other part)", "")
		}
	}
	if c, ok := foreign.CompactionOf(e); ok && len(said) == 0 {
		for _, p := range c.CompactedContent.Parts() {
			say("(compaction record) ", p.Text())
		}
	}
	if len(said) == 0 {
		for c := range e.Changes() {
			say("sets "+printable(c.Key)+" = ", c.Value.String())
		}
		for c := range e.SharedChanges() {
			say("sets "+printable(c.Key)+" = ", c.Value.String())
		}
	}
	if len(said) == 0 {
		return "(no content)"
	}
	return strings.Join(said, "; ")
}

// entryAt returns a visible event with what its view knows of it.
func entryAt(v fold.View, i int) fold.Entry {
	return fold.Entry{Event: v.At(i), Seq: v.SeqOf(i), Summary: v.IsSummary(i), Pinned: v.IsPinned(i)}
}

// entriesOf returns the visible log.
func entriesOf(v fold.View) []fold.Entry {
	var entries []fold.Entry
	for _, e := range v.Entries() {
		entries = append(entries, e)
	}
	return entries
}

// eventCells are the cells that say id, author and content of an event.
func eventCells(entry fold.Entry) []cell {
	e := entry.Event
	id := cell{printable(e.ID()), dim}
	if e.ID() == "" {
		id.text = "(new)"
	}
	text := cell{describe(e), plain}
	isResponse := false
	for p := range e.FunctionParts() {
		text.style = yellow
		isResponse = p.Response
	}
	if entry.Summary {
		text = cell{"summary: " + text.text, magenta}
	}
	if entry.Pinned {
		text.text = "pinned: " + text.text
	}
	author := cell{authorText(e.Author()), cyan}
	if e.Author() == "user" && !isResponse {
		author.style = green
	}
	return []cell{id, author, text}
}

// authorText is an author as a column shows it.
func authorText(author string) string { return cut(printable(author), 24) }

func idsOf(events []*patch.Event) []string {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID()
	}
	return ids
}
