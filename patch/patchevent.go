package patch

import (
	"slices"
	"strconv"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// Type says what a patch does to the visible log V.
type Type string

// The types of patches.
const (
	Splice         Type = "splice"          // V[:start] ++ replacement ++ V[start+count:]
	TruncateBefore Type = "truncate_before" // V[i:], where V[i] is the event with the patch's event id
	Summarise      Type = "summarise"       // V[:start] ++ [summary] ++ V[start+count:]
	Pin            Type = "pin"             // V stays; the event with the patch's event id is pinned
	Unpin          Type = "unpin"           // V stays; the event with the patch's event id is pinned no longer
	Revert         Type = "revert"          // what the patch with the patch id took out stands again, in place of what it put in
	Erase          Type = "erase"           // V stays; it is the receipt of an erasure: see [Erasure]
)

// StatePolicy says what becomes of the state deltas of the events that a patch
// removes.
type StatePolicy string

// The policies. The zero StatePolicy means the patch type's default: Keep for
// Summarise, else Drop.
const (
	Drop StatePolicy = "drop" // the removed events' deltas no longer count
	Keep StatePolicy = "keep" // their net delta still counts, at the place where they stood
)

// PatchEvent is a record that says how the visible log changes. It is immutable and
// may be shared between goroutines. It is never visible itself.
//
// Patches are made by [NewSplice], [NewTruncateBefore], [NewSummarise], [NewPin],
// [NewUnpin], [NewRevert] and [NewErase], changed by the With methods, which return a changed copy, and read from text by
// [ParseRecord]. A patch may be malformed, since a log may hold one that another
// writer put there: [PatchEvent.Validate] tells. Of a malformed field the accessor
// returns what it returns of an absent one.
type PatchEvent struct {
	Envelope
	typ         Type
	start       *int
	count       *int
	replacement []*Event
	replaces    bool // the field is there and well-formed
	eventID     *string
	summary     *Event
	base        *uint64
	state       *StatePolicy
	patchID     *string
	group       *string
	defect      *FieldError // the first malformed field, nil if none
}

// NewSplice returns a patch that replaces count visible events from index start on
// by the given events, which may be none.
func NewSplice(start, count int, replacement ...*Event) *PatchEvent {
	p := &PatchEvent{typ: Splice, start: &start, count: &count}
	if !slices.Contains(replacement, nil) {
		p.replacement, p.replaces = slices.Clone(replacement), true
		return p
	}
	text := []byte{'['}
	for _, e := range replacement {
		if len(text) > 1 {
			text = append(text, ',')
		}
		if e == nil {
			text = append(text, "null"...)
		} else {
			text = append(text, e.String()...)
		}
	}
	p.members = []member{{"replacement", append(text, ']')}}
	p.findDefect()
	return p
}

// NewTruncateBefore returns a patch that hides all events before the visible event
// with the given id.
func NewTruncateBefore(eventID string) *PatchEvent {
	return &PatchEvent{typ: TruncateBefore, eventID: &eventID}
}

// NewSummarise returns a patch that replaces count visible events, at least one, from
// index start on by a summary event, and keeps the state that they set.
func NewSummarise(start, count int, summary *Event) *PatchEvent {
	return &PatchEvent{typ: Summarise, start: &start, count: &count, summary: summary}
}

// NewPin returns a patch that pins the visible event with the given id: a patch that
// would hide it is refused, unless its author overrides that by hand. A pin changes
// neither the visible log nor the state, and has no state policy.
func NewPin(eventID string) *PatchEvent { return &PatchEvent{typ: Pin, eventID: &eventID} }

// NewUnpin returns a patch that ends what a pin of the visible event with the given id
// asked for.
func NewUnpin(eventID string) *PatchEvent { return &PatchEvent{typ: Unpin, eventID: &eventID} }

// NewRevert returns a patch that takes back the patch with the given id: what that put
// in goes, and what it took out stands again. A revert can be
// reverted. It has no state policy: the state becomes what the nodes say.
func NewRevert(patchID string) *PatchEvent {
	return &PatchEvent{typ: Revert, patchID: &patchID}
}

func (p *PatchEvent) with(change func(*PatchEvent)) *PatchEvent {
	c := *p
	change(&c)
	return &c
}

// mapEvents returns the patch with what change makes of each event that it puts in, by its index,
// and p itself if nothing is changed. A patch that is not well-formed may have both.
func (p *PatchEvent) mapEvents(change func(i int, e *Event) *Event) *PatchEvent {
	out := *p
	out.replacement = slices.Clone(p.replacement)
	for i, e := range out.replacement {
		out.replacement[i] = change(i, e)
	}
	if p.summary != nil {
		out.summary = change(0, p.summary)
	}
	if out.summary == p.summary && slices.Equal(out.replacement, p.replacement) {
		return p
	}
	return &out
}

// set returns a copy in which change sets the field of that name anew.
func (p *PatchEvent) set(name string, change func(*PatchEvent)) *PatchEvent {
	return p.with(func(p *PatchEvent) {
		if findMember(p.members, name) != nil {
			p.members = slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return m.name == name })
			p.findDefect()
		}
		change(p)
	})
}

// WithID returns a copy with the given id. Retrying with the same id is safe.
func (p *PatchEvent) WithID(id string) *PatchEvent {
	return p.set("id", func(p *PatchEvent) { p.id = id })
}

// WithAuthor returns a copy with the given author.
func (p *PatchEvent) WithAuthor(author string) *PatchEvent {
	return p.set("author", func(p *PatchEvent) { p.author = author })
}

// WithTimestamp returns a copy with the given time.
func (p *PatchEvent) WithTimestamp(t time.Time) *PatchEvent {
	return p.set("timestamp", func(p *PatchEvent) { p.time, p.timed = t.Round(0).UTC(), true })
}

// WithBase returns a copy whose author had seen all patches up to the one with seq
// base; 0 means that it had seen none. A store refuses the patch if a
// newer one is logged by then, for its places may mean other events.
func (p *PatchEvent) WithBase(base uint64) *PatchEvent {
	return p.set("base", func(p *PatchEvent) { p.base = &base })
}

// WithState returns a copy with the given policy.
func (p *PatchEvent) WithState(policy StatePolicy) *PatchEvent {
	return p.set("state", func(p *PatchEvent) { p.state = &policy })
}

// WithGroup returns a copy that belongs to the group with the given id, which its
// author chooses and no other group of the log has; "" is none.
func (p *PatchEvent) WithGroup(id string) *PatchEvent {
	return p.set("group", func(p *PatchEvent) {
		if p.group = &id; id == "" {
			p.group = nil
		}
	})
}

// WithCustomMetadata returns a copy with the given metadata, of which it keeps no
// reference; nil is none. Values must be such as [NewValue] takes.
func (p *PatchEvent) WithCustomMetadata(metadata map[string]any) (*PatchEvent, error) {
	w := goWriter{path: []string{"customMetadata"}}
	if err := w.field(metadata); err != nil {
		return nil, err
	}
	return p.set("customMetadata", func(p *PatchEvent) {
		p.types = nil
		if metadata != nil {
			p.types = w.types
			p.members = append(slices.Clip(p.members), member{"customMetadata", w.buf})
		}
	}), nil
}

// Type returns the patch type, which may be one that this version does not know.
func (p *PatchEvent) Type() Type { return p.typ }

// Start returns the index of the first visible event that a splice or summarise
// removes.
func (p *PatchEvent) Start() int { return deref(p.start) }

// Count returns how many visible events a splice or summarise removes.
func (p *PatchEvent) Count() int { return deref(p.count) }

// EventID returns the id of the event that a truncate_before makes the first visible
// one, or that a pin or unpin is about.
func (p *PatchEvent) EventID() string { return deref(p.eventID) }

// PatchID returns the id of the patch that a revert takes back.
func (p *PatchEvent) PatchID() string {
	if p.typ != Revert {
		return ""
	}
	return deref(p.patchID)
}

// Group returns the id of the group that the patch belongs to, or "" if it belongs to
// none. Patches of a group mean one thing together: they are logged in one batch, and
// taken back together.
func (p *PatchEvent) Group() string { return deref(p.group) }

// Base returns the newest patch seq that the author had seen, and whether the patch
// says so.
func (p *PatchEvent) Base() (seq uint64, ok bool) { return deref(p.base), p.base != nil }

// StatePolicy returns the policy in force: the one given, else the type's default. A
// revert, a pin and an unpin have none; for them the value means nothing.
func (p *PatchEvent) StatePolicy() StatePolicy {
	switch {
	case p.state != nil:
		return *p.state
	case p.typ == Summarise:
		return Keep
	default:
		return Drop
	}
}

// NewEvents returns the events that the patch puts into the visible log: a splice's
// replacement, or a summarise's summary. The slice is the caller's own.
func (p *PatchEvent) NewEvents() []*Event {
	switch {
	case p.replacement != nil:
		return slices.Clone(p.replacement)
	case p.summary != nil:
		return []*Event{p.summary}
	}
	return nil
}

func deref[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// MarshalJSON returns the patch in the text form: its identity and patchType first,
// then its own fields, then all others as they came.
func (p *PatchEvent) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	b = p.identity.appendJSON(b)
	b = jsontext.AppendQuote(appendKey(b, "patchType"), string(p.typ))
	if p.start != nil {
		b = strconv.AppendInt(appendKey(b, "start"), int64(*p.start), 10)
	}
	if p.count != nil {
		b = strconv.AppendInt(appendKey(b, "count"), int64(*p.count), 10)
	}
	if p.replaces {
		b = append(appendKey(b, "replacement"), '[')
		for i, e := range p.replacement {
			if i > 0 {
				b = append(b, ',')
			}
			text, err := e.MarshalJSON()
			if err != nil {
				return nil, err
			}
			b = append(b, text...)
		}
		b = append(b, ']')
	}
	if p.eventID != nil {
		b = jsontext.AppendQuote(appendKey(b, "eventId"), *p.eventID)
	}
	if p.summary != nil {
		text, err := p.summary.MarshalJSON()
		if err != nil {
			return nil, err
		}
		b = append(appendKey(b, "summaryEvent"), text...)
	}
	if p.base != nil {
		b = strconv.AppendUint(appendKey(b, "base"), *p.base, 10)
	}
	if p.state != nil {
		b = jsontext.AppendQuote(appendKey(b, "state"), string(*p.state))
	}
	if p.patchID != nil {
		b = jsontext.AppendQuote(appendKey(b, "patchId"), *p.patchID)
	}
	if p.group != nil {
		b = jsontext.AppendQuote(appendKey(b, "group"), *p.group)
	}
	b = appendMembers(b, p.members)
	return append(b, '}'), nil
}

// String returns the patch's JSON.
func (p *PatchEvent) String() string {
	text, _ := p.MarshalJSON()
	return string(text)
}

func (p *PatchEvent) size() int {
	own := *p // with what MarshalJSON writes of the patch but the events in it
	own.replacement, own.summary, own.members = nil, nil, nil
	text, _ := own.MarshalJSON()
	n := len(text) + membersSize(p.members) + max(len(p.replacement)-1, 0)
	for _, e := range p.replacement {
		n += e.size()
	}
	if p.summary != nil {
		n += len(`,"summaryEvent":`) + p.summary.size()
	}
	return n
}
