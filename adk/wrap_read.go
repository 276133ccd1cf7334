package adk

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// listOf returns a base's events with ids that differ. Ids make a patch stand where it was
// made: an event without one gets one that is made of what it says, and where an id is there
// again, the item has another.
func listOf(events session.Events) []listed {
	list := make([]listed, 0, events.Len())
	seen := make(map[string]int, events.Len())
	for e := range events.All() {
		if e == nil {
			continue
		}
		id := e.ID
		if id == "" {
			said, err := json.Marshal(e)
			if err != nil {
				said = fmt.Append(nil, e.Author, e.InvocationID, e.Timestamp)
			}
			id = uuid.NewSHA1(uuid.NameSpaceOID, said).String()
		}
		l := listed{id: id, eventID: id, event: e}
		if seen[id]++; seen[id] > 1 {
			l.id = fmt.Sprintf("%s\x00%d", id, seen[id])
		}
		list = append(list, l)
	}
	return list
}

// listed is an event of a base.
type listed struct {
	id      string // of the item
	eventID string
	event   *session.Event
}

// begins reports whether a list begins with the items.
func begins(list []listed, items []item) bool {
	if len(list) < len(items) {
		return false
	}
	for i := range items {
		if list[i].id != items[i].id {
			return false
		}
	}
	return true
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
	out := make([]listed, 0, len(list))
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].event.Timestamp.Equal(list[0].event.Timestamp) {
			n++
		}
		run := make([]listed, 0, n)
		for _, l := range list[:n] {
			if _, known := place[l.id]; known {
				run = append(run, l)
			}
		}
		sortBy(run, func(l listed) int { return place[l.id] })
		for _, l := range list[:n] {
			if _, known := place[l.id]; !known {
				run = append(run, l)
			}
		}
		out, list = append(out, run...), list[n:]
	}
	return out
}

// itemOf reads an event of a base. lossy, if not nil, says what of it the log cannot carry.
func itemOf(l listed) (it item, lossy error) {
	if c := carrierOf(l.event); c != nil {
		c.id = l.eventID
		return item{id: l.id, carrier: c}, nil
	}
	named := *l.event
	named.ID = l.eventID
	e, err := NewEvent(&named)
	if err != nil {
		e = nearest(&named)
	}
	return item{id: l.id, event: e}, err
}

// nearest makes an event of the log from one that JSON cannot carry: what it cannot is there
// as text, and what is no Unicode as U+FFFD.
func nearest(e *session.Event) *patch.Event {
	c := *e
	textCopier.own(reflect.ValueOf(&c).Elem(), 0)
	text, err := json.Marshal(&c)
	if err == nil {
		var p *patch.Event
		if p, err = patch.ParseEvent(text); err == nil {
			return p
		}
	}
	plain := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	p, _ := patch.NewEvent(patch.Fields{ // these can be carried
		ID: plain(e.ID), InvocationID: plain(e.InvocationID), Author: plain(e.Author),
		Branch: plain(e.Branch), IsolationScope: plain(e.IsolationScope), Timestamp: e.Timestamp, ZeroTime: e.Timestamp.IsZero(),
		CustomMetadata: map[string]any{figuresKey: map[string]any{"unreadable": plain(err.Error())}},
	})
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
