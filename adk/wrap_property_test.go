package adk_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"
	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Each of two services that wrap one base shows the base's events in the base's order, with the patches applied to
// the events whose ids they name. No event is lost or duplicated, and a refused write changes nothing. Meanwhile,
// another writer appends to the base directly, some appends fail before or after the base has stored the event, and
// the order of events with equal times changes.
//
// The long run: go test -run TestWrapProperty -rapid.checks=2000
func TestWrapProperty(t *testing.T) {
	setRapidChecks(t, "50")
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"append":  w.append,
			"append ": w.append,
			"bare":    w.appendToBase,
			"patch":   w.patch,
			"patch ":  w.patch,
			"revert":  w.revert,
			"rewind":  w.rewind,
			"again":   w.reload,
			"restart": w.restart,
			"preview": w.preview,
			"shuffle": func(t *rapid.T) { w.base.order++ },
			"":        w.check,
		})
	})
}

type world struct {
	base             *flakyService
	wraps            [2]*adk.Service
	handles          [2]*adk.Session
	names            int
	now              time.Time
	acked            []string // ids of events whose append succeeded
	initial          map[string]patch.Value
	created          map[string]any // state of the session in the base at its creation
	createdByWrapper bool           // whether the session was created through a wrapper
	othersAppended   int            // number of events that other writers have appended during the current call
}

func discardLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newWorld(t *rapid.T) *world {
	w := &world{now: time.Unix(1_700_000_000, 0).UTC(), base: &flakyService{
		sortsByTime:    rapid.Bool().Draw(t, "timed"),
		rejectsStale:   rapid.Bool().Draw(t, "strict"),
		truncatesTimes: rapid.Bool().Draw(t, "coarse"),
		roundTripsJSON: rapid.Bool().Draw(t, "lossy"),
		ignoresFilters: rapid.Bool().Draw(t, "whole"),
	}}
	for i := range w.wraps {
		w.wrap(t, i)
	}
	state := map[string]any{}
	if rapid.Bool().Draw(t, "has initial state") {
		state = map[string]any{"k": "initial", "z": []any{"z"}, "app:x": "shared"}
	}
	var creator session.Service = w.wraps[0]
	if w.createdByWrapper = rapid.Bool().Draw(t, "begun with the wrapper"); !w.createdByWrapper {
		creator = w.base
	}
	_, err := creator.Create(context.Background(), &session.CreateRequest{AppName: "app", UserID: "u", SessionID: "s", State: state})
	noError(t, err)
	w.created = maps.Clone(w.base.sessions["s"].state)
	w.initial = map[string]patch.Value{}
	for key, v := range state {
		value, err := patch.NewValue(v)
		noError(t, err)
		if !strings.HasPrefix(key, session.KeyPrefixApp) && !strings.HasPrefix(key, session.KeyPrefixUser) && !strings.HasPrefix(key, session.KeyPrefixTemp) {
			w.initial[key] = value
		}
	}
	for i := range w.handles {
		w.handles[i] = w.get(t, w.wraps[i])
	}
	return w
}

func (w *world) wrap(t *rapid.T, i int) {
	opts := adk.Options{Logger: discardLogger()}
	if i == 1 {
		opts = opts.WithoutCache()
	}
	var err error
	w.wraps[i], err = adk.Wrap(w.base, opts)
	noError(t, err)
}

func (w *world) get(t *rapid.T, s session.Service) *adk.Session {
	r, err := s.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "u", SessionID: "s"})
	noError(t, err)
	return r.Session.(*adk.Session)
}

func (w *world) name(what string) string {
	w.names++
	return fmt.Sprint(what, w.names)
}

func (w *world) pickService(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "which") }

// event generates an event for a session. The time of the event may be equal to or before the previous event's
// time.
func (w *world) event(t *rapid.T, visible []*patch.Event) *session.Event {
	step := rapid.SampledFrom([]time.Duration{0, 0, 0, 1500, time.Second, -time.Second, 300 * time.Nanosecond}).Draw(t, "step")
	w.now = w.now.Add(step)
	p := fuzz.Event(w.name("e"), visible).Draw(t, "event")
	e, _ := adk.SessionEvent(p)
	e.Timestamp, e.Partial = w.now, false
	e.InvocationID = rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "invocation")
	return e
}

func (w *world) fail(t *rapid.T) {
	w.base.failures = rapid.SampledFrom([][]failure{nil, nil, nil, nil, {failBefore}, {failAfter}, {noFailure, failBefore}, {noFailure, failAfter}}).Draw(t, "fails")
}

// scheduleOtherWriter makes another writer append after a service has read the base and before the service appends.
// The caller must call after when the service has returned.
func (w *world) scheduleOtherWriter(t *rapid.T, i int) (after func()) {
	other := w.wraps[1-i]
	added := 0
	switch rapid.IntRange(0, 5).Draw(t, "meanwhile") {
	case 0:
		w.base.beforeAppend = func() { w.appendToBase(t); added++ }
	case 1:
		w.base.beforeAppend = func() {
			h := w.get(t, other)
			before := len(w.base.ids())
			_, _ = other.ApplyPatch(context.Background(), h, []*patch.PatchEvent{fuzz.Patch(w.name("p"), w.visible(h)).Draw(t, "other patch")}, store.PatchOptions{})
			added += len(w.base.ids()) - before
		}
	}
	w.othersAppended = 0
	return func() {
		w.base.beforeAppend = nil
		w.othersAppended = added
	}
}

func (w *world) visible(h *adk.Session) (out []*patch.Event) {
	for _, e := range h.View().Events() {
		out = append(out, e)
	}
	return out
}

func (w *world) append(t *rapid.T) {
	i := w.pickService(t)
	h := w.handles[i]
	e := w.event(t, w.visible(h))
	w.fail(t)
	fails := w.base.failures != nil
	done := w.scheduleOtherWriter(t, i)
	err := w.wraps[i].AppendEvent(context.Background(), h, e)
	done()
	w.base.failures = nil
	after := w.base.ids()
	stored := slices.Contains(after, e.ID)
	switch {
	case err == nil && !stored:
		t.Fatalf("event %q was acknowledged, but the base lacks it", e.ID)
	case err != nil && stored:
		t.Fatalf("event %q is in the base, but the error is %v", e.ID, err)
	case errors.Is(err, fold.ErrOrphanedCall): // accepted, because there is no valid place for the answered call
	case errors.Is(err, store.ErrOutcomeUnknown) && w.othersAppended > 0 && w.base.hasTwin(e): // accepted, because the base may have changed the event's id
	case err != nil && !(fails && errors.Is(err, errFlaky)): // other errors, such as that of a stale session, must not occur
		t.Fatalf("event %q: %v", e.ID, err)
	case err == nil:
		w.acked = append(w.acked, e.ID)
		if !slices.ContainsFunc(w.visible(h), func(p *patch.Event) bool { return p.ID() == e.ID }) {
			t.Fatalf("the session does not show %q, which was appended through it", e.ID)
		}
		if err := w.wraps[i].AppendEvent(context.Background(), h, e); err != nil && !errors.Is(err, fold.ErrOrphanedCall) {
			t.Fatal(err)
		}
		again := slices.DeleteFunc(w.base.ids(), func(id string) bool { return id != e.ID })
		if len(again) != 1 { // the append may also restore a call that the event answers
			t.Fatalf("a retry of %q was logged", e.ID)
		}
	}
}

func (w *world) appendToBase(t *rapid.T) {
	r, err := w.base.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "u", SessionID: "s"})
	noError(t, err)
	e := w.event(t, nil)
	fails := w.base.failures
	w.base.failures = nil
	noError(t, w.base.AppendEvent(context.Background(), r.Session, e))
	w.base.failures = fails
	w.acked = append(w.acked, e.ID)
}

func (w *world) patch(t *rapid.T) {
	i := w.pickService(t)
	h := w.handles[i]
	p := fuzz.Patch(w.name("p"), w.visible(h)).Draw(t, "patch")
	before := h.View()
	err := w.checkedPatch(t, i, func() error {
		_, err := w.wraps[i].ApplyPatch(context.Background(), h, []*patch.PatchEvent{p}, store.PatchOptions{})
		return err
	})
	if err == nil && w.othersAppended == 0 {
		w.checkEffect(t, p, before, h.View())
	}
}

// checkEffect checks that a patch removed the events at its author's indices, and no other events.
func (w *world) checkEffect(t *rapid.T, p *patch.PatchEvent, before, after fold.View) {
	saw, now := idsOf(before.Events()), idsOf(after.Events())
	start, end := 0, 0
	switch p.Type() {
	case patch.Splice, patch.Summarise:
		start, end = p.Start(), p.Start()+p.Count()
	case patch.TruncateBefore:
		end = slices.Index(saw, p.EventID())
	}
	// If the base has changed the order of the first events, other patches may now apply. But the events that this
	// patch removed must still be hidden.
	same := before.Creation() == after.Creation()
	for i, id := range saw {
		if removed := start <= i && i < end; slices.Contains(now, id) == removed && (removed || same) {
			t.Fatalf("%v on %q (skips %d, %s) gave %q (skips %d, %s)", p, saw, before.SkippedCount(), before.Creation(), now, after.SkippedCount(), after.Creation())
		}
	}
}

func (w *world) revert(t *rapid.T) {
	i := w.pickService(t)
	var ids []string
	for r, err := range w.wraps[i].RawEvents(context.Background(), w.handles[i], 1) {
		noError(t, err)
		if r.Patch != nil {
			ids = append(ids, r.ID())
		}
	}
	if len(ids) == 0 {
		t.Skip("there is no patch")
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	w.checkedPatch(t, i, func() error {
		_, err := w.wraps[i].Revert(context.Background(), w.handles[i], id)
		return err
	})
}

func (w *world) rewind(t *rapid.T) {
	i := w.pickService(t)
	id := rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "invocation")
	w.checkedPatch(t, i, func() error {
		_, err := w.wraps[i].Rewind(context.Background(), w.handles[i], id)
		return err
	})
}

// checkedPatch applies a patch and checks the events of the base after the patch was accepted or refused.
func (w *world) checkedPatch(t *rapid.T, i int, do func() error) error {
	before := w.base.ids()
	w.fail(t)
	done := w.scheduleOtherWriter(t, i)
	err := do()
	done()
	w.base.failures = nil
	after := w.base.ids()
	switch {
	case err == nil:
		if n := len(after) - len(before) - w.othersAppended; n > 1 {
			t.Fatalf("one patch added %d events to the base", n)
		}
		if w.othersAppended == 0 {
			w.checkSession(t, w.wraps[i], w.handles[i])
		}
	case errors.Is(err, store.ErrConflict) && len(after) == len(before)+w.othersAppended+1: // accepted, because another writer's patch was logged first
	case len(after) != len(before)+w.othersAppended:
		t.Fatalf("a refused patch (%v) changed the base", err)
	case errors.Is(err, errFlaky), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrInvalid), errors.Is(err, fold.ErrOutOfRange),
		errors.Is(err, fold.ErrEventNotFound), errors.Is(err, fold.ErrOrphanedCall), errors.Is(err, fold.ErrBlocked),
		errors.Is(err, fold.ErrPinned), errors.Is(err, store.ErrDuplicateID), errors.Is(err, fold.ErrUnknownPatch):
	default:
		t.Fatal(err)
	}
	return err
}

func (w *world) preview(t *rapid.T) {
	i := w.pickService(t)
	h := w.handles[i]
	p := fuzz.Patch(w.name("p"), w.visible(h)).Draw(t, "patch")
	before := w.base.ids()
	preview, err := w.wraps[i].Preview(context.Background(), h, []*patch.PatchEvent{p}, store.PatchOptions{})
	if after := w.base.ids(); !slices.Equal(before, after) {
		t.Fatal("a preview wrote")
	}
	_, applyErr := w.wraps[i].ApplyPatch(context.Background(), h, []*patch.PatchEvent{p}, store.PatchOptions{})
	if (err == nil) != (applyErr == nil) {
		t.Fatalf("preview: %v; apply: %v", err, applyErr)
	}
	was, is := idsOf(preview.After.Events()), idsOf(h.View().Events())
	if err == nil && !slices.Equal(was, is) {
		t.Fatalf("the preview showed %q, but the visible log is %q", was, is)
	}
}

func (w *world) reload(t *rapid.T) {
	i := w.pickService(t)
	w.handles[i] = w.get(t, w.wraps[i])
}

func (w *world) restart(t *rapid.T) { w.wrap(t, w.pickService(t)) }

// check compares the sessions that each service shows with the content of the base.
func (w *world) check(t *rapid.T) {
	ids := w.base.ids()
	seen := map[string]int{}
	for _, id := range ids {
		seen[id]++
	}
	for _, id := range w.acked {
		if seen[id] != 1 {
			t.Fatalf("acknowledged event %q is in the base %d times", id, seen[id])
		}
	}
	for _, s := range w.wraps {
		w.checkSession(t, s, w.get(t, s))
	}
	fresh, err := adk.Wrap(w.base, adk.Options{Logger: discardLogger()})
	noError(t, err)
	w.checkSession(t, fresh, w.get(t, fresh))
}

// A service shows the same session whatever the order and the portions in which it reads the events of the
// base.
func TestWrapArrivalOrder(t *testing.T) {
	setRapidChecks(t, "50")
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(4, 20).Draw(rt, "steps") {
			w.handles[0] = w.get(rt, w.wraps[0])
			rapid.SampledFrom([]func(*rapid.T){w.append, w.append, w.appendToBase, w.patch, w.patch, w.revertIfAny, w.rewind}).Draw(rt, "step")(rt)
		}
		arriving := slices.Clone(w.base.sessions["s"].events)
		for n := rapid.IntRange(0, 6).Draw(rt, "swaps"); n > 0 && len(arriving) > 1; n-- {
			i := rapid.IntRange(0, len(arriving)-2).Draw(rt, "swap")
			j := rapid.IntRange(i+1, min(len(arriving)-1, i+5)).Draw(rt, "with")
			arriving[i], arriving[j] = arriving[j], arriving[i]
		}
		w.base.sessions["s"].events = nil
		w.base.sessions["s"].state = w.created
		w.wrap(rt, 0)
		s := w.wraps[0]
		for len(arriving) > 0 {
			n := rapid.IntRange(1, min(3, len(arriving))).Draw(rt, "arrive")
			stored := w.base.sessions["s"]
			stored.events, arriving = append(stored.events, arriving[:n]...), arriving[n:]
			w.checkSession(rt, s, w.get(rt, s))
			fresh, err := adk.Wrap(w.base, adk.Options{Logger: discardLogger()})
			noError(rt, err)
			w.checkSession(rt, fresh, w.get(rt, fresh))
		}
	})
}

func (w *world) revertIfAny(t *rapid.T) {
	for _, id := range w.base.ids() {
		if strings.Contains(id, "-") { // the id is a UUID, so the event carries patches
			w.revert(t)
			return
		}
	}
}

// checkSession compares a session with the result of applyByIDs, to which it passes events with equal times in the
// session's order.
func (w *world) checkSession(t *rapid.T, s *adk.Service, h *adk.Session) {
	t.Helper()
	var order []*patch.Event
	var records []patch.Record
	for r, err := range s.RawEvents(context.Background(), h, 1) {
		noError(t, err)
		records = append(records, r)
		if r.Event != nil {
			order = append(order, r.Event)
		}
	}
	r, err := w.base.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "u", SessionID: "s"})
	noError(t, err)
	var events []*session.Event
	set := map[string]bool{}
	for e := range r.Session.Events().All() {
		if _, ok := parseCarrier(t, e); ok {
			continue
		}
		events = append(events, e)
		for key := range e.Actions.StateDelta {
			set[key] = true
		}
	}
	if len(order) != len(events) {
		t.Fatalf("the session has %d events, the base %d", len(order), len(events))
	}
	for i, e := range events {
		if order[i].ID() != e.ID {
			t.Fatal("events are not in the base's order")
		}
	}
	initial := maps.Clone(w.initial)
	visible, pinned, state, left := applyByIDs(t, initial, order, r.Session.Events())
	if got := idsOf(h.View().Events()); !slices.Equal(got, visible) {
		t.Fatalf("the visible log is\n%q, want\n%q", got, visible)
	}
	for i := range visible {
		if h.View().IsPinned(i) != pinned[i] {
			t.Fatalf("whether event %q is pinned differs from the reference", visible[i])
		}
	}
	gotState := maps.Collect(h.View().Values())
	if !w.createdByWrapper { // the initial state that a service computes depends on when the service first read the session
		for key := range w.initial {
			if set[key] {
				delete(gotState, key)
				delete(state, key)
			}
		}
	}
	if !maps.EqualFunc(gotState, state, patch.Value.Equal) {
		t.Fatalf("the state is\n%v, want\n%v", gotState, state)
	}
	skipped, err := h.View().Skipped()
	noError(t, err)
	if len(skipped) != left {
		t.Fatalf("%d patches are skipped, want %d", len(skipped), left)
	}
	// The reference model computes the same result from the records of the log.
	ref := fuzz.NewReference(initial)
	for _, r := range records {
		ref.Apply(r)
	}
	if folded := idsOf(slices.All(ref.Visible())); !slices.Equal(folded, visible) {
		t.Fatalf("the records fold to %q, but the visible log is %q", folded, visible)
	}
}

func idsOf(events func(func(int, *patch.Event) bool)) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	return ids
}

func (s *flakyService) ids() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions["s"].events {
		ids = append(ids, e.ID)
	}
	return ids
}

// carrier is the decoded form of an event that carries patches.
type carrier struct {
	id      string
	at      time.Time
	Patches []struct {
		Patch json.RawMessage
		Place *struct {
			Before string
			Events []string
		}
	}
}

func parseCarrier(t *rapid.T, e *session.Event) (c carrier, ok bool) {
	said, ok := e.CustomMetadata["_patchlog"].(string)
	if !ok {
		return c, false
	}
	noError(t, json.Unmarshal([]byte(said), &c))
	c.id, c.at = e.ID, e.Timestamp
	if e.Content != nil {
		t.Fatal("an event that carries patches has content")
	}
	return c, true
}

// applyByIDs applies patches to the events whose ids they name, in the simplest way. It applies all patches of one
// event or none.
func applyByIDs(t *rapid.T, initial map[string]patch.Value, events []*patch.Event, all session.Events) (visible []string, pinned []bool, state map[string]patch.Value, left int) {
	var records []patch.Record
	fold := func(records []patch.Record) *fuzz.Reference {
		ref := fuzz.NewReference(initial)
		for _, r := range records {
			ref.Apply(r)
		}
		return ref
	}
	for e := range all.All() {
		c, ok := parseCarrier(t, e)
		if !ok {
			records = append(records, patch.Record{Seq: uint64(len(records)) + 1, Event: events[0]})
			events = events[1:]
			continue
		}
		trial := slices.Clone(records)
		for _, p := range c.Patches {
			ref := fold(trial)
			var fields map[string]json.RawMessage
			noError(t, json.Unmarshal(p.Patch, &fields))
			if p.Place != nil {
				start, found := findPlace(ref.Visible(), p.Place.Before, p.Place.Events)
				if _, indexed := fields["start"]; indexed {
					fields["start"] = fmt.Append(nil, start)
				} else { // truncate_before: all events before an event
					found = found && start == 0 && len(ref.Visible()) > len(p.Place.Events) &&
						fmt.Sprintf("%q", ref.Visible()[len(p.Place.Events)].ID()) == string(fields["eventId"])
				}
				if ok = ok && found; !ok {
					break
				}
			}
			text, err := json.Marshal(fields)
			noError(t, err)
			r, err := patch.ParseRecord(text)
			noError(t, err)
			r.Seq = uint64(len(trial)) + 1
			trial = append(trial, r)
			ok = ok && len(fold(trial).Skipped()) == 0
		}
		if ok {
			records = trial
		} else {
			left += len(c.Patches)
		}
	}
	ref := fold(records)
	return idsOf(slices.All(ref.Visible())), ref.Pinned(), ref.State(), left
}

// findPlace returns the start index of the events with the given ids. The events must be adjacent, in any order. If ids
// is empty, findPlace returns the index after the event with the id before.
func findPlace(visible []*patch.Event, before string, ids []string) (int, bool) {
	now := idsOf(slices.All(visible))
	if len(ids) == 0 {
		i := slices.Index(now, before)
		return i + 1, before == "" || i >= 0
	}
	want := slices.Sorted(slices.Values(ids))
	for i := 0; i+len(ids) <= len(now); i++ {
		if slices.Equal(slices.Sorted(slices.Values(now[i:i+len(ids)])), want) {
			return i, true
		}
	}
	return 0, false
}

// flakyService is a session service with configurable peculiarities. Each of them occurs in some existing
// service.
type flakyService struct {
	sortsByTime    bool // orders events by time; events with equal times are in any order
	rejectsStale   bool // rejects an append through a session that is not up to date
	truncatesTimes bool
	roundTripsJSON bool // returns values as they are after a round trip through JSON
	renamesEvents  bool // assigns its own ids to events
	ignoresFilters bool

	mu           sync.Mutex
	sessions     map[string]*flakySession
	failures     []failure // how the next appends fail
	beforeAppend func()    // called once, before the next append
	down         bool
	appends      int
	eventsRead   int    // number of events that calls of Get have read
	order        uint64 // determines the order of events with equal times
}

type failure string

const (
	noFailure     failure = ""
	failBefore    failure = "before"
	failAfter     failure = "after the event is stored"
	failWithPanic failure = "with a panic"
)

var errFlaky = errors.New("the service fails")

type flakySession struct {
	broken   bool // set after a panic
	id, user string
	events   []*session.Event
	state    map[string]any
	updated  time.Time
	last     *flakySession // the stored session from which this copy was read
}

func (s *flakySession) ID() string                { return s.id }
func (s *flakySession) AppName() string           { return "app" }
func (s *flakySession) UserID() string            { return s.user }
func (s *flakySession) LastUpdateTime() time.Time { return s.updated }
func (s *flakySession) Events() session.Events    { return s }
func (s *flakySession) State() session.State      { return flakyState(s.state) }
func (s *flakySession) Len() int                  { return len(s.events) }
func (s *flakySession) At(i int) *session.Event   { return s.events[i] }
func (s *flakySession) All() iter.Seq[*session.Event] {
	return slices.Values(s.events)
}

type flakyState map[string]any

func (s flakyState) Get(key string) (any, error) {
	v, ok := s[key]
	if !ok {
		return nil, session.ErrStateKeyNotExist
	}
	return v, nil
}
func (s flakyState) Set(key string, v any) error { s[key] = v; return nil }
func (s flakyState) All() iter.Seq2[string, any] { return maps.All(s) }

// roundTrip returns v as the service returns it, after a round trip through JSON if roundTripsJSON is set.
func roundTrip[T any](s *flakyService, v T) (out T) {
	if !s.roundTripsJSON {
		return v
	}
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func (s *flakyService) Create(_ context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[r.SessionID] != nil || s.down {
		return nil, errFlaky
	}
	state := map[string]any{}
	maps.Copy(state, r.State)
	if s.sessions == nil {
		s.sessions = map[string]*flakySession{}
	}
	s.sessions[r.SessionID] = &flakySession{id: r.SessionID, user: r.UserID, state: state, updated: time.Unix(1, 0)}
	return &session.CreateResponse{Session: s.read(s.sessions[r.SessionID])}, nil
}

func (s *flakyService) read(of *flakySession) *flakySession {
	events := slices.Clone(of.events)
	if s.sortsByTime {
		rank := func(e *session.Event) uint32 { return crc32.ChecksumIEEE(fmt.Append(nil, s.order, e.ID)) }
		slices.SortStableFunc(events, func(a, b *session.Event) int {
			return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(rank(a), rank(b)))
		})
	}
	for i, e := range events {
		events[i] = roundTrip(s, e)
	}
	return &flakySession{id: of.id, user: of.user, events: events, state: roundTrip(s, maps.Clone(of.state)), updated: of.updated, last: of}
}

func (s *flakyService) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := s.sessions[r.SessionID]
	if of == nil || s.down {
		return nil, errFlaky
	}
	read := s.read(of)
	if n := r.NumRecentEvents; n > 0 && !s.ignoresFilters {
		read.events = read.events[max(0, len(read.events)-n):]
	}
	read.events = slices.DeleteFunc(read.events, func(e *session.Event) bool { return !s.ignoresFilters && e.Timestamp.Before(r.After) })
	s.eventsRead += len(read.events)
	return &session.GetResponse{Session: read}, nil
}

func (s *flakyService) List(context.Context, *session.ListRequest) (*session.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errFlaky
	}
	out := &session.ListResponse{}
	for _, of := range s.sessions {
		listed := s.read(of)
		listed.events, listed.state = nil, nil
		out.Sessions = append(out.Sessions, listed)
	}
	return out, nil
}

func (s *flakyService) Delete(_ context.Context, r *session.DeleteRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errFlaky
	}
	delete(s.sessions, r.SessionID)
	return nil
}

// hasTwin reports whether the base has another event with the same author, invocation, branch and time as e.
func (s *flakyService) hasTwin(e *session.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stored := range s.sessions {
		for _, other := range stored.events {
			if other.ID != e.ID && other.Author == e.Author && other.InvocationID == e.InvocationID && other.Branch == e.Branch &&
				other.Timestamp.Truncate(time.Microsecond).Equal(e.Timestamp.Truncate(time.Microsecond)) {
				return true
			}
		}
	}
	return false
}

func (s *flakyService) AppendEvent(_ context.Context, of session.Session, e *session.Event) error {
	s.mu.Lock()
	if do := s.beforeAppend; do != nil {
		s.beforeAppend = nil
		s.mu.Unlock()
		do()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	read, ok := of.(*flakySession)
	if !ok {
		return fmt.Errorf("unexpected session type %T", of)
	}
	s.appends++
	how := noFailure
	if len(s.failures) > 0 {
		how, s.failures = s.failures[0], s.failures[1:]
	}
	read.events = append(read.events, e) // the session in memory gets the event even if the append fails
	stored := s.sessions[read.id]
	switch {
	case how == failWithPanic:
		read.broken = true
		panic(errFlaky)
	case s.down, stored == nil, how == failBefore, read.broken:
		return errFlaky
	case s.rejectsStale && stored.updated.After(read.updated):
		return fmt.Errorf("stale: %w", errFlaky)
	}
	kept := *e
	if s.truncatesTimes {
		kept.Timestamp = kept.Timestamp.Truncate(time.Microsecond)
	}
	if s.renamesEvents {
		kept.ID = fmt.Sprintf("own-%d", len(stored.events))
	}
	kept.Actions.StateDelta = maps.Clone(e.Actions.StateDelta)
	for key, v := range e.Actions.StateDelta {
		if !strings.HasPrefix(key, "temp:") {
			stored.state[key] = v
		} else {
			delete(kept.Actions.StateDelta, key)
		}
	}
	stored.events = append(stored.events, &kept)
	stored.updated = kept.Timestamp
	if how == failAfter {
		return errFlaky
	}
	read.updated = kept.Timestamp
	return nil
}

var _ session.Service = (*flakyService)(nil)
