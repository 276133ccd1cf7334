package command

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// promptSize is how many tokens a prompt made of the visible log takes.
type promptSize struct {
	Tokens   int  `json:"tokens"`
	Measured bool `json:"measured"`
}

func (p promptSize) String() string {
	how := "estimated"
	if p.Measured {
		how = "measured, and estimated since"
	}
	return fmt.Sprintf("about %s tokens, %s", grouped(p.Tokens), how)
}

// planDocument is a decision as JSON.
type planDocument struct {
	Key    string          `json:"key"`
	Window *windowDocument `json:"window"` // null if there is nothing to do
	Reason string          `json:"reason"`
	Prompt promptSize      `json:"prompt"`

	Balance *balanceDocument `json:"balance,omitempty"` // if costs count
}

type balanceDocument struct {
	Once      float64 `json:"once"`
	EachTurn  float64 `json:"eachTurn"`
	Spent     float64 `json:"spent"`
	Saved     float64 `json:"saved"`
	BreakEven int     `json:"breakEven"` // turns; 0 is never
}

func (b balanceDocument) String() string {
	if b.BreakEven == 0 {
		return "never"
	}
	return fmt.Sprintf("after %s: %.0f at once, %.0f saved each turn", counted(b.BreakEven, "turn"), b.Once, b.EachTurn)
}

type windowDocument struct {
	Trigger compaction.Trigger `json:"trigger"`
	spanDocument
	Also        []spanDocument  `json:"also"`
	Merge       bool            `json:"merge"`
	Groups      []groupDocument `json:"groups"`
	Invocations []string        `json:"invocations"`
	Tokens      int             `json:"tokens"`
	Results     int             `json:"results,omitempty"` // that are cleared
}

type spanDocument struct {
	Start int `json:"start"`
	Count int `json:"count"`
}

type groupDocument struct {
	Branch string `json:"branch"`
	Scope  string `json:"scope"`
	Events []int  `json:"events"` // indices
}

func planned(key store.Key, d compaction.Decision) planDocument {
	doc := planDocument{Key: key.String(), Reason: d.Reason, Prompt: promptSize{d.PromptTokens, d.Measured}}
	if b := d.Balance; b != nil {
		doc.Balance = &balanceDocument{b.Once, b.EachTurn, b.Spent, b.Saved, b.BreakEven()}
	}
	w := d.Window
	if w == nil {
		return doc
	}
	doc.Window = &windowDocument{
		Trigger: w.Trigger, spanDocument: spanDocument(w.Span), Merge: w.Merge, Tokens: w.Tokens, Results: len(w.Results),
		Also: []spanDocument{}, Groups: []groupDocument{}, Invocations: append([]string{}, w.Invocations...),
	}
	for _, s := range w.Also {
		doc.Window.Also = append(doc.Window.Also, spanDocument(s))
	}
	for _, g := range w.Groups {
		doc.Window.Groups = append(doc.Window.Groups, groupDocument{g.Branch, g.Scope, g.Indices})
	}
	return doc
}

// showPlan says what would be summarised next. Later passes depend on how long the
// summary becomes, and cannot be known.
func (a *app) showPlan(key store.Key, d compaction.Decision) error {
	doc := planned(key, d)
	if a.json {
		return a.out.document(doc)
	}
	a.out.linef("%s: %s", key, d.Reason)
	t := newTable("", "")
	row := func(name, text string) { t.add(cell{name, dim}, cell{text, plain}) }
	w := doc.Window
	if doc.Balance != nil {
		row("pays", doc.Balance.String())
	}
	if w == nil {
		row("prompt", doc.Prompt.String())
		return a.out.table(t)
	}
	row("trigger", string(w.Trigger))
	if w.Results > 0 {
		row("clears", fmt.Sprintf("%s, in events %d to %d", counted(w.Results, "result"), append(w.Also, w.spanDocument)[0].Start, w.Start))
		row("tokens", fmt.Sprintf("about %s in these events", grouped(w.Tokens)))
		row("prompt", doc.Prompt.String())
		if err := a.out.table(t); err != nil {
			return err
		}
		return a.out.line("Nothing was written. More passes may follow.")
	}
	row("window", w.spanDocument.String())
	for _, s := range w.Also {
		row("  also", s.String())
	}
	for _, g := range w.Groups {
		if len(w.Groups) > 1 {
			row("  branch", fmt.Sprintf("%s: %s", g.name(), counted(len(g.Events), "event")))
		}
	}
	if len(w.Invocations) > 0 {
		row("invocations", ends(w.Invocations))
	}
	row("tokens", fmt.Sprintf("about %s in the window", grouped(w.Tokens)))
	row("prompt", doc.Prompt.String())
	if err := a.out.table(t); err != nil {
		return err
	}
	return a.out.line("Nothing was written. More passes may follow; what they cover depends on this one's summary.")
}

func (s spanDocument) String() string {
	return fmt.Sprintf("start %d, count %d", s.Start, s.Count)
}

// name is a group's branch and scope, as a person reads them.
func (g groupDocument) name() string {
	name := "no branch"
	if g.Branch != "" {
		name = printable(g.Branch)
	}
	if g.Scope != "" {
		name += ", scope " + printable(g.Scope)
	}
	return name
}

// ends says how many ids there are, and the first and the last of them.
func ends(ids []string) string {
	first, last := printableUpTo(ids[0], idRunes), printableUpTo(ids[len(ids)-1], idRunes)
	if len(ids) == 1 {
		return "1: " + first
	}
	return fmt.Sprintf("%d: %s to %s", len(ids), first, last)
}

// Of an id in a line of text, so many runes are shown.
const idRunes = 40
