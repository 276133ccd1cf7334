package patch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
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

	// Remade are the ids of all receipts that a summary was made anew after; the last is Receipt.
	Remade []string `json:"remade,omitempty"`
}

// Erased returns the id of the receipt by which the event was erased, or the patch, itself or events
// that it puts in, and whether it says so. Ids are unique in a log, so no copy under another id
// passes for it.
func (e *Envelope) Erased() (receipt string, ok bool) {
	m, ok := e.erasedMark()
	return m.Receipt, ok
}

// RemadeAfter returns the ids of the receipts by which the event was erased, the newest last, if it
// is a summary that was made anew since, and nil if not: what it says now is of what these have left.
func (e *Event) RemadeAfter() (receipts []string) {
	m, _ := e.erasedMark()
	return m.Remade
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

// IsBlank reports whether nothing is left of the event to erase, whatever the receipt. Of a
// summary that was made anew there is.
func (e *Event) IsBlank(values Values) bool {
	m, ok := e.erasedMark()
	return ok && len(m.Remade) == 0 && (values != NullValues || !e.setsValues())
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
// that had no call and no response says [ErasedText]. [Event.Erased] of it names the receipt.
// It returns e itself if that is erased already, or is a summary that was made anew after the
// receipt.
func (e *Event) Blank(receipt string, values Values) *Event {
	if e.IsBlank(values) || slices.Contains(e.RemadeAfter(), receipt) && (values != NullValues || !e.setsValues()) {
		return e
	}
	return e.blank(erasedMark{As: e.id, Receipt: receipt}, values, nil)
}

// Remade returns the event as [Event.Blank] does, with the values of its state, but saying a
// text: a summary that was made anew of what all the receipts that are about it have left, the
// newest last. There is at least one. What is no UTF-8 in the text is replaced by U+FFFD.
func (e *Event) Remade(text string, receipts ...string) *Event {
	part := append(jsontext.AppendQuote([]byte(`{"text":`), strings.ToValidUTF8(text, "\uFFFD")), '}')
	mark := erasedMark{As: e.id, Receipt: receipts[len(receipts)-1], Remade: slices.Clone(receipts)}
	return e.blank(mark, KeepValues, part)
}

// blank makes a blank that says a part, if it is not nil.
func (e *Event) blank(mark erasedMark, values Values, part []byte) *Event {
	out := &Event{Envelope: Envelope{identity: e.identity}}
	put := func(name string, text []byte) { out.members = append(out.members, member{name, text}) }
	if text := e.blankContent(part); text != nil {
		put("content", text)
	}
	if text := e.blankActions(values); text != nil {
		put("actions", text)
	}
	if e.longRunning != nil {
		put("longRunningToolIds", quotedList(e.longRunning))
	}
	put("customMetadata", blankMetadata(findMember(e.members, "customMetadata"), mark))
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

func (e *Event) blankContent(part []byte) []byte {
	if !e.content && e.role == "" && part == nil {
		return nil
	}
	b := []byte{'{'}
	if e.content || part != nil {
		b = append(appendKey(b, "parts"), '[')
		for i, raw := range partsIn(jsontext.Member(findMember(e.members, "content"), "parts")) {
			if raw.kind != PartCall && raw.kind != PartResponse {
				continue
			}
			p := raw.function(i)
			b = append(b, '{')
			kind := "functionCall"
			if p.Response {
				kind = "functionResponse"
			}
			b = append(appendKey(b, kind), '{')
			if p.ID != "" {
				b = jsontext.AppendQuote(appendKey(b, "id"), p.ID)
			}
			if p.Name != "" {
				b = jsontext.AppendQuote(appendKey(b, "name"), p.Name)
			}
			fields := blankFields(raw, p)
			if fields != "" && b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(append(b, fields...), "}},"...)
		}
		switch {
		case part != nil:
			b = append(b, part...)
		case len(e.parts) == 0:
			b = append(b, `{"text":"`+ErasedText+`"}`...)
		default:
			b = b[:len(b)-1]
		}
		b = append(b, ']')
	}
	if e.role != "" {
		b = jsontext.AppendQuote(appendKey(b, "role"), e.role)
	}
	return append(b, '}')
}

func (e *Event) blankActions(values Values) []byte {
	actions := findMember(e.members, "actions")
	b := []byte{'{'}
	if delta := jsontext.Member(actions, "stateDelta"); jsontext.KindOf(delta) == jsontext.Object {
		b = append(appendKey(b, "stateDelta"), '{')
		for key, v := range jsontext.Members(delta) {
			if values == NullValues {
				v = []byte("null")
			}
			b = append(appendKey(b, key), v...)
		}
		b = append(b, '}')
	}
	if e.summary {
		b = append(appendKey(b, "compaction"), blankCompaction(jsontext.Member(actions, "compaction"))...)
	}
	if len(b) == 1 {
		return nil
	}
	return append(b, '}')
}

// blankCompaction keeps of what a summary says the times and the events that it names.
func blankCompaction(text []byte) []byte {
	b := []byte{'{'}
	for name, v := range jsontext.Members(text) {
		switch name {
		case "startTimestamp", "endTimestamp":
			if isTime(v) {
				b = append(appendKey(b, name), v...)
			}
		case "excludedEvents":
			if jsontext.KindOf(v) != jsontext.Array {
				continue
			}
			b = append(appendKey(b, name), '[')
			first := true
			for _, ref := range jsontext.Elements(v) {
				id, at := jsontext.Member(ref, "invocationId"), jsontext.Member(ref, "timestamp")
				if jsontext.KindOf(id) != jsontext.String || !isTime(at) {
					continue
				}
				if !first {
					b = append(b, ',')
				}
				first = false
				b = append(appendKey(append(b, '{'), "invocationId"), id...)
				b = append(append(appendKey(b, "timestamp"), at...), '}')
			}
			b = append(b, ']')
		}
	}
	return append(b, '}')
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
func blankMetadata(text []byte, mark erasedMark) []byte {
	own := jsontext.Member(text, OwnMetadata)
	b := []byte{'{'}
	if jsontext.KindOf(own) == jsontext.Object {
		for name, v := range jsontext.Members(own) {
			switch kind := jsontext.KindOf(v); {
			case slices.Contains(ownFigures, name) && kind == jsontext.Number:
				b = append(appendKey(b, name), v...)
			case (name == "recalled" || name == "as") && kind == jsontext.String:
				b = append(appendKey(b, name), v...)
			case name == originKey && kind == jsontext.Object:
				var o Origin
				if json.Unmarshal(v, &o) == nil {
					b = appendOrigin(appendKey(b, name), o)
				}
			}
		}
	}
	said, _ := json.Marshal(mark)
	b = append(append(appendKey(b, erasedKey), said...), '}')
	out := append(appendKey([]byte{'{'}, OwnMetadata), b...)
	return append(out, '}')
}

func appendOrigin(b []byte, o Origin) []byte {
	b = jsontext.AppendQuote(append(b, `{"as":`...), o.As)
	b = jsontext.AppendQuote(append(b, `,"id":`...), o.ID)
	b = strconv.AppendUint(append(b, `,"seq":`...), o.Seq, 10)
	b = strconv.AppendInt(append(b, `,"tokens":`...), int64(o.Tokens), 10)
	return append(b, '}')
}

// Blank returns the patch as it is after an erasure: what it does to the visible log stays,
// and of the events that it puts in those are blank of whose index which is true. What it
// says besides, its custom metadata and fields without a meaning, is gone. A malformed patch
// stays malformed, in whatever way. [PatchEvent.Erased] of it names the receipt. It returns p
// itself if all that is gone already.
func (p *PatchEvent) Blank(receipt string, values Values, which func(i int) bool) *PatchEvent {
	mark, whole := erasedMark{As: p.id, Receipt: receipt}, true
	events := p.NewEvents()
	for i, e := range events {
		if which(i) {
			events[i] = e.Blank(receipt, values)
			whole = whole && events[i] == e
		}
	}
	if _, ok := p.Erased(); ok && whole {
		return p
	}
	out := *p
	out.members, out.types, out.defect = nil, nil, nil
	if p.replaces {
		out.replacement = events
	}
	if p.summary != nil {
		// A patch that is not well-formed may have both.
		if out.summary = p.summary.Blank(receipt, values); p.replacement == nil && !which(0) {
			out.summary = p.summary
		}
	}
	for _, m := range p.members {
		named := m.name == groupName || p.typ == Revert && m.name == patchIDName
		if named && jsontext.KindOf(m.text) == jsontext.String {
			out.members = append(out.members, m)
		}
	}
	out.members = append(out.members, member{"customMetadata", blankMetadata(findMember(p.members, "customMetadata"), mark)})
	if p.validate() != nil && out.validate() == nil {
		out.members = append(out.members, member{"partial", []byte("null")}) // which no patch has
	}
	return &out
}

// Remade returns the patch with the i-th event that it puts in made anew, as [Event.Remade] does,
// and p itself if there is no such event.
func (p *PatchEvent) Remade(i int, text string, receipts ...string) *PatchEvent {
	out := *p
	switch {
	case i >= 0 && i < len(p.replacement):
		out.replacement = slices.Clone(p.replacement)
		out.replacement[i] = p.replacement[i].Remade(text, receipts...)
	case i == 0 && p.replacement == nil && p.summary != nil:
		out.summary = p.summary.Remade(text, receipts...)
	default:
		return p
	}
	return &out
}
