package adk

import (
	"iter"
	"maps"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/patch"
)

// state is the state of a session, as [Session.State] says.
type state struct{ session *Session }

// Get returns the value of a key, the caller's own unless it was put in by Set, or
// session.ErrStateKeyNotExist.
func (s state) Get(key string) (any, error) {
	s.session.mu.RLock()
	defer s.session.mu.RUnlock()
	if value, ok := s.session.overlay[key]; ok {
		return shown(value), nil
	}
	if value, ok := s.session.stored.Value(key); ok {
		if typed, ok := s.session.typed[key]; ok && typed.logged.Equal(value) {
			return typed.value, nil
		}
		return value.Any(), nil
	}
	return nil, session.ErrStateKeyNotExist
}

// Set puts a value into the overlay. It never fails.
func (s state) Set(key string, value any) error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	s.session.overlay[key] = value
	return nil
}

// All yields what was there when the iteration began.
func (s state) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		s.session.mu.RLock()
		stored, overlay, typed := s.session.stored, maps.Clone(s.session.overlay), maps.Clone(s.session.typed)
		s.session.mu.RUnlock()
		all := stored.State()
		for key, t := range typed {
			if value, ok := stored.Value(key); ok && t.logged.Equal(value) {
				all[key] = t.value
			}
		}
		for key, value := range overlay {
			all[key] = shown(value)
		}
		maps.All(all)(yield)
	}
}

// shown returns an overlay's value as callers see it.
func shown(value any) any {
	if v, ok := value.(patch.Value); ok {
		return v.Any()
	}
	return value
}

// withoutTemp returns a state without its temp: keys: they may hold what cannot be
// stored. It returns m itself if there are none.
func withoutTemp(m map[string]any) map[string]any {
	for key := range m {
		if convert.IsTemp(key) {
			own := maps.Clone(m)
			maps.DeleteFunc(own, func(key string, _ any) bool { return convert.IsTemp(key) })
			return own
		}
	}
	return m
}
