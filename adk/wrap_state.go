package adk

import (
	"maps"
	"reflect"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// initialKey is the key of a base's state under which a session's initial state is kept, as
// far as it is the session's own.
const initialKey = "_patchlog_initial"

// recorded returns the state with which to create a session in a base.
func recorded(state map[string]any) map[string]any {
	out := maps.Clone(state)
	own := map[string]any{}
	for key, value := range state {
		if isOwn(key) {
			own[key] = value
		}
	}
	if len(own) > 0 {
		out[initialKey] = own
	}
	return out
}

// initialState returns the state that a session began with, as far as it is the session's
// own. What no event of the log sets has the value that it began with. Of what an event
// sets, the record made at the creation has it; a session that was created by others began
// without.
func initialState(state session.State, items []item) map[string]patch.Value {
	set := map[string]bool{}
	for _, it := range items {
		if it.event != nil {
			for c := range it.event.Changes() {
				set[c.Key] = true
			}
		}
	}
	initial := map[string]patch.Value{}
	for key, value := range state.All() {
		if key != initialKey && isOwn(key) && !set[key] {
			initial[key] = valueOf(value)
		}
	}
	said, err := state.Get(initialKey)
	if err != nil {
		return initial
	}
	if record, ok := said.(map[string]any); ok {
		for key, value := range record {
			if set[key] {
				initial[key] = valueOf(value)
			}
		}
	}
	return initial
}

// scopes is the state that a session shares with others.
type scopes map[string]patch.Value

// sharedState returns what of a base's state is shared.
func sharedState(state session.State) scopes {
	s := scopes{}
	for key, value := range state.All() {
		if isShared(key) {
			s[key] = valueOf(value)
		}
	}
	return s
}

func (s scopes) Value(key string) (patch.Value, bool) {
	value, ok := s[key]
	return value, ok
}

func (s scopes) State() map[string]any {
	state := make(map[string]any, len(s))
	for key, value := range s {
		state[key] = value.Any()
	}
	return state
}

// valueOf returns a value of a base's state, or, where JSON cannot carry it, its text.
func valueOf(v any) patch.Value {
	if value, err := patch.NewValue(v); err == nil {
		return value
	}
	own := v
	textCopier.own(reflect.ValueOf(&own).Elem(), 0)
	if value, err := patch.NewValue(own); err == nil {
		return value
	}
	text, err := jsonOf(own)
	if err != nil {
		return patch.Value{}
	}
	value, _ := patch.ParseValue(text)
	return value
}
