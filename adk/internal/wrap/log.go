package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// baseLog presents a session of a base as a log. Each of the base's events is a record; an event that carries patches
// is a record for each. Patches whose events are missing are records that the fold skips. The user of a baseLog holds
// the session's lock.
type baseLog struct {
	key    store.Key
	logger *slog.Logger

	base session.Session // as last read from the base; nil: not read yet

	// hasUpdates says that the base updated base.LastUpdateTime for events appended through it.
	hasUpdates bool

	creation string
	empty    fold.View // without records

	order   []string        // the ids of the base's events
	items   map[string]item // by id; the first event of an id counts
	records []patch.Record
	ids     map[string]uint64 // id → seq of the record that has the id
	view    fold.View
	skipped map[string]bool // the items whose patches do not apply

	updated time.Time // of the newest event that carries no patches
	newest  time.Time // the greatest time of an event
	size    int
}

// copy returns the part that a reader needs without the session's lock.
func (l *baseLog) copy() baseLog {
	return baseLog{key: l.key, creation: l.creation, empty: l.empty, view: l.view, records: l.records, updated: l.updated}
}

// item is an event of a base as the log has it: an event or patches.
type item struct {
	event   *patch.Event
	patches *portable.Patches
}

// listed is an event of a base with the id of its item.
type listed struct {
	id    string
	event *session.Event
}

// eventsOf lists a base's events. An id that the log cannot carry is replaced by one computed from the event.
func eventsOf(s session.Session) (list []listed) {
	for e := range s.Events().All() {
		if e == nil {
			continue
		}
		id := e.ID
		if id == "" || len(id) > patch.MaxIDBytes || !utf8.ValidString(id) {
			content, _ := json.Marshal(e.Content)
			id = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%q %q %q %v %s", e.ID, e.Author, e.InvocationID, e.Timestamp, content)).String()
		}
		list = append(list, listed{id, e})
	}
	return list
}

// extend adds the base's new events. If it is unclear which are new, it changes nothing and reports false. all says
// that the base gave all events, not only the last ones.
func (l *baseLog) extend(from session.Session, all bool) bool {
	if !l.isOf(from) {
		return false
	}
	given := eventsOf(from)
	if len(l.order)+len(given) == 0 && isBare(l.creation) && l.creation != bareCreation(from, given) {
		return false
	}
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
		return false // events of equal time have another order
	}
	l.base = from
	l.add(given[overlap:], nil)
	return true
}

// isOf reports whether the creation id of a base's session allows that it is the log's session.
func (l *baseLog) isOf(from session.Session) bool {
	said, _ := originOf(from.State())
	return said == l.creation || said == "" && isBare(l.creation)
}

// rebuild reads the base's events anew, but keeps the log's form of known events: a base may not keep the types of Go
// values.
func (l *baseLog) rebuild(from session.Session, edition uint64) {
	given := eventsOf(from)
	creation, initial := originOf(from.State())
	if creation == "" {
		creation, initial = bareCreation(from, given), bareInitial(from.State(), given)
	}
	before := l.items
	if l.base == nil || l.checkCreation(creation) != nil {
		before = nil
	}
	empty := fold.New(creation, initial).WithEdition(edition)
	*l = baseLog{key: l.key, logger: l.logger, base: from, creation: creation, empty: empty, view: empty, updated: from.LastUpdateTime(),
		items: map[string]item{}, ids: map[string]uint64{}, skipped: map[string]bool{}}
	l.add(given, before)
}

// add adds events of the base. An event in before keeps that form.
func (l *baseLog) add(list []listed, before map[string]item) {
	for _, e := range list {
		it, ok := before[e.id]
		if !ok {
			var err error
			if it, err = itemOf(e); err != nil {
				l.logger.Warn("patchlog: an event has values that JSON cannot carry; the session shows their text", "session", l.key.String(), "event", e.id, "error", err)
			}
		}
		delete(before, e.id) // a second event with the id may have another content
		l.addItem(e.id, e.event.Timestamp, it)
	}
	l.fold()
}

// addItem adds an item. The caller folds the view afterwards.
func (l *baseLog) addItem(id string, at time.Time, it item) {
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
		return
	}
	l.fold()
	patches, ok := it.patches.Resolve(l.whole())
	if !ok {
		l.skipped[id] = true
		l.logger.Warn("patchlog: patches are skipped, since the events that they name are not adjacent in the session, or they are of another version",
			"session", l.key.String(), "event", id)
	}
	for _, p := range patches {
		l.addRecord(patch.Record{Patch: p})
		l.size += l.records[len(l.records)-1].Size()
	}
}

func (l *baseLog) addRecord(r patch.Record) {
	r.Seq = uint64(len(l.records)) + 1
	l.records = append(l.records, r)
	for id := range r.IDs() {
		if l.ids[id] == 0 {
			l.ids[id] = r.Seq
		}
	}
}

// upTo returns the records up to a seq; nil means all.
func (l *baseLog) upTo(seq *uint64) ([]patch.Record, error) {
	switch {
	case seq == nil:
		return l.records, nil
	case *seq > l.view.Seq():
		return nil, fmt.Errorf("session %s: %w: it has no record %d yet", l.key, store.ErrNotFound, *seq)
	}
	return l.records[:*seq], nil
}

// whole returns the view with its records supplied.
func (l *baseLog) whole() fold.View { return l.view.WithRecords(l.records[:l.view.Seq()]) }

// fold folds the records that the view lacks.
func (l *baseLog) fold() {
	v, err := l.whole().Apply(l.records[l.view.Seq():]...)
	if err != nil {
		panic(err)
	}
	l.view = v
}

// draft judges patches as a store does. It returns them as they would be logged, and the view after them. missing are
// the indices of patches that the log lacks. The session must be the one that the author saw.
func (l *baseLog) draft(opts store.PatchOptions, patches []*patch.PatchEvent) (drafted []patch.Record, missing []int, after fold.View, err error) {
	after = l.view
	if err := l.checkCreation(opts.On.Creation()); err != nil {
		return nil, nil, after, err
	}
	now, offered := time.Now(), make([]patch.Record, len(patches))
	completed := slices.Clone(offered)
	for i, p := range patches {
		switch {
		case p == nil:
			return nil, nil, after, fmt.Errorf("%w: patch %d of the call is nil", patch.ErrInvalid, i)
		case p.Type() == patch.Erase:
			return nil, nil, after, errCannotErase
		}
		offered[i] = patch.Record{Patch: p}
		completed[i] = patch.Complete(offered[i], uuid.NewString, now)
	}
	if err := fold.CheckUnique(completed); err != nil {
		return nil, nil, after, err
	}
	log := l.logged(completed)
	drafted, missing, err = fold.Match(log, offered, completed)
	if err != nil || len(missing) == 0 {
		return drafted, nil, after, err
	}
	if opts.On.Creation() != "" {
		if err := l.checkSeen(opts.On); err != nil {
			return nil, nil, after, err
		}
		opts.On = opts.On.WithEdition(l.view.Edition())
	}
	d := fold.Draft{View: l.view, Supplied: l.records}
	err = d.Patches(log, opts, drafted, missing)
	return drafted, missing, d.View, err
}

// logged returns what the log already has of a call.
func (l *baseLog) logged(call []patch.Record) fold.Logged {
	log := fold.Logged{Records: map[string]patch.Record{}, Groups: map[string]bool{}}
	for _, r := range call {
		for id := range r.IDs() {
			if at := l.ids[id]; at != 0 {
				log.Records[id] = l.records[at-1]
			}
		}
	}
	for _, r := range l.records {
		if r.Patch != nil && r.Patch.Group() != "" {
			log.Groups[r.Patch.Group()] = true
		}
	}
	return log
}

// checkSeen reports whether the author of a patch, who saw the view on, saw all current patches, and the events in
// their current order.
func (l *baseLog) checkSeen(on fold.View) error {
	switch {
	case on.PatchSeq() < l.view.PatchSeq():
		return &fold.ConflictError{Base: on.PatchSeq(), Newest: l.view.PatchSeq()}
	case on.PatchSeq() > l.view.PatchSeq() || on.Len() > l.view.Len():
		return errReordered
	}
	for i, e := range on.Events() {
		if l.view.At(i).ID() != e.ID() {
			return errReordered
		}
	}
	return nil
}

// patchEvent returns the event that carries patches which apply to the session. Its time is after all events. Its
// author is the user, since ADK continues with the agent that is the author of the newest event not by the user.
func (l *baseLog) patchEvent(ctx context.Context, id string, patches []*patch.PatchEvent) (*session.Event, item, error) {
	said, err := portable.New(l.whole(), patches...)
	if err != nil {
		return nil, item{}, err
	}
	text, err := said.Text()
	if err != nil {
		return nil, item{}, err
	}
	at := l.newest
	if at.IsZero() {
		at = platform.Now(ctx)
	}
	e := &session.Event{
		ID: id, InvocationID: id, Author: storage.UserAuthor, Timestamp: at.Truncate(time.Microsecond).Add(time.Microsecond),
		LLMResponse: model.LLMResponse{CustomMetadata: map[string]any{portable.MetadataKey: text}},
		Actions:     session.EventActions{StateDelta: map[string]any{}},
	}
	for _, p := range patches {
		for _, one := range p.NewEvents() {
			for c := range one.SharedChanges() {
				e.Actions.StateDelta[c.Key] = c.Value.Any()
			}
		}
	}
	return e, item{patches: &said}, nil
}

// resembles reports whether two items may be the same event, whose id a base has changed.
func (it item) resembles(other item) bool {
	if it.event == nil || other.event == nil {
		return it.event == other.event && slices.Equal(it.patches.IDs(), other.patches.IDs())
	}
	a, b := it.event, other.event
	return a.Author() == b.Author() && a.InvocationID() == b.InvocationID() && a.Branch() == b.Branch() &&
		a.Timestamp().Truncate(time.Microsecond).Equal(b.Timestamp().Truncate(time.Microsecond))
}

// checkCreation returns an error if the session has another creation.
func (l *baseLog) checkCreation(creation string) error {
	first, bare := strings.CutPrefix(creation, barePrefix)
	_, there := l.items[first]
	if creation == "" || bare && isBare(l.creation) && there || SameSession(creation, l.creation) && (creation == l.creation || wasEmpty(creation)) {
		return nil
	}
	return fmt.Errorf("session %s: %w: it was created again since", l.key, store.ErrNotFound)
}

// barePrefix begins the creation of a session that was created without the wrapper and has no creation id. After it
// comes the first event or, if there was none, emptyMark and the time of creation.
const (
	barePrefix = "first event "
	emptyMark  = "none at "
)

func bareCreation(s session.Session, given []listed) string {
	if len(given) > 0 {
		return barePrefix + given[0].id
	}
	return barePrefix + emptyMark + s.LastUpdateTime().UTC().Format(time.RFC3339Nano)
}

func isBare(creation string) bool { return strings.HasPrefix(creation, barePrefix) }

func wasEmpty(creation string) bool { return strings.HasPrefix(creation, barePrefix+emptyMark) }

// SameSession reports whether two creations, seen at different times, may be of one session. Two sessions without
// events are the same only if their times of creation are equal.
func SameSession(seen, now string) bool {
	return seen == now || isBare(seen) && isBare(now) && !(wasEmpty(seen) && wasEmpty(now))
}

func (l *baseLog) stored() storage.Session {
	return storage.Session{Key: l.key, View: l.view, Shared: valuesOf(l.base.State().All(), convert.IsShared), Updated: l.updated}
}

// withOrigin returns the state for a new session in a base.
func withOrigin(state map[string]any) map[string]any {
	all, own := map[string]any{}, map[string]any{}
	for key, value := range state {
		all[key] = value
		if convert.IsOwn(key) {
			own[key] = value
		}
	}
	all[portable.StateKey] = map[string]any{"creation": uuid.NewString(), "initial": own}
	return all
}

// originOf returns the creation id and the initial state stored in a base's state; "" if there is none.
func originOf(state session.State) (creation string, initial map[string]patch.Value) {
	said, _ := state.Get(portable.StateKey)
	origin, _ := said.(map[string]any)
	creation, _ = origin["creation"].(string)
	own, _ := origin["initial"].(map[string]any)
	return creation, valuesOf(maps.All(own), convert.IsOwn)
}

// bareInitial is the initial state of a session created without the wrapper, as far as it is known: the keys that no
// event sets.
func bareInitial(state session.State, given []listed) map[string]patch.Value {
	set := map[string]bool{}
	for _, e := range given {
		for key := range e.event.Actions.StateDelta {
			set[key] = true
		}
	}
	return valuesOf(state.All(), func(key string) bool { return convert.IsOwn(key) && !set[key] })
}

// valuesOf returns the values of a base's state whose keys satisfy keep.
func valuesOf(state iter.Seq2[string, any], keep func(key string) bool) map[string]patch.Value {
	values := map[string]patch.Value{}
	for key, value := range state {
		if keep(key) {
			values[convert.Unicode(key)] = convert.Value(value)
		}
	}
	return values
}

// itemOf reads an event of a base. lossy, if not nil, says what the log cannot carry. An event with content is never
// read as patches, so no content is lost.
func itemOf(l listed) (it item, lossy error) {
	if said, ok := l.event.CustomMetadata[portable.MetadataKey].(string); ok && l.event.Content == nil {
		patches := portable.Parse(l.id, said)
		return item{patches: &patches}, nil
	}
	named := *l.event
	named.ID = l.id
	e, mended, err := convert.Event(&named)
	switch {
	case err != nil:
		e = convert.Nearest(&named)
	case mended:
		err = errors.New(convert.BadText)
	}
	return item{event: e}, err
}
