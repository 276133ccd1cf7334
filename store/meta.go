package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
)

// meta is what a session's meta record says.
type meta struct {
	created time.Time
	initial map[string]patch.Value // keys of the session itself
}

const metaVersion = 1

func encodeMeta(m meta) ([]byte, error) {
	state, err := encodeState(m.initial)
	if err != nil {
		return nil, err
	}
	buf := new(bytes.Buffer)
	enc := msgpack.NewEncoder(buf)
	err = errors.Join(enc.EncodeArrayLen(4), enc.EncodeUint(metaVersion),
		enc.EncodeInt(m.created.Unix()), enc.EncodeInt(int64(m.created.Nanosecond())), enc.EncodeBytes(state))
	return buf.Bytes(), err
}

// encodeState writes a state as one value's byte form: an object.
func encodeState(state map[string]patch.Value) ([]byte, error) {
	object, err := patch.NewValue(state)
	if err != nil {
		return nil, err
	}
	return object.MarshalBinary()
}

func decodeMeta(data []byte) (meta, error) {
	corrupt := func(what any) error { return fmt.Errorf("%w: session meta: %v", ErrCorrupt, what) }
	dec := msgpack.NewDecoder(bytes.NewReader(data))
	n, err := dec.DecodeArrayLen()
	if err != nil || n != 4 {
		return meta{}, corrupt("not a session's meta record")
	}
	version, err := dec.DecodeUint64()
	if err != nil || version != metaVersion {
		return meta{}, corrupt(fmt.Sprintf("version %d; this program knows version %d, a newer one may know it", version, metaVersion))
	}
	sec, err1 := dec.DecodeInt64()
	ns, err2 := dec.DecodeInt64()
	if err1 != nil || err2 != nil {
		return meta{}, corrupt("time of creation")
	}
	// The state is the rest, behind its own length, version and checksum.
	size, err := dec.DecodeBytesLen()
	if err != nil || size < 0 || size > len(data) {
		return meta{}, corrupt("initial state")
	}
	var object patch.Value
	if err := object.UnmarshalBinary(data[len(data)-size:]); err != nil {
		return meta{}, err
	}
	return meta{time.Unix(sec, ns).UTC(), object.Members()}, nil
}

// splitState sorts a state that a caller gives into the session's own keys and those
// that go to a shared scope. Keys with prefix temp: are dropped.
func splitState(state map[string]any) (own map[string]patch.Value, shared []patch.Change, err error) {
	if n := len(state); n > patch.MaxStateKeys {
		return nil, nil, fmt.Errorf("%w: an initial state of %d keys; it has at most %d", ErrTooLarge, n, patch.MaxStateKeys)
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
