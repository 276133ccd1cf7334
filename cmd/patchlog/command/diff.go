package command

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
func (a *app) showPreview(key store.Key, p *patch.PatchEvent, preview store.Preview) error {
	for i, e := range p.NewEvents() {
		preview.Added[i].Event = e // without ids that would be others when it is written
	}
	before := preview.Before
	d := differenceOf(before, preview.After)
	if a.json {
		return a.out.document(d.with(visibleLines(preview.Removed), visibleLines(preview.Added)))
	}
	a.out.linef("%s: dry run of %s, nothing is written", key, p.Type())
	if err := a.out.diff(preview.Difference); err != nil {
		return err
	}
	return a.out.difference(before, d)
}

// difference is how two views of a session differ.
type difference struct {
	Removed       []logLine   `json:"removed"`
	Added         []logLine   `json:"added"`
	VisibleBefore int         `json:"visibleBefore"`
	VisibleAfter  int         `json:"visibleAfter"`
	State         stateChange `json:"state"`
	TokensBefore  int         `json:"tokensBefore"`
	TokensAfter   int         `json:"tokensAfter"`
	Pinned        []string    `json:"pinned,omitempty"` // ids of visible events
	Unpinned      []string    `json:"unpinned,omitempty"`
}

// differenceOf returns all of the difference but the events.
func differenceOf(before, after fold.View) difference {
	d := difference{
		VisibleBefore: before.Len(), VisibleAfter: after.Len(), State: changeOf(before, after),
		TokensBefore: estimateTokens(visible(before)), TokensAfter: estimateTokens(visible(after)),
	}
	was := map[*patch.Event]bool{}
	for _, e := range before.Entries() {
		if e.Pinned {
			was[e.Event] = true
		}
	}
	for _, e := range after.Entries() {
		switch {
		case e.Pinned && !was[e.Event]:
			d.Pinned = append(d.Pinned, e.Event.ID())
		case !e.Pinned && was[e.Event]:
			d.Unpinned = append(d.Unpinned, e.Event.ID())
		}
	}
	return d
}

func (d difference) with(removed, added []logLine) difference {
	d.Removed, d.Added = removed, added
	return d
}

// difference writes all of the difference but the events.
func (o *output) difference(before fold.View, d difference) error {
	for _, id := range d.Pinned {
		o.line("pinned: ", printable(id))
	}
	for _, id := range d.Unpinned {
		o.line("no longer pinned: ", printable(id))
	}
	o.stateDiff(before, d.State)
	o.linef("visible events  %d -> %d", d.VisibleBefore, d.VisibleAfter)
	return o.linef("tokens, about   %s -> %s", grouped(d.TokensBefore), grouped(d.TokensAfter))
}

// diff writes the change of the visible log with a little of what is around it.
func (o *output) diff(d fold.Difference) error {
	before := d.Before
	t := newTable("", "index", "id", "author", "event")
	t.right[1] = true
	row := func(mark string, s style, index int, e fold.Entry) {
		cells := append([]cell{{mark, s}, {fmt.Sprint(index), plain}}, eventCells(e)...)
		if s != plain {
			for i := range cells {
				cells[i].style = s
			}
		}
		t.add(cells...)
	}
	removed, added := len(d.Removed), len(d.Added)
	if removed+added == 0 {
		return o.line("the same events are visible")
	}
	around := func(from, to, shift int) {
		for i := max(from, 0); i < min(to, before.Len()); i++ {
			row("", plain, i+shift, entryAt(before, i))
		}
	}
	around(d.First-diffContext, d.First, 0)
	for _, e := range d.Removed {
		row("-", red, e.Index, entryAt(before, e.Index))
	}
	for _, e := range d.Added {
		entry := entryAt(d.After, e.Index)
		entry.Event = e.Event
		row("+", green, e.Index, entry)
	}
	end := d.First + removed
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
