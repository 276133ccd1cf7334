package adk

import (
	"iter"
	"maps"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/patch"
)

// state implements [Session.State].
type state struct{ session *Session }

// Get returns the value of a key, or session.ErrStateKeyNotExist. Get copies a value that was read from the log. It
// does not copy a value from Set, or a value that the session keeps with its Go type.
func (s state) Get(key string) (any, error) {
	s.session.mu.RLock()
	defer s.session.mu.RUnlock()
	return s.get(key)
}

// get implements Get. The caller holds the lock.
func (s state) get(key string) (any, error) {
	if value, ok := s.session.overlay[key]; ok {
		if v, ok := value.(patch.Value); ok {
			return v.Any(), nil
		}
		return value, nil
	}
	value, ok := s.session.stored.Value(key)
	if !ok {
		return nil, session.ErrStateKeyNotExist
	}
	if typed, ok := s.session.typed[key]; ok && typed.logged.Equal(value) {
		return typed.value, nil
	}
	return value.Any(), nil
}

func (s state) Set(key string, value any) error {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	s.session.overlay[key] = value
	return nil
}

// All yields the state as of the start of the iteration.
func (s state) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		s.session.mu.RLock()
		all := s.session.stored.State()
		maps.Copy(all, s.session.overlay)
		for key := range all {
			all[key], _ = s.get(key)
		}
		s.session.mu.RUnlock()
		maps.All(all)(yield)
	}
}

// withoutTemp returns m without the keys that begin with "temp:". The values of these keys may have types that
// cannot be stored. If m has no such key, withoutTemp returns m itself.
func withoutTemp(m map[string]any) map[string]any {
	for key := range m {
		if convert.IsTempKey(key) {
			others := maps.Clone(m)
			maps.DeleteFunc(others, func(key string, _ any) bool { return convert.IsTempKey(key) })
			return others
		}
	}
	return m
}
