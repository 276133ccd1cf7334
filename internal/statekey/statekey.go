// Package statekey says who shares a key of a session's state.
package statekey

import "strings"

// Prefixes of state keys, as ADK has them.
const (
	PrefixApp  = "app:"
	PrefixUser = "user:"
	PrefixTemp = "temp:"
)

// Scope says who shares a state key. Its prefix decides.
type Scope int

// The scopes.
const (
	Session Scope = iota // the session's own; the only one that a fold knows
	User                 // all sessions of a user of an app
	App                  // all sessions of an app
	Temp                 // the running invocation; never logged
)

// ScopeOf returns the scope of a state key.
func ScopeOf(key string) Scope {
	switch {
	case strings.HasPrefix(key, PrefixApp):
		return App
	case strings.HasPrefix(key, PrefixUser):
		return User
	case strings.HasPrefix(key, PrefixTemp):
		return Temp
	}
	return Session
}
