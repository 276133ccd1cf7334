package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// So many visible events are shown before and after a change.
const diffContext = 2

// showPreview shows what a patch would do.
func (a *app) showPreview(key store.Key, p *patch.PatchEvent, before fold.View, preview fold.Preview) error {
	if p.Type() != patch.Revert {
		preview.Added = p.NewEvents() // without ids that would be others when it is written
	}
	after := preview.View
	state := changeOf(before, after)
	tokensBefore, tokensAfter := estimateTokens(visible(before)), estimateTokens(visible(after))
	if a.json {
		return a.out.document(struct {
			Removed       []logLine   `json:"removed"`
			Added         []logLine   `json:"added"`
			VisibleBefore int         `json:"visibleBefore"`
			VisibleAfter  int         `json:"visibleAfter"`
			State         stateChange `json:"state"`
			TokensBefore  int         `json:"tokensBefore"`
			TokensAfter   int         `json:"tokensAfter"`
		}{
			logLines(preview.Start, preview.Removed), logLines(preview.Start, preview.Added),
			before.Len(), after.Len(), state, tokensBefore, tokensAfter,
		})
	}
	a.out.linef("%s: dry run of %s, nothing is written", key, p.Type())
	if err := a.out.diff(before, preview); err != nil {
		return err
	}
	a.out.stateDiff(before, state)
	a.out.linef("visible events  %s -> %s", grouped(before.Len()), grouped(after.Len()))
	return a.out.linef("tokens, about   %s -> %s", grouped(tokensBefore), grouped(tokensAfter))
}

func logLines(start int, events []*patch.Event) []logLine {
	lines := make([]logLine, len(events))
	for i, e := range events {
		lines[i] = logLine{Index: start + i, Event: e}
	}
	return lines
}

// diff writes the change of the visible log with a little of what is around it.
func (o *output) diff(before fold.View, preview fold.Preview) error {
	t := newTable("", "index", "id", "author", "event")
	t.right[1] = true
	row := func(mark string, s style, index int, e *patch.Event, isSummary bool) {
		cells := append([]cell{{mark, s}, {grouped(index), plain}}, eventCells(e, isSummary)...)
		if s != plain {
			for i := range cells {
				cells[i].style = s
			}
		}
		t.add(cells...)
	}
	start, removed, added := preview.Start, len(preview.Removed), len(preview.Added)
	around := func(from, to, shift int) {
		for i := max(from, 0); i < min(to, before.Len()); i++ {
			row("", plain, i+shift, before.At(i), before.IsSummary(i))
		}
	}
	around(start-diffContext, start, 0)
	for i, e := range preview.Removed {
		row("-", red, start+i, e, before.IsSummary(start+i))
	}
	for i, e := range preview.Added {
		row("+", green, start+i, e, preview.View.IsSummary(start+i))
	}
	end := start + removed
	around(end, end+diffContext, added-removed)
	return o.table(t)
}

// stateDiff writes what becomes of the state.
func (o *output) stateDiff(before fold.View, c stateChange) {
	if len(c.Changed)+len(c.Removed) == 0 {
		o.line("the state stays as it is")
		return
	}
	t := newTable("", "state key", "value")
	for _, key := range slices.Sorted(maps.Keys(c.Changed)) {
		name, value := printable(key), valueText(c.Changed[key])
		if old, ok := before.Value(key); ok {
			t.add(cell{"~", yellow}, cell{name, yellow}, cell{fmt.Sprintf("%s, was %s", value, valueText(old)), yellow})
		} else {
			t.add(cell{"+", green}, cell{name, green}, cell{value, green})
		}
	}
	for _, key := range c.Removed {
		old, _ := before.Value(key)
		t.add(cell{"-", red}, cell{printable(key), red}, cell{"was " + valueText(old), red})
	}
	o.table(t)
}
