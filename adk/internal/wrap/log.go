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

// baseLog presents a session of the base as a log. Each event of the base is one record, except that an event that
// carries patches is one record per patch. If the patches do not apply, their records are placeholders, which the
// fold skips. A cached baseLog is used only while the session's lock is held. Other readers use a copy.
type baseLog struct {
	key    store.Key
	logger *slog.Logger

	base session.Session // the session as last read from the base; nil if not read yet

	// tracksUpdateTime reports whether the base sets base.LastUpdateTime to the time of an event appended through it.
	tracksUpdateTime bool

	creation string
	empty    fold.View // the view without records

	order   []string        // ids of the base's events, in order
	items   map[string]item // items by id; if several events have the same id, the first event's item
	records []patch.Record
	ids     map[string]uint64 // maps each id to the seq of the first record that contains the id
	view    fold.View
	skipped map[string]bool // ids of the items whose patches do not apply

	updated time.Time // time of the newest event that does not carry patches
	newest  time.Time // the latest time of any event
	size    int
}

// copy returns a copy for readers that do not hold the session's lock. The copy contains only the fields that
// readers use.
func (l *baseLog) copy() baseLog {
	return baseLog{key: l.key, creation: l.creation, empty: l.empty, view: l.view, records: l.records, updated: l.updated}
}

// item is an event of the base in the form that the log uses: an event of the log, or patches.
type item struct {
	event   *patch.Event
	patches *portable.Patches
}

// baseEvent is an event of a base, with the id that its item has.
type baseEvent struct {
	id    string
	event *session.Event
}

// eventsOf returns the events of a base's session. If the log cannot store an event's id, eventsOf replaces the id
// by one computed from the event.
func eventsOf(s session.Session) (list []baseEvent) {
	for e := range s.Events().All() {
		if e == nil {
			continue
		}
		id := e.ID
		if id == "" || len(id) > patch.MaxIDBytes || !utf8.ValidString(id) {
			content, _ := json.Marshal(e.Content)
			id = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%q %q %q %v %s", e.ID, e.Author, e.InvocationID, e.Timestamp, content)).String()
		}
		list = append(list, baseEvent{id, e})
	}
	return list
}

// extend adds the new events of the base's session to the log. If it cannot tell which events are new, it changes
// nothing and returns false. The argument complete reports whether all events of the session were read, and not only
// the newest.
func (l *baseLog) extend(from session.Session, complete bool) bool {
	if !l.matchesCreation(from) {
		return false
	}
	events := eventsOf(from)
	if len(l.order)+len(events) == 0 && isUnwrapped(l.creation) && l.creation != unwrappedCreation(from, events) {
		return false
	}
	isOverlap := func(n int) bool { // isOverlap reports whether the first n events are the last n events of the log
		return slices.EqualFunc(l.order[len(l.order)-n:], events[:n], func(id string, e baseEvent) bool { return id == e.id })
	}
	overlap := min(len(l.order), len(events))
	switch {
	case complete && overlap < len(l.order), complete && !isOverlap(overlap), complete && overlap == 0 && len(events) > 0 && isUnwrapped(l.creation):
		return false
	case !complete && len(events) == 0:
		return len(l.order) == 0 || l.base.LastUpdateTime().Equal(from.LastUpdateTime())
	case !complete:
		for ; overlap > 0 && !isOverlap(overlap); overlap-- {
		}
		if overlap == 0 {
			return false
		}
	}
	if slices.ContainsFunc(events[overlap:], func(e baseEvent) bool { _, ok := l.items[e.id]; return ok }) {
		return false // the base has changed the order of events with equal times
	}
	l.base = from
	l.add(events[overlap:], nil)
	return true
}

// matchesCreation reports whether the creation id of a base's session permits that it is the log's session.
func (l *baseLog) matchesCreation(from session.Session) bool {
	creation, _ := originOf(from.State())
	return creation == l.creation || creation == "" && isUnwrapped(l.creation)
}

// rebuild replaces the content of the log by all events of a base's session. Events that the log contained before
// keep their items, because the base may not preserve Go types.
func (l *baseLog) rebuild(from session.Session, edition uint64) {
	events := eventsOf(from)
	creation, initial := originOf(from.State())
	if creation == "" {
		creation, initial = unwrappedCreation(from, events), unwrappedInitial(from.State(), events)
	}
	oldItems := l.items
	if l.base == nil || l.checkCreation(creation) != nil {
		oldItems = nil
	}
	empty := fold.New(creation, initial).WithEdition(edition)
	*l = baseLog{key: l.key, logger: l.logger, base: from, creation: creation, empty: empty, view: empty, updated: from.LastUpdateTime(),
		items: map[string]item{}, ids: map[string]uint64{}, skipped: map[string]bool{}}
	l.add(events, oldItems)
}

// add adds events of the base. If oldItems contains an item for the id of an event, add uses this item.
func (l *baseLog) add(list []baseEvent, oldItems map[string]item) {
	for _, e := range list {
		it, ok := oldItems[e.id]
		if !ok {
			var err error
			if it, err = newItem(e); err != nil {
				l.logger.Warn("patchlog: an event has values that JSON cannot encode; the session shows them as text", "session", l.key.String(), "event", e.id, "error", err)
			}
		}
		delete(oldItems, e.id) // another event with this id may have different content
		l.addItem(e.id, e.event.Timestamp, it)
	}
	l.fold()
}

// addItem adds an item. The caller calls fold afterwards to update the view.
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
	patches, ok := it.patches.Resolve(l.viewWithRecords())
	if !ok {
		l.skipped[id] = true
		l.logger.Warn("patchlog: patches are skipped, because the events that they name are not adjacent in the session, or because another version of patchlog wrote the patches",
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

// recordsUpTo returns the records up to seq, or all records if seq is nil.
func (l *baseLog) recordsUpTo(seq *uint64) ([]patch.Record, error) {
	switch {
	case seq == nil:
		return l.records, nil
	case *seq > l.view.Seq():
		return nil, fmt.Errorf("session %s: %w: it has no record %d", l.key, store.ErrNotFound, *seq)
	}
	return l.records[:*seq], nil
}

func (l *baseLog) viewWithRecords() fold.View { return l.view.WithRecords(l.records[:l.view.Seq()]) }

// fold updates the view from the new records.
func (l *baseLog) fold() {
	v, err := l.viewWithRecords().Apply(l.records[l.view.Seq():]...)
	if err != nil {
		panic(err)
	}
	l.view = v
}

// draft checks patches as a store does. It fails if the author of the patches saw another session. drafted
// contains the patches in the form in which they would be logged. missing contains the indices of the patches that
// are not in the log yet. after is the view after all patches.
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
	log := l.loggedMatches(completed)
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
	err = d.AddPatches(log, opts, drafted, missing)
	return drafted, missing, d.View, err
}

// loggedMatches returns the records of the log whose ids also occur in call, and all groups in the log.
func (l *baseLog) loggedMatches(call []patch.Record) fold.Logged {
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

// checkSeen checks the view that the author of a patch saw. It returns an error unless this view has all current
// patches, and the events in their current order.
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

// carrierEvent returns an event that carries patches. The patches must apply to the session. The event is later than
// every other event of the session. Its author is the user, because ADK ignores the user's events when it chooses the
// agent that continues.
func (l *baseLog) carrierEvent(ctx context.Context, id string, patches []*patch.PatchEvent) (*session.Event, item, error) {
	encoded, err := portable.New(l.viewWithRecords(), patches...)
	if err != nil {
		return nil, item{}, err
	}
	text, err := encoded.Text()
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
		for _, added := range p.NewEvents() {
			for c := range added.SharedChanges() {
				e.Actions.StateDelta[c.Key] = c.Value.Any()
			}
		}
	}
	return e, item{patches: &encoded}, nil
}

// resembles reports whether two items with different ids can be the same event. Some bases change the ids of
// events.
func (it item) resembles(other item) bool {
	if it.event == nil || other.event == nil {
		return it.event == other.event && slices.Equal(it.patches.IDs(), other.patches.IDs())
	}
	a, b := it.event, other.event
	return a.Author() == b.Author() && a.InvocationID() == b.InvocationID() && a.Branch() == b.Branch() &&
		a.Timestamp().Truncate(time.Microsecond).Equal(b.Timestamp().Truncate(time.Microsecond))
}

// checkCreation returns an error unless the session can have the given creation id.
func (l *baseLog) checkCreation(creation string) error {
	first, unwrapped := strings.CutPrefix(creation, unwrappedPrefix)
	_, hasFirst := l.items[first]
	if creation == "" || unwrapped && isUnwrapped(l.creation) && hasFirst || SameSession(creation, l.creation) && (creation == l.creation || isOfEmptySession(creation)) {
		return nil
	}
	return fmt.Errorf("session %s: %w: the session was deleted and created again; get it again", l.key, store.ErrNotFound)
}

// unwrappedPrefix is the start of the creation id of a session that was created without the wrapper. The id of the
// session's first event follows. If the session had no event, emptyMark and the creation time follow instead.
const (
	unwrappedPrefix = "first event "
	emptyMark       = "none at "
)

func unwrappedCreation(s session.Session, events []baseEvent) string {
	if len(events) > 0 {
		return unwrappedPrefix + events[0].id
	}
	return unwrappedPrefix + emptyMark + s.LastUpdateTime().UTC().Format(time.RFC3339Nano)
}

func isUnwrapped(creation string) bool { return strings.HasPrefix(creation, unwrappedPrefix) }

func isOfEmptySession(creation string) bool {
	return strings.HasPrefix(creation, unwrappedPrefix+emptyMark)
}

// SameSession reports whether two creation ids that were read at different times can belong to the same session. Two
// sessions without events are the same only if their creation times are equal.
func SameSession(seen, now string) bool {
	return seen == now || isUnwrapped(seen) && isUnwrapped(now) && !(isOfEmptySession(seen) && isOfEmptySession(now))
}

func (l *baseLog) session() storage.Session {
	return storage.Session{Key: l.key, View: l.view, Shared: valuesOf(l.base.State().All(), convert.IsSharedKey), Updated: l.updated}
}

// withOrigin returns the state with which a session is created in the base. It adds a creation id and a copy of
// the initial state to the given state.
func withOrigin(state map[string]any) map[string]any {
	all, initial := map[string]any{}, map[string]any{}
	for key, value := range state {
		all[key] = value
		if convert.IsSessionKey(key) {
			initial[key] = value
		}
	}
	all[portable.StateKey] = map[string]any{"creation": uuid.NewString(), "initial": initial}
	return all
}

// originOf returns the creation id and the initial state that withOrigin added. If there is no creation id, creation
// is "".
func originOf(state session.State) (creation string, initial map[string]patch.Value) {
	value, _ := state.Get(portable.StateKey)
	origin, _ := value.(map[string]any)
	creation, _ = origin["creation"].(string)
	values, _ := origin["initial"].(map[string]any)
	return creation, valuesOf(maps.All(values), convert.IsSessionKey)
}

// unwrappedInitial returns an approximation of the initial state of a session that was created without the wrapper. It
// contains the keys that no event sets.
func unwrappedInitial(state session.State, events []baseEvent) map[string]patch.Value {
	set := map[string]bool{}
	for _, e := range events {
		for key := range e.event.Actions.StateDelta {
			set[key] = true
		}
	}
	return valuesOf(state.All(), func(key string) bool { return convert.IsSessionKey(key) && !set[key] })
}

// valuesOf returns the entries of a base's state whose keys satisfy keep.
func valuesOf(state iter.Seq2[string, any], keep func(key string) bool) map[string]patch.Value {
	values := map[string]patch.Value{}
	for key, value := range state {
		if keep(key) {
			values[convert.ToValidUTF8(key)] = convert.LossyValue(value)
		}
	}
	return values
}

// newItem converts an event of a base. If the log cannot store some values of the event, lossy describes these
// values. To prevent the loss of content, newItem never interprets an event with content as patches.
func newItem(b baseEvent) (it item, lossy error) {
	if text, ok := b.event.CustomMetadata[portable.MetadataKey].(string); ok && b.event.Content == nil {
		patches := portable.Parse(b.id, text)
		return item{patches: &patches}, nil
	}
	named := *b.event
	named.ID = b.id
	e, repaired, err := convert.Event(&named)
	switch {
	case err != nil:
		e = convert.LossyEvent(&named)
	case repaired:
		err = errors.New(convert.InvalidUTF8)
	}
	return item{event: e}, err
}
