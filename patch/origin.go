package patch

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
)

// OwnMetadata is the key in custom metadata under which patchlog stores its own data.
const OwnMetadata = "patchlog"

// Origin identifies the original of a cleared copy. A cleared copy is an event that a patch put in place of
// another event. It equals the original, except that its tool results are cleared or shortened. docs/FORMAT.md
// describes the JSON.
type Origin struct {
	CopyID string `json:"as"`     // id of the copy
	ID     string `json:"id"`     // id of the original
	Seq    uint64 `json:"seq"`    // seq of the original's record
	Tokens int    `json:"tokens"` // estimated tokens of the original
}

// originKey is the key of an event's origin in customMetadata["patchlog"].
const originKey = "cleared"

// Origin returns the origin of a cleared copy. If the event is not a cleared copy, ok is false. An origin is
// valid only for the event id that it names, so a copy with another id has no origin.
func (e *Event) Origin() (o Origin, ok bool) {
	if !e.decodeOwnMetadata(originKey, &o) || o.CopyID != e.id {
		return Origin{}, false
	}
	return o, true
}

// StandIn returns a copy of e that a patch can put in place of e. The copy has the given id and no state delta.
// Each entry of the map parts has the index of a part of the content, and the JSON object that replaces this
// part. Indices outside the content are ignored. All other fields and their Go types are kept. The argument seq
// is the seq of e's record; [Event.Origin] of the copy reports it. StandIn returns the same errors as
// [ParseEvent].
func (e *Event) StandIn(id string, seq uint64, parts map[int]json.RawMessage) (*Event, error) {
	origin := Origin{CopyID: id, ID: e.id, Seq: seq, Tokens: e.index.tokens}
	if o, ok := e.Origin(); ok {
		origin.Tokens = max(o.Tokens, origin.Tokens)
	}
	mark, err := json.Marshal(origin)
	if err != nil {
		return nil, err
	}
	own := jsonvalue.With(e.field("customMetadata", OwnMetadata), originKey, mark)
	metadata := jsonvalue.With(e.field("customMetadata"), OwnMetadata, own)
	object := jsonvalue.Edit(e.json, func(name string, v []byte) []byte {
		switch name {
		case "content":
			return jsonvalue.Edit(v, func(name string, v []byte) []byte {
				if name == "parts" {
					return replaceParts(v, parts)
				}
				return v
			})
		case "actions":
			return jsonvalue.Edit(v, func(name string, v []byte) []byte {
				if name == "stateDelta" {
					return nil
				}
				return v
			})
		}
		return v
	})
	copyIdentity := e.identity
	copyIdentity.id = id
	out, err := ParseEvent(appendMembers(copyIdentity.appendJSON([]byte{'{'}), jsonvalue.With(object, "customMetadata", metadata)))
	if err != nil {
		return nil, err
	}
	out.types = e.types.without(func(pointer string) bool {
		if rest, ok := strings.CutPrefix(pointer, "/content/parts/"); ok {
			index, _, _ := strings.Cut(rest, "/")
			i, err := strconv.Atoi(index)
			return err == nil && parts[i] != nil
		}
		return strings.HasPrefix(pointer, stateDelta) || strings.HasPrefix(pointer, "/customMetadata/"+OwnMetadata+"/")
	})
	return out, nil
}

// replaceParts returns the parts of a content, with some parts replaced.
func replaceParts(all []byte, parts map[int]json.RawMessage) []byte {
	if jsonvalue.KindOf(all) != jsonvalue.Array {
		return all
	}
	b := []byte{'['}
	for i, v := range jsonvalue.Elements(all) {
		if i > 0 {
			b = append(b, ',')
		}
		if other := parts[i]; other != nil {
			v = other
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
