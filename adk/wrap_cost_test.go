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

type countingBase struct {
	session.Service

	mu   sync.Mutex
	cost readCost
}

type readCost struct {
	fullGets int // number of Gets without a filter
	gets     int // number of Gets with a filter
	events   int // number of events that Gets with a filter returned
}

func (c *countingBase) Get(ctx context.Context, r *session.GetRequest) (*session.GetResponse, error) {
	resp, err := c.Service.Get(ctx, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.NumRecentEvents == 0 && r.After.IsZero():
		c.cost.fullGets++
	default:
		c.cost.gets++
		if err == nil {
			c.cost.events += resp.Session.Events().Len()
		}
	}
	return resp, err
}

// costOf returns what a call reads from the base.
func (c *countingBase) costOf(call func()) readCost {
	c.mu.Lock()
	c.cost = readCost{}
	c.mu.Unlock()
	call()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cost
}

// The number of events that a call reads from the base does not depend on the length of the session or on the number
// of records that the call uses.
func TestWrapReadsDoNotGrow(t *testing.T) {
	base := &countingBase{}
	costs := map[string][]readCost{}
	for _, turns := range []int{100, 500} {
		base.Service = session.InMemoryService()
		s := wrap(t, base, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 5, Summarizer: adk.Summarizer(shortener{})}})
		sess, seconds := create(t, s, "s", nil), 0
		add := func(events ...*session.Event) {
			appendAll(t, s, sess, withTimes(seconds, events...)...)
			seconds += len(events)
		}
		turn := func(n int) {
			inv := fmt.Sprint("i", n)
			add(newEvent("q"+inv, inv, "user", withLongText), newEvent("c"+inv, inv, "app", withCall(inv, "look")),
				newEvent("r"+inv, inv, "app", withResponse(inv, "look", map[string]any{"found": inv})), newEvent("a"+inv, inv, "app", withLongText))
			s.WaitForCompaction(t)
		}
		for n := range turns {
			turn(n)
		}
		sess = get(t, s, "s")
		for _, c := range []struct {
			name string
			call func()
		}{
			{"append", func() { add(textEvent("one", "user", "x")) }},
			{"raw events", func() { loggedEvents(t, s, sess) }},
			{"late answer", func() {
				add(newEvent("late", "i1", "app", withResponse("i1", "look", map[string]any{"found": "more"})))
			}},
			{"search", func() {
				noError(t, errOf(s.Memory().SearchMemory(t.Context(), &memory.SearchRequest{AppName: "app", UserID: "user", Query: "i3"})))
			}},
			{"view at", func() { noError(t, errOf(s.ViewAt(t.Context(), sess, 3))) }},
			{"patch", func() {
				noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewPin(sess.Events().At(0).ID)}, store.PatchOptions{})))
			}},
			{"ten turns", func() {
				for n := range 10 {
					sess = get(t, s, "s")
					turn(turns + n)
				}
			}},
		} {
			costs[c.name] = append(costs[c.name], base.costOf(c.call))
		}
	}
	for name, most := range map[string]readCost{
		"append": {0, 1, 8}, "raw events": {0, 1, 8}, "late answer": {0, 4, 32}, "search": {0, 2, 16}, "view at": {0, 1, 8},
		"patch": {1, 1, 8}, "ten turns": {10, 70, 200},
	} {
		t.Log(name, costs[name])
		for _, c := range costs[name] {
			if c.fullGets > most.fullGets || c.gets > most.gets || c.events > most.events {
				t.Errorf("%s costs %+v, at most %+v", name, c, most)
			}
		}
	}
}
