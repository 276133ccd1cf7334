package convert

import (
	"strings"

	"google.golang.org/adk/v2/session"
)

// IsSharedKey reports whether a state key belongs to the shared scope of an app or of a user.
func IsSharedKey(key string) bool {
	return strings.HasPrefix(key, session.KeyPrefixApp) || strings.HasPrefix(key, session.KeyPrefixUser)
}

// IsTempKey reports whether a state key belongs to one invocation. Such keys are never logged.
func IsTempKey(key string) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) }

// IsSessionKey reports whether a state key belongs to one session.
func IsSessionKey(key string) bool { return !IsSharedKey(key) && !IsTempKey(key) }
