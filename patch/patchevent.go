package patch

import (
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// Type says what a patch does to the visible log V.
type Type string

// The types of patches.
const (
	Splice         Type = "splice"          // V[:start] ++ replacement ++ V[start+count:]
	TruncateBefore Type = "truncate_before" // V[i:], where V[i] is the event with the patch's event id
	Summarise      Type = "summarise"       // V[:start] ++ [summary] ++ V[start+count:]
	Pin            Type = "pin"             // V stays; the event with the patch's event id is pinned
	Unpin          Type = "unpin"           // V stays; the event with the patch's event id is unpinned
	Revert         Type = "revert"          // the events that the patch with the patch id removed replace those that it added
	Erase          Type = "erase"           // V stays; the patch is the receipt of an erasure: see [Erasure]
)

// CompactionAuthor is the author of the patches that compaction writes.
const CompactionAuthor = "compaction"

// StatePolicy says whether the state deltas of events that a patch removes still count.
type StatePolicy string

// The policies. The zero StatePolicy means the patch type's default: Keep for Summarise, else Drop.
const (
	Drop StatePolicy = "drop" // the removed events' deltas no longer count
	Keep StatePolicy = "keep" // their net delta still counts, at the place where they stood
)

// PatchEvent is a record that says how the visible log changes. It is immutable and
// may be shared between goroutines. It is never visible itself.
//
// [NewSplice], [NewTruncateBefore], [NewSummarise], [NewPin], [NewUnpin], [NewRevert] and [NewErase] make patches,
// the With methods return changed copies, and [ParseRecord] reads patches from text. A log may hold a malformed patch
// of another writer: see [PatchEvent.Validate]. Accessors treat a malformed field as absent.
type PatchEvent struct {
	Envelope
	typ Type

	// Its own fields, see patchFields. nil is absent.
	start, count   *int
	replacement    *[]*Event
	eventID        *string
	summary        *Event
	base           *uint64
	state          *string
	patchID, group *string

	defect *FieldError // the first malformed field, nil if none
}

// NewSplice returns a patch that replaces count visible events from index start on with the given events. A nil event
// makes the patch malformed and drops all events.
func NewSplice(start, count int, replacement ...*Event) *PatchEvent {
	p := &PatchEvent{typ: Splice, start: &start, count: &count}
	if i := slices.Index(replacement, nil); i >= 0 {
		p.json = []byte(`{"replacement":[` + strings.Repeat("{},", i) + `null]}`)
		p.takeFields()
		return p
	}
	replacement = slices.Clone(replacement)
	p.replacement = &replacement
	return p
}

// NewTruncateBefore returns a patch that hides all events before the visible event
// with the given id.
func NewTruncateBefore(eventID string) *PatchEvent {
	return &PatchEvent{typ: TruncateBefore, eventID: &eventID}
}

// NewSummarise returns a patch that replaces count ≥ 1 visible events from index start on with a summary event, and
// keeps the state that they set.
func NewSummarise(start, count int, summary *Event) *PatchEvent {
	return &PatchEvent{typ: Summarise, start: &start, count: &count, summary: summary}
}

// NewPin returns a patch that pins the visible event with the given id: patches that would hide it are refused unless
// their author allows it. A pin changes neither the visible log nor the state, and has no state policy.
func NewPin(eventID string) *PatchEvent { return &PatchEvent{typ: Pin, eventID: &eventID} }

// NewUnpin returns a patch that unpins the visible event with the given id.
func NewUnpin(eventID string) *PatchEvent { return &PatchEvent{typ: Unpin, eventID: &eventID} }

// NewRevert returns a patch that reverts the patch with the given id: it removes the events that the patch added and
// restores those that it removed, with their state. A revert can be reverted. It has no state policy.
func NewRevert(patchID string) *PatchEvent {
	return &PatchEvent{typ: Revert, patchID: &patchID}
}

func (p *PatchEvent) with(change func(*PatchEvent)) *PatchEvent {
	c := *p
	change(&c)
	return &c
}

// mapEvents returns the patch with change applied to each of its events, by index, or p if nothing changes. A malformed
// patch may have both a replacement and a summary.
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

// set returns a copy with the named field replaced by change.
func (p *PatchEvent) set(name string, change func(*PatchEvent)) *PatchEvent {
	return p.with(func(p *PatchEvent) {
		if p.field(name) != nil {
			p.json = nilIfEmpty(jsonvalue.With(p.json, name, nil))
			p.takeFields()
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

// WithBase returns a copy whose author has seen all patches up to the one with seq base; 0 means none. A store refuses
// the patch if a newer patch was logged, because its indices may mean other events.
func (p *PatchEvent) WithBase(base uint64) *PatchEvent {
	return p.set("base", func(p *PatchEvent) { p.base = &base })
}

// WithState returns a copy with the given policy.
func (p *PatchEvent) WithState(policy StatePolicy) *PatchEvent {
	return p.set("state", func(p *PatchEvent) { p.state = (*string)(&policy) })
}

// WithGroup returns a copy in the group with the given id, which the author chooses and which must be new to the log;
// "" means no group.
func (p *PatchEvent) WithGroup(id string) *PatchEvent {
	return p.set("group", func(p *PatchEvent) {
		if p.group = &id; id == "" {
			p.group = nil
		}
	})
}

// WithCustomMetadata returns a copy with a copy of the given metadata; nil removes it. Values must be accepted by
// [NewValue].
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

// Type returns the patch type, which may be unknown to this version.
func (p *PatchEvent) Type() Type { return p.typ }

// Start returns the index of the first visible event that a splice or summarise
// removes.
func (p *PatchEvent) Start() int { return deref(p.start) }

// Count returns how many visible events a splice or summarise removes.
func (p *PatchEvent) Count() int { return deref(p.count) }

// EventID returns the id of the event that a truncate_before makes the first visible one, or that a pin or unpin
// concerns.
func (p *PatchEvent) EventID() string { return deref(p.eventID) }

// PatchID returns the id of the patch that a revert reverts.
func (p *PatchEvent) PatchID() string {
	if p.typ != Revert {
		return ""
	}
	return deref(p.patchID)
}

// Group returns the id of the patch's group, or "". Patches of a group are one operation: they are logged in one batch
// and reverted together.
func (p *PatchEvent) Group() string { return deref(p.group) }

// Base returns the seq of the newest patch that the author has seen. ok is false if the patch has no base.
func (p *PatchEvent) Base() (seq uint64, ok bool) { return deref(p.base), p.base != nil }

// StatePolicy returns the patch's policy, or the type's default. It is meaningless for types without a policy: revert,
// pin and unpin.
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

// NewEvents returns the events that the patch adds to the visible log: a splice's replacement, or a summarise's
// summary. The caller owns the slice.
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

// MarshalJSON returns the patch in the text form: its identity and patchType, its own fields, then the other fields in
// order.
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
