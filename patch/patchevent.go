package patch

import (
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Type is the type of a patch. It determines how the patch changes the visible log V.
type Type string

// The types of patches.
const (
	Splice         Type = "splice"          // V[:start] ++ replacement ++ V[start+count:]
	TruncateBefore Type = "truncate_before" // V[i:], where V[i] is the event with the patch's event id
	Summarise      Type = "summarise"       // V[:start] ++ [summary] ++ V[start+count:]
	Pin            Type = "pin"             // V is unchanged; the event with the patch's event id becomes pinned
	Unpin          Type = "unpin"           // V is unchanged; the event with the patch's event id is no longer pinned
	Revert         Type = "revert"          // undoes the patch with the patch id: its events are removed, and the events that it removed are restored
	Erase          Type = "erase"           // V is unchanged; the patch is the receipt of an erasure, see [Erasure]
)

// CompactionAuthor is the author of the patches that compaction writes.
const CompactionAuthor = "compaction"

// StatePolicy determines whether the state deltas of removed events still count.
type StatePolicy string

// The state policies. A patch without a policy uses its type's default: Keep for Summarise, and Drop for other
// types.
const (
	Drop StatePolicy = "drop" // the deltas of the removed events no longer count
	Keep StatePolicy = "keep" // the net delta of the removed events still counts, at their position
)

// PatchEvent is a record that describes a change of the visible log. It is immutable, and goroutines may share
// it. The patch itself is never visible.
//
// [NewSplice], [NewTruncateBefore], [NewSummarise], [NewPin], [NewUnpin], [NewRevert] and [NewErase] make
// patches. [ParseRecord] reads a patch from text. The With methods return changed copies.
//
// A log may contain a malformed patch that another program wrote. [PatchEvent.Validate] detects it. Accessors
// treat a malformed field as absent.
type PatchEvent struct {
	Envelope
	typ Type

	// The fields that only patches have; see patchFields. nil means absent.
	start, count   *int
	replacement    *[]*Event
	eventID        *string
	summary        *Event
	base           *uint64
	state          *string
	patchID, group *string

	defect *FieldError // the first malformed field, or nil
}

// NewSplice returns a patch that replaces the visible events with indices in [start, start+count) with the
// given events. If an event is nil, the patch is malformed and has no events.
func NewSplice(start, count int, replacement ...*Event) *PatchEvent {
	p := &PatchEvent{typ: Splice, start: &start, count: &count}
	if i := slices.Index(replacement, nil); i >= 0 {
		p.json = []byte(`{"replacement":[` + strings.Repeat("{},", i) + `null]}`)
		p.parseFields()
		return p
	}
	replacement = slices.Clone(replacement)
	p.replacement = &replacement
	return p
}

// NewTruncateBefore returns a patch that hides all events before the visible event with the given id.
func NewTruncateBefore(eventID string) *PatchEvent {
	return &PatchEvent{typ: TruncateBefore, eventID: &eventID}
}

// NewSummarise returns a patch that replaces the visible events with indices in [start, start+count) with a
// summary event. The argument count must be at least 1. By default, the state that the removed events set is
// kept.
func NewSummarise(start, count int, summary *Event) *PatchEvent {
	return &PatchEvent{typ: Summarise, start: &start, count: &count, summary: summary}
}

// NewPin returns a patch that pins the visible event with the given id. A store then refuses every patch that
// would hide the event, unless the caller allows it. A pin does not change the visible log or the state, and it
// has no state policy.
func NewPin(eventID string) *PatchEvent { return &PatchEvent{typ: Pin, eventID: &eventID} }

// NewUnpin returns a patch that unpins the visible event with the given id.
func NewUnpin(eventID string) *PatchEvent { return &PatchEvent{typ: Unpin, eventID: &eventID} }

// NewRevert returns a patch that reverts the patch with the given id. It removes the events that the patch
// added, and restores the events that the patch removed, with their state. A revert has no state policy. A
// revert can itself be reverted.
func NewRevert(patchID string) *PatchEvent {
	return &PatchEvent{typ: Revert, patchID: &patchID}
}

func (p *PatchEvent) with(change func(*PatchEvent)) *PatchEvent {
	c := *p
	change(&c)
	return &c
}

// mapEvents applies the function change to each event of the patch, and returns the new patch. The argument i
// of this function is the event's index. If nothing changes, mapEvents returns p. A malformed patch may have
// both a replacement and a summary.
func (p *PatchEvent) mapEvents(change func(i int, e *Event) *Event) *PatchEvent {
	out := *p
	if p.replacement != nil {
		events := slices.Clone(*p.replacement)
		for i, e := range events {
			events[i] = change(i, e)
		}
		if !slices.Equal(events, *p.replacement) {
			out.replacement = &events
		}
	}
	if p.summary != nil {
		out.summary = change(0, p.summary)
	}
	if out.summary == p.summary && out.replacement == p.replacement {
		return p
	}
	return &out
}

// set returns a copy in which the function change replaces the named field.
func (p *PatchEvent) set(name string, change func(*PatchEvent)) *PatchEvent {
	return p.with(func(p *PatchEvent) {
		if p.field(name) != nil {
			p.json = nilIfEmpty(jsonvalue.With(p.json, name, nil))
			p.parseFields()
		}
		change(p)
	})
}

// WithID returns a copy with the given id. A caller that retries with the same id never logs the patch twice.
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

// WithBase returns a copy with the given base. The base is the seq of the newest patch that the author has
// seen, or 0 for none. If the log has a newer patch, a store refuses this patch, because its indices may refer
// to other events.
func (p *PatchEvent) WithBase(base uint64) *PatchEvent {
	return p.set("base", func(p *PatchEvent) { p.base = &base })
}

// WithState returns a copy with the given state policy.
func (p *PatchEvent) WithState(policy StatePolicy) *PatchEvent {
	return p.set("state", func(p *PatchEvent) { p.state = (*string)(&policy) })
}

// WithGroup returns a copy that belongs to the group with the given id. The author of the patches chooses the
// id, which must be new to the log. The id "" means no group.
func (p *PatchEvent) WithGroup(id string) *PatchEvent {
	return p.set("group", func(p *PatchEvent) {
		if p.group = &id; id == "" {
			p.group = nil
		}
	})
}

// WithCustomMetadata returns a copy of the patch with the given metadata. It does not retain metadata. If
// metadata is nil, the copy has none. [NewValue] must accept each value.
func (p *PatchEvent) WithCustomMetadata(metadata map[string]any) (*PatchEvent, error) {
	field, types, d := writeGo(map[string]any{"customMetadata": metadata}, false)
	if d != nil {
		return nil, d
	}
	out := p.set("customMetadata", func(p *PatchEvent) {
		p.types = nil
		if metadata != nil {
			p.types = types
			p.json = jsonvalue.With(p.json, "customMetadata", jsonvalue.Member(field, "customMetadata"))
		}
	})
	return out, out.checkFields()
}

// Type returns the patch type. It may be a type that this version does not support.
func (p *PatchEvent) Type() Type { return p.typ }

// Start returns the index of the first visible event that a splice or summarise removes.
func (p *PatchEvent) Start() int { return deref(p.start) }

// Count returns the number of visible events that a splice or summarise removes.
func (p *PatchEvent) Count() int { return deref(p.count) }

// EventID returns the patch's event id. A truncate_before makes this event the first visible event. A pin or
// unpin applies to this event.
func (p *PatchEvent) EventID() string { return deref(p.eventID) }

// PatchID returns the id of the patch that a revert reverts. It is "" for other types.
func (p *PatchEvent) PatchID() string {
	if p.typ != Revert {
		return ""
	}
	return deref(p.patchID)
}

// Group returns the id of the patch's group, or "". The patches of a group are logged in one batch and reverted
// together.
func (p *PatchEvent) Group() string { return deref(p.group) }

// Base returns the seq of the newest patch that the author has seen. If the patch has no base, ok is false.
func (p *PatchEvent) Base() (seq uint64, ok bool) { return deref(p.base), p.base != nil }

// StatePolicy returns the patch's state policy, or the default of its type. The result is meaningless for
// reverts, pins, unpins and receipts, which have no policy.
func (p *PatchEvent) StatePolicy() StatePolicy {
	switch {
	case p.state != nil:
		return StatePolicy(*p.state)
	case p.typ == Summarise:
		return Keep
	default:
		return Drop
	}
}

// NewEvents returns the events that the patch adds to the visible log: the replacement of a splice, or the
// summary of a summarise. The caller owns the slice.
func (p *PatchEvent) NewEvents() []*Event {
	switch {
	case len(deref(p.replacement)) > 0:
		return slices.Clone(*p.replacement)
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

// MarshalJSON returns the patch in the text form: the identity, patchType, the fields that only patches have,
// and the other fields in order.
func (p *PatchEvent) MarshalJSON() ([]byte, error) {
	b := p.identity.appendJSON([]byte{'{'})
	b = jsonvalue.AppendQuote(jsonvalue.AppendKey(b, "patchType"), string(p.typ))
	for _, f := range patchFields {
		b = f.appendTo(b, p)
	}
	return appendMembers(b, p.json), nil
}

// String returns the patch's JSON.
func (p *PatchEvent) String() string {
	text, _ := p.MarshalJSON()
	return string(text)
}
