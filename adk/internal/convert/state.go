package convert

import (
	"strings"

	"google.golang.org/adk/v2/session"
)

// IsShared reports whether a state key belongs to all sessions of an app or of a user.
func IsShared(key string) bool {
	return strings.HasPrefix(key, session.KeyPrefixApp) || strings.HasPrefix(key, session.KeyPrefixUser)
}

// IsTemp reports whether a state key lasts for one invocation only. It is never logged.
func IsTemp(key string) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) }

// IsOwn reports whether a state key belongs to its session alone.
func IsOwn(key string) bool { return !IsShared(key) && !IsTemp(key) }
