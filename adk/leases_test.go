package adk_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

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
