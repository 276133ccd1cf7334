package compaction_test

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// clears reports whether the pass was planned to clear results.
func (p pass) clears() bool {
	d, err := compaction.Plan(p.before, p.m.cfg, p.m.run)
	return err == nil && d.Window != nil && d.Window.Trigger == compaction.ByClearing
}

// Clearing changes nothing but results: not the last ones, nor what the user's side said. All calls and responses stay where they are.
func (p pass) cleared() {
	if !slices.EqualFunc(p.before.Calls(), p.after.Calls(), func(a, b fold.Call) bool {
		return a.ID == b.ID && a.Name == b.Name && a.Index == b.Index && a.Part == b.Part && slices.Equal(a.Responses, b.Responses)
	}) {
		p.fail("the calls were %v, are %v", p.before.Calls(), p.after.Calls())
	}
	changed := 0
	for i, was := range p.before.Events() {
		is := p.after.At(i)
		if was.ID() == is.ID() {
			continue
		}
		changed++
		if p.before.Entry(i).Summary || p.after.Entry(i).Summary || was.Author() == "user" || p.before.IsPinned(i) {
			p.fail("%s was to be left", was.ID())
		}
		if was.Author() != is.Author() || was.InvocationID() != is.InvocationID() || groupName(was) != groupName(is) || !was.Timestamp().Equal(is.Timestamp()) {
			p.fail("%s became %s", was, is)
		}
		before, after := partsOf(was), partsOf(is)
		if len(before) != len(after) {
			p.fail("%s has %d parts, had %d", is.ID(), len(after), len(before))
		}
		for j := range before {
			if !bytes.Equal(before[j], after[j]) && !bytes.Contains(after[j], []byte(compaction.Cleared)) {
				p.fail("part %d of %s was %s, is %s", j, was.ID(), before[j], after[j])
			}
		}
	}
	if changed == 0 {
		p.fail("nothing was cleared")
	}
	left := p.m.cfg.Limits().Results // the last results stay
	for i := p.before.Len() - 1; i >= 0 && left > 0; i-- {
		n := 0
		for f := range p.before.At(i).FunctionParts() {
			if f.Response {
				n++
			}
		}
		if n > 0 && n <= left && p.before.At(i).ID() != p.after.At(i).ID() && !slices.ContainsFunc(unpairedAfter(p.before, i), func(bool) bool { return true }) {
			p.fail("one of the last results was cleared, in %s", p.before.At(i).ID())
		}
		left -= n
	}
}

// unpairedAfter has an element for each response behind event i that answers no call: these
// do not count as results.
func unpairedAfter(v fold.View, i int) (out []bool) {
	paired := map[int]int{}
	for _, c := range v.Calls() {
		for _, r := range c.Responses {
			paired[r]++
		}
	}
	for j := i; j < v.Len(); j++ {
		n := 0
		for f := range v.At(j).FunctionParts() {
			if f.Response {
				n++
			}
		}
		if n > paired[j] {
			out = append(out, true)
		}
	}
	return out
}

func partsOf(e *patch.Event) []json.RawMessage {
	var content struct{ Parts []json.RawMessage }
	text, _ := e.Field("content")
	_ = json.Unmarshal(text, &content)
	return content.Parts
}

// original returns the id of what was logged of an event, before results in it were cleared.
func (p pass) original(e *patch.Event) string {
	id := e.ID()
	for {
		of, cleared := p.m.cleared[id]
		if !cleared {
			return id
		}
		id = of
	}
}

// logged returns the event with an id as it was logged, or else the one given.
func (m *machine) logged(id string, or *patch.Event) *patch.Event {
	for _, e := range m.events {
		if e.ID() == id {
			return e
		}
	}
	return or
}

// noteCleared notes what was cleared, by the ids of the events that came.
func (m *machine) noteCleared(before, after fold.View) {
	for i, e := range after.Events() {
		if was := before.At(i); was.ID() != e.ID() {
			m.cleared[e.ID()] = was.ID()
		}
	}
}
