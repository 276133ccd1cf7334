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

// Two services wrap one base, and another writer appends to the base directly. Some appends fail, before or after the
// base has stored the event. The order of events with equal times changes. Each service shows the base's events in
// the base's order, with the patches applied to the events whose ids they name. No event is lost or duplicated, and a
// refused write changes nothing.
//
// The long run: go test -run TestWrapProperty -rapid.checks=2000
func TestWrapProperty(t *testing.T) {
	quickly(t, "50")
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"append":  w.append,
			"append ": w.append,
			"bare":    w.bare,
			"patch":   w.patch,
			"patch ":  w.patch,
			"revert":  w.revert,
			"rewind":  w.rewind,
			"again":   w.again,
			"restart": w.restart,
			"preview": w.preview,
			"shuffle": func(t *rapid.T) { w.base.order++ },
			"":        w.check,
		})
	})
}

type world struct {
	base    *shaky
	wraps   [2]*adk.Service
	handles [2]*adk.Session
	named   int
	now     time.Time
	acked   []string // ids of events whose append succeeded
	initial map[string]patch.Value
	created map[string]any // the state in the base at creation
	began   bool           // the session was created through a wrapper
	others  int            // number of events that other writers appended during the current call
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newWorld(t *rapid.T) *world {
	w := &world{now: time.Unix(1_700_000_000, 0).UTC(), base: &shaky{
		timed:  rapid.Bool().Draw(t, "timed"),
		strict: rapid.Bool().Draw(t, "strict"),
		coarse: rapid.Bool().Draw(t, "coarse"),
		lossy:  rapid.Bool().Draw(t, "lossy"),
		whole:  rapid.Bool().Draw(t, "whole"),
	}}
	for i := range w.wraps {
		w.wrap(t, i)
	}
	state := map[string]any{}
	if rapid.Bool().Draw(t, "has initial state") {
		state = map[string]any{"k": "initial", "z": []any{"z"}, "app:x": "shared"}
	}
	var creator session.Service = w.wraps[0]
	if w.began = rapid.Bool().Draw(t, "begun with the wrapper"); !w.began {
		creator = w.base
	}
	_, err := creator.Create(context.Background(), &session.CreateRequest{AppName: "app", UserID: "u", SessionID: "s", State: state})
	no(t, err)
	w.created = maps.Clone(w.base.sessions["s"].state)
	w.initial = map[string]patch.Value{}
	for key, v := range state {
		value, err := patch.NewValue(v)
		no(t, err)
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
	opts := adk.Options{Logger: quiet()}
	if i == 1 {
		opts = opts.WithoutCache()
	}
	var err error
	w.wraps[i], err = adk.Wrap(w.base, opts)
	no(t, err)
}

func (w *world) get(t *rapid.T, s session.Service) *adk.Session {
	r, err := s.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "u", SessionID: "s"})
	no(t, err)
	return r.Session.(*adk.Session)
}

func (w *world) name(what string) string {
	w.named++
	return fmt.Sprint(what, w.named)
}

func (w *world) one(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "which") }

// event generates an event for a session. Its time may equal or precede the previous time.
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
	w.base.fails = rapid.SampledFrom([][]failing{nil, nil, nil, nil, {before}, {afterward}, {not, before}, {not, afterward}}).Draw(t, "fails")
}

// meanwhile lets another writer act after a service has read the base and before it appends. The function after must
// be called when the service has returned.
func (w *world) meanwhile(t *rapid.T, i int) (after func()) {
	other := w.wraps[1-i]
	added := 0
	switch rapid.IntRange(0, 5).Draw(t, "meanwhile") {
	case 0:
		w.base.meanwhile = func() { w.bare(t); added++ }
	case 1:
		w.base.meanwhile = func() {
			h := w.get(t, other)
			before := len(w.base.ids())
			_, _ = other.ApplyPatch(context.Background(), h, []*patch.PatchEvent{fuzz.Patch(w.name("p"), w.visible(h)).Draw(t, "other patch")}, store.PatchOptions{})
			added += len(w.base.ids()) - before
		}
	}
	w.others = 0
	return func() {
		w.base.meanwhile = nil
		w.others = added
	}
}

func (w *world) visible(h *adk.Session) (out []*patch.Event) {
	for _, e := range h.View().Events() {
		out = append(out, e)
	}
	return out
}

func (w *world) append(t *rapid.T) {
	i := w.one(t)
	h := w.handles[i]
	e := w.event(t, w.visible(h))
	w.fail(t)
	fails := w.base.fails != nil
	done := w.meanwhile(t, i)
	err := w.wraps[i].AppendEvent(context.Background(), h, e)
	done()
	w.base.fails = nil
	after := w.base.ids()
	landed := slices.Contains(after, e.ID)
	switch {
	case err == nil && !landed:
		t.Fatalf("event %q was acknowledged and is not there", e.ID)
	case err != nil && landed:
		t.Fatalf("event %q is there, but the error is %v", e.ID, err)
	case errors.Is(err, fold.ErrOrphanedCall): // there is no valid place for the answered call
	case errors.Is(err, store.ErrOutcomeUnknown) && w.others > 0 && w.base.hasTwin(e): // the base may have changed the id
	case err != nil && !(fails && errors.Is(err, errShaky)): // a stale session is read again
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

func (w *world) bare(t *rapid.T) {
	r, err := w.base.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "u", SessionID: "s"})
	no(t, err)
	e := w.event(t, nil)
	fails := w.base.fails
	w.base.fails = nil
	no(t, w.base.AppendEvent(context.Background(), r.Session, e))
	w.base.fails = fails
	w.acked = append(w.acked, e.ID)
}

func (w *world) patch(t *rapid.T) {
	i := w.one(t)
	h := w.handles[i]
	p := fuzz.Patch(w.name("p"), w.visible(h)).Draw(t, "patch")
	before := h.View()
	err := w.patching(t, i, func() error {
		_, err := w.wraps[i].ApplyPatch(context.Background(), h, []*patch.PatchEvent{p}, store.PatchOptions{})
		return err
	})
	if err == nil && w.others == 0 {
		w.meant(t, p, before, h.View())
	}
}

// meant checks that a patch removed the events at its author's indices, and no other events.
func (w *world) meant(t *rapid.T, p *patch.PatchEvent, before, after fold.View) {
	saw, now := idsOf(before.Events()), idsOf(after.Events())
	start, end := 0, 0
	switch p.Type() {
	case patch.Splice, patch.Summarise:
		start, end = p.Start(), p.Start()+p.Count()
	case patch.TruncateBefore:
		end = slices.Index(saw, p.EventID())
	}
	// If the base has changed the order of the first events, other patches may now apply. But the events that this
	// patch removed must still be absent.
	same := before.Creation() == after.Creation()
	for i, id := range saw {
		if goes := start <= i && i < end; slices.Contains(now, id) == goes && (goes || same) {
			t.Fatalf("%v on %q (skips %d, %s) gave %q (skips %d, %s)", p, saw, before.SkippedCount(), before.Creation(), now, after.SkippedCount(), after.Creation())
		}
	}
}

func (w *world) revert(t *rapid.T) {
	i := w.one(t)
	var ids []string
	for r, err := range w.wraps[i].RawEvents(context.Background(), w.handles[i], 1) {
		no(t, err)
		if r.Patch != nil {
			ids = append(ids, r.ID())
		}
	}
	if len(ids) == 0 {
		t.Skip("there is no patch")
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	w.patching(t, i, func() error {
		_, err := w.wraps[i].Revert(context.Background(), w.handles[i], id)
		return err
	})
}

func (w *world) rewind(t *rapid.T) {
	i := w.one(t)
	id := rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "invocation")
	w.patching(t, i, func() error {
		_, err := w.wraps[i].Rewind(context.Background(), w.handles[i], id)
		return err
	})
}

// patching applies a patch and checks what an accepted or refused patch leaves in the base.
func (w *world) patching(t *rapid.T, i int, do func() error) error {
	before := w.base.ids()
	w.fail(t)
	done := w.meanwhile(t, i)
	err := do()
	done()
	w.base.fails = nil
	after := w.base.ids()
	switch {
	case err == nil:
		if n := len(after) - len(before) - w.others; n > 1 {
			t.Fatalf("one patch made %d events", n)
		}
		if w.others == 0 {
			w.same(t, w.wraps[i], w.handles[i])
		}
	case errors.Is(err, store.ErrConflict) && len(after) == len(before)+w.others+1: // another writer's patch was logged first
	case len(after) != len(before)+w.others:
		t.Fatalf("a patch was refused (%v), and left something", err)
	case errors.Is(err, errShaky), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrInvalid), errors.Is(err, fold.ErrOutOfRange),
		errors.Is(err, fold.ErrEventNotFound), errors.Is(err, fold.ErrOrphanedCall), errors.Is(err, fold.ErrBlocked),
		errors.Is(err, fold.ErrPinned), errors.Is(err, store.ErrDuplicateID), errors.Is(err, fold.ErrUnknownPatch):
	default:
		t.Fatal(err)
	}
	return err
}

func (w *world) preview(t *rapid.T) {
	i := w.one(t)
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
		t.Fatalf("the preview was %q, and now there is %q", was, is)
	}
}

func (w *world) again(t *rapid.T) {
	i := w.one(t)
	w.handles[i] = w.get(t, w.wraps[i])
}

func (w *world) restart(t *rapid.T) { w.wrap(t, w.one(t)) }

// check compares what each service shows with the content of the base.
func (w *world) check(t *rapid.T) {
	ids := w.base.ids()
	seen := map[string]int{}
	for _, id := range ids {
		seen[id]++
	}
	for _, id := range w.acked {
		if seen[id] != 1 {
			t.Fatalf("event %q, which was acknowledged, is there %d times", id, seen[id])
		}
	}
	for _, s := range w.wraps {
		w.same(t, s, w.get(t, s))
	}
	fresh, err := adk.Wrap(w.base, adk.Options{Logger: quiet()})
	no(t, err)
	w.same(t, fresh, w.get(t, fresh))
}

// It does not matter in which order and in which portions a service reads the events of the base.
func TestWrapArrivals(t *testing.T) {
	quickly(t, "50")
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(4, 20).Draw(rt, "steps") {
			w.handles[0] = w.get(rt, w.wraps[0])
			rapid.SampledFrom([]func(*rapid.T){w.append, w.append, w.bare, w.patch, w.patch, w.revert0, w.rewind}).Draw(rt, "step")(rt)
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
			w.same(rt, s, w.get(rt, s))
			fresh, err := adk.Wrap(w.base, adk.Options{Logger: quiet()})
			no(rt, err)
			w.same(rt, fresh, w.get(rt, fresh))
		}
	})
}

// revert0 calls revert if there is a patch.
func (w *world) revert0(t *rapid.T) {
	for _, id := range w.base.ids() {
		if strings.Contains(id, "-") { // a UUID, so the event carries patches
			w.revert(t)
			return
		}
	}
}

// same compares a session with byIDs. Events with equal times are in the session's order.
func (w *world) same(t *rapid.T, s *adk.Service, h *adk.Session) {
	t.Helper()
	var order []*patch.Event
	var records []patch.Record
	for r, err := range s.RawEvents(context.Background(), h, 1) {
		no(t, err)
		records = append(records, r)
		if r.Event != nil {
			order = append(order, r.Event)
		}
	}
	r, err := w.base.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "u", SessionID: "s"})
	no(t, err)
	var events []*session.Event
	set := map[string]bool{}
	for e := range r.Session.Events().All() {
		if _, ok := saidBy(t, e); ok {
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
	visible, pinned, state, left := byIDs(t, initial, order, r.Session.Events())
	if got := idsOf(h.View().Events()); !slices.Equal(got, visible) {
		t.Fatalf("visible are\n%q, by ids\n%q", got, visible)
	}
	for i := range visible {
		if h.View().IsPinned(i) != pinned[i] {
			t.Fatalf("event %q is pinned, or not, and by ids it is not, or is", visible[i])
		}
	}
	gotState := maps.Collect(h.View().Values())
	if !w.began { // the initial state that a service computes depends on when it first read the session
		for key := range w.initial {
			if set[key] {
				delete(gotState, key)
				delete(state, key)
			}
		}
	}
	if !maps.EqualFunc(gotState, state, patch.Value.Equal) {
		t.Fatalf("the state is\n%v, by ids\n%v", gotState, state)
	}
	skipped, err := h.View().Skipped()
	no(t, err)
	if len(skipped) != left {
		t.Fatalf("%d patches are skipped, by ids %d", len(skipped), left)
	}
	// The records of the log fold to the same result.
	ref := fuzz.NewReference(initial)
	for _, r := range records {
		ref.Apply(r)
	}
	if folded := idsOf(slices.All(ref.Visible())); !slices.Equal(folded, visible) {
		t.Fatalf("the log folds to %q, visible are %q", folded, visible)
	}
}

func idsOf(events func(func(int, *patch.Event) bool)) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	return ids
}

func (s *shaky) ids() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions["s"].events {
		ids = append(ids, e.ID)
	}
	return ids
}

// saidCarrier is the decoded content of an event that carries patches.
type saidCarrier struct {
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

func saidBy(t *rapid.T, e *session.Event) (c saidCarrier, ok bool) {
	said, ok := e.CustomMetadata["_patchlog"].(string)
	if !ok {
		return c, false
	}
	no(t, json.Unmarshal([]byte(said), &c))
	c.id, c.at = e.ID, e.Timestamp
	if e.Content != nil {
		t.Fatal("an event that carries patches has content")
	}
	return c, true
}

// byIDs applies patches by the ids that they name, in the simplest way. The patches of one event apply together, or
// not at all.
func byIDs(t *rapid.T, initial map[string]patch.Value, events []*patch.Event, all session.Events) (visible []string, pinned []bool, state map[string]patch.Value, left int) {
	var records []patch.Record
	fold := func(records []patch.Record) *fuzz.Reference {
		ref := fuzz.NewReference(initial)
		for _, r := range records {
			ref.Apply(r)
		}
		return ref
	}
	for e := range all.All() {
		c, ok := saidBy(t, e)
		if !ok {
			records = append(records, patch.Record{Seq: uint64(len(records)) + 1, Event: events[0]})
			events = events[1:]
			continue
		}
		trial := slices.Clone(records)
		for _, p := range c.Patches {
			ref := fold(trial)
			var fields map[string]json.RawMessage
			no(t, json.Unmarshal(p.Patch, &fields))
			if p.Place != nil {
				start, found := place(ref.Visible(), p.Place.Before, p.Place.Events)
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
			no(t, err)
			r, err := patch.ParseRecord(text)
			no(t, err)
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

// place returns the start index of the events with the given ids. The events must be adjacent, in any order. If ids
// is empty, place returns the index after the event before.
func place(visible []*patch.Event, before string, ids []string) (int, bool) {
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

// shaky is a session service with configurable peculiarities. Each of them occurs in some real service.
type shaky struct {
	timed  bool // orders events by time; events with equal times are in any order
	strict bool // rejects an append through a session that is not up to date
	coarse bool // truncates times to microseconds
	lossy  bool // returns values after a round trip through JSON
	rename bool // assigns its own ids to events
	whole  bool // ignores filters

	mu        sync.Mutex
	sessions  map[string]*shakySession
	fails     []failing // how the next appends fail
	meanwhile func()    // called once, before the next append
	down      bool
	appends   int
	given     int    // number of events that were read
	order     uint64 // determines the order of events with equal times
}

type failing string

const (
	not       failing = ""
	before    failing = "before"
	afterward failing = "after it has landed"
	panics    failing = "with a panic"
)

var errShaky = errors.New("the service fails")

type shakySession struct {
	broken   bool // a panic occurred
	id, user string
	events   []*session.Event
	state    map[string]any
	updated  time.Time
	last     *shakySession // the stored session that was read
}

func (s *shakySession) ID() string                { return s.id }
func (s *shakySession) AppName() string           { return "app" }
func (s *shakySession) UserID() string            { return s.user }
func (s *shakySession) LastUpdateTime() time.Time { return s.updated }
func (s *shakySession) Events() session.Events    { return s }
func (s *shakySession) State() session.State      { return shakyState(s.state) }
func (s *shakySession) Len() int                  { return len(s.events) }
func (s *shakySession) At(i int) *session.Event   { return s.events[i] }
func (s *shakySession) All() iter.Seq[*session.Event] {
	return slices.Values(s.events)
}

type shakyState map[string]any

func (s shakyState) Get(key string) (any, error) {
	v, ok := s[key]
	if !ok {
		return nil, session.ErrStateKeyNotExist
	}
	return v, nil
}
func (s shakyState) Set(key string, v any) error { s[key] = v; return nil }
func (s shakyState) All() iter.Seq2[string, any] { return maps.All(s) }

// through returns a value in the form in which the service returns it.
func through[T any](s *shaky, v T) (out T) {
	if !s.lossy {
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

func (s *shaky) Create(_ context.Context, r *session.CreateRequest) (*session.CreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[r.SessionID] != nil || s.down {
		return nil, errShaky
	}
	state := map[string]any{}
	maps.Copy(state, r.State)
	if s.sessions == nil {
		s.sessions = map[string]*shakySession{}
	}
	s.sessions[r.SessionID] = &shakySession{id: r.SessionID, user: r.UserID, state: state, updated: time.Unix(1, 0)}
	return &session.CreateResponse{Session: s.read(s.sessions[r.SessionID])}, nil
}

func (s *shaky) read(of *shakySession) *shakySession {
	events := slices.Clone(of.events)
	if s.timed {
		rank := func(e *session.Event) uint32 { return crc32.ChecksumIEEE(fmt.Append(nil, s.order, e.ID)) }
		slices.SortStableFunc(events, func(a, b *session.Event) int {
			return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(rank(a), rank(b)))
		})
	}
	for i, e := range events {
		events[i] = through(s, e)
	}
	return &shakySession{id: of.id, user: of.user, events: events, state: through(s, maps.Clone(of.state)), updated: of.updated, last: of}
}

func (s *shaky) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := s.sessions[r.SessionID]
	if of == nil || s.down {
		return nil, errShaky
	}
	read := s.read(of)
	if n := r.NumRecentEvents; n > 0 && !s.whole {
		read.events = read.events[max(0, len(read.events)-n):]
	}
	read.events = slices.DeleteFunc(read.events, func(e *session.Event) bool { return !s.whole && e.Timestamp.Before(r.After) })
	s.given += len(read.events)
	return &session.GetResponse{Session: read}, nil
}

func (s *shaky) List(context.Context, *session.ListRequest) (*session.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errShaky
	}
	out := &session.ListResponse{}
	for _, of := range s.sessions {
		listed := s.read(of)
		listed.events, listed.state = nil, nil
		out.Sessions = append(out.Sessions, listed)
	}
	return out, nil
}

func (s *shaky) Delete(_ context.Context, r *session.DeleteRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errShaky
	}
	delete(s.sessions, r.SessionID)
	return nil
}

// hasTwin reports whether the base has another event with the same author, invocation, branch and time.
func (s *shaky) hasTwin(e *session.Event) bool {
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

func (s *shaky) AppendEvent(_ context.Context, of session.Session, e *session.Event) error {
	s.mu.Lock()
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		s.mu.Unlock()
		do()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	read, ok := of.(*shakySession)
	if !ok {
		return fmt.Errorf("unexpected session type %T", of)
	}
	s.appends++
	how := not
	if len(s.fails) > 0 {
		how, s.fails = s.fails[0], s.fails[1:]
	}
	read.events = append(read.events, e) // in every case, even if the append fails
	stored := s.sessions[read.id]
	switch {
	case how == panics:
		read.broken = true
		panic(errShaky)
	case s.down, stored == nil, how == before, read.broken:
		return errShaky
	case s.strict && stored.updated.After(read.updated):
		return fmt.Errorf("stale: %w", errShaky)
	}
	kept := *e
	if s.coarse {
		kept.Timestamp = kept.Timestamp.Truncate(time.Microsecond)
	}
	if s.rename {
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
	if how == afterward {
		return errShaky
	}
	read.updated = kept.Timestamp
	return nil
}

var _ session.Service = (*shaky)(nil)
