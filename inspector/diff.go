package inspector

import (
	"context"
	"html/template"
	"net/http"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// Limits of a difference on a page.
const (
	diffRows    = 200 // events, and keys of the state
	diffContext = 2   // unchanged events on each side of a change
)

// shownDifference is the difference of two views, limited to the size of a page.
type shownDifference struct {
	Title     string
	Rows      []present.Row
	Events    []changedEvent
	Rest      []changedEvent // folded on the page
	More      int            // number of events not shown
	Same      string         // shown if no events differ
	State     []present.StateRow
	StateMore int
	SameState string
	Pins      []string
}

type changedEvent struct {
	Sign       present.Sign
	Index      int
	ID, Author string
	Text       []present.Piece // changed words are marked
	URL        template.URL    // URL of the event's record, or "" if it is not logged yet
	Kind       present.Kind
}

// changeNames names the signs of changes for screen readers.
var changeNames = map[present.Sign]string{present.Removed: "removed", present.Added: "added", present.Changed: "changed", present.Unchanged: "stays"}

func newShownDifference(key store.Key, title string, d present.Difference, contextEvents int) shownDifference {
	s := shownDifference{Title: title, Rows: d.Rows()}
	for _, c := range d.Changes(contextEvents) {
		s.add(key, c)
	}
	if s.More == 0 && len(d.Removed) == len(d.Added) {
		s.markWords()
	}
	if len(s.Events) == 0 {
		s.Same = present.SameEvents
	}
	s.State, s.StateMore = truncate(d.StateRows(), diffRows)
	for n := range s.State {
		s.State[n].Key = present.Clip(s.State[n].Key, nameRunes)
	}
	if len(s.State) == 0 {
		s.SameState = present.SameState
	}
	s.fold()
	s.Pins, _ = truncate(d.PinLines(), diffRows)
	return s
}

// unfoldedEvents is the number of events that are not folded.
const unfoldedEvents = 12

// fold moves the events after the first unfoldedEvents to Rest, which the page folds.
func (s *shownDifference) fold() {
	if len(s.Events) > unfoldedEvents {
		s.Events, s.Rest = s.Events[:unfoldedEvents:unfoldedEvents], s.Events[unfoldedEvents:]
	}
}

// markWords pairs removed and added events in order, and marks the words that differ in each pair.
func (s *shownDifference) markWords() {
	var removed []*changedEvent
	for n := range s.Events {
		switch e := &s.Events[n]; e.Sign {
		case present.Removed:
			removed = append(removed, e)
		case present.Added:
			if was, now, ok := present.ChangedWords(removed[0].Text[0].Text, e.Text[0].Text); ok {
				removed[0].Text, e.Text = was, now
			}
			removed = removed[1:]
		}
	}
}

// add adds an event, or counts it in More if the page is full.
func (s *shownDifference) add(key store.Key, c present.Change) {
	if len(s.Events) == diffRows {
		s.More++
		return
	}
	e := c.Entry.Event
	row := changedEvent{c.Sign, c.Index, present.Clip(e.ID(), nameRunes), present.Clip(e.Author(), nameRunes), []present.Piece{{Text: present.Clip(present.EntryText(c.Entry), lineRunes)}}, "", present.KindOf(c.Entry)}
	if c.Entry.Seq > 0 && e.ID() != "" {
		row.URL = recordURL(key, c.Entry.Seq, e.ID())
	}
	s.Events = append(s.Events, row)
}

// diffBody is the panel that compares a session as of two records.
type diffBody struct {
	Key        string
	From, To   uint64
	Last       uint64
	Difference shownDifference
}

// diffPanel compares a session as of two records. If the request names no record, it shows the effect of the
// newest patch.
func (i *Inspector) diffPanel(ctx context.Context, r *http.Request, b *sessionBody) error {
	from, given, err := formNumber(r, "from")
	if err != nil {
		return err
	}
	to, toGiven, err := formNumber(r, "to")
	if err != nil {
		return err
	}
	if !toGiven {
		to = b.Last
	}
	for seq := b.Last; !given && !toGiven && seq > 0; seq-- {
		if b.timeline.at(seq).Patch != nil {
			from, to, given = seq-1, seq, true
		}
	}
	from, to = min(from, to), max(from, to)
	before, after, err := i.views(ctx, b.Key, from, to)
	if err != nil {
		return err
	}
	b.Title = "Compare"
	b.Body = diffBody{b.Key.String(), from, to, max(b.Last, to), newShownDifference(b.Key, "", present.DifferenceOf(before, after), diffContext)}
	return nil
}

// truncate shortens a list. The argument most is the maximum number of elements. It also returns the number
// of elements that it removed.
func truncate[T any](list []T, most int) ([]T, int) {
	n := min(len(list), most)
	return list[:n], len(list) - n
}
