package patch

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/internal/statekey"
)

// index holds the properties of an event that the fold, the planner and the store need. It is computed when the
// event is made, and it is stored with the event. Reading a stored event therefore needs no parsing of its
// JSON. [Record.Verify] checks a stored index.
type index struct {
	flags       flags
	role        string // the content's role
	tokens      int    // estimated tokens of the event
	functions   []FunctionPart
	longRunning []string     // nil only if the field is absent
	changes     []indexEntry // the state delta's keys in all scopes, in key order
}

// indexEntry locates the value of a state key in the event's JSON.
type indexEntry struct {
	key      string
	from, to int
}

type flags uint8

const (
	saysSomething flags = 1 << iota
	isSummary
	isPartial
	setsTemp // the state delta has "temp:" keys
)

func (x *index) has(f flags) bool { return x.flags&f != 0 }

func (x *index) setIf(f flags, on bool) {
	if on {
		x.flags |= f
	}
}

// setsState reports whether the state delta has a key without the prefix temp:.
func (x *index) setsState() bool {
	return slices.ContainsFunc(x.changes, func(c indexEntry) bool { return statekey.ScopeOf(c.key) != statekey.Temp })
}

// footprint estimates the memory of the strings and slices in the index, in bytes.
func (x *index) footprint() int {
	n := len(x.role)
	for i := range x.functions {
		n += int(unsafe.Sizeof(x.functions[i])) + len(x.functions[i].ID) + len(x.functions[i].Name)
	}
	for _, id := range x.longRunning {
		n += int(unsafe.Sizeof(id)) + len(id)
	}
	for i := range x.changes {
		n += int(unsafe.Sizeof(x.changes[i])) + len(x.changes[i].key)
	}
	return n
}

// Limits on items whose memory is many times the length of their text.
const (
	MaxReplacements  = 10_000 // events in the replacement of a patch
	MaxStateKeys     = 10_000 // keys in a state delta, or in an initial state
	MaxLongRunning   = 10_000 // long-running tool ids of an event
	MaxFunctionParts = 10_000 // function calls and responses in an event
	MaxFields        = 1_000  // top-level fields of an event or a patch, besides its identity
)

// tooMany returns an error that matches [ErrTooLarge]. It reports that the number of items in a field exceeds
// the limit.
func tooMany(field, what string, limit int) error {
	return fmt.Errorf("%w: field %q: more than %d %s", ErrTooLarge, field, limit, what)
}

// JSON types of an event's known fields, and of the known fields of its actions.
var (
	fieldKinds = map[string]jsonvalue.Kind{
		"content": jsonvalue.Object, "actions": jsonvalue.Object, "partial": jsonvalue.Bool,
		"longRunningToolIds": jsonvalue.Array, "usageMetadata": jsonvalue.Object, "customMetadata": jsonvalue.Object,
	}
	actionKinds = map[string]jsonvalue.Kind{
		"stateDelta": jsonvalue.Object, "artifactDelta": jsonvalue.Object, "skipSummarization": jsonvalue.Bool,
		"transferToAgent": jsonvalue.String, "escalate": jsonvalue.Bool, "compaction": jsonvalue.Object,
	}
)

// checkKind returns an error if a known field's JSON type differs from ADK's.
func checkKind(kinds map[string]jsonvalue.Kind, prefix, name string, v []byte) error {
	if want, known := kinds[name]; known && jsonvalue.KindOf(v) != want && jsonvalue.KindOf(v) != jsonvalue.Null {
		return fieldErr(prefix+name, "want %v, not %s", want, clip(v))
	}
	return nil
}

// newIndex computes the index of an event from its checked JSON. It returns an error if a known field's JSON
// type differs from ADK's.
func newIndex(object []byte) (index, error) {
	var x index
	size, fields := promptSize{}, 0
	c := jsonvalue.NewCursor(object)
	for c.Enter(); c.More(); {
		if fields++; fields > MaxFields {
			return x, tooMany("", "fields", MaxFields)
		}
		name, at := string(c.Key()), *c
		v := c.Value()
		if err := checkKind(fieldKinds, "", name, v); err != nil {
			return x, err
		}
		switch name {
		case "content":
			x.role = jsonvalue.Text(jsonvalue.Member(v, "role"))
		case "actions":
			if err := x.addActions(&at); err != nil {
				return x, err
			}
		case "partial":
			x.setIf(isPartial, string(v) == "true")
		case "longRunningToolIds":
			if err := x.addLongRunning(v); err != nil {
				return x, err
			}
		}
	}
	for i, p := range eventParts(object) {
		x.setIf(saysSomething, p.kind != PartEmpty && string(p.value) != `""`)
		size.add(p)
		if p.kind == PartCall || p.kind == PartResponse {
			if len(x.functions) == MaxFunctionParts {
				return x, tooMany("content/parts", "function calls and responses", MaxFunctionParts)
			}
			x.functions = append(x.functions, p.function(i))
		}
	}
	x.tokens = size.tokens()
	return x, nil
}

func (x *index) addActions(c *jsonvalue.Cursor) error {
	if c.Kind() != jsonvalue.Object {
		return nil
	}
	for c.Enter(); c.More(); {
		name, at := string(c.Key()), *c
		v := c.Value()
		if err := checkKind(actionKinds, "actions/", name, v); err != nil {
			return err
		}
		switch {
		case name == "compaction":
			x.setIf(isSummary, jsonvalue.KindOf(v) != jsonvalue.Null)
		case name == "stateDelta" && at.Kind() == jsonvalue.Object:
			for at.Enter(); at.More(); {
				if len(x.changes) == MaxStateKeys {
					return tooMany("actions/stateDelta", "keys", MaxStateKeys)
				}
				change := indexEntry{key: string(at.Key()), from: at.Pos()}
				at.Value()
				change.to = at.Pos()
				x.changes = append(x.changes, change)
				x.setIf(setsTemp, statekey.ScopeOf(change.key) == statekey.Temp)
			}
			slices.SortFunc(x.changes, func(a, b indexEntry) int { return strings.Compare(a.key, b.key) })
		}
	}
	return nil
}

func (x *index) addLongRunning(ids []byte) error {
	if jsonvalue.KindOf(ids) == jsonvalue.Array {
		x.longRunning = []string{}
	}
	for _, id := range jsonvalue.Elements(ids) {
		if jsonvalue.KindOf(id) != jsonvalue.String {
			return fieldErr("longRunningToolIds", "want strings, not %s", clip(id))
		}
		if len(x.longRunning) == MaxLongRunning {
			return tooMany("longRunningToolIds", "ids", MaxLongRunning)
		}
		x.longRunning = append(x.longRunning, jsonvalue.Unquote(id))
	}
	return nil
}
