package inspector

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// Bounds on what a difference shows.
const (
	diffRows    = 300 // events, and keys of the state
	diffContext = 2   // events that stayed, on either side of one stretch that changed
)

// diffBody is the page of how a session differs between two records.
type diffBody struct {
	Key        string
	From, To   uint64
	Last       uint64
	First      int // the first index at which an event went or came
	Events     []diffRow
	EventsMore int
	Same       string // what is said if there are no events to show
	State      []present.StateRow
	StateMore  int
	SameState  string
	Pins       []string
	PinsMore   int
	Rows       []present.Row
}

// diffRow is an event that went, came or stayed.
type diffRow struct {
	Sign   present.Sign
	Word   string
	Index  int
	Seq    uint64
	ID     string
	Author string
	Kind   present.Kind
	Text   string
}

func (i *Inspector) diffPage(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := within(r)
	defer cancel()
	key, err := i.key(r, Read)
	if err != nil {
		return err
	}
	from, given, err := number(r, "from")
	if err != nil {
		return err
	}
	if !given {
		return badRequest("from", "it is missing; it is the record to compare with, 0 for the empty log")
	}
	info, err := i.store.Info(ctx, key)
	if err != nil {
		return err
	}
	to, given, err := number(r, "to")
	if err != nil {
		return err
	}
	if !given {
		to = info.Seq
	}
	if from > to {
		return backwards(key, from, to)
	}
	before, err := i.store.ViewAt(ctx, key, from)
	if err != nil {
		return beyond(key, from, info.Seq, err)
	}
	after, err := i.store.ViewAt(ctx, key, to)
	if err != nil {
		return beyond(key, to, info.Seq, err)
	}
	body := diffOf(before, after)
	body.Key, body.Last = key.String(), max(info.Seq, to)
	return i.render(w, r, http.StatusOK, "diff", page{Title: fmt.Sprintf("From record %d to record %d", from, to), Key: &key, Body: body})
}

// backwards explains that the records are in the wrong order.
func backwards(key store.Key, from, to uint64) error {
	err := badRequest("from", "it is %d, which comes after record %d", from, to)
	url, linkErr := query("diff", "key", key, "from", to, "to", from)
	if linkErr != nil {
		return linkErr
	}
	return &advised{err, explanation{
		Text:   fmt.Sprintf("Record %d comes after record %d.", from, to),
		Advice: "What changed is told from the earlier record to the later one.",
		Link:   &link{url, fmt.Sprintf("From record %d to record %d", to, from)},
	}}
}

// beyond explains that the log has no such record.
func beyond(key store.Key, seq, last uint64, err error) error {
	if !errors.Is(err, store.ErrNotFound) || seq <= last {
		return err
	}
	return &advised{err, explanation{
		Text:   fmt.Sprintf("There is no record %d.", seq),
		Advice: fmt.Sprintf("The log of %s ends with record %d.", present.Printable(key.String()), last),
		Link:   &link{sessionURL(key, last), "The session as it is"},
	}}
}

// diffOf returns how a view differs from an earlier one, as much of it as a page has.
func diffOf(before, after fold.View) diffBody {
	d := present.DifferenceOf(before, after)
	body := diffBody{From: before.Seq(), To: after.Seq(), Rows: d.Rows()}
	changes := d.Changes(diffContext)
	body.First = -1
	for _, l := range [][]present.Line{d.Removed, d.Added} {
		if len(l) > 0 && (body.First < 0 || *l[0].Index < body.First) {
			body.First = *l[0].Index
		}
	}
	changes, body.EventsMore = cutTo(changes, diffRows)
	for _, c := range changes {
		e := c.Entry.Event
		body.Events = append(body.Events, diffRow{
			Sign: c.Sign, Word: map[present.Sign]string{present.Came: "came", present.Went: "went"}[c.Sign],
			Index: c.Index, Seq: c.Entry.Seq, ID: e.ID(), Author: clip(e.Author(), nameRunes), Kind: present.KindOf(c.Entry), Text: clip(present.EntryText(c.Entry), lineRunes),
		})
	}
	if len(changes) == 0 {
		body.Same = present.SameEvents
	}
	state := d.StateRows()
	if len(state) == 0 {
		body.SameState = present.SameState
	}
	body.State, body.StateMore = cutTo(state, diffRows)
	for n := range body.State {
		body.State[n].Key = clip(body.State[n].Key, nameRunes)
	}
	body.Pins, body.PinsMore = cutTo(d.PinLines(), diffRows)
	return body
}

// cutTo returns the first of a list, and how many more it has.
func cutTo[T any](list []T, most int) ([]T, int) {
	n := min(len(list), most)
	return list[:n], len(list) - n
}
