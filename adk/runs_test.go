package adk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// wantRunningError fails the test unless err names the invocation.
func wantRunningError(t *testing.T, err error, invocation string) {
	t.Helper()
	wantError(t, err, store.ErrConflict)
	var running *adk.RunningError
	if !errors.As(err, &running) || running.Invocation != invocation {
		t.Fatalf("%v does not name invocation %q", err, invocation)
	}
}

// A second run is refused until the first run has given its final response, in one process and across two
// processes.
func TestRefuseSecondRun(t *testing.T) {
	opts := adk.Options{Runs: adk.RefuseSecondRun}
	b := &memory.Backend{}
	peers := make([]*adk.Service, 2)
	for i, on := range []*memory.Backend{b, b.Peer()} {
		var err error
		peers[i], err = adk.NewService(mustOpen(t)(store.New(on, store.Options{})), opts)
		noError(t, err)
	}
	wrapped := wrap(t, session.InMemoryService(), opts)
	for name, pair := range map[string][2]*adk.Service{"one process": {peers[0], peers[0]}, "two processes": {peers[0], peers[1]}, "a base": {wrapped, wrapped}} {
		t.Run(name, func(t *testing.T) {
			s, other := pair[0], pair[1]
			first, again := create(t, s, name, nil), get(t, other, name)
			noError(t, s.AppendEvent(t.Context(), first, newEvent("e1", "i1", "user")))
			err := other.AppendEvent(t.Context(), again, newEvent("e2", "i2", "user"))
			if name != "two processes" { // the other process has no record of the running invocation
				wantRunningError(t, err, "i1")
			}
			wantError(t, err, store.ErrConflict)
			wantRunningError(t, other.AppendEvent(t.Context(), get(t, other, name), newEvent("e2", "i2", "user")), "i1")
			noError(t, other.AppendEvent(t.Context(), again, &session.Event{ID: "of none", Author: "user"}))
			noError(t, s.AppendEvent(t.Context(), first, newEvent("e3", "i1", "agent"))) // e3 is the final response of the run
			wantError(t, s.AppendEvent(t.Context(), first, newEvent("e1", "i9", "user")), store.ErrDuplicateID)
			noError(t, other.AppendEvent(t.Context(), again, newEvent("e2", "i2", "user")))
			wantRunningError(t, s.AppendEvent(t.Context(), get(t, s, name), newEvent("e4", "i3", "user")), "i2")
			equal(t, "events", ids(get(t, s, name)), []string{"e1", "of none", "e3", "e2"})
		})
	}
}

// A run whose lease has expired is refused while a run of another process holds the lease. When the other run has
// ended, the first run can append again.
func TestRunAfterAnExpiredLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memory.Backend{}
		process := func(b *memory.Backend) *adk.Service {
			s, err := adk.NewService(mustOpen(t)(store.New(b, store.Options{})), adk.Options{Runs: adk.RefuseSecondRun})
			noError(t, err)
			return s
		}
		s, other := process(b), process(b.Peer())
		noError(t, s.AppendEvent(t.Context(), create(t, s, "s", nil), newEvent("e1", "i1", "user")))
		time.Sleep(time.Hour)
		noError(t, other.AppendEvent(t.Context(), get(t, other, "s"), newEvent("e2", "i2", "user")))
		wantRunningError(t, s.AppendEvent(t.Context(), get(t, s, "s"), newEvent("e3", "i1", "user")), "i2")
		noError(t, other.AppendEvent(t.Context(), get(t, other, "s"), newEvent("e4", "i2", "agent"))) // e4 is the final response of the run
		noError(t, s.AppendEvent(t.Context(), get(t, s, "s"), newEvent("e3", "i1", "user")))
		equal(t, "events", ids(get(t, other, "s")), []string{"e1", "e2", "e4", "e3"})
	})
}

// A run that the plugin watches continues after the agent's final response.
func TestWatchedRun(t *testing.T) {
	sessions := newQuietService(t, adk.Options{Runs: adk.RefuseSecondRun})
	sess := create(t, sessions, "s", nil)
	r := newRunner(t, llmAgent(t, counter{}), sessions, sessions.Plugin())
	for e, err := range r.Run(t.Context(), "user", "s", genai.NewContentFromText("question", "user"), agent.RunConfig{}) {
		noError(t, err)
		wantRunningError(t, sessions.AppendEvent(t.Context(), sess, newEvent("e", "another", "user")), e.InvocationID)
	}
	appendAll(t, sessions, sess, newEvent("e", "another", "user"))
}

// A run is refused if it finds in the log that a run of another process, which takes no leases, has appended.
func TestOtherRunFoundInLog(t *testing.T) {
	onStoreAndBases(t, bases[:1], adk.Options{}, func(t *testing.T, plain *adk.Service) {
		s := plain.OverSameStorage(t, adk.Options{Runs: adk.RefuseSecondRun})
		sess := create(t, s, "s", nil)
		noError(t, s.AppendEvent(t.Context(), sess, newEvent("e1", "i1", "user")))
		noError(t, plain.AppendEvent(t.Context(), get(t, plain, "s"), newEvent("e2", "i1", "tool")))
		noError(t, s.AppendEvent(t.Context(), sess, newEvent("e3", "i1", "user")))
		noError(t, plain.AppendEvent(t.Context(), get(t, plain, "s"), newEvent("e4", "i2", "user")))
		wantRunningError(t, s.AppendEvent(t.Context(), sess, newEvent("e5", "i1", "user")), "i2")
		equal(t, "events", ids(get(t, s, "s")), []string{"e1", "e2", "e3", "e4"})
	})
}

// With WaitForRun, runs execute one after another and see each other's events. The plugin reports the end of
// each run.
func TestWaitForRun(t *testing.T) {
	sessions := newQuietService(t, adk.Options{Runs: adk.WaitForRun})
	create(t, sessions, "s", nil)
	var wg sync.WaitGroup
	for i := range 4 {
		// Each run needs its own agent, because the first run of an agent sets the agent's mode without a lock.
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
}

// If the context ends while a run waits, the error names the invocation in progress.
func TestWaitForRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := newQuietService(t, adk.Options{Runs: adk.WaitForRun})
		noError(t, sessions.AppendEvent(t.Context(), create(t, sessions, "s", nil), newEvent("e1", "i1", "user")))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := sessions.AppendEvent(ctx, get(t, sessions, "s"), newEvent("e2", "i2", "user"))
		wantRunningError(t, err, "i1")
		wantError(t, err, context.DeadlineExceeded)
	})
}

// Without the plugin, a run whose model failed ends with its context. The run of a dead process ends within half a
// minute. The run of a live process does not end.
func TestFailedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &memory.Backend{}
		process := func(b *memory.Backend) (*adk.Service, *store.Store) {
			db, err := store.New(b, store.Options{})
			noError(t, err)
			s, err := adk.NewService(db, adk.Options{Runs: adk.RefuseSecondRun})
			noError(t, err)
			return s, db
		}
		s, db := process(b)
		other, otherDB := process(b.Peer())
		defer otherDB.Close()
		create(t, s, "s", nil)
		failing := newRunner(t, llmAgent(t, modelFunc(func(context.Context, *model.LLMRequest) responses {
			return func(yield func(*model.LLMResponse, error) bool) { yield(nil, errors.New("overloaded")) }
		})), s)
		ctx, cancel := context.WithCancel(t.Context())
		var failure error
		for _, err := range failing.Run(ctx, "user", "s", genai.NewContentFromText("x", "user"), agent.RunConfig{}) {
			failure = errors.Join(failure, err)
		}
		if failure == nil {
			t.Fatal("the run has not failed")
		}
		cancel()
		synctest.Wait()
		noError(t, other.AppendEvent(t.Context(), get(t, other, "s"), newEvent("e1", "i1", "user")))
		noError(t, other.AppendEvent(t.Context(), get(t, other, "s"), newEvent("e2", "i1", "agent")))

		noError(t, s.AppendEvent(t.Context(), get(t, s, "s"), newEvent("e3", "i2", "user")))
		time.Sleep(9 * time.Minute)
		wantError(t, other.AppendEvent(t.Context(), get(t, other, "s"), newEvent("e4", "i3", "user")), store.ErrConflict)
		noError(t, db.Close()) // closing the store keeps the leases, as if the process were killed
		time.Sleep(45 * time.Second)
		noError(t, other.AppendEvent(t.Context(), get(t, other, "s"), newEvent("e4", "i3", "user")))
	})
}

// While a process runs an invocation of a session or compacts the session, no other process compacts it. Afterwards,
// another process can compact it.
func TestProcessesShareASession(t *testing.T) {
	first := &memory.Backend{}
	process := func(b *memory.Backend, interval int) *adk.Service {
		s, err := adk.NewService(mustOpen(t)(store.New(b, store.Options{})), adk.Options{
			Compaction: compaction.Config{Enabled: true, CompactionInterval: interval, Summarizer: adk.Summarizer(shortener{})}, Logger: discardLogger(),
		})
		noError(t, err)
		t.Cleanup(func() { noError(t, s.Close(context.Background())) })
		return s
	}
	runs, compacts := process(first, 1000), process(first.Peer(), 2)
	create(t, compacts, "s", nil)
	turn := func(invocation string) {
		t.Helper()
		appendAll(t, compacts, get(t, compacts, "s"), newEvent("u"+invocation, invocation, "user", withLongText), newEvent("a"+invocation, invocation, "agent", withLongText))
		compacts.WaitForCompaction(t)
	}
	summaries := func() int { return len(summaryTexts(get(t, compacts, "s"))) }
	running := get(t, runs, "s")
	appendAll(t, runs, running, newEvent("u0", "cut off", "user", withLongText), newEvent("u", "theirs", "user", withLongText))
	for _, invocation := range []string{"b1", "b2", "b3", "b4"} {
		turn(invocation)
		equal(t, "summaries while another process runs an invocation", summaries(), 0)
	}
	appendAll(t, runs, running, newEvent("a", "theirs", "agent", withLongText))
	runs.EndRun(t.Context(), running, "theirs")

	// Let another process compact the session.
	other := mustOpen(t)(store.New(first.Peer(), store.Options{}))
	held, err := other.Lease(t.Context(), testKey, "compact", time.Hour)
	noError(t, err)
	equal(t, "the lease is held", held, true)
	turn("b5")
	equal(t, "summaries while another process compacts", summaries(), 0)
	noError(t, errOf(other.Lease(t.Context(), testKey, "compact", 0)))

	turn("b6")
	if summaries() == 0 {
		t.Error("the session is not compacted")
	}
	for _, name := range []string{"compact", "run cut off", "run theirs", "run b5", "run b6"} {
		free, err := other.Lease(t.Context(), testKey, name, -1)
		noError(t, err)
		equal(t, "lease "+name+" is free", free, true)
	}
}

// An invocation keeps its lease while it appends, and for at most ten minutes after its last append.
func TestLeaseOfALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &memory.Backend{}
		svc, err := adk.NewService(mustOpen(t)(store.New(first, store.Options{})), adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 1000}})
		noError(t, err)
		defer func() { noError(t, svc.Close(t.Context())) }()
		other := mustOpen(t)(store.New(first.Peer(), store.Options{}))
		sess := create(t, svc, "s", nil)
		for i := range 5 {
			appendAll(t, svc, sess, newEvent(fmt.Sprint("e", i), "long", "user"))
			time.Sleep(9 * time.Minute)
			free, err := other.Lease(t.Context(), testKey, "run long", -1)
			noError(t, err)
			equal(t, "the lease is free", free, false)
		}
		time.Sleep(2 * time.Minute)
		free, err := other.Lease(t.Context(), testKey, "run long", -1)
		noError(t, err)
		equal(t, "the lease is free in the end", free, true)
	})
}

// The message that waited for a run stands after the run's events, even if the base orders events by time.
func TestWaitingMessageOrder(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{Runs: adk.WaitForRun}, func(t *testing.T, s *adk.Service) {
		event := func(id, invocation, author string) *session.Event {
			e := newEvent(id, invocation, author)
			e.Timestamp = time.Now()
			return e
		}
		for round, late := range []bool{false, true} {
			name := fmt.Sprint("s", round)
			sess, again := create(t, s, name, nil), get(t, s, name)
			noError(t, s.AppendEvent(t.Context(), sess, event("e1", "i1", "user")))
			second, e3 := event("e2", "i2", "user"), event("e3", "i1", "agent")
			withCall("c", "f")(e3) // an event with a call is not a final response
			var wg sync.WaitGroup
			if !late { // if late is set, the second message is created during the run and appended after the run
				wg.Go(func() {
					if err := s.AppendEvent(t.Context(), again, second); err != nil {
						t.Error(err)
					}
				})
			}
			noError(t, s.AppendEvent(t.Context(), sess, e3))
			time.Sleep(10 * time.Millisecond)
			r3 := event("r3", "i1", "agent")
			withResponse("c", "f", nil)(r3)
			noError(t, s.AppendEvent(t.Context(), sess, r3))
			noError(t, s.AppendEvent(t.Context(), sess, event("e4", "i1", "agent")))
			if wg.Wait(); late {
				noError(t, s.AppendEvent(t.Context(), again, second))
			}
			noError(t, s.AppendEvent(t.Context(), again, event("e5", "i2", "agent")))
			equal(t, "events", ids(get(t, s, name)), []string{"e1", "e3", "r3", "e4", "e2", "e5"})
			old := newEvent("old", "i3", "user")
			noError(t, s.AppendEvent(t.Context(), get(t, s, name), old))
			equal(t, "time of an old event", old.Timestamp, newEvent("old", "i3", "user").Timestamp)
		}
	})
}

// If two runs find no session, one run creates the session and the other run uses it. A later Create fails.
func TestConcurrentFirstRuns(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{Runs: adk.WaitForRun}, func(t *testing.T, s *adk.Service) {
		var misses, wg sync.WaitGroup
		barrier := missBarrier{s, &misses}
		misses.Add(2)
		for i := range 2 {
			r, err := runner.New(runner.Config{AppName: "app", Agent: llmAgent(t, counter{}), SessionService: barrier, AutoCreateSession: true})
			noError(t, err)
			wg.Go(func() {
				for _, err := range r.Run(t.Context(), "user", "new", genai.NewContentFromText(fmt.Sprint("question ", i), "user"), agent.RunConfig{}) {
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		all := get(t, s, "new").Events()
		equal(t, "events", all.Len(), 4)
		for i := 0; i < all.Len(); i += 2 {
			equal(t, "invocation of the answer", all.At(i+1).InvocationID, all.At(i).InvocationID)
		}
		_, err := s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "new"})
		wantError(t, err, store.ErrExists)
		wantError(t, errOf(s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s2"})), store.ErrNotFound)
		create(t, s, "s2", nil)
		_, err = s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s2"})
		wantError(t, err, store.ErrExists)
	})
}

// missBarrier is a service on which two Gets of a missing session wait until both have found no session.
type missBarrier struct {
	*adk.Service
	misses *sync.WaitGroup
}

func (m missBarrier) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	r, err := m.Service.Get(ctx, req)
	if err != nil {
		m.misses.Done()
		m.misses.Wait()
	}
	return r, err
}
