package adk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/store"
	memstore "github.com/patchlog-dev/patchlog/store/memory"
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
	b := &memstore.Backend{}
	peers := make([]*adk.Service, 2)
	for i, on := range []*memstore.Backend{b, b.Peer()} {
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
