// Package statekey defines the scopes of state keys.
package statekey

import "strings"

// Prefixes of state keys in ADK.
const (
	PrefixApp  = "app:"
	PrefixUser = "user:"
	PrefixTemp = "temp:"
)

// Scope determines which sessions share a state key. The key's prefix determines the scope.
type Scope int

// The scopes.
const (
	Session Scope = iota // keys of the session's own state; a view contains only these keys
	User                 // keys shared by all of a user's sessions in an app
	App                  // keys shared by all sessions of an app
	Temp                 // keys valid only in the running invocation; never logged
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
