package adk_test

import (
	"testing"

	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"

	"github.com/patchlog-dev/patchlog/adk"
)

// ADK's own acceptance suite, on every backend, and on ADK's own services, wrapped.
func TestServiceSuite(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			opts := sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}
			sessiontestsuite.RunServiceTests(t, opts, func(t *testing.T) session.Service {
				return service{t, b.make(t)}
			})
		})
	}
	for _, b := range bases {
		t.Run("wrapped "+b.name, func(t *testing.T) {
			opts := sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}
			sessiontestsuite.RunServiceTests(t, opts, func(t *testing.T) session.Service {
				return wrap(t, b.make(t), adk.Options{})
			})
		})
	}
}
