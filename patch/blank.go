package patch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// erasedKey is where an event or a patch says that it was erased, in
// customMetadata["patchlog"].
const erasedKey = "erased"

// ErasedText is what an event says that was erased, where it had content.
const ErasedText = "[erased]"

// erasedMark is what a blank says of itself.
type erasedMark struct {
	As      string `json:"as"`      // the id of the event or patch that says so
	Receipt string `json:"receipt"` // the id of the receipt
}

// Erased returns the id of the receipt by which the event was erased, or the patch, itself or events
// that it puts in, and whether it says so. Ids are unique in a log, so no copy under another id
// passes for it.
func (e *Envelope) Erased() (receipt string, ok bool) {
	m, ok := e.erasedMark()
	return m.Receipt, ok
}

func (e *Envelope) erasedMark() (m erasedMark, ok bool) {
	text := findMember(e.members, "customMetadata")
	if e.id == "" || !bytes.Contains(text, []byte(`"`+erasedKey+`"`)) {
		return erasedMark{}, false
	}
	said := jsontext.Member(jsontext.Member(text, OwnMetadata), erasedKey)
	if said == nil || json.Unmarshal(said, &m) != nil || m.As != e.id {
		return erasedMark{}, false
	}
	return m, true
}

// Blank returns the record with what the receipt with the given id erases of it gone, and r
// itself if that is gone already or if the receipt is not about it. Seq and ids stay. A
// receipt is not erased.
func (e Erasure) Blank(r Record, receipt string) Record {
	switch {
	case !e.covers(r.Seq):
	case r.Event != nil:
		r.Event = r.Event.Blank(receipt, e.Values)
	case r.Patch != nil && r.Patch.typ != Erase:
		some, part := e.Within[r.Seq]
		r.Patch = r.Patch.Blank(receipt, e.Values, func(i int) bool { return !part || slices.Contains(some, i) })
	}
	return r
}

// IsBlank reports whether nothing is left of the event to erase, whatever the receipt.
func (e *Event) IsBlank(values Values) bool {
	_, ok := e.erasedMark()
	return ok && (values != NullValues || !e.setsValues())
}

// setsValues reports whether the event sets a value that is not null.
func (e *Event) setsValues() bool {
	is := func(c Change) bool { return jsontext.KindOf(c.Value.text) != jsontext.Null }
	return slices.ContainsFunc(e.delta, is) || slices.ContainsFunc(e.shared, is)
}

// Blank returns the event as it is after an erasure: with its identity, its content's role,
// the ids and names of its calls and responses, with the handles that recall's tools use if they name
// places in the log, the ids of long-running calls, the keys that
// it sets in the state, with their values or with null, the times and events that it names if
// it is a summary, and what patchlog noted of where it comes from. All else is gone. Content
// that had no call and no response says [ErasedText]; that of a summary is of role user.
// [Event.Erased] of it names the receipt. It returns e itself if that is erased already.
func (e *Event) Blank(receipt string, values Values) *Event {
	return e.blank(receipt, values, e.summary)
}

// blank is Blank for an event that is known to be a summary, or not.
func (e *Event) blank(receipt string, values Values, summary bool) *Event {
	if e.IsBlank(values) {
		return e
	}
	out := &Event{Envelope: Envelope{identity: e.identity}}
	put := func(name string, v any) { out.members = append(out.members, member{name, jsonOf(v)}) }
	if content := e.blankContent(summary); content != nil {
		put("content", content)
	}
	if actions := e.blankActions(values); actions != nil {
		put("actions", actions)
	}
	if e.longRunning != nil {
		put("longRunningToolIds", unnoted{e.longRunning})
	}
	put("customMetadata", blankMetadata(findMember(e.members, "customMetadata"), erasedMark{As: e.id, Receipt: receipt}))
	if values != NullValues {
		out.types = slices.DeleteFunc(slices.Clone(e.types), func(t goType) bool {
			return !strings.HasPrefix(t.pointer, "/actions/stateDelta/")
		})
	}
	if err := out.derive(); err != nil {
		panic("patch: a blank is no event: " + err.Error()) // all of it is of an event
	}
	return out
}

func (e *Event) blankContent(summary bool) (fields []orderedField) {
	role := e.role
	if e.content {
		parts := []any{}
		for i, p := range partsIn(findMember(e.members, "content")) {
			if p.kind == PartCall || p.kind == PartResponse {
				parts = append(parts, []orderedField{{string(p.name), blankFunction(p, p.function(i, &promptSize{}))}})
			}
		}
		if len(parts) == 0 {
			parts = append(parts, []orderedField{{"text", ErasedText}})
		}
		if fields = append(fields, orderedField{"parts", parts}); summary {
			role = "user"
		}
	}
	if role != "" {
		fields = append(fields, orderedField{"role", role})
	}
	return fields
}

func (e *Event) blankActions(values Values) (fields []orderedField) {
	actions := findMember(e.members, "actions")
	if delta := jsontext.Member(actions, "stateDelta"); jsontext.KindOf(delta) == jsontext.Object {
		var set []orderedField
		for key, v := range jsontext.Members(delta) {
			if values == NullValues {
				v = nil
			}
			set = append(set, orderedField{key, Value{text: v}})
		}
		fields = append(fields, orderedField{"stateDelta", set})
	}
	if e.summary {
		fields = append(fields, orderedField{"compaction", blankCompaction(jsontext.Member(actions, "compaction"))})
	}
	return fields
}

// blankCompaction keeps of what a summary says the times and the events that it names.
func blankCompaction(text []byte) (fields []orderedField) {
	for name, v := range jsontext.Members(text) {
		switch {
		case (name == "startTimestamp" || name == "endTimestamp") && isTime(v):
			fields = append(fields, orderedField{name, Value{text: v}})
		case name == "excludedEvents" && jsontext.KindOf(v) == jsontext.Array:
			excluded := []any{}
			for _, ref := range jsontext.Elements(v) {
				id, at := jsontext.Member(ref, "invocationId"), jsontext.Member(ref, "timestamp")
				if jsontext.KindOf(id) == jsontext.String && isTime(at) {
					excluded = append(excluded, []orderedField{{"invocationId", Value{text: id}}, {"timestamp", Value{text: at}}})
				}
			}
			fields = append(fields, orderedField{name, excluded})
		}
	}
	return fields
}

// isTime reports whether a value is a number, or a time by RFC 3339.
func isTime(v []byte) bool {
	switch jsontext.KindOf(v) {
	case jsontext.Number:
		return true
	case jsontext.String:
		_, err := time.Parse(time.RFC3339Nano, jsontext.Unquote(v))
		return err == nil
	}
	return false
}

// ownFigures are what patchlog notes in numbers of a summary, and of a patch of its own.
var ownFigures = []string{"level", "windows", "passes", "events", "tokens", "from", "to"}

// blankMetadata keeps of custom metadata what patchlog says of where an event comes from.
func blankMetadata(text []byte, mark erasedMark) []orderedField {
	var own []orderedField
	for name, v := range jsontext.Members(jsontext.Member(text, OwnMetadata)) {
		var o Origin
		switch kind := jsontext.KindOf(v); {
		case slices.Contains(ownFigures, name) && kind == jsontext.Number,
			(name == "recalled" || name == "as") && kind == jsontext.String:
			own = append(own, orderedField{name, Value{text: v}})
		case name == originKey && kind == jsontext.Object && json.Unmarshal(v, &o) == nil:
			own = append(own, orderedField{name, o})
		}
	}
	return []orderedField{{OwnMetadata, append(own, orderedField{erasedKey, mark})}}
}

// Blank returns the patch as it is after an erasure: what it does to the visible log stays,
// and of the events that it puts in those are blank of whose index which is true. What it
// says besides, its custom metadata and fields without a meaning, is gone. A malformed patch
// stays malformed, in whatever way. [PatchEvent.Erased] of it names the receipt. It returns p
// itself if all that is gone already.
func (p *PatchEvent) Blank(receipt string, values Values, which func(i int) bool) *PatchEvent {
	blanked := p.mapEvents(func(i int, e *Event) *Event {
		if which(i) || e == p.summary && p.replacement != nil {
			return e.blank(receipt, values, e.summary || p.typ == Summarise)
		}
		return e
	})
	if _, ok := p.Erased(); ok && blanked == p {
		return p
	}
	out := *blanked
	metadata := blankMetadata(findMember(p.members, "customMetadata"), erasedMark{As: p.id, Receipt: receipt})
	out.members, out.types, out.defect = []member{{"customMetadata", jsonOf(metadata)}}, nil, nil
	if p.validate() != nil && out.validate() == nil {
		out.members = append(out.members, member{"partial", []byte("null")}) // which no patch has
	}
	return &out
}
