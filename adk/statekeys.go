package adk

import (
	"strings"

	"google.golang.org/adk/v2/session"
)

// isShared reports whether a state key belongs to all sessions of an app or of a user.
func isShared(key string) bool {
	return strings.HasPrefix(key, session.KeyPrefixApp) || strings.HasPrefix(key, session.KeyPrefixUser)
}

// isTemp reports whether a state key lasts for one invocation only. It is never logged.
func isTemp(key string) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) }

// isOwn reports whether a state key belongs to its session alone.
func isOwn(key string) bool { return !isShared(key) && !isTemp(key) }
