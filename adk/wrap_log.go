package adk

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// baseLog is a session of a base as a log: its events in the base's order, each a record, and
// those that carry patches the records of these. Patches that do not find their events are
// records that the fold skips. The user of a baseLog holds the session's lock.
type baseLog struct {
	key    store.Key
	logger *slog.Logger

	base     session.Session // as the base gave it last; nil: nothing is known
	creation string
	empty    fold.View // without records

	order   []string        // the ids of the base's events
	items   map[string]item // the first one of each id
	records []patch.Record
	ids     map[string]uint64 // the seqs of the records that take an id, or a group's
	view    fold.View
	skipped map[string]bool // the items whose patches do not apply

	updated time.Time // of the newest event that is none of patchlog's
	newest  time.Time // the greatest time of an event
	size    int
}

// item is an event of a base as a log has it: one of the two.
type item struct {
	event   *patch.Event
	patches *portable.Patches
}

// listed is an event of a base with the id of its item.
type listed struct {
	id    string
	event *session.Event
}

// eventsOf lists a base's events. An id that the log cannot carry gives place to one that is made
// of what the event says.
func eventsOf(s session.Session) (list []listed) {
	for e := range s.Events().All() {
		if e == nil {
			continue
		}
		id := e.ID
		if id == "" || len(id) > patch.MaxIDBytes || !utf8.ValidString(id) {
			said, err := json.Marshal(e)
			if err != nil {
				said = fmt.Appendf(nil, "%q %q %q %v", e.ID, e.Author, e.InvocationID, e.Timestamp)
			}
			id = uuid.NewSHA1(uuid.NameSpaceOID, said).String()
		}
		list = append(list, listed{id, e})
	}
	return list
}

// extend adds what the base has beyond what is known, and reports false, having changed nothing, if
// it is not clear what that is. all says that the base gave all events, not only the last ones.
func (l *baseLog) extend(from session.Session, all bool) bool {
	if said, _ := originOf(from.State()); said != "" && said != l.creation || said == "" && !isBare(l.creation) {
		return false
	}
	given := eventsOf(from)
	follows := func(n int) bool { // the first n of given are the last n of the log
		return slices.EqualFunc(l.order[len(l.order)-n:], given[:n], func(id string, e listed) bool { return id == e.id })
	}
	overlap := min(len(l.order), len(given))
	switch {
	case all && overlap < len(l.order), all && !follows(overlap), all && overlap == 0 && len(given) > 0 && isBare(l.creation):
		return false
	case !all && len(given) == 0:
		return len(l.order) == 0 || l.base.LastUpdateTime().Equal(from.LastUpdateTime())
	case !all:
		for ; overlap > 0 && !follows(overlap); overlap-- {
		}
		if overlap == 0 {
			return false
		}
	}
	if slices.ContainsFunc(given[overlap:], func(e listed) bool { _, there := l.items[e.id]; return there }) {
		return false // events of one time come in another order
	}
	l.base = from
	l.add(given[overlap:], nil)
	return true
}

// rebuild takes the base's events anew. What the log said of an event stays: a base
// may not keep the types of Go values.
func (l *baseLog) rebuild(from session.Session) {
	given := eventsOf(from)
	creation, initial := originOf(from.State())
	if creation == "" {
		creation, initial = bareCreation(from, given), bareInitial(from.State(), given)
	}
	before := l.items
	if l.base == nil || l.is(creation) != nil {
		before = nil
	}
	empty := fold.New(creation, initial)
	*l = baseLog{key: l.key, logger: l.logger, base: from, creation: creation, empty: empty, view: empty, updated: from.LastUpdateTime(),
		items: map[string]item{}, ids: map[string]uint64{}, skipped: map[string]bool{}}
	l.add(given, before)
}

// add adds events of the base, those in before as they are there.
func (l *baseLog) add(list []listed, before map[string]item) {
	var items []item
	for _, e := range list {
		it, ok := before[e.id]
		if _, twice := l.items[e.id]; twice || !ok {
			var err error
			if it, err = itemOf(e); err != nil {
				l.logger.Warn("patchlog: an event has values that JSON cannot carry; the session shows their text", "session", l.key.String(), "event", e.id, "error", err)
			}
		}
		delete(before, e.id)
		items = append(items, it)
	}
	for i, it := range items {
		l.addItem(list[i].id, list[i].event.Timestamp, it, i+1 < len(items) && items[i+1].event != nil)
	}
}

// addItem adds an item. If more events follow, they can be folded with it.
func (l *baseLog) addItem(id string, at time.Time, it item, more bool) {
	l.order = append(l.order, id)
	if _, twice := l.items[id]; !twice {
		l.items[id] = it
	}
	if at.After(l.newest) {
		l.newest = at
	}
	if it.event != nil {
		l.updated = at
		l.addRecord(patch.Record{Event: it.event})
		l.size += it.event.Footprint()
		if more {
			return
		}
		l.fold()
		return
	}
	patches, ok := it.patches.On(l.whole())
	if !ok {
		l.skipped[id] = true
		l.logger.Warn("patchlog: patches are skipped, since the events that they name are not adjacent in the session, or they are of another version",
			"session", l.key.String(), "event", id)
	}
	for _, p := range patches {
		l.addRecord(patch.Record{Patch: p})
		l.size += l.records[len(l.records)-1].Size()
	}
	l.fold()
}

func (l *baseLog) addRecord(r patch.Record) {
	r.Seq = uint64(len(l.records)) + 1
	l.records = append(l.records, r)
	take := func(id string) {
		if l.ids[id] == 0 {
			l.ids[id] = r.Seq
		}
	}
	for id := range r.IDs() {
		take(id)
	}
	if r.Patch != nil && r.Patch.Group() != "" {
		take(groupID(r.Patch.Group()))
	}
}

// groupID is the id of a group, longer than any other may be.
func groupID(group string) string { return strings.Repeat("\x00", patch.MaxIDBytes+1) + group }

// whole returns the view with its records at hand.
func (l *baseLog) whole() fold.View { return l.view.With(l.records[:l.view.Seq()]) }

// fold folds the records that the view lacks.
func (l *baseLog) fold() {
	v, err := l.whole().Apply(l.records[l.view.Seq():]...)
	if err != nil {
		panic(err)
	}
	l.view = v
}

// is reports whether a creation is the session's.
func (l *baseLog) is(creation string) error {
	first, named := strings.CutPrefix(creation, barePrefix)
	_, there := l.items[first]
	switch {
	case creation == "" || creation == l.creation:
	case named && isBare(l.creation) && there:
	case strings.HasPrefix(creation, emptyPrefix) && isBare(l.creation) && len(l.order) > 0: // it may have grown
	default:
		return fmt.Errorf("session %s: %w: it was created again since", l.key, store.ErrNotFound)
	}
	return nil
}

// A session that was created without the wrapper has no creation id. It is named by its first event,
// or by its time.
const (
	barePrefix  = "first event "
	emptyPrefix = "empty "
)

func bareCreation(s session.Session, given []listed) string {
	if len(given) > 0 {
		return barePrefix + given[0].id
	}
	return emptyPrefix + s.LastUpdateTime().UTC().Format(time.RFC3339Nano)
}

func isBare(creation string) bool {
	return strings.HasPrefix(creation, barePrefix) || strings.HasPrefix(creation, emptyPrefix)
}

// sameSession reports whether a session that was seen under one creation may be the one that is there
// under another.
func sameSession(seen, now string) bool { return seen == now || isBare(seen) && isBare(now) }

func (l *baseLog) stored() stored {
	return stored{Key: l.key, View: l.view, shared: sharedState(l.base.State()), updated: l.updated}
}

// withOrigin returns the state with which to create a session in a base.
func withOrigin(state map[string]any) map[string]any {
	own := map[string]any{}
	for key, value := range state {
		if isOwn(key) {
			own[key] = value
		}
	}
	state[portable.StateKey] = map[string]any{"creation": uuid.NewString(), "initial": own}
	return state
}

// originOf returns the creation id and the initial state that a base's state has; "" if it has none.
func originOf(state session.State) (creation string, initial map[string]patch.Value) {
	said, _ := state.Get(portable.StateKey)
	origin, _ := said.(map[string]any)
	creation, _ = origin["creation"].(string)
	own, _ := origin["initial"].(map[string]any)
	initial = make(map[string]patch.Value, len(own))
	for key, value := range own {
		initial[key] = valueOf(value)
	}
	return creation, initial
}

// bareInitial is the initial state of a session that was created without the wrapper, as far as it
// can be known: what no event sets.
func bareInitial(state session.State, given []listed) map[string]patch.Value {
	set := map[string]bool{}
	for _, e := range given {
		for key := range e.event.Actions.StateDelta {
			set[key] = true
		}
	}
	initial := map[string]patch.Value{}
	for key, value := range state.All() {
		if isOwn(key) && !set[key] {
			initial[key] = valueOf(value)
		}
	}
	return initial
}

// sharedState is the state that a session shares with others.
func sharedState(state session.State) map[string]patch.Value {
	shared := map[string]patch.Value{}
	for key, value := range state.All() {
		if isShared(key) {
			shared[key] = valueOf(value)
		}
	}
	return shared
}

// itemOf reads an event of a base. lossy, if not nil, says what of it the log cannot carry. An event
// with content carries no patches, so that nothing that was said can be lost.
func itemOf(l listed) (it item, lossy error) {
	if said, ok := l.event.CustomMetadata[portable.MetadataKey].(string); ok && l.event.Content == nil {
		patches := portable.Parse(l.id, said)
		return item{patches: &patches}, nil
	}
	named := *l.event
	named.ID = l.id
	e, err := NewEvent(&named)
	if err != nil {
		e = nearest(&named)
	}
	return item{event: e}, err
}

// nearest makes an event of the log from one that JSON cannot carry, with texts in the place of such
// values and U+FFFD for what is not Unicode, or with as much of the event as can be.
func nearest(e *session.Event) *patch.Event {
	c := *e
	textCopier.own(reflect.ValueOf(&c).Elem(), 0)
	least := session.Event{
		ID: c.ID, InvocationID: c.InvocationID, Author: c.Author, Branch: c.Branch, IsolationScope: c.IsolationScope,
		Timestamp: c.Timestamp, Actions: c.Actions, LongRunningToolIDs: c.LongRunningToolIDs,
	}
	least.Content = c.Content
	for _, try := range []*session.Event{&c, &least} {
		if p, err := NewEvent(try); err == nil {
			return p
		}
		if text, err := json.Marshal(try); err == nil {
			if p, err := patch.ParseEvent(text); err == nil {
				return p
			}
		}
	}
	p, _ := patch.NewEvent(patch.Fields{ID: e.ID, ZeroTime: true}) // whose id can be carried
	return p
}

// textCopier copies values so that JSON can carry them.
var textCopier copier

func init() { textCopier.dynamic = textValue } // which refers to plainCopier

// textValue returns a value that JSON can carry: v itself, what its JSON says, or its text.
// It is a copier's dynamic.
func textValue(v any, depth int) (any, bool) {
	plain, ok := plainValue(v, depth)
	if !ok {
		return fmt.Sprintf("%T", v), true // it is inside itself
	}
	if _, err := patch.NewValue(plain); err == nil || reflect.ValueOf(plain).Kind() == reflect.String {
		return plain, true
	}
	return fmt.Sprint(plain), true
}

// valueOf returns a value of a base's state, or, where JSON cannot carry it, its text.
func valueOf(v any) patch.Value {
	if value, err := patch.NewValue(v); err == nil {
		return value
	}
	own := v
	textCopier.own(reflect.ValueOf(&own).Elem(), 0)
	if value, err := patch.NewValue(own); err == nil {
		return value
	}
	text, _ := json.Marshal(own)
	value, _ := patch.ParseValue(text)
	return value
}
