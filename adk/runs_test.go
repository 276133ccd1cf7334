package adk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// of is an event of an invocation.
func of(invocation, id, author string) *session.Event {
	e := text(id, author, "this is "+id)
	e.InvocationID = invocation
	return e
}

// names fails the test unless an error names the invocation that runs.
func names(t *testing.T, err error, invocation string) {
	t.Helper()
	fails(t, err, store.ErrConflict)
	var running *adk.RunningError
	if !errors.As(err, &running) || running.Invocation != invocation {
		t.Fatalf("%v does not name invocation %q", err, invocation)
	}
}

// A second run is refused until the first has said its last word, in one process or two.
func TestRefuseSecondRun(t *testing.T) {
	opts := adk.Options{Runs: adk.RefuseSecondRun}
	b := &memory.Backend{}
	peers := make([]*adk.Service, 2)
	for i, on := range []*memory.Backend{b, b.Peer()} {
		s, err := store.New(on, store.Options{})
		no(t, err)
		t.Cleanup(func() { no(t, s.Close()) })
		peers[i], err = adk.NewService(s, opts)
		no(t, err)
	}
	wrapped := wrap(t, session.InMemoryService(), opts)
	for name, pair := range map[string][2]*adk.Service{"one process": {peers[0], peers[0]}, "two processes": {peers[0], peers[1]}, "a base": {wrapped, wrapped}} {
		t.Run(name, func(t *testing.T) {
			s, other := pair[0], pair[1]
			first, again := create(t, s, name, nil), get(t, other, name)
			no(t, s.AppendEvent(t.Context(), first, of("i1", "e1", "user")))
			err := other.AppendEvent(t.Context(), again, of("i2", "e2", "user"))
			if name != "two processes" { // which knows what it has seen
				names(t, err, "i1")
			}
			fails(t, err, store.ErrConflict)
			names(t, other.AppendEvent(t.Context(), get(t, other, name), of("i2", "e2", "user")), "i1")
			no(t, other.AppendEvent(t.Context(), again, &session.Event{ID: "of none", Author: "user"}))
			no(t, s.AppendEvent(t.Context(), first, of("i1", "e3", "agent"))) // the final response
			no(t, other.AppendEvent(t.Context(), again, of("i2", "e2", "user")))
			names(t, s.AppendEvent(t.Context(), get(t, s, name), of("i3", "e4", "user")), "i2")
			equal(t, "events", ids(get(t, s, name)), []string{"e1", "of none", "e3", "e2"})
		})
	}
}

// Where another process has not asked, the log tells: the run that finds a foreign event is refused.
func TestTheLogTellsOfAnotherRun(t *testing.T) {
	onStoreAndBase(t, func(t *testing.T, plain *adk.Service) {
		s := plain.Over(t, adk.Options{Runs: adk.RefuseSecondRun})
		sess := create(t, s, "s", nil)
		no(t, s.AppendEvent(t.Context(), sess, of("i1", "e1", "user")))
		no(t, plain.AppendEvent(t.Context(), get(t, plain, "s"), of("i1", "e2", "tool")))
		no(t, s.AppendEvent(t.Context(), sess, of("i1", "e3", "user")))
		no(t, plain.AppendEvent(t.Context(), get(t, plain, "s"), of("i2", "e4", "user")))
		names(t, s.AppendEvent(t.Context(), sess, of("i1", "e5", "user")), "i2")
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2", "e3", "e4"})
	})
}

// Runs that wait are one after the other, and see each other's events. The plugin says when one has
// ended, whatever its agent says last.
func TestWaitForRun(t *testing.T) {
	sessions := compacted(t, adk.Options{Runs: adk.WaitForRun})
	create(t, sessions, "s", nil)
	var wg sync.WaitGroup
	for i := range 4 {
		// An agent of its own: the first run of one sets its mode, without a lock.
		r := newRunner(t, llmAgent(t, counter{}), sessions, sessions.Plugin())
		wg.Go(func() {
			for _, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText(fmt.Sprint("question ", i), "user"), agent.RunConfig{}) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := get(t, sessions, "s").Events()
	equal(t, "events", all.Len(), 8)
	for i := 0; i < all.Len(); i += 2 {
		equal(t, "invocation of the answer", all.At(i+1).InvocationID, all.At(i).InvocationID)
	}
	no(t, sessions.AppendEvent(t.Context(), get(t, sessions, "s"), of("i1", "e1", "user")))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := sessions.AppendEvent(ctx, get(t, sessions, "s"), of("i2", "e2", "user"))
	names(t, err, "i1")
	fails(t, err, context.DeadlineExceeded)
}

// A process leaves a session alone in which another one runs an invocation, or which it
// compacts, and compacts it when that has ended.
func TestProcessesShareASession(t *testing.T) {
	first := &memory.Backend{}
	process := func(b *memory.Backend, interval int) *adk.Service {
		s, err := adk.NewService(opened(t)(store.New(b, store.Options{})), adk.Options{
			Compaction: compaction.Config{Enabled: true, CompactionInterval: interval, Summarizer: adk.Summarizer(shortener{})},
			Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		no(t, err)
		t.Cleanup(func() { no(t, s.Close(context.Background())) })
		return s
	}
	runs, compacts := process(first, 1000), process(first.Peer(), 2)
	create(t, compacts, "s", nil)
	long := strings.Repeat("many words of which a summary has few ", 20)
	say := func(svc *adk.Service, sess session.Session, invocation, author string) {
		t.Helper()
		e := text(invocation+" "+author, author, long)
		e.InvocationID = invocation
		no(t, svc.AppendEvent(t.Context(), sess, e))
	}
	turn := func(invocation string) {
		t.Helper()
		sess := get(t, compacts, "s")
		say(compacts, sess, invocation, "user")
		say(compacts, sess, invocation, "agent")
		compacts.Settle(t)
	}
	summaries := func() (n int) {
		v := get(t, compacts, "s").(*adk.Session).View()
		for i := range v.Len() {
			if v.Entry(i).Summary {
				n++
			}
		}
		return n
	}
	mine := get(t, runs, "s")
	say(runs, mine, "theirs", "user")
	for _, invocation := range []string{"b1", "b2", "b3", "b4"} {
		turn(invocation)
		equal(t, "summaries while another process runs an invocation", summaries(), 0)
	}
	say(runs, mine, "theirs", "agent")
	runs.Ended(t.Context(), mine, "theirs")

	// Another one compacts.
	other, err := store.New(first.Peer(), store.Options{})
	no(t, err)
	defer other.Close()
	key := store.Key{App: "app", User: "user", Session: "s"}
	held, err := other.Lease(t.Context(), key, "compact", time.Hour)
	no(t, err)
	equal(t, "the lease is held", held, true)
	turn("b5")
	equal(t, "summaries while another process compacts", summaries(), 0)
	no(t, errOf(other.Lease(t.Context(), key, "compact", 0)))

	turn("b6")
	if summaries() == 0 {
		t.Error("nobody compacts the session any more")
	}
	for _, name := range []string{"compact", "run theirs", "run b5", "run b6"} {
		free, err := other.Lease(t.Context(), key, name, -1)
		no(t, err)
		equal(t, "lease "+name+" is free", free, true)
	}
}

// Processes that serve one session in turn do not keep each other from compacting it.
func TestProcessesTakeTurns(t *testing.T) {
	first := &memory.Backend{}
	var services []*adk.Service
	for _, b := range []*memory.Backend{first, first.Peer()} {
		s, err := adk.NewService(opened(t)(store.New(b, store.Options{})), adk.Options{
			Compaction: compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: adk.Summarizer(shortener{})},
		})
		no(t, err)
		defer func() { no(t, s.Close(t.Context())) }()
		services = append(services, s)
	}
	create(t, services[0], "s", nil)
	for i := range 12 {
		svc := services[i%2]
		sess := get(t, svc, "s")
		for _, author := range []string{"user", "agent"} {
			e := text(fmt.Sprint(i, author), author, strings.Repeat("many words of which a summary has few ", 20))
			e.InvocationID = fmt.Sprint("inv", i)
			no(t, svc.AppendEvent(t.Context(), sess, e))
		}
		svc.Settle(t)
	}
	if n := get(t, services[0], "s").(*adk.Session).View().Len(); n > 12 {
		t.Errorf("after 12 turns of two events each %d are visible", n)
	}
}

// An invocation keeps its lease for as long as it goes on appending, and ten minutes.
func TestLeaseOfALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &memory.Backend{}
		svc, err := adk.NewService(opened(t)(store.New(first, store.Options{})), adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1000}})
		no(t, err)
		defer func() { no(t, svc.Close(t.Context())) }()
		other, err := store.New(first.Peer(), store.Options{})
		no(t, err)
		defer other.Close()
		key := store.Key{App: "app", User: "user", Session: "s"}
		sess := create(t, svc, "s", nil)
		for i := range 5 {
			e := text(fmt.Sprint("e", i), "user", "go on")
			e.InvocationID = "long"
			no(t, svc.AppendEvent(t.Context(), sess, e))
			time.Sleep(9 * time.Minute)
			free, err := other.Lease(t.Context(), key, "run long", -1)
			no(t, err)
			equal(t, "the lease is free", free, false)
		}
		time.Sleep(2 * time.Minute)
		free, err := other.Lease(t.Context(), key, "run long", -1)
		no(t, err)
		equal(t, "the lease is free in the end", free, true)
	})
}
