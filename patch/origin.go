package patch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// OwnMetadata is the custom metadata key for patchlog's own data in events and patches.
const OwnMetadata = "patchlog"

// Origin names the original of a cleared copy: an event that a patch added in place of another, with tool results
// cleared or shortened and nothing else changed. docs/FORMAT.md has its JSON.
type Origin struct {
	CopyID string `json:"as"`     // the id of the copy
	ID     string `json:"id"`     // of the original
	Seq    uint64 `json:"seq"`    // of the original's record
	Tokens int    `json:"tokens"` // estimate for the original
}

// originKey is where an event says its origin, in customMetadata["patchlog"].
const originKey = "cleared"

// Origin returns the origin of a cleared copy; ok is false for other events. The origin names its own event, so copies
// under another id, edited or in another log, have none.
func (e *Event) Origin() (o Origin, ok bool) {
	text := findMember(e.members, "customMetadata")
	if e.id == "" || !bytes.Contains(text, []byte(`"`+originKey+`"`)) {
		return Origin{}, false
	}
	own := jsontext.Member(jsontext.Member(text, OwnMetadata), originKey)
	if own == nil || json.Unmarshal(own, &o) != nil || o.CopyID != e.id {
		return Origin{}, false
	}
	return o, true
}

// StandIn returns a copy of e to put in its place: with the given id, with some parts of the content replaced, by
// index, and without a state delta. It keeps all other fields, and Go types. seq is the record of e, for
// [Event.Origin]. The parts are JSON objects; indices outside the content are ignored. The error is that of
// [ParseEvent].
func (e *Event) StandIn(id string, seq uint64, parts map[int]json.RawMessage) (*Event, error) {
	logged := e.tokens
	if o, ok := e.Origin(); ok {
		logged = max(o.Tokens, logged)
	}
	origin, err := json.Marshal(Origin{CopyID: id, ID: e.id, Seq: seq, Tokens: logged})
	if err != nil {
		return nil, err
	}
	as := e.identity
	as.id = id
	b := as.appendJSON([]byte{'{'})
	metadata := []byte("{}")
	for _, m := range e.members {
		text := m.text
		switch m.name {
		case "content":
			text = replaced(text, "parts", func(all []byte) []byte { return replacedParts(all, parts) })
		case "actions":
			text = replaced(text, "stateDelta", func([]byte) []byte { return nil })
		case "customMetadata":
			if jsontext.KindOf(text) == jsontext.Object {
				metadata = text
			}
			continue
		}
		b = append(appendKey(b, m.name), text...)
	}
	own := jsontext.Member(metadata, OwnMetadata)
	if jsontext.KindOf(own) != jsontext.Object {
		own = []byte("{}")
	}
	b = append(appendKey(b, "customMetadata"), with(metadata, OwnMetadata, with(own, originKey, origin))...)
	out, err := ParseEvent(append(b, '}'))
	if err != nil {
		return nil, err
	}
	out.types = slices.DeleteFunc(slices.Clone(e.types), func(t goType) bool {
		if rest, ok := strings.CutPrefix(t.pointer, "/content/parts/"); ok {
			index, _, _ := strings.Cut(rest, "/")
			i, err := strconv.Atoi(index)
			return err == nil && parts[i] != nil
		}
		return strings.HasPrefix(t.pointer, "/actions/stateDelta/") || strings.HasPrefix(t.pointer, "/customMetadata/"+OwnMetadata+"/")
	})
	return out, nil
}

// replaced returns an object with another value of a member, or without it if that is nil.
func replaced(object []byte, name string, by func(old []byte) []byte) []byte {
	if jsontext.KindOf(object) != jsontext.Object {
		return object
	}
	b := []byte{'{'}
	for key, v := range jsontext.Members(object) {
		if key == name {
			if v = by(v); v == nil {
				continue
			}
		}
		b = append(appendKey(b, key), v...)
	}
	return append(b, '}')
}

// with returns an object with a member set, at its end.
func with(object []byte, name string, value []byte) []byte {
	b := replaced(object, name, func([]byte) []byte { return nil })
	b = appendKey(b[:len(b)-1], name)
	return append(append(b, value...), '}')
}

// replacedParts returns a content's parts with some replaced.
func replacedParts(all []byte, parts map[int]json.RawMessage) []byte {
	if jsontext.KindOf(all) != jsontext.Array {
		return all
	}
	b := []byte{'['}
	for at, v := range jsontext.Elements(all) {
		if at > 0 {
			b = append(b, ',')
		}
		if other := parts[at]; other != nil {
			v = other
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
