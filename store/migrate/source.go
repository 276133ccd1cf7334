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

// Source provides sessions to migrate. A migration never writes to it. Its methods are called sequentially,
// [Source.Shared] and [Source.Differences] after all sessions have been read.
type Source interface {
	// String describes the source.
	String() string

	// Count returns the number of sessions, or 0 if it is unknown.
	Count(ctx context.Context) (int, error)

	// Sessions yields the sessions, each as it is when it is yielded, with one at a time in memory. After a
	// *[SessionError], which is about one session, iteration continues. Any other error is the last one yielded.
	Sessions(ctx context.Context) iter.Seq2[*Session, error]

	// Shared yields the state shared by the sessions of an app, or of a user of an app. A *[SharedError] is about
	// one scope only.
	Shared(ctx context.Context) iter.Seq2[Shared, error]

	// Differences returns data in the source that is in no session or shared scope, or that contradicts them.
	Differences(ctx context.Context) ([]Difference, error)
}

// Session is a session in a source.
type Session struct {
	Key store.Key

	// Created and Updated are zero if unknown.
	Created, Updated time.Time

	// State is the session's own current state, without app: and user: keys.
	State map[string]patch.Value

	// Events are all events in order. They may lack ids and times.
	Events []*patch.Event

	// Records, if not nil, is the session's log without seqs, as read from a session file, in place of State and
	// Events. If the target has the session, its log must begin with these records as far as it has them.
	Records []patch.Record

	// Differences are the source's own notes on differences in the session.
	Differences []Difference

	file  string      // name of its file
	log   *store.Text // the log from a file of the text form, in place of Records
	adopt bool        // adopt the compaction records in log

	fileKey         store.Key // alternative key if another file has the session's id; zero if none
	nothingInCommon bool      // set if the target's session differs from the first record on

	namedAfter bool         // the file has no session id: the session is named after the file
	firstID    string       // id of log's first record, if the session is named after the file
	store      *store.Store // the patchlog database that has the session, in place of Records
	listed     bool         // the database's listing contains the session
}

// Shared is the state that the sessions of an app, or of a user of an app, share.
type Shared struct {
	App    string
	User   string                 // empty for the app's state
	Values map[string]patch.Value // keys include their prefix, app: or user:
}

// Difference is something that is not migrated unchanged, or that is ambiguous in the source.
type Difference struct {
	Event string `json:"event,omitempty"` // id of the event concerned
	Key   string `json:"key,omitempty"`   // state key concerned
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

// SessionError says that one session of a source cannot be read.
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

// Unwrap returns the reason.
func (e *SessionError) Unwrap() error { return e.Err }

// SharedError says that one shared scope of a source cannot be read.
type SharedError struct {
	App, User string // User is empty for the app's scope
	Err       error
}

func (e *SharedError) Error() string {
	if e.User == "" {
		return fmt.Sprintf("shared state of app %q: %v", e.App, e.Err)
	}
	return fmt.Sprintf("shared state of user %q of app %q: %v", e.User, e.App, e.Err)
}

// Unwrap returns the reason.
func (e *SharedError) Unwrap() error { return e.Err }
