package adk_test

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func TestWrapRefuses(t *testing.T) {
	var none *shaky
	for name, base := range map[string]session.Service{"nil": nil, "a nil pointer": none, "a service of its own": inMemory(t)} {
		if _, err := adk.Wrap(base, adk.Options{}); err == nil {
			t.Errorf("%s was wrapped", name)
		} else {
			fails(t, err, patch.ErrInvalid)
		}
	}
	_, err := adk.Wrap(session.InMemoryService(), adk.Options{MaxResultTokens: 1})
	fails(t, err, patch.ErrInvalid)
}

// timed is an event that says something at a time.
func timed(n int, id, author string) *session.Event {
	e := text(id, author, "this is "+id)
	e.Timestamp = time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC)
	return e
}

// A patch is one event of the base, without content, which says in words what it removes.
func TestWrapLeavesAnAuditLog(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "initial", "app:a": "x"})
		for i := range 5 {
			e := timed(i, fmt.Sprint("e", i), "agent")
			e.Actions.StateDelta = map[string]any{"k": fmt.Sprint("leak ", i), fmt.Sprint("k", i): "v"}
			no(t, s.AppendEvent(t.Context(), sess, e))
		}
		replacement, err := patch.NewEvent(patch.Fields{
			ID: "instead", Author: "agent", Content: patch.Text("model", "instead"),
			Actions: patch.Actions{StateDelta: map[string]any{"user:u": "shared", "own": "set"}},
		})
		no(t, err)
		done, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(1, 4, replacement).WithID("cut"))
		no(t, err)
		equal(t, "id", done.Records[0].ID(), "cut")
		equal(t, "seq", done.Records[0].Seq, uint64(6))
		want := map[string]any{"k": "leak 0", "k0": "v", "own": "set", "app:a": "x", "user:u": "shared"}
		got := get(t, s, "s")
		equal(t, "visible", ids(got), []string{"e0", "instead"})
		equal(t, "state", stateOf(got), want)
		equal(t, "after the patch", ids(sess), []string{"e0", "instead"})
		equal(t, "seqs are the same", got.(*adk.Session).View().Creation(), sess.(*adk.Session).View().Creation())
		equal(t, "time", got.LastUpdateTime().UTC(), timed(4, "", "").Timestamp)

		// A drop-cut of all gives back what the session began with.
		_, err = s.ApplyPatch(t.Context(), got, patch.NewSplice(0, 1))
		no(t, err)
		equal(t, "state", stateOf(get(t, s, "s")), map[string]any{"k": "initial", "own": "set", "app:a": "x", "user:u": "shared"})
		_, err = s.Revert(t.Context(), got, "cut")
		no(t, err)
		equal(t, "visible", ids(get(t, s, "s")), []string{"e1", "e2", "e3", "e4"})

		raw := get(t, base, "s")
		var carriers []*session.Event
		for e := range raw.Events().All() {
			if e.CustomMetadata["_patchlog"] != nil {
				carriers = append(carriers, e)
			}
		}
		equal(t, "events of the base", raw.Events().Len(), 5+3)
		equal(t, "that carry patches", len(carriers), 3)
		for _, e := range carriers {
			if e.Content != nil || e.Author != "user" || !e.Timestamp.After(timed(4, "", "").Timestamp) {
				t.Errorf("%+v", e)
			}
			if _, ok := e.CustomMetadata["_patchlog"].(string); !ok {
				t.Errorf("%T", e.CustomMetadata["_patchlog"])
			}
		}
		// Someone else who wraps it sees the same.
		equal(t, "visible", ids(get(t, wrap(t, base, adk.Options{}), "s")), []string{"e1", "e2", "e3", "e4"})
		equal(t, "state", stateOf(get(t, wrap(t, base, adk.Options{}), "s")), stateOf(get(t, s, "s")))
	})
}

// A session begun without the wrapper is gone on with, and read again without it: a runner
// gets the same either way.
func TestWrapInTheMiddle(t *testing.T) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for _, b := range bases {
		for _, none := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, none %v", b.name, none), func(t *testing.T) {
				base, alone := b.make(t), b.make(t)
				wrapped := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})}})
				turn := func(on session.Service, n int) string {
					var said strings.Builder
					cfg := llmagent.Config{Name: "assistant", Model: counter{}}
					if none {
						cfg.IncludeContents = llmagent.IncludeContentsNone
					}
					a, err := llmagent.New(cfg)
					no(t, err)
					r, err := runner.New(runner.Config{AppName: "app", Agent: a, SessionService: on, AutoCreateSession: true})
					no(t, err)
					for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText(fmt.Sprintf("question %d", n), "user"), agent.RunConfig{}) {
						no(t, err)
						said.WriteString(e.Content.Parts[0].Text)
					}
					return said.String()
				}
				for n := range 12 {
					want := turn(alone, n)
					if n < 3 || n >= 9 {
						equal(t, "without the wrapper", turn(base, n), want)
						continue
					}
					got := turn(wrapped, n)
					if !none && n == 8 && got == want {
						t.Error("nothing was compacted")
					}
					wrapped.Settle(t)
				}
				plain := func(s session.Service) (out []string) {
					for e := range get(t, s, "s").Events().All() {
						if e.Content != nil {
							out = append(out, e.Author+": "+e.Content.Parts[0].Text)
						}
					}
					return out
				}
				if got, want := len(plain(base)), len(plain(alone)); got != want {
					t.Errorf("%d events, want %d", got, want)
				}
				if n := get(t, wrapped, "s").Events().Len(); n >= len(plain(base)) {
					t.Errorf("%d events are visible", n)
				}
			})
		}
	}
}

func TestWrapStateThatBeganWithoutIt(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		raw := create(t, base, "s", map[string]any{"kept": "v", "set": "before"})
		e := delta("e", map[string]any{"set": "after", "new": "x"})
		e.Timestamp = timed(1, "", "").Timestamp
		no(t, base.AppendEvent(t.Context(), raw, e))
		sess := get(t, s, "s")
		equal(t, "state", stateOf(sess), map[string]any{"kept": "v", "set": "after", "new": "x"})
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1))
		no(t, err)
		// What it was before an event set it, nobody has recorded.
		equal(t, "state", stateOf(sess), map[string]any{"kept": "v"})
		equal(t, "state", stateOf(get(t, s, "s")), map[string]any{"kept": "v"})
	})
}

// The key under which the initial state is kept is in nobody's way.
func TestWrapReservesAKey(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "v"})
		equal(t, "state", stateOf(sess), map[string]any{"k": "v"})
		r, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
		no(t, err)
		equal(t, "listed state", stateOf(r.Sessions[0]), map[string]any{"k": "v"})
		_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", State: map[string]any{"_patchlog": 1}})
		fails(t, err, patch.ErrInvalid)
		fails(t, s.AppendEvent(t.Context(), sess, delta("e", map[string]any{"_patchlog": 1})), patch.ErrInvalid)
		forged := &session.Event{ID: "forged"}
		forged.CustomMetadata = map[string]any{"_patchlog": "{}"}
		fails(t, s.AppendEvent(t.Context(), sess, forged), patch.ErrInvalid)
		equal(t, "events", ids(sess), []string{})
	})
}

// What has content is said, whatever its metadata are.
func TestWrapShowsWhatHasContent(t *testing.T) {
	onEachBase(t, func(t *testing.T, base session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		e := timed(1, "e", "user")
		e.CustomMetadata = map[string]any{"_patchlog": `{"version":1,"patches":[]}`}
		no(t, s.AppendEvent(t.Context(), sess, e))
		equal(t, "events", ids(get(t, s, "s")), []string{"e"})
	})
}

// A patch whose base is null has none, and is its session's.
func TestWrapBaseThatIsNull(t *testing.T) {
	onEachBase(t, func(t *testing.T, _ session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		for i := range 3 {
			no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
		}
		r, err := patch.ParseRecord([]byte(`{"patchType":"splice","start":0,"count":1,"replacement":[],"base":null}`))
		no(t, err)
		other := get(t, s, "s")
		_, err = s.ApplyPatch(t.Context(), sess, r.Patch)
		no(t, err)
		_, err = s.ApplyPatch(t.Context(), other, r.Patch)
		fails(t, err, store.ErrConflict)
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2"})
	})
}

// Patches of one group are of one call.
func TestWrapGroups(t *testing.T) {
	onEachBase(t, func(t *testing.T, _ session.Service, s *adk.Service) {
		sess := create(t, s, "s", nil)
		for i := range 3 {
			no(t, s.AppendEvent(t.Context(), sess, timed(i, fmt.Sprint("e", i), "user")))
		}
		_, err := s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1).WithGroup("g"))
		no(t, err)
		_, err = s.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 1).WithGroup("g"))
		fails(t, err, patch.ErrInvalid)
		done, err := s.Rewind(t.Context(), sess, "inv-e1")
		no(t, err)
		equal(t, "events", ids(get(t, s, "s")), []string{})
		_, err = s.Revert(t.Context(), sess, done.Records[0].ID())
		no(t, err)
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2"})
		_, err = s.ApplyPatch(t.Context(), sess, nil)
		fails(t, err, patch.ErrInvalid)
		_, err = s.Rewind(t.Context(), sess, "")
		fails(t, err, patch.ErrInvalid)
		_, err = s.Rewind(t.Context(), sess, "nobody's")
		fails(t, err, store.ErrEventNotFound)
		_, err = s.Revert(t.Context(), sess, "nobody's")
		fails(t, err, patch.ErrInvalid)
	})
}
