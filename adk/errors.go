package adk

import (
	"errors"
	"fmt"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// worded is an error in the words of ADK's own services, which programs that were written
// for those may look for. It matches what it comes from.
type worded struct {
	words string
	error
}

func (e *worded) Error() string { return e.words }

func (e *worded) Unwrap() error { return e.error }

func inWords(err error, format string, args ...any) error {
	return &worded{fmt.Sprintf(format, args...), err}
}

// keyed refuses requests that lack a part of a session's key.
func keyed(app, user, id string) error {
	if app == "" || user == "" || id == "" {
		return inWords(patch.ErrInvalid, "app_name, user_id, session_id are required, got app_name: %q, user_id: %q, session_id: %q", app, user, id)
	}
	return nil
}

// createError words why a session could not be created.
func createError(err error, id string) error {
	if errors.Is(err, store.ErrExists) {
		return inWords(err, "session %s already exists", id)
	}
	return fmt.Errorf("create session: %w", err)
}

// getError words why a session could not be got.
func getError(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return inWords(err, "session %s not found", id)
	}
	return fmt.Errorf("get session: %w", err)
}

// appendError words why an event could not be appended.
func appendError(err error, e *session.Event) error {
	if errors.Is(err, store.ErrNotFound) {
		return inWords(err, "session not found, cannot apply event")
	}
	return fmt.Errorf("append event %q: %w", e.ID, err)
}
