package present

import (
	"strings"

	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// The runes of a text or a document, and the parts of an event, that are read to describe it in a
// line: more than a line has room for.
const (
	describedRunes = 400
	describedParts = 32
)

// Describe says in one printable line what is in an event: its texts, calls and results, or,
// where it has no content, what it sets in the state. Long texts are not told to their ends, nor
// what comes after the first 32 parts.
func Describe(e *patch.Event) string {
	var said []string
	say := func(kind, text string) {
		if len(said) < describedParts {
			said = append(said, strings.TrimSpace(kind+PrintableUpTo(text, describedRunes)))
		}
	}
	for _, p := range e.Content().Parts() {
		switch p.Kind {
		case patch.PartCall:
			say("call "+PrintableUpTo(p.Name, describedRunes)+" ", p.Args.String())
		case patch.PartResponse:
			say("result "+PrintableUpTo(p.Name, describedRunes)+" ", p.Response.String())
		case patch.PartThought:
			say("(thought) ", p.Text)
		case patch.PartText:
			say("", p.Text)
		case patch.PartData:
			say("(inline data)", "")
		case patch.PartFile:
			say("(file) ", p.Value.String())
		case patch.PartCode:
			say("(code) ", p.Value.String())
		case patch.PartCodeResult:
			say("(code result) ", p.Value.String())
		default:
			say("(other part)", "")
		}
	}
	if c, ok := adkrecord.CompactionOf(e); ok && len(said) == 0 {
		for _, p := range c.CompactedContent.Parts() {
			say("(compaction record) ", p.Text)
		}
	}
	if len(said) == 0 {
		for c := range e.Changes() {
			say("sets "+PrintableUpTo(c.Key, describedRunes)+" = ", c.Value.String())
		}
		for c := range e.SharedChanges() {
			say("sets "+PrintableUpTo(c.Key, describedRunes)+" = ", c.Value.String())
		}
	}
	if len(said) == 0 {
		return "(no content)"
	}
	return strings.Join(said, "; ")
}

// EntryText is [Describe] for an event of a visible log. Before the text stands what the view
// knows of it: that it is a summary, that it is pinned.
func EntryText(entry fold.Entry) string {
	text := Describe(entry.Event)
	if entry.Summary {
		text = "summary: " + text
	}
	if entry.Pinned {
		text = "pinned: " + text
	}
	return text
}

// ValueText returns a value of the state in one printable line. A long one is not told to its
// end.
func ValueText(v patch.Value) string { return PrintableUpTo(v.String(), describedRunes) }

// Kind is what sort of entry something is.
type Kind string

// The kinds of entries.
const (
	User     Kind = "user"     // said by the user
	Model    Kind = "model"    // said by anybody else
	Call     Kind = "call"     // calls a tool, whatever else it says
	Response Kind = "response" // has the result of a call, whatever else it says
	Summary  Kind = "summary"  // stands for others
	Patch    Kind = "patch"    // is no event
)

// KindOf returns what kind of entry a visible event is, one of all but [Patch]. A summary is
// that first of all. Of calls and responses in one event, the last counts.
func KindOf(entry fold.Entry) Kind {
	if entry.Summary {
		return Summary
	}
	kind := Model
	if entry.Event.Author() == "user" {
		kind = User
	}
	for p := range entry.Event.FunctionParts() {
		kind = Call
		if p.Response {
			kind = Response
		}
	}
	return kind
}

// KindOfRecord is [KindOf] for a record of the log. It has an event or a patch.
func KindOfRecord(r patch.Record) Kind {
	if r.Patch != nil {
		return Patch
	}
	return KindOf(fold.Entry{Event: r.Event, Summary: r.Event.IsSummary()})
}

// Line is an event of the visible log as JSON.
type Line struct {
	Index  *int         `json:"index,omitempty"` // nil if it has none, as in a history
	Seq    uint64       `json:"seq,omitempty"`   // of the record that brought it; 0 is left out
	Event  *patch.Event `json:"event"`
	Pinned bool         `json:"pinned,omitempty"`
}
