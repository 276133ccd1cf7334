package patch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// OwnMetadata is the custom metadata key under which patchlog says things of its own, of
// events and of patches.
const OwnMetadata = "patchlog"

// Origin says of an event in whose place it stands: a patch has put it there, with results of
// tools cleared or shortened, and nothing else changed. Docs: docs/FORMAT.md.
type Origin struct {
	As     string `json:"as"`     // the id of the event that says so
	ID     string `json:"id"`     // of the event in whose place it stands
	Seq    uint64 `json:"seq"`    // of the record that brought that one
	Tokens int    `json:"tokens"` // what was logged takes, as estimated
}

// originKey is where an event says its origin, in customMetadata["patchlog"].
const originKey = "cleared"

// Origin returns in whose place the event says that it stands, and whether it says so. Ids are
// unique in a log, so no copy of such an event, edited or in another log under another id,
// passes for it.
func (e *Event) Origin() (Origin, bool) {
	text := findMember(e.members, "customMetadata")
	if e.id == "" || !bytes.Contains(text, []byte(`"`+originKey+`"`)) {
		return Origin{}, false
	}
	var o Origin
	said := jsontext.Member(jsontext.Member(text, OwnMetadata), originKey)
	if said == nil || json.Unmarshal(said, &o) != nil || o.As != e.id {
		return Origin{}, false
	}
	return o, true
}

// StandIn returns an event to stand in the place of e, which the record with the given seq
// brought: under the id, with other parts in its content, by their indices, and without a
// change of the state. All else is as in e, the Go types that it was made from too. The parts
// are JSON objects; an index that the content has not is ignored. [Event.Origin] of it says
// where it comes from. The error is that of [ParseEvent].
func (e *Event) StandIn(id string, seq uint64, parts map[int]json.RawMessage) (*Event, error) {
	logged := e.tokens
	if o, ok := e.Origin(); ok {
		logged = max(o.Tokens, logged)
	}
	origin, err := json.Marshal(Origin{As: id, ID: e.id, Seq: seq, Tokens: logged})
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
