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

// ErasedText is the text of an erased event that had content.
const ErasedText = "[erased]"

// erasedMark is what a blank says of itself.
type erasedMark struct {
	As      string `json:"as"`      // the id of the event or patch that says so
	Receipt string `json:"receipt"` // the id of the receipt
}

// ErasedBy returns the id of the receipt that erased the event, or the patch or some of its events. ok is
// false if nothing was erased. The mark names its own event, so a copy under another id does not count.
func (e *Envelope) ErasedBy() (receipt string, ok bool) {
	text := findMember(e.members, "customMetadata")
	if e.id == "" || !bytes.Contains(text, []byte(`"`+erasedKey+`"`)) {
		return "", false
	}
	var m erasedMark
	own := jsontext.Member(jsontext.Member(text, OwnMetadata), erasedKey)
	if own == nil || json.Unmarshal(own, &m) != nil || m.As != e.id {
		return "", false
	}
	return m.Receipt, true
}

// Blank returns the record without the content that the receipt with the given id erases. It returns r if that is
// erased already or if the receipt does not cover r. Seq and ids stay. Receipts are never erased.
func (e Erasure) Blank(r Record, receipt string) Record {
	switch {
	case !e.covers(r.Seq):
	case r.Event != nil:
		r.Event = r.Event.Blank(receipt, e.Values)
	case r.Patch != nil && r.Patch.typ != Erase:
		some, part := e.EventIndices[r.Seq]
		r.Patch = r.Patch.Blank(receipt, e.Values, func(i int) bool { return !part || slices.Contains(some, i) })
	}
	return r
}

// IsBlank reports whether an erasure with the given policy would leave the event unchanged.
func (e *Event) IsBlank(values ValuePolicy) bool {
	_, ok := e.ErasedBy()
	return ok && (values != NullValues || !e.setsValues())
}

// setsValues reports whether the event sets a value that is not null.
func (e *Event) setsValues() bool {
	is := func(c Change) bool { return jsontext.KindOf(c.Value.text) != jsontext.Null }
	return slices.ContainsFunc(e.delta, is) || slices.ContainsFunc(e.shared, is)
}

// Blank returns the event after an erasure. It keeps the identity; the content's role; ids and names of calls and
// responses, and the handles of recall's tools that name records; the ids of long-running calls; the keys of the
// state delta, with their values or null; of a summary, its times and excluded events; and patchlog's own notes about
// the event's origin. Everything else is removed. Content without calls and responses becomes [ErasedText]; that of a
// summary gets role user. [Event.ErasedBy] returns the receipt. Blank returns e if it is erased already.
func (e *Event) Blank(receipt string, values ValuePolicy) *Event {
	return e.blank(receipt, values, e.summary)
}

// blank is Blank for an event that is known to be a summary, or not.
func (e *Event) blank(receipt string, values ValuePolicy, summary bool) *Event {
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

func (e *Event) blankActions(values ValuePolicy) (fields []orderedField) {
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

// Blank returns the patch after an erasure. Its effect on the visible log stays. An event of the patch is blank if which
// returns true for its index. Custom metadata and unknown fields are removed. A malformed patch stays malformed.
// [PatchEvent.ErasedBy] returns the receipt. Blank returns p if nothing is left to erase.
func (p *PatchEvent) Blank(receipt string, values ValuePolicy, which func(i int) bool) *PatchEvent {
	blanked := p.mapEvents(func(i int, e *Event) *Event {
		if which(i) || e == p.summary && p.replacement != nil {
			return e.blank(receipt, values, e.summary || p.typ == Summarise)
		}
		return e
	})
	if _, ok := p.ErasedBy(); ok && blanked == p {
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
