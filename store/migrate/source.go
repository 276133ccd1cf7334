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

// Source is where sessions come from. It is only read. Its methods are called one after
// another, [Source.Shared] and [Source.Differences] after all sessions have been read.
type Source interface {
	// String says what the source is.
	String() string

	// Count returns how many sessions there are, or 0 if that is not known.
	Count(ctx context.Context) (int, error)

	// Sessions yields each session as it is when its turn comes, one at a time in memory. An
	// error that is a *[SessionError] is about that session alone, and the others follow. Any
	// other error is the last that is yielded.
	Sessions(ctx context.Context) iter.Seq2[*Session, error]

	// Shared yields the state that the sessions of an app, or of a user of an app, share. An
	// error that is a *[SharedError] is about that scope alone.
	Shared(ctx context.Context) iter.Seq2[Shared, error]

	// Differences returns what the source holds that no session and no shared scope says, or
	// that they say otherwise.
	Differences(ctx context.Context) ([]Difference, error)
}

// Session is a session of a source.
type Session struct {
	Key store.Key

	// Created and Updated are the zero time if the source does not know them.
	Created, Updated time.Time

	// State is the session's own state as it is now, without app: and user: keys.
	State map[string]patch.Value

	// Events are all of them, in order. They may lack ids and times.
	Events []*patch.Event

	// Records, if not nil, is the session's log as a file of another program has it, without seqs, in place of State
	// and Events. Of a log that is there already, those of them that it has must be the first ones.
	Records []patch.Record

	// Differences are what the source has to say of the session beside that.
	Differences []Difference

	file  string      // which has it
	log   *store.Text // the log as a file of the text form has it, in place of Records
	adopt bool        // and its compaction records are adopted

	fileKey         store.Key // the key that it has instead if another file has its id; the zero value: none
	nothingInCommon bool      // with the log that is there

	namedAfter bool         // the file, which says no id
	firstID    string       // of the first record of log, if the session is named after the file
	store      *store.Store // the database of patchlog's that has it, in place of Records
	listed     bool         // and was listed there
}

// Shared is the state that the sessions of an app share, or those of a user of an app.
type Shared struct {
	App    string
	User   string                 // empty: of the app
	Values map[string]patch.Value // under keys with their prefix, app: or user:
}

// Difference is something that does not come over as it was, or about which the source
// leaves doubt.
type Difference struct {
	Event string `json:"event,omitempty"` // the id of the event it is about
	Key   string `json:"key,omitempty"`   // the state key it is about
	What  string `json:"what"`
}

// String says it in one line.
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

// SessionError is about one session of a source, which cannot be read.
type SessionError struct {
	Key store.Key // may be empty, or one that no store takes
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

// SharedError is about one shared scope of a source, which cannot be read.
type SharedError struct {
	App, User string // an empty user: of the app
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
