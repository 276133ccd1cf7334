package adk_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/adk/v2/memory"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

type countedBase struct {
	session.Service

	mu   sync.Mutex
	cost readCost
}

type readCost struct {
	whole  int // Gets of all events
	gets   int // Gets with a filter
	events int // events returned by Gets with a filter
}

func (c *countedBase) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	resp, err := c.Service.Get(ctx, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.NumRecentEvents == 0 && r.After.IsZero():
		c.cost.whole++
	default:
		c.cost.gets++
		if err == nil {
			c.cost.events += resp.Session.Events().Len()
		}
	}
	return resp, err
}

// of returns the reads that a call causes.
func (c *countedBase) of(call func()) readCost {
	c.mu.Lock()
	c.cost = readCost{}
	c.mu.Unlock()
	call()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cost
}

// The cost of a call does not depend on the length of the session or on the number of records that the call uses. The
// cost is the number of events that the call reads from the base.
func TestWrapReadsDoNotGrow(t *testing.T) {
	base := &countedBase{}
	costs := map[string][]readCost{}
	for _, turns := range []int{100, 500} {
		base.Service = session.InMemoryService()
		s := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: adk.Summarizer(shortener{})}})
		sess, seconds := create(t, s, "s", nil), 0
		add := func(events ...*session.Event) {
			say(t, s, sess, inTime(seconds, events...)...)
			seconds += len(events)
		}
		turn := func(n int) {
			inv := fmt.Sprint("i", n)
			add(said("q"+inv, inv, "user", long), said("c"+inv, inv, "app", calling(inv, "look")),
				said("r"+inv, inv, "app", returning(inv, "look", map[string]any{"found": inv})), said("a"+inv, inv, "app", long))
			s.Settle(t)
		}
		for n := range turns {
			turn(n)
		}
		sess = get(t, s, "s")
		for _, c := range []struct {
			name string
			call func()
		}{
			{"append", func() { add(text("one", "user", "x")) }},
			{"raw events", func() { loggedEvents(t, s, sess) }},
			{"late answer", func() { add(said("late", "i1", "app", returning("i1", "look", map[string]any{"found": "more"}))) }},
			{"search", func() {
				no(t, errOf(s.Memory().SearchMemory(t.Context(), &memory.SearchRequest{AppName: "app", UserID: "user", Query: "i3"})))
			}},
			{"view at", func() { no(t, errOf(s.ViewAt(t.Context(), sess, 3))) }},
			{"patch", func() {
				no(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewPin(sess.Events().At(0).ID)}, store.PatchOptions{})))
			}},
			{"ten turns", func() {
				for n := range 10 {
					sess = get(t, s, "s")
					turn(turns + n)
				}
			}},
		} {
			costs[c.name] = append(costs[c.name], base.of(c.call))
		}
	}
	for name, most := range map[string]readCost{
		"append": {0, 1, 8}, "raw events": {0, 1, 8}, "late answer": {0, 4, 32}, "search": {0, 2, 16}, "view at": {0, 1, 8},
		"patch": {1, 1, 8}, "ten turns": {10, 70, 200},
	} {
		t.Log(name, costs[name])
		for _, c := range costs[name] {
			if c.whole > most.whole || c.gets > most.gets || c.events > most.events {
				t.Errorf("%s costs %+v, at most %+v", name, c, most)
			}
		}
	}
}
