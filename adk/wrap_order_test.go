package adk_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Someone appends without the wrapper; a session that was got before goes on.
func TestWrapStale(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
		raw := get(t, base, "s")
		no(t, base.AppendEvent(t.Context(), raw, timed(2, "e2", "agent")))
		no(t, s.AppendEvent(t.Context(), sess, timed(3, "e3", "user")))
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2", "e3"})
		raw = get(t, base, "s")
		no(t, base.AppendEvent(t.Context(), raw, timed(4, "e4", "agent")))
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		if len(ids(sess)) == 2 { // a base that refuses no stale session did not tell of e2
			fails(t, err, store.ErrConflict)
			sess = get(t, s, "s")
			_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		}
		no(t, err)
		equal(t, "events", ids(sess), []string{"e2", "e3", "e4"})
		// Its own patch makes a session stale that was got without it.
		no(t, s.AppendEvent(t.Context(), sess, timed(5, "e5", "agent")))
		equal(t, "events", ids(get(t, s, "s")), []string{"e2", "e3", "e4", "e5"})
	})
}

// A patch applies where exactly what it names stands together, but for the order of events of
// one time, and nowhere else.
func TestWrapPlaces(t *testing.T) {
	at := map[string]int{"a": 1, "b": 2, "c": 3, "C": 3, "d": 4, "e": 5, "x": 3}
	for _, c := range []struct {
		made        string // the events
		start       int
		count       int
		truncate    string
		found       string // the events as they are
		want        string
		wantSkipped bool
	}{
		{made: "abcde", start: 1, count: 3, found: "abcde", want: "ae"},
		{made: "abcde", start: 1, count: 3, found: "abcdex", want: "aex"},
		{made: "abcde", start: 1, count: 3, found: "xabcde", want: "xae"},
		{made: "abcde", start: 1, count: 3, found: "acbde", wantSkipped: true}, // another order
		{made: "abcde", start: 1, count: 3, found: "abxcde", wantSkipped: true},
		{made: "abcde", start: 1, count: 3, found: "axbcde", wantSkipped: true}, // another before
		{made: "abcde", start: 1, count: 3, found: "abcdxe", wantSkipped: true}, // another behind
		{made: "abcde", start: 1, count: 3, found: "abcd", wantSkipped: true},
		{made: "abcde", start: 1, count: 3, found: "abde", wantSkipped: true},
		{made: "abcCd", start: 2, count: 2, found: "abCcd", want: "abd"}, // of one time
		{made: "abcCd", start: 2, count: 1, found: "abCcd", wantSkipped: true},
		{made: "abc", start: 2, count: 1, found: "abcd", want: "abd"}, // the end was no neighbour
		{made: "abc", start: 0, count: 1, found: "abc", want: "bc"},
		{made: "abc", start: 0, count: 1, found: "xabc", wantSkipped: true}, // the beginning is one
		{made: "abc", start: 0, count: 3, found: "abc", want: ""},
		{made: "abcde", truncate: "c", found: "abcde", want: "cde"},
		{made: "abcde", truncate: "c", found: "abcdex", want: "cdex"},
		{made: "abcde", truncate: "c", found: "abxcde", wantSkipped: true},
		{made: "abcde", truncate: "c", found: "xabcde", wantSkipped: true},
		{made: "abcde", truncate: "c", found: "bcde", wantSkipped: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			base := &shaky{}
			s := wrap(t, base, adk.Options{})
			sess := create(t, s, "s", nil)
			for _, id := range strings.Split(c.made, "") {
				no(t, s.AppendEvent(t.Context(), sess, timed(at[id], id, "user")))
			}
			p := patch.NewSplice(c.start, c.count)
			if c.truncate != "" {
				p = patch.NewTruncateBefore(c.truncate)
			}
			_, err := s.ApplyPatch(t.Context(), sess, p)
			no(t, err)
			stored := base.sessions["s"]
			carrier := stored.events[len(stored.events)-1]
			stored.events = nil
			for _, id := range strings.Split(c.found, "") {
				stored.events = append(stored.events, timed(at[id], id, "user"))
			}
			if c.wantSkipped {
				c.want = c.found
			}
			for _, n := range []int{len(stored.events), 0} { // last, and first
				events := slices.Insert(slices.Clone(stored.events), n, carrier)
				var logged bytes.Buffer
				found := &shaky{sessions: map[string]*shakySession{"s": {id: "s", user: "user", events: events}}}
				got := get(t, wrap(t, found, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}), "s")
				equal(t, "events", strings.Join(ids(got), ""), c.want)
				skipped, err := got.(*adk.Session).View().Skipped()
				no(t, err)
				equal(t, "is skipped", len(skipped) == 1 && skipped[0].Reason == patch.OutOfRange, c.wantSkipped)
				equal(t, "is reported", strings.Contains(logged.String(), carrier.ID), c.wantSkipped)
			}
		})
	}
}

// A patch that needs another one of the same time waits for it, whatever their ids.
func TestWrapPatchesThatWait(t *testing.T) {
	base := &shaky{}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 4 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	for _, p := range []*patch.PatchEvent{patch.NewSplice(1, 1).WithID("one"), patch.NewRevert("one").WithID("two"), patch.NewRevert("two")} {
		_, err := s.ApplyPatch(t.Context(), sess, p)
		no(t, err)
	}
	want := []string{"e0", "e2", "e3"}
	equal(t, "events", ids(sess), want)
	events := base.sessions["s"].events
	for i, e := range events[4:] {
		e.Timestamp, e.ID = timed(9, "", "").Timestamp, fmt.Sprint("c", 9-i) // the last is the first now
	}
	for _, timed := range []bool{false, true} {
		base.timed, base.chance = timed, rand.New(rand.NewPCG(1, 1))
		again := get(t, wrap(t, base, adk.Options{}), "s").(*adk.Session)
		equal(t, "events", ids(again), want)
		equal(t, "skipped", again.View().SkippedCount(), 0)
	}
}

// Events of one time stay in the order in which they were first seen.
func TestWrapTies(t *testing.T) {
	base := &shaky{timed: true, chance: rand.New(rand.NewPCG(1, 1))}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil).(*adk.Session)
	var want []string
	for i := range 12 {
		id := fmt.Sprint("e", i)
		no(t, s.AppendEvent(t.Context(), sess, timed(i/6, id, "user")))
		if want = append(want, id); i%3 == 0 {
			got := get(t, s, "s").(*adk.Session)
			equal(t, "events", ids(got), want)
			equal(t, "seqs are the same", got.View().Creation(), sess.View().Creation())
		}
	}
	_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(3, 2))
	no(t, err)
	equal(t, "events", ids(get(t, s, "s")), slices.Delete(want, 3, 5))
}

// A base that gives what it has acknowledged a moment later does not make it disappear.
func TestWrapLateEvents(t *testing.T) {
	for _, rename := range []bool{false, true} {
		base := &shaky{rename: rename}
		s := wrap(t, base, adk.Options{})
		sess := create(t, s, "s", nil)
		for i := range 3 {
			no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
		}
		first := ids(get(t, s, "s"))
		for i := range 2 {
			no(t, s.AppendEvent(t.Context(), sess, timed(3+i, fmt.Sprint("e", 3+i), "agent")))
		}
		for lag := 2; lag >= 0; lag-- {
			base.lag = lag
			got := ids(get(t, s, "s"))
			equal(t, "events", len(got), 5)
			equal(t, "those read before", got[:3], first)
		}
	}
}

// A session that was got with a filter goes on from what that chose, also when the base gives
// events otherwise than it had them.
func TestWrapFilteredSessions(t *testing.T) {
	base := session.InMemoryService()
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 3 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", NumRecentEvents: 2})
	no(t, err)
	equal(t, "events", ids(r.Session), []string{"e1", "e2"})
	no(t, base.AppendEvent(t.Context(), get(t, base, "s"), timed(3, "e3", "user")))
	no(t, s.AppendEvent(t.Context(), r.Session, timed(4, "e4", "user")))
	equal(t, "events", ids(r.Session), []string{"e1", "e2", "e4"})
	get(t, s, "s")
	no(t, s.AppendEvent(t.Context(), r.Session, timed(5, "e5", "user")))
	equal(t, "events", ids(r.Session), []string{"e1", "e2", "e3", "e4", "e5"})
	_, err = s.ApplyPatch(t.Context(), r.Session, patch.NewSplice(1, 3))
	no(t, err)
	equal(t, "events", ids(r.Session), []string{"e4", "e5"})
}

// A service that gives events ids of its own, as Vertex AI does.
func TestWrapRenamedEvents(t *testing.T) {
	base := &shaky{rename: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 4 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	equal(t, "own ids", ids(sess), []string{"e0", "e1", "e2", "e3"})
	// What it was made from has other ids there.
	_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 2))
	fails(t, err, store.ErrConflict)
	again := get(t, s, "s")
	equal(t, "ids", ids(again), []string{"own-0", "own-1", "own-2", "own-3"})
	_, err = s.ApplyPatch(t.Context(), again, patch.NewSplice(1, 2))
	no(t, err)
	equal(t, "ids", ids(get(t, s, "s")), []string{"own-0", "own-3"})
	equal(t, "ids", ids(get(t, wrap(t, base, adk.Options{}), "s")), []string{"own-0", "own-3"})
	no(t, s.AppendEvent(t.Context(), sess, timed(5, "e5", "user")))
	equal(t, "ids", ids(sess), []string{"own-0", "own-3", "e5"})
	base.fails = []failing{afterward}
	fails(t, s.AppendEvent(t.Context(), sess, timed(6, "e6", "user")), store.ErrOutcomeUnknown)
	equal(t, "events of the base", len(base.ids()), 7)
}

// Where events have other ids than they were appended with, sessions are compacted all the same.
func TestWrapCompactsRenamedEvents(t *testing.T) {
	base := &shaky{rename: true}
	s := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}})
	sess := create(t, s, "s", nil)
	for i := range 20 {
		e := timed(i, fmt.Sprint("e", i), []string{"user", "agent"}[i%2])
		e.InvocationID = fmt.Sprint("i", i/2)
		e.Content.Parts[0].Text = strings.Repeat("it is long ", 40)
		no(t, s.AppendEvent(t.Context(), sess, e))
		s.Settle(t)
	}
	if n := get(t, s, "s").Events().Len(); n > 10 {
		t.Errorf("%d events are visible", n)
	}
	equal(t, "events of another", ids(get(t, wrap(t, base, adk.Options{}), "s")), ids(get(t, s, "s")))
}

// A patch means the events that its author saw, also where the base has since given them in
// another order; and it is refused if others have patched meanwhile.
func TestWrapPatchesOfAnotherOrder(t *testing.T) {
	base := session.InMemoryService() // which does not tell of what others append
	s := wrap(t, base, adk.Options{})
	begin := func(name string) (one, other session.Session) {
		one = create(t, s, name, nil)
		no(t, s.AppendEvent(t.Context(), one, timed(1, "e1", "user")))
		no(t, base.AppendEvent(t.Context(), get(t, base, name), timed(0, "bare", "user")))
		no(t, s.AppendEvent(t.Context(), one, timed(2, "e2", "user")))
		no(t, s.AppendEvent(t.Context(), one, timed(3, "e3", "user")))
		equal(t, "events", ids(one), []string{"e1", "e2", "e3"})
		equal(t, "as they are", ids(get(t, s, name)), []string{"e1", "bare", "e2", "e3"})
		return one, get(t, s, name)
	}
	one, _ := begin("moved")
	_, err := s.ApplyPatch(t.Context(), one, patch.NewSplice(2, 1)) // e3
	no(t, err)
	equal(t, "events", ids(one), []string{"e1", "bare", "e2"})

	one, _ = begin("rewound")
	_, err = s.Rewind(t.Context(), one, "inv-e2")
	no(t, err)
	equal(t, "events", ids(one), []string{"e1", "bare"})

	one, other := begin("overtaken")
	done, err := s.ApplyPatch(t.Context(), other, patch.NewSplice(0, 1)) // e1
	no(t, err)
	_, err = s.ApplyPatch(t.Context(), one, patch.NewSplice(2, 1))
	fails(t, err, store.ErrConflict)
	_, err = s.Rewind(t.Context(), one, "inv-e2")
	fails(t, err, store.ErrConflict)
	_, err = s.Revert(t.Context(), one, done.Records[0].ID())
	fails(t, err, store.ErrConflict)
	equal(t, "events", ids(get(t, s, "overtaken")), []string{"bare", "e2", "e3"})

	// In one order, too.
	one = get(t, s, "overtaken")
	_, err = s.ApplyPatch(t.Context(), other, patch.NewPin("e2"))
	no(t, err)
	_, err = s.Revert(t.Context(), one, done.Records[0].ID())
	fails(t, err, store.ErrConflict)
	_, err = s.Rewind(t.Context(), one, "inv-e2")
	fails(t, err, store.ErrConflict)
	_, err = s.ApplyPatch(t.Context(), one, patch.NewSplice(2, 1))
	fails(t, err, store.ErrConflict)
}

// Of two patches of the same events one is skipped, and its author hears of it if that is
// seen.
func TestWrapOvertaken(t *testing.T) {
	lost := 0
	for range 20 {
		base := &shaky{}
		s, other := wrap(t, base, adk.Options{Logger: quiet()}), wrap(t, base, adk.Options{Logger: quiet()})
		sess := create(t, s, "s", nil)
		no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
		by := func(id string) *patch.PatchEvent {
			e, err := adk.NewEvent(timed(2, id, "user"))
			no(t, err)
			return patch.NewSplice(0, 1, e)
		}
		base.fails = []failing{not, afterward}
		base.meanwhile = func() {
			_, err := other.ApplyPatch(t.Context(), get(t, other, "s"), by("theirs"))
			no(t, err)
		}
		_, err := s.ApplyPatch(t.Context(), sess, by("ours"))
		want := "ours"
		if err != nil {
			fails(t, err, store.ErrConflict)
			want = "theirs"
			lost++
		}
		for _, s := range []session.Service{s, other, wrap(t, base, adk.Options{Logger: quiet()})} {
			equal(t, "events", ids(get(t, s, "s")), []string{want})
		}
	}
	if lost == 0 || lost == 20 {
		t.Errorf("%d of 20 were overtaken", lost)
	}
}
