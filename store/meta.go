package store

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// meta is a decoded meta record of a session.
type meta struct {
	created time.Time
	initial map[string]patch.Value // the session's own keys, without shared state
	lineage []erase.Ancestor       // sessions from which the first records of this session were copied, oldest first; empty if the session is not a copy
}

const metaVersion = 1

// metaForm is the encoded form of meta: a msgpack array of these fields, in this order.
type metaForm struct {
	Version              uint64
	Seconds, Nanoseconds int64  // time of creation, as the time since 1970
	State                []byte // an encoded [patch.Value] with its own version and checksum
	Lineage              []erase.Ancestor
}

func encodeMeta(m meta) ([]byte, error) {
	state, err := encodeState(m.initial)
	if err != nil {
		return nil, err
	}
	buf := new(bytes.Buffer)
	enc := msgpack.NewEncoder(buf)
	enc.UseCompactInts(true)
	enc.UseArrayEncodedStructs(true)
	err = enc.Encode(metaForm{Version: metaVersion, Seconds: m.created.Unix(), Nanoseconds: int64(m.created.Nanosecond()), State: state, Lineage: m.lineage})
	return buf.Bytes(), err
}

// encodeState encodes a state as one [patch.Value], an object.
func encodeState(state map[string]patch.Value) ([]byte, error) {
	object, err := patch.NewValue(state)
	if err != nil {
		return nil, err
	}
	return object.MarshalBinary()
}

func decodeMeta(data []byte) (meta, error) {
	var form metaForm
	if err := msgpack.Unmarshal(data, &form); err != nil {
		return meta{}, fmt.Errorf("%w: session meta: %w", ErrCorrupt, err)
	}
	if form.Version != metaVersion {
		return meta{}, fmt.Errorf("%w: session meta: version %d; this program supports version %d; a newer version may support it", ErrCorrupt, form.Version, metaVersion)
	}
	var object patch.Value
	if err := object.UnmarshalBinary(form.State); err != nil {
		return meta{}, err
	}
	return meta{time.Unix(form.Seconds, form.Nanoseconds).UTC(), object.Members(), form.Lineage}, nil
}

// splitState splits a state into the session's own keys and the keys of shared scopes. It drops keys with the
// prefix temp:.
func splitState(state map[string]any) (own map[string]patch.Value, shared []patch.Change, err error) {
	if n := len(state); n > patch.MaxStateKeys {
		return nil, nil, fmt.Errorf("%w: the initial state has %d keys; the limit is %d", ErrTooLarge, n, patch.MaxStateKeys)
	}
	own = map[string]patch.Value{}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if !utf8.ValidString(key) {
			return nil, nil, &patch.FieldError{Field: "state", Problem: fmt.Sprintf("key %.40q is not UTF-8", key)}
		}
		value, ok := state[key].(patch.Value)
		if !ok {
			if value, err = patch.NewValue(state[key]); err != nil {
				return nil, nil, fmt.Errorf("state key %q: %w", key, err)
			}
		}
		switch statekey.ScopeOf(key) {
		case statekey.Session:
			own[key] = value
		case statekey.App, statekey.User:
			shared = append(shared, patch.Change{Key: key, Value: value})
		}
	}
	return own, shared, nil
}
