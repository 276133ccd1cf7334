// Package ops has the operations of the test harnesses. [Op] is one operation on a store, as data. [Do] executes an
// operation on a store, and [ExpectedOutcome] returns its outcome according to the reference model. The state
// machine, the check of linearizability and the crash tests use this package.
package ops

import (
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Op is a client's operation on a store. It is plain data, so it can be sent to another process, and another
// client can repeat it.
type Op struct {
	Client  int
	App     string // sessions of different apps share nothing
	Session string
	Kind    Kind

	// IDs are the ids of the events to append or erase. For a patch or a revert, IDs has the id of the patch. For a
	// rewind, IDs has the id of the event to rewind to. [Event] makes an event from an id.
	IDs          []string
	Offered      []patch.Record `json:"-"` // records to log instead of the events of IDs
	OtherContent bool           // whether the appended events have other content than [Event] gives them
	Choice       int            // selects the type of a patch, or the use of a lease

	// The following fields are what the client has seen.
	On           string  // creation id of the view of a patch, or creation id that an append expects
	AsOfNow      bool    // whether the patch is made without a view
	IfSeq        *uint64 // last seq that an append expects
	Base         uint64  // base of a patch on a view
	Start, Count int     // span of a patch
	Event        string  // id of the event to pin

	At     *uint64       // seq of the last record of a fork or of a view
	Source string        // session to fork
	Text   string        // text to import, or id of an erasure
	File   string        // path of a backup
	Wait   time.Duration // time limit of the operation; 0 means none

	AllowOrphans, AllowPinned bool
}

// Kind is the kind of an operation.
type Kind string

// The kinds of operations.
const (
	Create Kind = "create"
	Append Kind = "append"
	Patch  Kind = "patch"
	Revert Kind = "revert"
	Rewind Kind = "rewind"
	Delete Kind = "delete"
	Fork   Kind = "fork"
	Import Kind = "import"
	Lease  Kind = "lease"
	Erase  Kind = "erase"
	Vacuum Kind = "vacuum"
	Backup Kind = "backup"
	Get    Kind = "get"
	At     Kind = "at"     // reads the view as of a record
	Raw    Kind = "raw"    // reads the ids of the records in the log
	Export Kind = "export" // exports the log as text
)

// Writes reports whether the operation may log records. The reply lists the records.
func (o Op) Writes() bool {
	return o.Kind == Append || o.Kind == Patch || o.Kind == Revert || o.Kind == Rewind || o.Kind == Import
}

// Changes reports whether the operation may change a session.
func (o Op) Changes() bool {
	return o.Writes() || o.Kind == Create || o.Kind == Delete || o.Kind == Fork || o.Kind == Lease || o.Kind == Erase
}

// Key returns the key of a session.
func Key(app, session string) store.Key {
	return store.Key{App: app, User: "u", Session: session}
}

// TTL returns the argument of a lease: a time longer than any test, 0 to release the lease, or -1 to query the
// lease.
func (o Op) TTL() time.Duration {
	return []time.Duration{24 * time.Hour, 0, -1}[o.Choice%3]
}

var eventTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Sibling is the suffix of the second id of an append. Events whose ids differ only by Sibling have the same
// invocation. The constant hotSuffix is the suffix of the id of an event that sets shared values. Such an id also
// contains the name of the event's session, see [Hot].
const (
	Sibling   = "'"
	hotSuffix = "!"
)

// Invocation returns the id of the invocation of an event.
func Invocation(id string) string { return strings.TrimSuffix(id, Sibling) }

// Hot returns the id of a hot event of a session. The hot event sets shared values to its own id.
func Hot(id, session string) string { return id + "@" + session + hotSuffix }

// IsHot reports whether [Hot] made the id.
func IsHot(id string) bool { return strings.HasSuffix(id, hotSuffix) }

// SessionOf returns the session that a hot id names.
func SessionOf(id string) string {
	_, session, _ := strings.Cut(strings.TrimSuffix(id, hotSuffix), "@")
	return session
}

// Event returns the event with an id. One event in 16 is longer than a page.
func Event(id string) *patch.Event { return event(id, "client") }

func event(id, author string) *patch.Event {
	delta := map[string]any{"last": id}
	if IsHot(id) {
		delta["app:hot"], delta["user:hot"] = id, id
	}
	text := id
	if sum := crc32.ChecksumIEEE([]byte(id)); sum%16 == 0 {
		var b strings.Builder
		for b.Len() < int(sum>>8%12_000) {
			fmt.Fprintf(&b, "%s %x ", id, crc32.ChecksumIEEE([]byte(b.String()))) // incompressible
		}
		text += b.String()
	}
	return testlog.New(patch.Fields{
		ID: id, InvocationID: Invocation(id), Author: author, Timestamp: eventTime,
		Content: patch.Text("user", text), Actions: patch.Actions{StateDelta: delta},
	})
}

// Records returns the records that the operation offers. The patches among them have no base yet.
func (o Op) Records() (all []patch.Record) {
	switch {
	case o.Offered != nil:
		return o.Offered
	case o.Kind == Append:
		author := "client"
		if o.OtherContent {
			author = "another"
		}
		for _, id := range o.IDs {
			all = append(all, patch.Record{Event: event(id, author)})
		}
	case o.Kind == Patch:
		for _, p := range o.patches() {
			all = append(all, patch.Record{Patch: p})
		}
	}
	return all
}

// patches returns the patch or the group of two patches that Choice selects.
func (o Op) patches() []*patch.PatchEvent {
	id := o.IDs[0]
	newEvent := testlog.New(patch.Fields{ID: id + ".new", Author: "client", Timestamp: eventTime, Content: patch.Text("user", "what was said")})
	p := patch.NewSplice(o.Start, o.Count)
	switch kind := o.Choice / 8 % 8; {
	case kind == 0:
		p = p.WithState(patch.Keep)
	case kind == 1:
		p = patch.NewSummarise(o.Start, o.Count, newEvent)
	case kind == 2:
		p = patch.NewSplice(o.Start, o.Count, newEvent)
	case kind == 3:
		p = patch.NewSplice(o.Start, 0, newEvent)
	case kind == 4 && o.Event != "":
		p = patch.NewPin(o.Event)
	case kind == 5:
		group := id + " group"
		second := patch.NewSplice(0, 0, newEvent).WithID(id + ".2").WithGroup(group).WithAuthor("client").WithTimestamp(eventTime)
		return []*patch.PatchEvent{p.WithID(id).WithGroup(group).WithAuthor("client").WithTimestamp(eventTime), second}
	}
	return []*patch.PatchEvent{p.WithID(id).WithAuthor("client").WithTimestamp(eventTime)}
}

// Text returns the text form of the events with the given ids.
func Text(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		if err := patch.WriteRecord(&b, patch.Record{Event: Event(id)}); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// Parse parses records in the text form.
func Parse(text string) ([]patch.Record, error) {
	all, _, err := records.ReadAll(patch.NewDecoder(strings.NewReader(text), "text"))
	return all, err
}
