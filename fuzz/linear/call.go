package linear

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Call is what a client wants of a store. It is plain data, so that it can be sent to another
// process.
type Call struct {
	N       int    // for whoever sends it: tells replies apart
	Client  int    // each has a view of each session, which it looked at last
	App     string // sessions of several apps have nothing in common
	Session string
	Op      Op

	// IDs are those of events, which say all that the events have, or of a patch. A rewind
	// goes to before the event, a revert takes back the patch.
	IDs    []string
	Other  bool          // an append's events are not those that the ids say
	Guess  bool          // an append expects the log to end where the client last saw it
	Now    bool          // a patch is meant as of now, else for the view that the client has
	Choice int           // picks what a patch does, where a fork or a view ends, and what is done to a lease
	Source string        // the session to fork, which nobody deletes
	Text   string        // to import
	Wait   time.Duration // the most that the call may take; 0 is any
}

// Op is what a call does.
type Op string

// The operations.
const (
	Create Op = "create"
	Append Op = "append"
	Patch  Op = "patch"
	Revert Op = "revert"
	Rewind Op = "rewind"
	Delete Op = "delete"
	Fork   Op = "fork"
	Import Op = "import"
	Lease  Op = "lease"
	Get    Op = "get"
	At     Op = "at"     // the view as of a record
	Raw    Op = "raw"    // the log's ids
	Export Op = "export" // the log's text
)

// writes reports whether the call may log records.
func (c Call) writes() bool {
	return c.Op == Append || c.Op == Patch || c.Op == Revert || c.Op == Rewind || c.Op == Import
}

// Reply is what came of a call.
type Reply struct {
	N    int
	Kind string // [Done], or why not
	Err  string

	// What the call turned out to be.
	IfSeq        *uint64
	Start, Count int
	Base         uint64
	On           string  // the creation that the client's view was of
	Event        string  // that a pin names
	At           *uint64 // the record that a fork or a view ends with
	Owner        int     // of a lease

	// What it found.
	Creation string
	Logged   []string // the ids of the call's records
	Seqs     []uint64 // their seqs
	Seq      uint64   // of the log's last record
	PatchSeq uint64
	Visible  []string
	Values   map[string]string // the session's state, as JSON; a Get has the shared scopes' too
	Last     uint64            // of a refusal: where the log ends, or its newest patch
	Created  bool              // by an import
	Held     bool              // a lease
	Exported string            // by an export, or the log of a fork
}

// Kinds of replies that others than refusals give.
const (
	Done    = "done"
	Unknown = "unknown" // the outcome
	Failed  = "failed"  // and claims that nothing was written
	Gone    = "gone"    // whoever was to make the call is no more, and what came of it is not known
)

// The kinds of refusals.
const (
	notFound  = "not found"
	exists    = "exists"
	conflict  = "conflict"
	duplicate = "duplicate"
	invalid   = "invalid"
	outside   = "out of range"
	noEvent   = "event not found"
	blocked   = "blocked"
	pinned    = "pinned"
	corrupt   = "corrupt"
)

// KindOf returns the kind of a reply with this error.
func KindOf(err error) string {
	for _, k := range []struct {
		err  error
		kind string
	}{
		{store.ErrOutcomeUnknown, Unknown}, {store.ErrDuplicateID, duplicate}, {store.ErrConflict, conflict}, {store.ErrExists, exists},
		{store.ErrOutOfRange, outside}, {store.ErrEventNotFound, noEvent}, {store.ErrBlocked, blocked}, {store.ErrPinned, pinned},
		{store.ErrInvalid, invalid}, {store.ErrCorrupt, corrupt}, {store.ErrNotFound, notFound},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	if err != nil {
		return Failed
	}
	return Done
}

// Caller makes calls, of any number of clients at a time.
type Caller interface {
	Call(Call) Reply
}

// Local makes calls to a store.
type Local struct {
	Store *store.Store
	Owner int // tells the store from others that share its storage

	mu    sync.Mutex
	views map[string]fold.View // by client and session
}

// Call implements [Caller].
func (l *Local) Call(c Call) Reply {
	ctx := context.Background()
	if c.Wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Wait)
		defer stop()
	}
	l.mu.Lock()
	seen := l.views[c.view(c.seen())]
	l.mu.Unlock()
	r := Reply{N: c.N, Owner: l.Owner}
	session, err := l.make(ctx, c, seen, &r)
	r.fail(err)
	if err != nil || session.View.Creation() == "" {
		return r
	}
	r.show(session)
	if c.Op != At { // which is older
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.views == nil {
			l.views = map[string]fold.View{}
		}
		l.views[c.view(c.Session)] = session.View
	}
	return r
}

// seen returns the session whose view decides what the call is.
func (c Call) seen() string {
	if c.Op == Fork {
		return c.Source
	}
	return c.Session
}

func (c Call) view(session string) string { return fmt.Sprint(c.Client, " ", c.App, " ", session) }

// Key returns the key of a session.
func Key(app, session string) store.Key {
	return store.Key{App: app, User: "u", Session: session}
}

// make makes the call for a client that has seen a view.
func (l *Local) make(ctx context.Context, c Call, seen fold.View, r *Reply) (store.Session, error) {
	key, s := Key(c.App, c.Session), l.Store
	var done store.Committed
	var err error
	switch c.Op {
	case Create:
		return s.Create(ctx, key, nil)
	case Get:
		return s.Get(ctx, key)
	case Delete:
		return store.Session{}, s.Delete(ctx, key)
	case Fork:
		if seen.Creation() != "" && c.Choice%2 == 0 {
			r.At = upTo(seen, c.Choice)
		}
		session, err := s.Fork(ctx, Key(c.App, c.Source), key, store.ForkOptions{At: r.At})
		if err == nil { // what it has, others may change by now, but not the source's log so far
			r.Exported, err = l.log(ctx, Key(c.App, c.Source), session.View.Seq())
		}
		return store.Session{View: session.View}, err
	case At:
		r.At = upTo(seen, c.Choice)
		view, err := s.ViewAt(ctx, key, *r.At)
		return store.Session{View: view}, err
	case Lease:
		r.Held, err = s.Lease(ctx, key, "lease", c.ttl())
		return store.Session{}, err
	case Raw:
		for record, err := range s.RawEvents(ctx, key, 1) {
			if err != nil {
				return store.Session{}, err
			}
			r.Logged, r.Seqs = append(r.Logged, record.ID()), append(r.Seqs, record.Seq)
		}
		return store.Session{}, nil
	case Export:
		var text strings.Builder
		if err := s.Export(ctx, key, &text, store.ExportOptions{}); err != nil {
			return store.Session{}, err
		}
		r.Exported = text.String()
		all, err := records(r.Exported)
		for _, record := range all {
			r.Logged, r.Seqs = append(r.Logged, record.ID()), append(r.Seqs, record.Seq)
		}
		return store.Session{}, err
	case Append:
		var opts store.AppendOptions
		if c.Guess && seen.Creation() != "" {
			seq := seen.Seq()
			r.IfSeq, opts.IfSeq = &seq, &seq
			if c.Choice%2 == 0 {
				r.On, opts.Creation = seen.Creation(), seen.Creation()
			}
		}
		done, err = s.AppendEvents(ctx, key, opts, c.events()...)
	case Patch:
		opts := store.PatchOptions{AsOfNow: true}
		r.Start, r.Count = c.Choice%3, 1+c.Choice%2
		if !c.Now && seen.Creation() != "" && seen.Len() > 0 {
			opts = store.PatchOptions{On: seen}
			r.Start, r.Base, r.On = c.Choice%seen.Len(), seen.PatchSeq(), seen.Creation()
			r.Count = min(r.Count, seen.Len()-r.Start)
			r.Event = seen.At(r.Start).ID()
		}
		done, err = s.ApplyPatch(ctx, key, opts, c.patch(*r))
	case Revert:
		done, err = s.Revert(ctx, key, store.BackOptions{}, c.IDs[0])
	case Rewind:
		done, err = s.Rewind(ctx, key, store.BackOptions{}, invocationOf(c.IDs[0]))
	case Import:
		var imported store.Imported
		imported, err = s.Import(ctx, key, strings.NewReader(c.Text), store.ImportOptions{})
		done, r.Created = imported.Committed, imported.Created
	default:
		err = fmt.Errorf("no such operation: %s", c.Op)
	}
	for _, record := range done.Records {
		r.Logged, r.Seqs = append(r.Logged, record.ID()), append(r.Seqs, record.Seq)
	}
	return store.Session{View: done.View}, err
}

// log returns the text of a session's records up to a seq.
func (l *Local) log(ctx context.Context, key store.Key, last uint64) (string, error) {
	var b strings.Builder
	out := patch.NewEncoder(&b)
	for r, err := range l.Store.RawEvents(ctx, key, 1) {
		if err == nil && r.Seq <= last {
			err = out.Record(r)
		}
		if err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// upTo picks a record that is seen in a view, or none.
func upTo(seen fold.View, choice int) *uint64 {
	seq := uint64(choice) % (seen.Seq() + 1)
	return &seq
}

// ttl is what the call does to a lease: takes it for longer than anything takes, gives it up,
// or asks.
func (c Call) ttl() time.Duration {
	return []time.Duration{24 * time.Hour, 0, -1}[c.Choice%3]
}

// fail says why a call failed, if it did.
func (r *Reply) fail(err error) {
	r.Kind = KindOf(err)
	if err == nil {
		return
	}
	r.Err = err.Error()
	var moved *store.SeqError
	var newer *store.ConflictError
	switch {
	case errors.As(err, &moved):
		r.Last = moved.Last
	case errors.As(err, &newer):
		r.Last = newer.Newest
	}
}

// show says what a session is.
func (r *Reply) show(s store.Session) {
	v := s.View
	r.Creation, r.Seq, r.PatchSeq = v.Creation(), v.Seq(), v.PatchSeq()
	r.Visible = visible(v)
	r.Values = texts(maps.All(s.Values()))
}

func visible(v fold.View) []string {
	ids := make([]string, 0, v.Len())
	for _, e := range v.Events() {
		ids = append(ids, e.ID())
	}
	return ids
}

func texts(values func(func(string, patch.Value) bool)) map[string]string {
	all := map[string]string{}
	for key, value := range values {
		all[key] = fmt.Sprint(value.Any())
	}
	return all
}

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The ids of a call's events are one id, and others that have this mark behind it: they are of
// one invocation. An event whose id names a session and ends with hot sets shared values.
const (
	sibling = "'"
	hot     = "!"
)

func invocationOf(id string) string { return strings.TrimSuffix(id, sibling) }

// Hot returns an id whose event, in the session, sets shared values to the id.
func Hot(id, session string) string { return id + "@" + session + hot }

func isHot(id string) bool { return strings.HasSuffix(id, hot) }

// sessionOf returns the session in which a hot id was to be logged first.
func sessionOf(id string) string {
	_, session, _ := strings.Cut(strings.TrimSuffix(id, hot), "@")
	return session
}

// Event returns the event that an id stands for.
func Event(id string) *patch.Event { return event(id, "client") }

func event(id, author string) *patch.Event {
	delta := map[string]any{"last": id}
	if isHot(id) {
		delta["app:hot"], delta["user:hot"] = id, id
	}
	e, err := patch.NewEvent(patch.Fields{
		ID: id, InvocationID: invocationOf(id), Author: author, Timestamp: when,
		Content: patch.Text("user", id), Actions: patch.Actions{StateDelta: delta},
	})
	if err != nil {
		panic(err)
	}
	return e
}

func (c Call) events() []*patch.Event {
	author := "client"
	if c.Other {
		author = "somebody else"
	}
	var all []*patch.Event
	for _, id := range c.IDs {
		all = append(all, event(id, author))
	}
	return all
}

// patch returns the patch that the call turned out to be, without a base.
func (c Call) patch(r Reply) *patch.PatchEvent {
	id := c.IDs[0]
	another := func() *patch.Event {
		e, err := patch.NewEvent(patch.Fields{ID: id + ".new", Author: "client", Timestamp: when, Content: patch.Text("user", "what was said")})
		if err != nil {
			panic(err)
		}
		return e
	}
	var p *patch.PatchEvent
	switch c.Choice / 8 % 8 {
	case 0:
		p = patch.NewSplice(r.Start, r.Count).WithState(patch.Keep)
	case 1:
		p = patch.NewSummarise(r.Start, r.Count, another())
	case 2:
		p = patch.NewSplice(r.Start, r.Count, another())
	case 3:
		p = patch.NewSplice(r.Start, 0, another())
	case 4:
		if r.Event != "" {
			p = patch.NewPin(r.Event)
			break
		}
		fallthrough
	default:
		p = patch.NewSplice(r.Start, r.Count)
	}
	return p.WithID(id).WithAuthor("client").WithTimestamp(when)
}

// text returns the text form of events, to import.
func text(ids ...string) string {
	var b strings.Builder
	out := patch.NewEncoder(&b)
	for _, id := range ids {
		if err := out.Record(patch.Record{Event: Event(id)}); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// records reads a text form.
func records(text string) ([]patch.Record, error) {
	all, _, err := patch.NewDecoder(strings.NewReader(text), "text").ReadAll()
	return all, err
}

// Serve makes the calls that it reads, in goroutines of their own, and writes the replies, in
// JSON. It begins with an empty reply, and returns when there are no more calls, and all are
// made.
func (l *Local) Serve(in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	replies := json.NewEncoder(out)
	reply := func(r Reply) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, replies.Encode(r))
	}
	reply(Reply{})
	calls := json.NewDecoder(in)
	for {
		var c Call
		err := calls.Decode(&c)
		if err != nil {
			wg.Wait()
			if err != io.EOF {
				errs = append(errs, err)
			}
			return errors.Join(slices.Clone(errs)...)
		}
		wg.Go(func() { reply(l.Call(c)) })
	}
}
