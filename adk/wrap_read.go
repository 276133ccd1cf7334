package adk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// listed is an event of a base.
type listed struct {
	id    string // of the item
	event *session.Event
}

// eventID returns an event's id. Ids say where a patch applies: an event with none, or with
// one that the log cannot carry, has one that is made of what it says.
func eventID(e *session.Event) string {
	if e.ID != "" && len(e.ID) <= patch.MaxIDBytes && utf8.ValidString(e.ID) {
		return e.ID
	}
	said, err := json.Marshal(e)
	if err != nil {
		said = fmt.Appendf(nil, "%q %q %q %v", e.ID, e.Author, e.InvocationID, e.Timestamp)
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, said).String()
}

// news returns what a base's events have beyond the items that they begin with; ok is false
// if they do not.
func news(events session.Events, items []item) (list []listed, ok bool) {
	i := 0
	for e := range events.All() {
		switch {
		case e == nil:
		case i == len(items):
			list = append(list, listed{eventID(e), e})
		case items[i].id == e.ID || items[i].id == eventID(e):
			i++
		default:
			return nil, false
		}
	}
	return list, i == len(items)
}

// begins reports whether a list begins with the items.
func begins(list []listed, items []item) bool {
	return len(list) >= len(items) &&
		slices.EqualFunc(list[:len(items)], items, func(l listed, it item) bool { return l.id == it.id })
}

// holds reports whether a list has each of the items.
func holds(list []listed, items []item) bool {
	ids := make(map[string]bool, len(list))
	for _, l := range list {
		ids[l.id] = true
	}
	for _, it := range items {
		if !ids[it.id] {
			return false
		}
	}
	return true
}

// inOrder returns a list in which events of one time, which a base may give in any order,
// have the order that the items have, and come after those. Where the base gives them in
// time's order and adds at the end, it then begins with the items.
func inOrder(list []listed, items []item) []listed {
	place := make(map[string]int, len(items))
	for i, it := range items {
		place[it.id] = i
	}
	at := func(l listed) int {
		if i, known := place[l.id]; known {
			return i
		}
		return len(items)
	}
	out := slices.Clone(list)
	for rest := out; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].event.Timestamp.Equal(rest[0].event.Timestamp) {
			n++
		}
		slices.SortStableFunc(rest[:n], func(a, b listed) int { return cmp.Compare(at(a), at(b)) })
		rest = rest[n:]
	}
	return out
}

// itemOf reads an event of a base. lossy, if not nil, says what of it the log cannot carry.
func itemOf(l listed) (it item, lossy error) {
	if c := carrierOf(l.event); c != nil {
		c.id = l.id
		return item{id: l.id, carrier: c}, nil
	}
	named := *l.event
	named.ID = l.id
	e, err := NewEvent(&named)
	if err != nil {
		e = nearest(&named)
	}
	return item{id: l.id, event: e}, err
}

// nearest makes an event of the log from one that JSON cannot carry: what it cannot is there
// as text, and what is no Unicode as U+FFFD. If that is not enough, what was said and done is
// there, or at least that there was something.
func nearest(e *session.Event) *patch.Event {
	c := *e
	textCopier.own(reflect.ValueOf(&c).Elem(), 0)
	if p, err := NewEvent(&c); err == nil {
		return p
	}
	least := session.Event{
		ID: c.ID, InvocationID: c.InvocationID, Author: c.Author, Branch: c.Branch, IsolationScope: c.IsolationScope,
		Timestamp: c.Timestamp, Actions: c.Actions, LongRunningToolIDs: c.LongRunningToolIDs,
	}
	least.Content = c.Content
	for _, try := range []session.Event{c, least} {
		if text, err := json.Marshal(&try); err == nil {
			if p, err := patch.ParseEvent(text); err == nil {
				return p
			}
		}
	}
	p, _ := patch.NewEvent(patch.Fields{ID: e.ID, ZeroTime: true}) // whose id can be carried
	return p
}

// textCopier copies values so that JSON can carry them.
var textCopier copier

func init() { textCopier.dynamic = textValue } // which refers to plainCopier

// textValue returns a value that JSON can carry: v itself, what its JSON says, or its text.
// It is a copier's dynamic.
func textValue(v any, depth int) (any, bool) {
	plain, ok := plainValue(v, depth)
	if !ok {
		return fmt.Sprintf("%T", v), true // it is inside itself
	}
	if _, err := patch.NewValue(plain); err == nil {
		return plain, true
	}
	if kind := reflect.ValueOf(plain).Kind(); kind == reflect.String {
		return plain, true
	}
	return fmt.Sprint(plain), true
}
