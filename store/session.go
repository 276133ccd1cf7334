package store

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Session is a session as [Store.Get] found it: its newest view, and the state that it
// shares with others at that moment. It is immutable but for being copied.
type Session struct {
	Key  Key
	View fold.View

	shared map[string]patch.Value // with prefix app: or user:
}

// State returns the session's state with the shared scopes' merged in, the caller's
// own copy. Values are as [patch.Value.Any] gives them.
func (s Session) State() map[string]any {
	state := s.View.State()
	for key, value := range s.shared {
		state[key] = value.Any()
	}
	return state
}

// Values returns the session's state with the shared scopes' merged in, the caller's
// own copy.
func (s Session) Values() map[string]patch.Value {
	values := maps.Collect(s.View.Values())
	maps.Copy(values, s.shared)
	return values
}

// Value returns the value of a state key, of the session or a shared scope.
func (s Session) Value(key string) (value patch.Value, ok bool) {
	if statekey.ScopeOf(key) == statekey.Session {
		return s.View.Value(key)
	}
	value, ok = s.shared[key]
	return value, ok
}

// Create creates a session with an initial state, which may be nil. Keys with prefix
// app: or user: go to the shared scope, in the same commit; those with prefix temp: are
// dropped. Values are such as [patch.NewValue] takes, or a [patch.Value]. It fails with
// [ErrExists] if the session is there.
func (s *Store) Create(ctx context.Context, key Key, state map[string]any) (Session, error) {
	return s.CreateAt(ctx, key, state, s.opts.Now())
}

// CreateAt is as [Store.Create], and says when the session was created: see [Info].
func (s *Store) CreateAt(ctx context.Context, key Key, state map[string]any, created time.Time) (Session, error) {
	if err := key.Validate(); err != nil {
		return Session{}, err
	}
	own, shared, err := splitState(state)
	if err != nil {
		return Session{}, err
	}
	// The shared scopes are read first: after the commit nothing must fail.
	scopes, err := s.scopes(ctx, key)
	if err != nil {
		return Session{}, err
	}
	c, err := s.create(ctx, key, meta{created: created.UTC(), initial: own}, shared, appending{}, false)
	if err != nil {
		return Session{}, err
	}
	for _, change := range shared {
		scopes[change.Key] = change.Value
	}
	return Session{Key: key, View: c.view, shared: scopes}, nil
}

// Get returns the session with its newest view: whatever was acknowledged before the
// call is in it. It fails with [ErrNotFound] if there is no such session, and with a
// *[CorruptError] if a record cannot be read.
func (s *Store) Get(ctx context.Context, key Key) (Session, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	c, values, err := s.newest(ctx, h, false, scopePrefixes(key)...)
	if err != nil {
		return Session{}, err
	}
	scopes, err := scopesOf(key, values)
	return Session{Key: key, View: c.view, shared: scopes}, err
}

// scopes reads the state that a session shares with others.
func (s *Store) scopes(ctx context.Context, key Key) (map[string]patch.Value, error) {
	news, err := s.backend.Fetch(ctx, backend.Query{Shared: scopePrefixes(key)})
	if err != nil {
		return nil, fromBackend(key, err)
	}
	return scopesOf(key, news.Shared)
}

// scopePrefixes are the prefixes of the names that a session's shared values have.
func scopePrefixes(key Key) []string {
	return []string{prefixOf("app", key.App), prefixOf("user", key.App, key.User)}
}

// scopesOf reads the values that were found under a session's prefixes.
func scopesOf(key Key, values [][]backend.Value) (map[string]patch.Value, error) {
	scopes := map[string]patch.Value{}
	for i, prefix := range scopePrefixes(key) {
		for _, raw := range values[i] {
			value, err := sharedValue(raw)
			if err != nil {
				return nil, fmt.Errorf("session %s: %w", key, err)
			}
			scopes[raw.Name[len(prefix):]] = value
		}
	}
	return scopes, nil
}

// sharedValue reads a shared value. The error names its scope and key.
func sharedValue(raw backend.Value) (value patch.Value, err error) {
	if err = named(raw.Err); err == nil {
		err = value.UnmarshalBinary(raw.Data)
	}
	if err != nil {
		err = fmt.Errorf("shared state %q: %w", strings.ReplaceAll(raw.Name, partEnd, "/"), err)
	}
	return value, err
}

// sharedName is the name of a shared value in the backend.
func sharedName(key Key, stateKey string) string {
	if statekey.ScopeOf(stateKey) == statekey.App {
		return prefixOf("app", key.App) + stateKey
	}
	return prefixOf("user", key.App, key.User) + stateKey
}
