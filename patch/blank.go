package patch

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// erasedKey is the key in customMetadata["patchlog"] that marks an erased event or patch.
const erasedKey = "erased"

// ErasedText is the text of an erased event that had content.
const ErasedText = "[erased]"

// erasedMark is the value of erasedKey.
type erasedMark struct {
	As      string `json:"as"`      // id of the marked event or patch
	Receipt string `json:"receipt"` // id of the receipt
}

// ErasedBy returns the id of the receipt whose erasure removed content of the event or patch. For a patch,
// erased content of its events also counts. If nothing was erased, ok is false. The erasure mark contains the
// event's id, so it has no effect in a copy with another id.
func (e *Envelope) ErasedBy() (receipt string, ok bool) {
	var m erasedMark
	if !e.decodeOwnMetadata(erasedKey, &m) || m.As != e.id {
		return "", false
	}
	return m.Receipt, true
}

// decodeOwnMetadata decodes customMetadata["patchlog"][key]. It returns false if the member is absent or the event has no
// id.
func (e *Envelope) decodeOwnMetadata(key string, into any) bool {
	if e.id == "" || !bytes.Contains(e.json, []byte(`"`+key+`"`)) {
		return false
	}
	own := e.field("customMetadata", OwnMetadata, key)
	return own != nil && stdjson.Unmarshal(own, into) == nil
}

// Blank returns the record without the content that the receipt with the given id erases. It keeps the seq and
// all ids. If the content is already erased, or the receipt does not cover r, Blank returns r. Receipts are
// never erased.
func (e Erasure) Blank(r Record, receipt string) Record {
	switch {
	case !e.covers(r.Seq):
	case r.Event != nil:
		r.Event = r.Event.Blank(receipt, e.Values)
	case r.Patch != nil && r.Patch.typ != Erase:
		indices, isListed := e.EventIndices[r.Seq]
		r.Patch = r.Patch.Blank(receipt, e.Values, func(i int) bool { return !isListed || slices.Contains(indices, i) })
	}
	return r
}

// IsBlank reports whether an erasure with the given policy would leave the event unchanged.
func (e *Event) IsBlank(values ValuePolicy) bool {
	_, ok := e.ErasedBy()
	return ok && (values != NullValues || !e.setsValues())
}

// setsValues reports whether the event sets a state key to a value other than null.
func (e *Event) setsValues() bool {
	for _, changes := range []func(func(Change) bool){e.Changes(), e.SharedChanges()} {
		for c := range changes {
			if !c.Value.isNull() {
				return true
			}
		}
	}
	return false
}

// Blank returns the event as an erasure leaves it. If the event is already erased, Blank returns e. The blank
// keeps:
//
//   - the event's identity and the content's role
//   - ids and names of function calls and responses
//   - handles of records in calls and responses of package recall's tools
//   - ids of long-running calls
//   - keys of the state delta, with their values or null
//   - times and excluded events of a summary
//   - patchlog's own metadata about the event's origin
//
// Everything else is removed. If the content has parts but no function call or response, [ErasedText] replaces
// the parts. If the event is a summary with parts, the content's role becomes user. [Event.ErasedBy] returns
// the receipt.
func (e *Event) Blank(receipt string, values ValuePolicy) *Event {
	return e.blank(receipt, values, e.IsSummary())
}

// blank implements [Event.Blank]. The argument summary says whether the event is a summary.
func (e *Event) blank(receipt string, values ValuePolicy, summary bool) *Event {
	if e.IsBlank(values) {
		return e
	}
	out, err := e.newBlank(receipt, values, summary)
	if err != nil { // a forged record with invalid JSON; only its identity can be kept
		out, err = (&Event{Envelope: Envelope{identity: e.identity}}).newBlank(receipt, values, false)
	}
	if err != nil {
		panic("patch: the blank is not a valid event: " + err.Error()) // the identity was validated when the event was made
	}
	return out
}

// newBlank returns a new event with what an erasure leaves of e.
func (e *Event) newBlank(receipt string, values ValuePolicy, summary bool) (*Event, error) {
	fields := map[string]any{"customMetadata": e.blankMetadata(receipt)}
	if content := e.blankContent(summary); len(content) > 0 {
		fields["content"] = content
	}
	if actions := e.blankActions(values); len(actions) > 0 {
		fields["actions"] = actions
	}
	if ids := e.index.longRunning; ids != nil {
		fields["longRunningToolIds"] = ids
	}
	text, _, err := writeGo(fields, true)
	if err != nil {
		return nil, err
	}
	out := &Event{Envelope: Envelope{identity: e.identity, json: text}}
	if values != NullValues {
		out.types = e.types.without(func(pointer string) bool { return !strings.HasPrefix(pointer, stateDelta) })
	}
	return out, out.buildIndex()
}

func (e *Event) blankContent(summary bool) map[string]any {
	content := map[string]any{}
	if e.index.role != "" {
		content["role"] = e.index.role
	}
	var parts []any
	for i, p := range contentParts(e.field("content")) {
		if parts == nil {
			parts = []any{}
		}
		if p.kind == PartCall || p.kind == PartResponse {
			parts = append(parts, map[string]any{p.name: blankFunction(p, p.function(i))})
		}
	}
	if parts != nil && len(parts) == 0 {
		parts = append(parts, map[string]any{"text": ErasedText})
	}
	if parts != nil {
		if content["parts"] = parts; summary {
			content["role"] = "user"
		}
	}
	return content
}

// Tools of package recall refer to events by handles. A blank keeps the seq and index in each handle. When the
// event is erased later, the handles identify the copies that these tools made of it.
const (
	recallSearch = "recall_search"
	recallRead   = "recall_read"
)

// blankFunction returns the fields of a function call or response that a blank keeps.
func blankFunction(p part, of FunctionPart) map[string]any {
	function := map[string]any{}
	if of.ID != "" {
		function["id"] = of.ID
	}
	if of.Name != "" {
		function["name"] = of.Name
	}
	if !of.Response {
		if place := handlePlace(jsonvalue.Member(p.value, "args", "handle")); of.Name == recallRead && place != "" {
			function["args"] = map[string]any{"handle": place}
		}
		return function
	}
	response := map[string]any{"erased": true}
	function["response"] = response
	if of.Name == recallSearch {
		var results []any
		for _, r := range jsonvalue.Elements(jsonvalue.Member(p.value, "response", "results")) {
			if place := handlePlace(jsonvalue.Member(r, "handle")); place != "" {
				results = append(results, map[string]any{"handle": place})
			}
		}
		if results != nil {
			response["results"] = results
		}
	}
	return function
}

// handlePlace returns the seq in a handle, followed by ".index" if the handle has an index. It returns "" if the
// handle is malformed.
func handlePlace(handle []byte) string {
	text := strings.TrimSpace(jsonvalue.Text(handle))
	if i := strings.LastIndex(text, "/"); i >= 0 {
		text = text[:i]
	}
	number, index, hasIndex := strings.Cut(text, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return ""
	}
	place := strconv.FormatUint(seq, 10)
	if hasIndex {
		i, err := strconv.ParseUint(index, 10, 31)
		if err != nil {
			return ""
		}
		place += "." + strconv.FormatUint(i, 10)
	}
	return place
}

func (e *Event) blankActions(values ValuePolicy) map[string]any {
	actions := map[string]any{}
	if delta := e.field("actions", "stateDelta"); jsonvalue.KindOf(delta) == jsonvalue.Object {
		if values == NullValues {
			delta = jsonvalue.Edit(delta, func(string, []byte) []byte { return []byte("null") })
		}
		actions["stateDelta"] = Value{text: delta}
	}
	if e.IsSummary() {
		actions["compaction"] = Value{text: jsonvalue.Edit(e.field("actions", "compaction"), blankCompaction)}
	}
	return actions
}

// blankCompaction returns what a blank keeps of a member of actions.compaction, or nil. A blank keeps the times
// and the excluded events.
func blankCompaction(name string, v []byte) []byte {
	switch {
	case (name == "startTimestamp" || name == "endTimestamp") && isTime(v):
		return v
	case name == "excludedEvents" && jsonvalue.KindOf(v) == jsonvalue.Array:
		excluded := []byte{'['}
		for _, ref := range jsonvalue.Elements(v) {
			id, at := jsonvalue.Member(ref, "invocationId"), jsonvalue.Member(ref, "timestamp")
			if jsonvalue.KindOf(id) == jsonvalue.String && isTime(at) {
				if len(excluded) > 1 {
					excluded = append(excluded, ',')
				}
				excluded = fmt.Appendf(excluded, `{"invocationId":%s,"timestamp":%s}`, id, at)
			}
		}
		return append(excluded, ']')
	}
	return nil
}

// isTime reports whether the value is a number or an RFC 3339 time.
func isTime(v []byte) bool {
	if jsonvalue.KindOf(v) == jsonvalue.Number {
		return true
	}
	_, err := time.Parse(time.RFC3339Nano, jsonvalue.Text(v))
	return err == nil
}

// ownNumbers lists the numeric fields of patchlog's own metadata.
var ownNumbers = []string{"level", "windows", "passes", "events", "tokens", "from", "to"}

// blankMetadata returns the custom metadata of a blank: the erasure mark, and patchlog's own metadata about the
// event's origin.
func (e *Envelope) blankMetadata(receipt string) map[string]any {
	utf8 := func(id string) string { return strings.ToValidUTF8(id, "\uFFFD") } // an id of a patch may be invalid UTF-8 until the patch is logged
	own := map[string]any{erasedKey: map[string]any{"as": utf8(e.id), "receipt": utf8(receipt)}}
	for name, v := range jsonvalue.Members(e.field("customMetadata", OwnMetadata)) {
		var o Origin
		switch kind := jsonvalue.KindOf(v); {
		case slices.Contains(ownNumbers, name) && kind == jsonvalue.Number,
			(name == "recalled" || name == "as") && kind == jsonvalue.String:
			own[name] = Value{text: v}
		case name == originKey && kind == jsonvalue.Object && stdjson.Unmarshal(v, &o) == nil:
			text, _ := stdjson.Marshal(o) // cannot fail, because an Origin has only strings and numbers
			own[name] = Value{text: text}
		}
	}
	return map[string]any{OwnMetadata: own}
}

// Blank returns the patch as an erasure leaves it. The patch changes the visible log as before. Event i of the
// patch is blanked if which(i) is true. Custom metadata and unknown fields are removed. A malformed patch stays
// malformed. [PatchEvent.ErasedBy] returns the receipt. If there is nothing to erase, Blank returns p.
func (p *PatchEvent) Blank(receipt string, values ValuePolicy, which func(i int) bool) *PatchEvent {
	withBlanks := p.mapEvents(func(i int, e *Event) *Event {
		if which(i) || e == p.summary && len(deref(p.replacement)) > 0 {
			return e.blank(receipt, values, e.IsSummary() || p.typ == Summarise)
		}
		return e
	})
	if _, ok := p.ErasedBy(); ok && withBlanks == p {
		return p
	}
	out := *withBlanks
	metadata := func(e *Envelope) (text []byte, err *FieldError) {
		text, _, err = writeGo(map[string]any{"customMetadata": e.blankMetadata(receipt)}, true)
		return text, err
	}
	text, err := metadata(&p.Envelope)
	if err != nil { // a forged record with invalid JSON
		text, err = metadata(&Envelope{identity: p.identity})
	}
	if err != nil {
		panic("patch: the blank is not a valid patch: " + err.Error())
	}
	out.json, out.types, out.defect = text, nil, nil
	if p.validate() != nil && out.validate() == nil {
		out.json = jsonvalue.With(out.json, "partial", []byte("null")) // makes the patch malformed, because a valid patch never has this field
	}
	return &out
}
