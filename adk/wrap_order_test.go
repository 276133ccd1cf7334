package adk_test

import (
	"bytes"
	"fmt"
	"log/slog"
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

// A patch applies where exactly its events are adjacent, and nowhere else. It is looked for where the
// base has it: before its events it is skipped.
func TestWrapPlaces(t *testing.T) {
	at := map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "x": 3}
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
		{made: "abcde", start: 1, count: 3, found: "axcdbe", want: "axe"}, // in any order, and between others
		{made: "abcde", start: 1, count: 3, found: "abxcde", wantSkipped: true},
		{made: "abcde", start: 1, count: 3, found: "abde", wantSkipped: true},
		{made: "abc", start: 2, count: 1, found: "abcd", want: "abd"},
		{made: "abc", start: 0, count: 3, found: "xabc", want: "x"},
		{made: "abcde", truncate: "c", found: "bacdex", want: "cdex"},
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
			for first, events := range map[bool][]*session.Event{
				false: append(slices.Clone(stored.events), carrier),
				true:  append([]*session.Event{carrier}, stored.events...),
			} {
				skips, want := c.wantSkipped || first, c.want
				if skips {
					want = c.found
				}
				var logged bytes.Buffer
				found := &shaky{sessions: map[string]*shakySession{"s": {id: "s", user: "user", events: events}}}
				got := get(t, wrap(t, found, adk.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}), "s")
				equal(t, "events", strings.Join(ids(got), ""), want)
				skipped, err := got.(*adk.Session).View().Skipped()
				no(t, err)
				equal(t, "is skipped", len(skipped) == 1 && skipped[0].Reason == patch.OutOfRange, skips)
				equal(t, "is reported", strings.Contains(logged.String(), carrier.ID), skips)
			}
		})
	}
}

// A session that was got with a filter goes on from what that chose. The filter is the base's to
// apply where the rest of the session is known, and never makes an event invisible to a patch.
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
	equal(t, "events", ids(r.Session), []string{"e1", "e2", "e3", "e4"})
	_, err = s.ApplyPatch(t.Context(), r.Session, patch.NewSplice(1, 3))
	no(t, err)
	equal(t, "events", ids(r.Session), []string{"e4"})
}

// Filtered reads and appends ask the base for few events, and read all where these do not follow on
// what is known.
func TestWrapAsksForFew(t *testing.T) {
	base := &shaky{}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	recent := func(n int) []string {
		r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", NumRecentEvents: n})
		no(t, err)
		return ids(r.Session)
	}
	for i := range 50 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	if base.given > 50*8 {
		t.Errorf("50 appends read %d events", base.given)
	}
	base.given = 0
	equal(t, "events", recent(2), []string{"e48", "e49"})
	equal(t, "events that were read", base.given, 2)
	r, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s", After: timed(47, "", "").Timestamp})
	no(t, err)
	equal(t, "events", ids(r.Session), []string{"e47", "e48", "e49"})
	equal(t, "events that were read", base.given, 2+3)
	for i := range 3 {
		no(t, base.AppendEvent(t.Context(), get(t, base, "s"), timed(50+i, fmt.Sprint("e", 50+i), "user")))
	}
	equal(t, "events", recent(5), []string{"e48", "e49", "e50", "e51", "e52"})
	for i := range 9 {
		no(t, base.AppendEvent(t.Context(), get(t, base, "s"), timed(53+i, fmt.Sprint("e", 53+i), "user")))
	}
	equal(t, "events", recent(2), []string{"e60", "e61"})
	equal(t, "all", len(ids(get(t, s, "s"))), 62)
	_, err = s.ApplyPatch(t.Context(), get(t, s, "s"), patch.NewSplice(59, 2))
	no(t, err)
	equal(t, "visible events", recent(2), []string{"e58", "e61"})
}

// A value that a process has appended keeps its Go type, whoever reads the session in between.
func TestWrapKeepsGoTypes(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		value := map[string]any{"int": 7, "bytes": []byte("b"), "time": timed(1, "", "").Timestamp}
		no(t, s.AppendEvent(t.Context(), sess, delta("e", value)))
		no(t, base.AppendEvent(t.Context(), get(t, base, "s"), text("bare", "user", "x")))
		for range 2 {
			equal(t, "another reader", stateOf(get(t, s, "s")), value)
			no(t, s.AppendEvent(t.Context(), sess, text("", "user", "x")))
			equal(t, "the appender", stateOf(sess), value)
		}
	})
}

// A service that gives events ids of its own, as Vertex AI does.
func TestWrapRenamedEvents(t *testing.T) {
	base := &shaky{rename: true}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	for i := range 4 {
		no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
	}
	equal(t, "own ids but for the last", ids(sess), []string{"own-0", "own-1", "own-2", "e3"})
	// What it was made from has other ids there.
	_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 3))
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

// A patch means the events that its author saw: where the base gives them in another order, or where
// another writer has patched, it is a conflict, and the author looks again.
func TestWrapPatchesOfAnotherOrder(t *testing.T) {
	base := &shaky{timed: true}
	s, other := wrap(t, base, adk.Options{Logger: quiet()}), wrap(t, base, adk.Options{Logger: quiet()})
	one := create(t, s, "s", nil)
	no(t, s.AppendEvent(t.Context(), one, timed(1, "e1", "user")))
	no(t, s.AppendEvent(t.Context(), one, timed(3, "e3", "user")))
	no(t, base.AppendEvent(t.Context(), get(t, base, "s"), timed(2, "e2", "user")))
	all := func(sess session.Session) {
		t.Helper()
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 1))
		fails(t, err, store.ErrConflict)
		_, err = s.Rewind(t.Context(), sess, "inv-e3")
		fails(t, err, store.ErrConflict)
	}
	all(one)
	equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2", "e3"})
	done, err := s.ApplyPatch(t.Context(), get(t, s, "s"), patch.NewSplice(1, 1))
	no(t, err)
	equal(t, "events", ids(get(t, other, "s")), []string{"e1", "e3"})
	one = get(t, s, "s")
	_, err = other.ApplyPatch(t.Context(), get(t, other, "s"), patch.NewPin("e3"))
	no(t, err)
	all(one)
	_, err = s.Revert(t.Context(), one, done.Records[0].ID())
	fails(t, err, store.ErrConflict)
}

// Of two patches of the same events the one that the base has first applies. The other author hears
// of it.
func TestWrapOvertaken(t *testing.T) {
	base := &shaky{}
	s, other := wrap(t, base, adk.Options{Logger: quiet()}), wrap(t, base, adk.Options{Logger: quiet()})
	sess := create(t, s, "s", nil)
	no(t, s.AppendEvent(t.Context(), sess, timed(1, "e1", "user")))
	by := func(id string) *patch.PatchEvent {
		e, err := adk.NewEvent(timed(2, id, "user"))
		no(t, err)
		return patch.NewSplice(0, 1, e)
	}
	base.meanwhile = func() {
		_, err := other.ApplyPatch(t.Context(), get(t, other, "s"), by("theirs"))
		no(t, err)
	}
	_, err := s.ApplyPatch(t.Context(), sess, by("ours"))
	fails(t, err, store.ErrConflict)
	for _, s := range []session.Service{s, other, wrap(t, base, adk.Options{Logger: quiet()})} {
		equal(t, "events", ids(get(t, s, "s")), []string{"theirs"})
	}
}
