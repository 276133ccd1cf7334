package store

import (
	"fmt"
	"iter"
	"maps"
	"sync"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// scope is the content of one shared scope, of an app or of a user, at one version. It is immutable. A nil scope
// has no values.
type scope struct {
	version backend.Token
	values  map[string]patch.Value
	bytes   int
}

func (s *scope) value(key string) (value patch.Value, ok bool) {
	if s != nil {
		value, ok = s.values[key]
	}
	return value, ok
}

func (s *scope) all() iter.Seq2[string, patch.Value] {
	if s == nil {
		return func(func(string, patch.Value) bool) {}
	}
	return maps.All(s.values)
}

// with returns the scope after changes have been applied. It ignores changes whose keys are not of the given kind.
func (s *scope) with(changes []patch.Change, kind statekey.Scope) *scope {
	next := &scope{values: maps.Collect(s.all())}
	for _, c := range changes {
		if statekey.ScopeOf(c.Key) == kind {
			next.values[c.Key] = c.Value
		}
	}
	return next
}

// scopeCache caches the values of shared scopes. While a cached version is current, a read of a session fetches
// only the version. If a new scope would exceed limit, the cache first drops all scopes.
type scopeCache struct {
	mu     sync.Mutex
	limit  int
	bytes  int
	scopes map[string]*scope // key: the scope's name in the backend
}

// scopesQuery requests the shared scopes of a session. If the cached version of a scope is current, the backend
// omits the values of this scope. The zero value requests no scope.
type scopesQuery struct {
	key    Key
	names  []string // names of the app's scope and the user's scope
	cached []*scope
}

// scopePrefixes returns the prefixes of the names of a session's shared values: the app's, then the user's.
func scopePrefixes(key Key) []string {
	return []string{prefixOf("app", key.App), prefixOf("user", key.App, key.User)}
}

func (c *scopeCache) newQuery(key Key) scopesQuery {
	q := scopesQuery{key: key, names: scopePrefixes(key)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range q.names {
		q.cached = append(q.cached, c.scopes[name])
	}
	return q
}

// query returns a copy of a backend's query that also requests the scopes.
func (q scopesQuery) query(of backend.Query) backend.Query {
	of.Shared = q.names
	for _, s := range q.cached {
		version := backend.Token(0)
		if s != nil {
			version = s.version
		}
		of.KnownVersions = append(of.KnownVersions, version)
	}
	return of
}

// session returns a Session with the view, and with the scopes that the backend returned for a query.
func (c *scopeCache) session(q scopesQuery, v fold.View, fetched backend.Fetched) (Session, error) {
	scopes := make([]*scope, len(q.names))
	for i, name := range q.names {
		if old := q.cached[i]; old != nil && old.version == fetched.Versions[i] {
			scopes[i] = old
			continue
		}
		s := &scope{version: fetched.Versions[i], values: make(map[string]patch.Value, len(fetched.Shared[i]))}
		for _, raw := range fetched.Shared[i] {
			value, err := sharedValue(raw)
			if err != nil {
				return Session{}, fmt.Errorf("session %s: %w", q.key, err)
			}
			s.values[unescapeNUL(raw.Name[len(name):])] = value
			s.bytes += len(raw.Name) + len(raw.Data)
		}
		c.put(name, s)
		scopes[i] = s
	}
	return Session{Key: q.key, View: v, app: scopes[0], user: scopes[1]}, nil
}

func (c *scopeCache) put(name string, s *scope) {
	if s.version == 0 || s.bytes > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.scopes[name]; old != nil {
		c.bytes -= old.bytes
	}
	if c.scopes == nil || c.bytes+s.bytes > c.limit {
		c.scopes, c.bytes = map[string]*scope{}, 0
	}
	c.scopes[name] = s
	c.bytes += s.bytes
}
