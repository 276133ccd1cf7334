package adk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// messageError is an error with the message of ADK's own services, which programs that were written
// for those may look for. It matches the error that it wraps, and if a session is not there, what ADK's service in
// memory says of one: an error of ADK's, where its version defines one.
type messageError struct {
	message string
	error
}

func (e *messageError) Error() string { return e.message }

func (e *messageError) Unwrap() []error {
	if errors.Is(e.error, store.ErrNotFound) {
		return []error{e.error, missing.get()}
	}
	return []error{e.error}
}

// missingErrors are what ADK's service in memory returns for a session that is not there; they may be nil.
type missingErrors struct{ get, delete func() error }

var missing = missingErrors{
	get: sync.OnceValue(func() error {
		_, err := session.InMemoryService().Get(context.Background(), &session.GetRequest{AppName: "a", UserID: "u", SessionID: "s"})
		return err
	}),
	delete: sync.OnceValue(func() error {
		return session.InMemoryService().Delete(context.Background(), &session.DeleteRequest{AppName: "a", UserID: "u", SessionID: "s"})
	}),
}

func withMessage(err error, format string, args ...any) error {
	return &messageError{fmt.Sprintf(format, args...), err}
}

// requestKey returns the key of a request's session. It refuses requests that lack a part of it.
func requestKey(app, user, id string) (store.Key, error) {
	if app == "" || user == "" || id == "" {
		return store.Key{}, withMessage(patch.ErrInvalid, "app_name, user_id, session_id are required, got app_name: %q, user_id: %q, session_id: %q", app, user, id)
	}
	return store.Key{App: app, User: user, Session: id}, nil
}

// createError words why a session could not be created.
func createError(err error, id string) error {
	if errors.Is(err, store.ErrExists) {
		return withMessage(err, "session %s already exists", id)
	}
	return fmt.Errorf("create session: %w", err)
}

// getError words why a session could not be got.
func getError(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return withMessage(err, "session %s not found", id)
	}
	return fmt.Errorf("get session: %w", err)
}

// appendError words why an event could not be appended.
func appendError(err error, e *session.Event) error {
	if errors.Is(err, store.ErrNotFound) {
		return withMessage(err, "session not found, cannot apply event")
	}
	return fmt.Errorf("append event %q: %w", e.ID, err)
}
