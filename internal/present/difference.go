package present

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Texts for empty differences.
const (
	SameEvents = "the same events are visible"
	SameState  = "the state is the same"
)

// Difference is the difference of two views of a session. Its JSON form is the output of 'patchlog diff --json'
// and of dry runs with --json.
type Difference struct {
	Removed       []Line      `json:"removed"` // visible only before, with the index there
	Added         []Line      `json:"added"`   // visible only after, with the index there
	VisibleBefore int         `json:"visibleBefore"`
	VisibleAfter  int         `json:"visibleAfter"`
	State         StateChange `json:"state"`
	TokensBefore  int         `json:"tokensBefore"` // estimates
	TokensAfter   int         `json:"tokensAfter"`
	Pinned        []string    `json:"pinned,omitempty"` // ids of visible events
	Unpinned      []string    `json:"unpinned,omitempty"`

	views fold.Difference
}

// StateChange is the change of a state.
type StateChange struct {
	Changed map[string]patch.Value `json:"changed"` // new and changed keys
	Removed []string               `json:"removed"` // in key order
}

// DifferenceOf returns the difference between a view and a later view of the same session. It takes time linear
// in the visible events of both views.
func DifferenceOf(before, after fold.View) Difference { return newDifference(before.Diff(after)) }

// PreviewOf returns the effect of patch p, given the store's preview. Added events come from p, without the ids
// and times that the store assigns when it logs the patch.
func PreviewOf(preview store.Preview, p *patch.PatchEvent) Difference {
	d := preview.Difference
	d.Added = slices.Clone(d.Added)
	for i, e := range p.NewEvents() {
		if i < len(d.Added) { // if p is already logged, it adds nothing
			d.Added[i].Event = e
		}
	}
	return newDifference(d)
}

func newDifference(views fold.Difference) Difference {
	before, after := views.Before, views.After
	d := Difference{
		Removed: newLines(views.Removed), Added: newLines(views.Added),
		VisibleBefore: before.Len(), VisibleAfter: after.Len(), State: newStateChange(views),
		TokensBefore: countTokens(before), TokensAfter: countTokens(after), views: views,
	}
	was := map[eventKey]bool{}
	for _, e := range before.Entries() {
		if e.Pinned {
			was[eventKey{e.Seq, e.Event.ID()}] = true
		}
	}
	for _, e := range after.Entries() {
		switch was := was[eventKey{e.Seq, e.Event.ID()}]; {
		case e.Pinned && !was:
			d.Pinned = append(d.Pinned, e.Event.ID())
		case !e.Pinned && was:
			d.Unpinned = append(d.Unpinned, e.Event.ID())
		}
	}
	return d
}

func newLines(events []fold.Entry) []Line {
	lines := make([]Line, len(events))
	for i, e := range events {
		lines[i] = Line{Index: &e.Index, Event: e.Event}
	}
	return lines
}

func newStateChange(views fold.Difference) StateChange {
	c := StateChange{Changed: map[string]patch.Value{}, Removed: []string{}}
	for _, key := range views.StateChanged {
		if value, ok := views.After.Value(key); ok {
			c.Changed[key] = value
		} else {
			c.Removed = append(c.Removed, key)
		}
	}
	return c
}

// Sign is the kind of a change.
type Sign string

// The kinds of changes.
const (
	Unchanged Sign = ""
	Added     Sign = "+"
	Removed   Sign = "-"
	Changed   Sign = "~"
)

// Change is an event of a difference.
type Change struct {
	Sign  Sign // Unchanged, Added or Removed
	Index int  // index in the later view; index in the earlier view for a removed event
	Entry fold.Entry
}

// Changes returns the removed events, then the added events. If the changes are in one span, as the changes of
// a single patch are, Changes includes unchanged events on each side. The argument around is the maximum number
// on a side. Changes returns nil if the same events are visible: see [SameEvents].
func (d Difference) Changes(around int) []Change {
	v := d.views
	removed, added := len(v.Removed), len(v.Added)
	if removed+added == 0 {
		return nil
	}
	if !isContiguous(v.FirstChanged, v.Removed) || !isContiguous(v.FirstChanged, v.Added) {
		around = 0
	}
	var changes []Change
	addUnchanged := func(from, to, shift int) {
		for i := max(from, 0); i < min(to, v.Before.Len()); i++ {
			changes = append(changes, Change{Unchanged, i + shift, v.Before.Entry(i)})
		}
	}
	addUnchanged(v.FirstChanged-around, v.FirstChanged, 0)
	for _, e := range v.Removed {
		changes = append(changes, Change{Removed, e.Index, v.Before.Entry(e.Index)})
	}
	for _, e := range v.Added {
		entry := v.After.Entry(e.Index)
		entry.Event = e.Event
		changes = append(changes, Change{Added, e.Index, entry})
	}
	end := v.FirstChanged + removed
	addUnchanged(end, end+around, added-removed)
	return changes
}

func isContiguous(first int, events []fold.Entry) bool {
	n := len(events)
	return n == 0 || events[0].Index == first && events[n-1].Index == first+n-1
}

// Sentence says how many events were hidden, how many were added, and how many are visible.
func (d Difference) Sentence() string {
	return fmt.Sprintf("%s hidden, %d added; %s now", Counted(len(d.Removed), "event"), len(d.Added), Counted(d.VisibleAfter, "visible event"))
}

// PinLines says which events were pinned and unpinned.
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

// StateRow is the change of one key of the state.
type StateRow struct {
	Sign  Sign   `json:"sign"` // Added, Changed or Removed
	Key   string `json:"key"`
	Value string `json:"value"` // new and old value
}

// StateRows returns the changes of the state: the set keys, then the removed keys, each in key order. It
// returns nil if the states are equal: see [SameState].
func (d Difference) StateRows() []StateRow {
	var rows []StateRow
	before := d.views.Before
	for _, key := range slices.Sorted(maps.Keys(d.State.Changed)) {
		row := StateRow{Added, Printable(key), ValueText(d.State.Changed[key])}
		if old, ok := before.Value(key); ok {
			row.Sign, row.Value = Changed, row.Value+", was "+ValueText(old)
		}
		rows = append(rows, row)
	}
	for _, key := range d.State.Removed {
		old, _ := before.Value(key)
		rows = append(rows, StateRow{Removed, Printable(key), "was " + ValueText(old)})
	}
	return rows
}

// Rows returns the numbers of visible events and of estimated tokens, before and after.
func (d Difference) Rows() []Row {
	return []Row{
		{"visible events", fmt.Sprintf("%d → %d", d.VisibleBefore, d.VisibleAfter)},
		{"tokens, about", Grouped(d.TokensBefore) + " → " + Grouped(d.TokensAfter)},
	}
}

// ChangedWords compares two printable texts word by word. It returns each text in pieces. Words are marked if
// they are not in a longest common subsequence. If less than a third of the words are common, ok is false. The
// time is proportional to the product of the numbers of words.
func ChangedWords(before, after string) (removedPieces, addedPieces []Piece, ok bool) {
	x, y := strings.Fields(before), strings.Fields(after)
	common := make([][]int, len(x)+1) // common[i][j] is the length for x[i:] and y[j:]
	common[len(x)] = make([]int, len(y)+1)
	for i := len(x) - 1; i >= 0; i-- {
		common[i] = make([]int, len(y)+1)
		for j := len(y) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			removedPieces, addedPieces = addWord(removedPieces, x[i], false), addWord(addedPieces, y[j], false)
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1]:
			removedPieces = addWord(removedPieces, x[i], true)
			i++
		default:
			addedPieces = addWord(addedPieces, y[j], true)
			j++
		}
	}
	return removedPieces, addedPieces, 3*common[0][0] >= max(len(x), len(y))
}

// addWord appends a word and the space before it. If the last piece has the same mark, the word extends that
// piece. Otherwise it becomes a new piece.
func addWord(pieces []Piece, word string, mark bool) []Piece {
	last := len(pieces) - 1
	switch {
	case last < 0:
		return []Piece{{word, mark}}
	case pieces[last].Mark == mark:
		pieces[last].Text += " " + word
		return pieces
	case mark: // a space beside a marked word is not marked
		pieces[last].Text += " "
		return append(pieces, Piece{word, true})
	}
	return append(pieces, Piece{" " + word, false})
}
