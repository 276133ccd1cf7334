package migrate

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Source provides sessions to migrate. A migration never writes to a Source. It calls the methods one at a time, and
// calls [Source.Shared] and [Source.Differences] after it has read all sessions.
type Source interface {
	// String describes the source.
	String() string

	// Count returns the number of sessions, or 0 if it is unknown.
	Count(ctx context.Context) (int, error)

	// Sessions yields the sessions one at a time, each in its state when it is yielded. If the error is a
	// *[SessionError], the error concerns one session, and the iteration continues. After any other error, the
	// iteration ends.
	Sessions(ctx context.Context) iter.Seq2[*Session, error]

	// Shared yields the state that is shared by the sessions of an app, or by the sessions of a user of an app. If
	// the error is a *[SharedError], the error concerns one scope, and the iteration continues. After any other
	// error, the iteration ends.
	Shared(ctx context.Context) iter.Seq2[Shared, error]

	// Differences returns the data of the source that is in no session and in no shared scope, or that contradicts a
	// session or a shared scope.
	Differences(ctx context.Context) ([]Difference, error)
}

// Session is a session in a source.
type Session struct {
	Key store.Key

	// Created and Updated are zero if they are unknown.
	Created, Updated time.Time

	// State is the session's own current state, without "app:" and "user:" keys.
	State map[string]patch.Value

	// Events are all events in order. Ids and times may be missing.
	Events []*patch.Event

	// Records, if not nil, is the session's log as read from a session file, without seqs. Records replaces State
	// and Events. If the target already has the session, the two logs must have the same records up to the end of
	// the shorter log.
	Records []patch.Record

	// Differences are differences that the source has found in the session.
	Differences []Difference

	file  string      // name of the session's file
	log   *store.Text // log from a file in patchlog's text form, used instead of Records
	adopt bool        // whether to adopt the compaction records in log

	fileKey         store.Key // key to use if another file has the same session id, or the zero Key
	nothingInCommon bool      // whether the session in the target differs in its first record

	namedAfterFile bool         // whether the session is named after the file, because the file has no session id
	firstID        string       // id of the first record in log, if namedAfterFile is set
	store          *store.Store // patchlog database that has the session, used instead of Records
	listed         bool         // whether the database lists the session
}

// Shared is the state that is shared by the sessions of an app, or by the sessions of a user of an app.
type Shared struct {
	App    string
	User   string                 // empty for the state of the app
	Values map[string]patch.Value // keys include the prefix "app:" or "user:"
}

// Difference is something that is not migrated unchanged, or that is ambiguous in the source.
type Difference struct {
	Event string `json:"event,omitempty"` // id of the event that the difference concerns
	Key   string `json:"key,omitempty"`   // state key that the difference concerns
	What  string `json:"what"`
}

// String returns the difference in one line.
func (d Difference) String() string {
	var about []string
	if d.Event != "" {
		about = append(about, fmt.Sprintf("event %q: ", d.Event))
	}
	if d.Key != "" {
		about = append(about, fmt.Sprintf("state key %q: ", d.Key))
	}
	return strings.Join(about, "") + d.What
}

// SessionError is the error of a session that cannot be read from the source.
type SessionError struct {
	Key store.Key // may be empty or invalid
	Err error
}

func (e *SessionError) Error() string {
	if e.Key == (store.Key{}) {
		return e.Err.Error()
	}
	return fmt.Sprintf("session %s: %v", e.Key, e.Err)
}

// Unwrap returns e.Err.
func (e *SessionError) Unwrap() error { return e.Err }

// SharedError is the error of a shared scope that cannot be read from the source.
type SharedError struct {
	App, User string // User is empty for the scope of the app
	Err       error
}

func (e *SharedError) Error() string {
	if e.User == "" {
		return fmt.Sprintf("shared state of app %q: %v", e.App, e.Err)
	}
	return fmt.Sprintf("shared state of user %q of app %q: %v", e.User, e.App, e.Err)
}

// Unwrap returns e.Err.
func (e *SharedError) Unwrap() error { return e.Err }
