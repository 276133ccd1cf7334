package present

import (
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// What is said where a difference has nothing to show.
const (
	SameEvents = "the same events are visible"
	SameState  = "the state stays as it is"
)

// Difference is how two views of a session differ. As JSON it is what 'patchlog diff --json'
// and dry runs write.
type Difference struct {
	Removed       []Line      `json:"removed"` // visible before alone, with their index there
	Added         []Line      `json:"added"`   // visible after alone, with their index there
	VisibleBefore int         `json:"visibleBefore"`
	VisibleAfter  int         `json:"visibleAfter"`
	State         StateChange `json:"state"`
	TokensBefore  int         `json:"tokensBefore"` // estimated
	TokensAfter   int         `json:"tokensAfter"`
	Pinned        []string    `json:"pinned,omitempty"` // ids of visible events
	Unpinned      []string    `json:"unpinned,omitempty"`

	views fold.Difference
}

// StateChange is what becomes of a state.
type StateChange struct {
	Changed map[string]patch.Value `json:"changed"` // keys that are new or have another value
	Removed []string               `json:"removed"` // in key order
}

// DifferenceOf returns how a view differs from an earlier one of the same session. It takes time
// in the number of events that are visible in either.
func DifferenceOf(before, after fold.View) Difference { return newDifference(before.Diff(after)) }

// PreviewOf returns what a patch would do, as the store foretells it. Events that the patch would
// put in are as the patch has them, without the ids and times that they would only get when it is
// logged.
func PreviewOf(preview store.Preview, p *patch.PatchEvent) Difference {
	d := preview.Difference
	d.Added = slices.Clone(d.Added)
	for i, e := range p.NewEvents() {
		if i < len(d.Added) { // it adds nothing if it is in the log already
			d.Added[i].Event = e
		}
	}
	return newDifference(d)
}

func newDifference(views fold.Difference) Difference {
	before, after := views.Before, views.After
	d := Difference{
		Removed: linesOf(views.Removed), Added: linesOf(views.Added),
		VisibleBefore: before.Len(), VisibleAfter: after.Len(), State: changeOf(before, after),
		TokensBefore: tokensOf(before), TokensAfter: tokensOf(after), views: views,
	}
	type place struct { // views of different reads have copies of an event
		seq uint64
		id  string
	}
	was := map[place]bool{}
	for _, e := range before.Entries() {
		if e.Pinned {
			was[place{e.Seq, e.Event.ID()}] = true
		}
	}
	for _, e := range after.Entries() {
		switch was := was[place{e.Seq, e.Event.ID()}]; {
		case e.Pinned && !was:
			d.Pinned = append(d.Pinned, e.Event.ID())
		case !e.Pinned && was:
			d.Unpinned = append(d.Unpinned, e.Event.ID())
		}
	}
	return d
}

func linesOf(events []fold.Entry) []Line {
	lines := make([]Line, len(events))
	for i, e := range events {
		lines[i] = Line{Index: &e.Index, Event: e.Event}
	}
	return lines
}

func changeOf(before, after fold.View) StateChange {
	c := StateChange{Changed: map[string]patch.Value{}, Removed: []string{}}
	for key, value := range after.Values() {
		if old, ok := before.Value(key); !ok || !old.Equal(value) {
			c.Changed[key] = value
		}
	}
	for key := range before.Values() {
		if _, ok := after.Value(key); !ok {
			c.Removed = append(c.Removed, key)
		}
	}
	return c
}

// Sign says what became of something.
type Sign string

// What can become of something.
const (
	Stayed  Sign = ""
	Came    Sign = "+"
	Went    Sign = "-"
	Changed Sign = "~"
)

// Change is an event that a difference shows.
type Change struct {
	Sign  Sign // of an event: Stayed, Came or Went
	Index int  // in the view before if it went, else in the view after
	Entry fold.Entry
}

// Changes returns the events that went, then those that came. If all of them stood, and stand, in
// one stretch, as what one patch does, up to around events before it and after it, which stayed,
// are among them. There are none if the same events are visible: see [SameEvents].
func (d Difference) Changes(around int) []Change {
	v := d.views
	removed, added := len(v.Removed), len(v.Added)
	if removed+added == 0 {
		return nil
	}
	if !inOneStretch(v.First, v.Removed) || !inOneStretch(v.First, v.Added) {
		around = 0
	}
	var changes []Change
	stayed := func(from, to, shift int) {
		for i := max(from, 0); i < min(to, v.Before.Len()); i++ {
			changes = append(changes, Change{Stayed, i + shift, v.Before.Entry(i)})
		}
	}
	stayed(v.First-around, v.First, 0)
	for _, e := range v.Removed {
		changes = append(changes, Change{Went, e.Index, v.Before.Entry(e.Index)})
	}
	for _, e := range v.Added {
		entry := v.After.Entry(e.Index)
		entry.Event = e.Event
		changes = append(changes, Change{Came, e.Index, entry})
	}
	end := v.First + removed
	stayed(end, end+around, added-removed)
	return changes
}

func inOneStretch(first int, events []fold.Entry) bool {
	n := len(events)
	return n == 0 || events[0].Index == first && events[n-1].Index == first+n-1
}

// Sentence says how many events went and came, and how many are visible.
func (d Difference) Sentence() string {
	return fmt.Sprintf("%s hidden, %d added; %s now", Counted(len(d.Removed), "event"), len(d.Added), Counted(d.VisibleAfter, "visible event"))
}

// PinLines says which events became pinned, and which no longer are.
func (d Difference) PinLines() []string {
	var lines []string
	for _, id := range d.Pinned {
		lines = append(lines, "pinned: "+Printable(id))
	}
	for _, id := range d.Unpinned {
		lines = append(lines, "no longer pinned: "+Printable(id))
	}
	return lines
}

// StateRow is what became of a key of the state.
type StateRow struct {
	Sign  Sign   `json:"sign"` // Came, Changed or Went
	Key   string `json:"key"`
	Value string `json:"value"` // what it is, and what it was
}

// StateRows says what became of the state: keys that are set otherwise, then keys that went, each
// in key order. There are none if the state is the same: see [SameState].
func (d Difference) StateRows() []StateRow {
	var rows []StateRow
	before := d.views.Before
	for _, key := range slices.Sorted(maps.Keys(d.State.Changed)) {
		row := StateRow{Came, Printable(key), ValueText(d.State.Changed[key])}
		if old, ok := before.Value(key); ok {
			row.Sign, row.Value = Changed, row.Value+", was "+ValueText(old)
		}
		rows = append(rows, row)
	}
	for _, key := range d.State.Removed {
		old, _ := before.Value(key)
		rows = append(rows, StateRow{Went, Printable(key), "was " + ValueText(old)})
	}
	return rows
}

// Rows returns how many events are visible, and about how many tokens they take, before and
// after.
func (d Difference) Rows() []Row {
	return []Row{
		{"visible events", fmt.Sprintf("%d -> %d", d.VisibleBefore, d.VisibleAfter)},
		{"tokens, about", Grouped(d.TokensBefore) + " -> " + Grouped(d.TokensAfter)},
	}
}
