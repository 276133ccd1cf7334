package compaction_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Each row is a log, what triggers, and the window that is taken, as visible indices.
// The words of the logs are explained at word.
func TestWindows(t *testing.T) {
	interval := func(n int) compaction.Config { return compaction.Config{Enabled: true, CompactionInterval: n} }
	tokens := func(threshold, retain int) compaction.Config {
		return compaction.Config{Enabled: true, TokenThreshold: threshold, EventRetentionSize: retain}
	}
	both := func(n, threshold, retain int) compaction.Config {
		c := tokens(threshold, retain)
		c.CompactionInterval = n
		return c
	}
	live := func(inv string) compaction.Run { return compaction.Run{Invocation: inv} }
	none := compaction.Run{}

	for _, row := range []struct {
		name string
		log  string
		cfg  compaction.Config
		run  compaction.Run
		want string
	}{
		// The interval trigger.
		{"nothing at all", "", interval(1), none, "none"},
		{"off", "u1 a1 u2 a2", compaction.Config{CompactionInterval: 1}, none, "none"},
		{"too few invocations", "u1 a1 u2 a2", interval(3), none, "none"},
		{"as many invocations as the interval", "u1 a1 u2 a2 u3 a3", interval(3), none, "interval 0-5"},
		{"more: all of them", "u1 a1 u2 a2 u3 a3", interval(2), none, "interval 0-5"},
		{"events of an invocation count once", "u1 a1 a1 a1 a1 a1", interval(2), none, "none"},
		{"an invocation resumes after another began", "u1 u2 a1 a2", interval(3), none, "none"},
		{"what is summarised does not count", "S u4 a4 u5 a5", interval(3), none, "none"},
		{"new invocations after a summary", "S u4 a4 u5 a5", interval(2), none, "interval 1-4"},
		{"no invocation ids: the user begins one", "u a u a u a", interval(3), none, "interval 0-5"},
		{"no invocation ids: the agent goes on", "u a a a", interval(2), none, "none"},
		{"the agent's event goes with the invocation before", "u1 a u2 a", interval(3), none, "none"},
		{"a change of state goes along", "u1 d1 u2 d2", interval(2), none, "interval 0-3"},
		{"changes of state alone need no summary", "d1 d2 d3", interval(3), none, "interval 0-2 without summary"},
		{"thoughts alone need no summary", "t1 t2", interval(2), none, "interval 0-1 without summary"},
		{"the running invocation does not count", "u1 a1 u2 a2", interval(2), live("inv2"), "none"},
		{"the running invocation is left alone", "u1 a1 u2 a2 u3 a3", interval(2), live("inv3"), "interval 0-3"},
		{"a pinned event stays", "u1 a1 u2 a2", interval(2), compaction.Run{Pinned: []string{"e3"}}, "interval 0-2"},
		{"a pinned event divides", "u1 a1 u2 a2 u3", interval(2), compaction.Run{Pinned: []string{"e1"}}, "interval 0-0"},
		{"a pinned response keeps its call", "u1 c1(x) r1(x) u2 a2", interval(2), compaction.Run{Pinned: []string{"e2"}}, "interval 0-0"},

		// Calls and responses.
		{"a call with its response", "u1 c1(x) r1(x) a1 u2", interval(2), none, "interval 0-4"},
		{"an open call in the middle", "u1 c2(x) u3 u4", interval(2), none, "interval 0-0"},
		{"an open call at the head", "c1(x) u2 a2 u3 a3", interval(2), none, "interval 1-4"},
		{"parallel calls, one open: all of them stay", "u1 c1(x,y) r1(x) u2 u3", interval(2), none, "interval 0-0"},
		{"parallel calls, answered one by one", "u1 c1(x,y) r1(x) r1(y) u2", interval(2), none, "interval 0-4"},
		{"an id used twice, the second open", "u1 c1(x) r1(x) c2(x) u3 a3", interval(2), none, "interval 0-2"},
		{"a long-running call with a placeholder is open", "u1 l1(x) r1(x) a1 u2 a2", interval(2), none, "interval 0-0"},
		{"and planning steps past it", "l1(x) r1(x) a1 u2 a2", interval(2), none, "interval 2-4"},
		{"a long-running call that the user's side answered", "u1 l1(x) r1(x) a1 u2 R2(x) a2", interval(2), none, "interval 0-6"},
		{"answered after others were summarised: goes with its answer", "l1(x) r1(x) S R2(x) a2 u3", interval(2), none, "interval 3-5 also 0-1"},
		{"a confirmation that is open keeps what it is about", "u1 c1(x) r1(x) q1(y:x) u2 a2 u3", interval(3), none, "interval 0-0"},
		{"confirmed, but the call has not returned since", "u1 c1(x) r1(x) q1(y:x) R2(y) u3 a3", interval(2), none, "interval 0-0"},
		{"confirmed and returned", "u1 c1(x) r1(x) q1(y:x) R2(y) r2(x) u3", interval(2), none, "interval 0-6"},
		{"dead calls over the limit are covered", "c1(x) c2(y) u3 a3 u4", with(interval(2), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }), none, "interval 0-0"},
		{"the newest invocation's open call is not dead", "c1(x) u1 c2(y)", with(interval(1), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }), none, "interval 1-1"},
		{"what would have gone from before it would bring a call first", "c1(x) l1(y) r1(x) u2 a2 u3", interval(2), none, "interval 3-5"},
		{"and does not count as waiting", "c1(x) l1(y) r1(x) u2 a2", interval(2), none, "none"},
		{"a late answer does not keep what is behind it waiting", "l1(x) r1(x) c1(y) R2(x) a2 u3 a3", interval(2), none, "interval 4-6"},
		{"nor does a first slice that cannot go", "d1 c2(x)*80 r2(x)*80 u3 a3", with(interval(2), func(c *compaction.Config) { c.Limits().Input = 100 }), none, "interval 1-2"},
		{"an open call of the newest invocation that was named", "c1(x) c1(y) u a u a", with(interval(2), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }), none, "interval 2-5"},
		{"a response without call is like any event", "u1 r1(x) u2", interval(2), none, "interval 0-2"},

		// The summarizer's input.
		{"as far as the input reaches, by invocations", "u1*50 a1*50 u2*50 a2*50 u3*50", with(interval(2), func(c *compaction.Config) { c.Limits().Input = 175 }), none, "interval 0-1"},
		{"within an invocation if one alone is too long", "u1*50 a1*50 a1*50 a1*50 u2*50", with(interval(2), func(c *compaction.Config) { c.Limits().Input = 175 }), none, "interval 0-2"},
		{"at least one unit, however long", "u1*130 c1(x)*150 a1 r1(x)*150 u2", with(interval(2), func(c *compaction.Config) { c.Limits().Input = 100 }), none, "interval 0-0"},
		{"a unit is not divided", "c1(x)*150 a1 r1(x)*150 u2 a2", with(interval(2), func(c *compaction.Config) { c.Limits().Input = 100 }), none, "interval 0-2"},

		{"the oldest stretch first, however small", "u1*1 c9(x) u2*99 a2*99", interval(2), none, "interval 0-0"},

		// The token trigger.
		{"under the threshold", "u1*10 a1*10 u2*10 a2*10", tokens(41, 1), none, "none"},
		{"at the threshold", "u1*10 a1*10 u2*10 a2*10", tokens(40, 1), none, "tokens 0-2"},
		{"it leaves the tail", "u1*10 a1*10 u2*10 a2*10", tokens(40, 3), none, "tokens 0-0"},
		{"the tail is all there is", "u1*10 a1*10 u2*10 a2*10", tokens(40, 4), none, "none"},
		{"summaries are no part of the tail", "u1*10 a1*10 S u2*10 a2*10", tokens(40, 2), none, "tokens 0-1"},
		{"a call in the tail keeps its response", "u1*10 c1(x)*10 a1*10 r1(x)*10 a1*10", tokens(40, 2), none, "tokens 0-0"},
		{"measured: under the threshold though the estimate is over", "u1*99 a1=30", tokens(50, 1), none, "none"},
		{"measured: over the threshold though the estimate is under", "u1*10 a1=900 u2", tokens(500, 1), none, "none"},
		{"measured: and there is something to gain", "u1*40 a1=900 u2", tokens(500, 1), none, "tokens 0-1"},
		{"inside a running invocation, the question stays", "u1*10 a1*10 a1*10 a1*10", tokens(40, 1), live("inv1"), "tokens 1-2"},
		{"the question before stays if the newest only answers a call", "u1*10 c1(x)*10 r1(x)*10 R1(y)*10 a1*10", tokens(40, 1), live("inv1"), "tokens 1-3"},
		{"too little to be worth a call", "u1*3 a1*99 a1*99", tokens(100, 2), none, "none"},
		{"both triggers: the interval first", "u1*10 a1*10 u2*10 a2*10", both(2, 40, 1), none, "interval 0-3"},
		{"both triggers: the tokens if the interval is not reached", "u1*10 a1*10 u2*10 a2*10", both(3, 40, 1), none, "tokens 0-2"},

		// Branches.
		{"branches are not mixed", "A/u1 B/u1 A/a1 B/a1 u2", interval(2), none, "interval 0-4 A:0,2 B:1,3 :4"},
		{"isolation scopes are not mixed", "A!/u1 u1 A!/a1 u2", interval(2), none, "interval 0-3 A!:0,2 :1,3"},
		{"runs of a branch are one", "A@1/u1 A@2/u2", interval(2), none, "interval 0-1"},
		{"a branch with state alone gets no summary", "A/d1 u1 A/d2 u2", interval(2), none, "interval 0-3"},

		// Records of foreign logs.
		{"a record whose text no model sees stays", "u1 C u2", interval(2), none, "interval 0-0"},
		{"and is not merged", "S S S C", interval(9), none, "none"},

		// Tiers.
		{"three summaries of a level", "S S S u9", interval(9), none, "none"},
		{"four summaries of a level", "S S S S u9", interval(9), none, "tiers 0-3 merged"},
		{"the oldest four", "S S S S S u9", interval(9), none, "tiers 0-3 merged"},
		{"levels are kept apart", "S2 S2 S2 S S S", interval(9), none, "none"},
		{"the lowest level first", "S2 S2 S2 S2 S S S S", interval(9), none, "tiers 4-7 merged"},
		{"a raw event between keeps them apart", "S S u8 S S", interval(9), none, "none"},
		{"raw events before tiers", "S S S S u8 u9", interval(2), none, "interval 4-5"},
		{"a lower level before a higher one counts with it", "S2 S S2 S2 S", interval(9), none, "tiers 0-3 merged"},
		{"branches are merged each on its own", "A/S B/S A/S B/S A/S B/S A/S B/S", interval(9), none, "tiers 6-6 also 0-0 also 2-2 also 4-4 merged"},
		{"with K = 2", "S S u9", with(interval(9), func(c *compaction.Config) { c.Limits().Summaries = 2 }), none, "tiers 0-1 merged"},
		{"under token pressure, the lowest level that has two", "S2 S2 S S u9*50", tokens(60, 1), none, "tokens 2-3 merged"},
		{"under token pressure, two of unlike level", "S2 S u9*50", tokens(60, 1), none, "tokens 0-1 merged"},
		{"nothing is left to merge", "S u9*90", tokens(60, 1), none, "none"},

		// What a model's API refuses.
		{"removing changes of state must not let a call come first", "d1 d2 c3(x) r3(x)", interval(2), live("inv3"), "none"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := script(t, row.log)
			d, err := compaction.Plan(v, row.cfg, row.run)
			if err != nil {
				t.Fatal(err)
			}
			if got := decided(d); got != row.want {
				t.Errorf("log %q\n got %s (%s)\nwant %s", row.log, got, d.Reason, row.want)
			}
			again, _ := compaction.Plan(v, row.cfg, row.run)
			if decided(again) != decided(d) || again.Reason != d.Reason {
				t.Errorf("planned again: %s (%s), then %s (%s)", decided(d), d.Reason, decided(again), again.Reason)
			}
			if d.Reason == "" {
				t.Error("no reason is given")
			}
		})
	}
}

// A call of the newest invocation stays, also if what asks the user about it is old: a patch
// that hides it is refused.
func TestCallOfTheNewestInvocationThatIsAskedAbout(t *testing.T) {
	s := newSession(t, "")
	call := func(id, name string, args map[string]any) map[string]any {
		return content("model", map[string]any{"functionCall": map[string]any{"id": id, "name": name, "args": args}})
	}
	asks := func(id, about string) event {
		return event{"author": "agent", "longRunningToolIds": []any{id},
			"content": call(id, "adk_request_confirmation", map[string]any{"originalFunctionCall": map[string]any{"id": about}})}
	}
	var events []*patch.Event
	for i, e := range []event{
		{"author": "agent", "invocationId": "a", "content": call("pay", "pay", nil)},
		asks("r1", "pay"), asks("r2", "other"), asks("r3", "another"),
		{"author": "agent", "invocationId": "b", "content": textOf("model", strings.Repeat("much was said ", 30))},
		{"author": "user", "invocationId": "a", "content": textOf("user", "go on")},
	} {
		e["id"] = fmt.Sprint("e", i)
		if e["invocationId"] == nil {
			e["invocationId"] = fmt.Sprint("inv", i)
		}
		events = append(events, testlog.EventOf(t, e))
	}
	s.add(events...)
	done, err := s.compactor(with(every(1, 0, nil), func(c *compaction.Config) { c.Limits().WaitingCalls = 1 })).MaybeCompact(t.Context(), key)
	if err != nil || len(done) == 0 {
		t.Fatalf("%d passes, %v", len(done), err)
	}
	for _, id := range []string{"e0", "e1"} {
		if _, ok := s.view().Find(id); !ok {
			t.Errorf("%s is hidden", id)
		}
	}
}
