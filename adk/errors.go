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

// messageError is an error whose text equals the text of ADK's own services, because existing programs may compare
// the text. It matches the wrapped error. For a missing session, it also matches the error of ADK's in-memory
// service, if this version of ADK has one.
type messageError struct {
	message string
	error
}

func (e *messageError) Error() string { return e.message }

func (e *messageError) Unwrap() []error {
	if errors.Is(e.error, store.ErrNotFound) {
		return []error{e.error, missingSession.get()}
	}
	return []error{e.error}
}

// missingErrors contains functions that return the error of ADK's in-memory service for a missing session, or nil.
type missingErrors struct{ get, delete func() error }

var missingSession = missingErrors{
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

// requestKey returns the key of a request's session. It rejects a request without an app, user or session id.
func requestKey(app, user, id string) (store.Key, error) {
	if app == "" || user == "" || id == "" {
		return store.Key{}, withMessage(patch.ErrInvalid, "app_name, user_id, session_id are required, got app_name: %q, user_id: %q, session_id: %q", app, user, id)
	}
	return store.Key{App: app, User: user, Session: id}, nil
}

func createError(err error, id string) error {
	if errors.Is(err, store.ErrExists) {
		return withMessage(err, "session %s already exists", id)
	}
	return fmt.Errorf("create session: %w", err)
}

func getError(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return withMessage(err, "session %s not found", id)
	}
	return fmt.Errorf("get session: %w", err)
}

func appendError(err error, e *session.Event) error {
	if errors.Is(err, store.ErrNotFound) {
		return withMessage(err, "session not found, cannot apply event")
	}
	return fmt.Errorf("append event %q: %w", e.ID, err)
}
