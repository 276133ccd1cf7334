package convert

import (
	"strings"

	"google.golang.org/adk/v2/session"
)

// IsShared reports whether a state key belongs to the shared scope of an app or of a user.
func IsShared(key string) bool {
	return strings.HasPrefix(key, session.KeyPrefixApp) || strings.HasPrefix(key, session.KeyPrefixUser)
}

// IsTemp reports whether a state key belongs to one invocation. Such keys are never logged.
func IsTemp(key string) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) }

// IsOwn reports whether a state key belongs to one session.
func IsOwn(key string) bool { return !IsShared(key) && !IsTemp(key) }
