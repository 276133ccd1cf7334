// Package statekey defines the scopes of state keys.
package statekey

import "strings"

// Prefixes of state keys, as ADK has them.
const (
	PrefixApp  = "app:"
	PrefixUser = "user:"
	PrefixTemp = "temp:"
)

// Scope is the scope that shares a state key, given by the key's prefix.
type Scope int

// The scopes.
const (
	Session Scope = iota // the session's own; the only scope in a fold
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
