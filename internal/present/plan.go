package present

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// PlanDocument is what compaction would do next, as 'patchlog compact --plan --json' writes it.
type PlanDocument struct {
	Key    string          `json:"key"`
	Window *WindowDocument `json:"window"` // null if there is nothing to do
	Reason string          `json:"reason"`
	Prompt PromptSize      `json:"prompt"`
}

// WindowDocument is what a pass would cover. The names are as of [compaction.Window].
type WindowDocument struct {
	Trigger compaction.Trigger `json:"trigger"`
	SpanDocument
	Also        []SpanDocument  `json:"also"`
	Merge       bool            `json:"merge"`
	Groups      []GroupDocument `json:"groups"`
	Invocations []string        `json:"invocations"`
	Tokens      int             `json:"tokens"`
	Results     int             `json:"results,omitempty"` // that are cleared
}

// SpanDocument is a stretch of the visible log.
type SpanDocument struct {
	Start int `json:"start"`
	Count int `json:"count"`
}

// String names the stretch as patches do.
func (s SpanDocument) String() string {
	return fmt.Sprintf("start %d, count %d", s.Start, s.Count)
}

// GroupDocument is the events of a window that become one summary.
type GroupDocument struct {
	Branch string `json:"branch"`
	Scope  string `json:"scope"`
	Events []int  `json:"events"` // indices
}

// name is a group's branch and scope, as a person reads them.
func (g GroupDocument) name() string {
	name := "no branch"
	if g.Branch != "" {
		name = Printable(g.Branch)
	}
	if g.Scope != "" {
		name += ", scope " + Printable(g.Scope)
	}
	return name
}

// PlanOf returns a decision about a session as a document.
func PlanOf(key store.Key, d compaction.Decision) PlanDocument {
	doc := PlanDocument{Key: key.String(), Reason: d.Reason, Prompt: PromptSize{d.PromptTokens, d.Measured}}
	w := d.Window
	if w == nil {
		return doc
	}
	doc.Window = &WindowDocument{
		Trigger: w.Trigger, SpanDocument: SpanDocument(w.Span), Merge: w.Merge, Tokens: w.Tokens, Results: w.Results,
		Also: []SpanDocument{}, Groups: []GroupDocument{}, Invocations: append([]string{}, w.Invocations...),
	}
	for _, s := range w.Also {
		doc.Window.Also = append(doc.Window.Also, SpanDocument(s))
	}
	for _, g := range w.Groups {
		doc.Window.Groups = append(doc.Window.Groups, GroupDocument{g.Branch, g.Scope, g.Indices})
	}
	return doc
}

// Rows returns the plan as 'patchlog compact --plan' shows it, below its key and reason.
func (d PlanDocument) Rows() []Row {
	var rows []Row
	row := func(name, text string) { rows = append(rows, Row{name, text}) }
	if d.Window != nil {
		rows = append(rows, d.Window.rows()...)
	}
	row("prompt", d.Prompt.String())
	return rows
}

func (w WindowDocument) rows() []Row {
	rows := []Row{{"trigger", string(w.Trigger)}}
	row := func(name, text string) { rows = append(rows, Row{name, text}) }
	if w.Results > 0 {
		first := w.Start
		if len(w.Also) > 0 {
			first = w.Also[0].Start
		}
		row("clears", fmt.Sprintf("%s, in events %d to %d", Counted(w.Results, "result"), first, w.Start))
		row("tokens", fmt.Sprintf("about %s in these events", Grouped(w.Tokens)))
		return rows
	}
	row("window", w.SpanDocument.String())
	for _, s := range w.Also {
		row("  also", s.String())
	}
	for _, g := range w.Groups {
		if len(w.Groups) > 1 {
			row("  branch", fmt.Sprintf("%s: %s", g.name(), Counted(len(g.Events), "event")))
		}
	}
	if len(w.Invocations) > 0 {
		row("invocations", ends(w.Invocations))
	}
	row("tokens", fmt.Sprintf("about %s in the window", Grouped(w.Tokens)))
	return rows
}

// Outlook says what may follow the pass that is planned, or "" if none is. Later passes depend on
// how long the summary becomes, and cannot be known.
func (d PlanDocument) Outlook() string {
	switch {
	case d.Window == nil:
		return ""
	case d.Window.Results > 0:
		return "Nothing was written. More passes may follow."
	default:
		return "Nothing was written. More passes may follow; what they cover depends on this one's summary."
	}
}

// idRunes is the most runes of an id in a line of text.
const idRunes = 40

// ends says how many ids there are, and the first and the last of them.
func ends(ids []string) string {
	first, last := PrintableUpTo(ids[0], idRunes), PrintableUpTo(ids[len(ids)-1], idRunes)
	if len(ids) == 1 {
		return "1: " + first
	}
	return fmt.Sprintf("%d: %s to %s", len(ids), first, last)
}
