package main

import (
	"bytes"
	"testing"

	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"

	"github.com/patchlog-dev/patchlog/adk"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "user said: Is there a lamp?\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// ADK's own tests of a session service pass on the wrapped one.
func TestSuite(t *testing.T) {
	sessiontestsuite.RunServiceTests(t, sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}, func(t *testing.T) session.Service {
		s, err := adk.Wrap(&service{keys: map[string]string{}}, adk.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
