package store

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Session is the result of [Store.Get]: the session's newest view and the shared state at the same moment. It is
// immutable.
type Session struct {
	Key  Key
	View fold.View

	app, user *scope // immutable; a nil scope has no values
}

// State returns the session's state merged with the shared state. The map is a copy. [patch.Value.Any] defines the
// types of its values.
func (s Session) State() map[string]any {
	state := s.View.State()
	for key, value := range s.sharedValues() {
		state[key] = value.Any()
	}
	return state
}

// Values returns the session's state merged with the shared state. The map is a copy.
func (s Session) Values() map[string]patch.Value {
	values := maps.Collect(s.View.Values())
	maps.Insert(values, s.sharedValues())
	return values
}

// Value returns the value of a state key of the session or of a shared scope. The result ok reports whether the
// key is set.
func (s Session) Value(key string) (value patch.Value, ok bool) {
	switch statekey.ScopeOf(key) {
	case statekey.App:
		return s.app.value(key)
	case statekey.User:
		return s.user.value(key)
	}
	return s.View.Value(key)
}

// sharedValues yields the values of both shared scopes.
func (s Session) sharedValues() iter.Seq2[string, patch.Value] {
	return func(yield func(string, patch.Value) bool) {
		for _, scope := range []*scope{s.app, s.user} {
			for key, value := range scope.all() {
				if !yield(key, value) {
					return
				}
			}
		}
	}
}

// CreateOptions are options of [Store.Create]. The zero value selects the defaults.
type CreateOptions struct {
	// Created becomes the session's [Info.Created]. The zero time means now.
	Created time.Time
}

// Create creates a session with an initial state, which may be nil. Each value is a [patch.Value] or a value that
// [patch.NewValue] accepts. Keys with the prefix "app:" or "user:" go to the shared scope, in the same commit.
// Keys with the prefix "temp:" are dropped.
//
// Create fails with [ErrExists] if the session exists. The error matches [ErrInvalid] if the key or the state is
// invalid, and [ErrTooLarge] if the state is too large.
func (s *Store) Create(ctx context.Context, key Key, state map[string]any, opts CreateOptions) (Session, error) {
	if err := key.Validate(); err != nil {
		return Session{}, err
	}
	if opts.Created.IsZero() {
		opts.Created = s.opts.Now()
	}
	own, shared, err := splitState(state)
	if err != nil {
		return Session{}, err
	}
	// Read the shared scopes before the commit, because no step after the commit may fail.
	session, err := s.withScopes(ctx, key)
	if err != nil {
		return Session{}, err
	}
	c, err := s.create(ctx, key, meta{created: opts.Created.UTC(), initial: own}, shared, appendPlan{store: s, key: key}, false)
	if err != nil {
		return Session{}, err
	}
	session.View, session.app, session.user = c.View, session.app.with(shared, statekey.App), session.user.with(shared, statekey.User)
	return session, nil
}

// Get returns the session with its newest view. The view includes all writes that were acknowledged before the
// call. Get fails with [ErrNotFound] if the session does not exist, and with [ErrCorrupt] if stored data is
// damaged. If a record cannot be read, the error is a *[CorruptError].
func (s *Store) Get(ctx context.Context, key Key) (Session, error) {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	shared := s.scopes.newQuery(key)
	c, fetched, err := s.currentState(ctx, h, false, shared)
	if err != nil {
		return Session{}, err
	}
	return s.scopes.session(shared, c.View, fetched)
}

// withScopes returns a Session with its shared state and the zero View.
func (s *Store) withScopes(ctx context.Context, key Key) (Session, error) {
	shared := s.scopes.newQuery(key)
	fetched, err := s.backend.Fetch(ctx, shared.query(backend.Query{}))
	if err != nil {
		return Session{}, fromBackend(key, err)
	}
	return s.scopes.session(shared, fold.View{}, fetched)
}

// sharedValue decodes a shared value. The error names the scope and the key.
func sharedValue(raw backend.Value) (value patch.Value, err error) {
	if err = convertError(raw.Err); err == nil {
		err = value.UnmarshalBinary(raw.Data)
	}
	if err != nil {
		err = fmt.Errorf("shared state %q: %w", strings.ReplaceAll(raw.Name, partEnd, "/"), err)
	}
	return value, err
}

// sharedName returns the name of a shared value in the backend.
func sharedName(key Key, stateKey string) string {
	if statekey.ScopeOf(stateKey) == statekey.App {
		return prefixOf("app", key.App) + escapeNUL(stateKey)
	}
	return prefixOf("user", key.App, key.User) + escapeNUL(stateKey)
}
