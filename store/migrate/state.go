package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// These keys and values mark records that a migration has added. They are in the object patchlog of the custom
// metadata.
const (
	metadataKey  = patch.OwnMetadata
	markState    = "state"  // value of "migration" in an event that sets the source's state
	markRewind   = "rewind" // value of "migration" in a patch that applies a rewind of the source
	migrationKey = "migration"
	adoptedKey   = "adopted" // key in patches that adopt a compaction record
)

// isMigrationRecord reports whether a migration added the record to the events of the source.
func isMigrationRecord(r patch.Record) bool {
	if r.Patch != nil {
		metadata, _ := r.Patch.CustomMetadata()[metadataKey].(map[string]any)
		_, adopted := metadata[adoptedKey].(string)
		return adopted || metadata[migrationKey] == markRewind
	}
	metadata, _ := r.Event.CustomMetadata()[metadataKey].(map[string]any)
	return metadata[migrationKey] == markState
}

// initialState returns the assumed initial state of a session. It has those keys of the source's state that no event
// sets.
func initialState(state map[string]patch.Value, events []*patch.Event) map[string]any {
	set := map[string]bool{}
	for _, e := range events {
		for c := range e.Changes() {
			set[c.Key] = true
		}
	}
	initial := map[string]any{}
	for key, value := range state {
		if !set[key] {
			initial[key] = value
		}
	}
	return initial
}

// compareState returns the differences between the view's state and the source's state. The result delta has the
// changes that make the view's state equal to the source's.
func compareState(v fold.View, state map[string]patch.Value, rewinds []*patch.Event, replayed bool) (differences []Difference, delta map[string]patch.Value) {
	report := func(key, format string, args ...any) {
		differences = append(differences, Difference{Key: key, What: fmt.Sprintf(format, args...)})
	}
	viewState := maps.Collect(v.Values())
	delta = map[string]patch.Value{}
	suffix := ""
	if !replayed {
		suffix = "; an added event sets this value"
	}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		want := state[key]
		value, ok := viewState[key]
		switch {
		case ok && equalAsFloats(value, want):
			continue
		case statekey.ScopeOf(key) != statekey.Session:
			report(key, "the state of a session cannot have a key with this prefix; it is left out")
			continue
		case !ok && want.String() == "null" && slices.ContainsFunc(rewinds, func(e *patch.Event) bool { return rewindTarget(e) != "" }):
			report(key, "the source's state has null for it, because a rewind has undone its change; the key is removed")
			continue
		case !ok:
			report(key, "no event sets it, but the source's state has %s%s", clip(want.String()), suffix)
		default:
			report(key, "the events set it to %s, but the source's state has %s%s", clip(value.String()), clip(want.String()), suffix)
		}
		if !replayed {
			delta[key] = want
		}
	}
	for _, key := range slices.Sorted(maps.Keys(viewState)) {
		if _, ok := state[key]; !ok {
			report(key, "the events set it to %s, but the source's state lacks it; it is kept", clip(viewState[key].String()))
		}
	}
	return differences, delta
}

// addStateEvent adds an event that sets the source's state, if the state of the built session differs.
func (b *builder) addStateEvent(ctx context.Context, events int) ([]Difference, error) {
	s, err := b.scratch.Get(ctx, b.session.Key)
	if err != nil {
		return nil, err
	}
	if b.session.isWrapped() {
		return nil, nil
	}
	differences, delta := compareState(s.View, b.session.State, b.session.Events, b.opts.ReplayedState)
	if len(delta) == 0 {
		return differences, nil
	}
	e, err := b.newStateEvent(events, delta)
	if err != nil {
		return nil, err
	}
	_, err = b.scratch.AppendEvents(ctx, b.session.Key, []*patch.Event{e}, store.AppendOptions{})
	return differences, err
}

// newStateEvent returns an event that sets state. The argument events is the number of events before it. The event
// belongs to the invocation of the last event, because it is not a separate turn.
func (b *builder) newStateEvent(events int, delta map[string]patch.Value) (*patch.Event, error) {
	set, err := patch.NewValue(delta)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{
		"id": deriveID(b.session.Key, markState, events, []byte(set.String())), "author": "user",
		"invocationId": b.invocation, "timestamp": b.defaultTime,
		"actions":        map[string]any{"stateDelta": set},
		"customMetadata": map[string]any{metadataKey: map[string]any{migrationKey: markState}},
	})
	if err != nil {
		return nil, err
	}
	return adkjson.ParseEvent(text)
}

// equalAsFloats reports whether two values are equal, or differ only because an ADK service has read numbers of the
// state as float64 and written them again. In the second case, the value in the event is the exact one.
func equalAsFloats(a, b patch.Value) bool {
	if a.Equal(b) {
		return true
	}
	var x, y any
	return json.Unmarshal([]byte(a.String()), &x) == nil && json.Unmarshal([]byte(b.String()), &y) == nil && reflect.DeepEqual(x, y)
}

// clip shortens a text for a report.
func clip(text string) string {
	const maxRunes = 60
	if runes := []rune(text); len(runes) > maxRunes {
		return string(runes[:maxRunes]) + "…"
	}
	return text
}
