package patch

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Record is an entry of a session's log: an event or a patch, with its seq. Exactly one of Event and Patch is
// set.
type Record struct {
	Seq   uint64 // 1, 2, 3 … in a log; 0 if the record is not logged
	Event *Event
	Patch *PatchEvent
}

// ID returns the id of the record's event or patch.
func (r Record) ID() string {
	switch {
	case r.Event != nil:
		return r.Event.id
	case r.Patch != nil:
		return r.Patch.id
	}
	return ""
}

// IDs yields the id of the record's event or patch, then the ids of the events that the patch adds.
func (r Record) IDs() iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(r.ID()) || r.Patch == nil {
			return
		}
		for _, e := range r.Patch.NewEvents() {
			if !yield(e.id) {
				return
			}
		}
	}
}

// Events returns the record's event, or the events that its patch adds, in order. The caller owns the slice.
func (r Record) Events() []*Event {
	switch {
	case r.Event != nil:
		return []*Event{r.Event}
	case r.Patch != nil:
		return r.Patch.NewEvents()
	}
	return nil
}

// Size returns the size of the record's JSON in bytes, without the seq.
func (r Record) Size() int {
	r.Seq = 0
	text, _ := r.MarshalJSON()
	return len(text)
}

// MarshalJSON returns the record as one line of the text form. If the seq is 0, it is omitted.
func (r Record) MarshalJSON() ([]byte, error) {
	var text []byte
	var err error
	switch {
	case r.Event != nil:
		text, err = r.Event.MarshalJSON()
	case r.Patch != nil:
		text, err = r.Patch.MarshalJSON()
	default:
		return nil, fieldErr("", "the record has neither an event nor a patch")
	}
	if err != nil || r.Seq == 0 {
		return text, err
	}
	b := strconv.AppendUint([]byte(`{"seq":`), r.Seq, 10)
	if len(text) > len("{}") {
		b = append(b, ',')
	}
	return append(b, text[1:]...), nil
}

// Complete returns the record in the form in which a store logs it. It sets missing ids to results of newID,
// and missing times to the argument now. It removes the "temp:" keys from state deltas. All three changes also
// apply to the events that a patch adds. If newID is nil, no ids are added. If the argument now is the zero
// time, no times are set. Complete does not change r. If there is nothing to do, it returns r itself.
func Complete(r Record, newID func() string, now time.Time) Record {
	r = r.mapIdentities(func(e identity) identity { return e.complete(newID, now) })
	if r.Event != nil {
		r.Event = r.Event.withoutTemp()
	}
	if r.Patch != nil {
		r.Patch = r.Patch.mapEvents(func(_ int, e *Event) *Event { return e.withoutTemp() })
	}
	return r
}

// mapIdentities returns the record with changed identities. It applies the function change to the identity of
// the record, and to the identities of the events that its patch adds.
func (r Record) mapIdentities(change func(identity) identity) Record {
	event := func(e *Event) *Event {
		id := change(e.identity)
		if id == e.identity {
			return e
		}
		c := *e
		c.identity = id
		return &c
	}
	if r.Event != nil {
		r.Event = event(r.Event)
	}
	if r.Patch != nil {
		id := change(r.Patch.identity)
		r.Patch = r.Patch.mapEvents(func(_ int, e *Event) *Event { return event(e) })
		if id != r.Patch.identity {
			r.Patch = r.Patch.with(func(p *PatchEvent) { p.identity = id })
		}
	}
	return r
}

func (e identity) complete(newID func() string, now time.Time) identity {
	if e.id == "" && newID != nil {
		e.id = newID()
	}
	if !e.timed && !now.IsZero() {
		e.time, e.timed = now.Round(0).UTC(), true
	}
	return e
}

const stateDelta = "/actions/stateDelta/" // prefix of the JSON pointers to state keys

// withoutTemp returns the event without the "temp:" keys in its state delta.
func (e *Event) withoutTemp() *Event {
	if !e.index.has(setsTemp) {
		return e
	}
	c := *e
	c.json = e.jsonWithoutTemp()
	c.types = e.types.without(func(pointer string) bool { return strings.HasPrefix(pointer, stateDelta+PrefixTemp) })
	if c.buildIndex() != nil {
		return e // e is a forged record that was already invalid; see Record.Verify
	}
	return &c
}

// jsonWithoutTemp returns the event's JSON without the "temp:" keys of actions.stateDelta.
func (e *Event) jsonWithoutTemp() []byte {
	if !e.index.has(setsTemp) {
		return e.json
	}
	return jsonvalue.Edit(e.json, func(name string, v []byte) []byte {
		if name != "actions" {
			return v
		}
		return jsonvalue.Edit(v, func(name string, v []byte) []byte {
			if name != "stateDelta" {
				return v
			}
			return jsonvalue.Edit(v, func(key string, v []byte) []byte {
				if strings.HasPrefix(key, PrefixTemp) {
					return nil
				}
				return v
			})
		})
	})
}

// Same reports whether an offered record equals a logged record. If so, appending the offered record is a
// retry.
//
//   - Same ignores seqs, the order of keys, "temp:" keys and Go types.
//   - Numbers are compared as by [Value.Equal]. Times are equal if they are the same instant.
//   - If the offered record has no id, no time or no base, the missing field is not compared.
//   - A missing replacement equals an empty replacement.
//   - If the logged event was erased, only the identity is compared. If the logged patch was erased, custom
//     metadata and unknown fields are not compared.
func Same(logged, offered Record) bool {
	switch {
	case logged.Event != nil && offered.Event != nil:
		return sameEvent(logged.Event, offered.Event)
	case logged.Patch != nil && offered.Patch != nil:
		return samePatch(logged.Patch, offered.Patch)
	}
	return false
}

func (e *identity) matches(offered *identity) bool {
	return (offered.id == "" || offered.id == e.id) &&
		(!offered.timed || offered.time.Equal(e.time)) &&
		offered.invocationID == e.invocationID && offered.author == e.author &&
		offered.branch == e.branch && offered.scope == e.scope
}

func sameEvent(logged, offered *Event) bool {
	if !logged.identity.matches(&offered.identity) {
		return false
	}
	_, erased := logged.ErasedBy()
	return erased || jsonvalue.Equal(logged.jsonWithoutTemp(), offered.jsonWithoutTemp())
}

func samePatch(logged, offered *PatchEvent) bool {
	if !logged.identity.matches(&offered.identity) || logged.typ != offered.typ ||
		logged.StatePolicy() != offered.StatePolicy() || logged.PatchID() != offered.PatchID() || logged.Group() != offered.Group() {
		return false
	}
	if _, erased := logged.ErasedBy(); !erased && !jsonvalue.Equal(logged.json, offered.json) {
		return false
	}
	sameID := func(a, b *string) bool { return (a == nil) == (b == nil) && deref(a) == deref(b) }
	sameSummary := (logged.summary == nil) == (offered.summary == nil) && (logged.summary == nil || sameEvent(logged.summary, offered.summary))
	return sameNumber(logged.start, offered.start) && sameNumber(logged.count, offered.count) && sameID(logged.eventID, offered.eventID) &&
		(offered.base == nil || sameNumber(logged.base, offered.base)) && sameSummary &&
		slices.EqualFunc(deref(logged.replacement), deref(offered.replacement), sameEvent)
}

func sameNumber[T int | uint64](a, b *T) bool {
	return (a == nil) == (b == nil) && deref(a) == deref(b)
}
