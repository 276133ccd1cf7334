package compaction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Each row has a log, a trigger, and the planned window as visible indices. The comment at the variable word explains
// the words of a log.
func TestWindows(t *testing.T) {
	interval := func(n int) compaction.Config { return every(n, 0, nil) }
	both := func(n, threshold, retain int) compaction.Config {
		c := byTokens(threshold, retain)
		c.CompactionInterval = n
		return c
	}
	retaining := func(n int, c compaction.Config) compaction.Config {
		c.RetainInvocations = n
		return c
	}
	live := func(inv string) compaction.Run { return compaction.Run{Invocation: inv} }
	none := compaction.Run{}

	plan(t, []planned{
		// Windows of the interval trigger.
		{"nothing at all", "", interval(1), none, "none", ""},
		{"off", "u1 a1 u2 a2", compaction.Config{}, none, "none", ""},
		{"too few invocations", "u1 a1 u2 a2", interval(3), none, "none", ""},
		{"as many invocations as the interval", "u1 a1 u2 a2 u3 a3", interval(3), none, "interval 0-5", ""},
		{"more: all of them", "u1 a1 u2 a2 u3 a3", interval(2), none, "interval 0-5", ""},
		{"events of an invocation count once", "u1 a1 a1 a1 a1 a1", interval(2), none, "none", ""},
		{"an invocation resumes after another began", "u1 u2 a1 a2", interval(3), none, "none", ""},
		{"what is summarised does not count", "S u4 a4 u5 a5", interval(3), none, "none", ""},
		{"new invocations after a summary", "S u4 a4 u5 a5", interval(2), none, "interval 1-4", ""},
		{"no invocation ids: the user begins one", "u a u a u a", interval(3), none, "interval 0-5", ""},
		{"no invocation ids: the agent goes on", "u a a a", interval(2), none, "none", ""},
		{"the agent's event goes with the invocation before", "u1 a u2 a", interval(3), none, "none", ""},
		{"a change of state goes along", "u1 d1 u2 d2", interval(2), none, "interval 0-3", ""},
		{"changes of state alone need no summary", "d1 d2 d3", interval(3), none, "interval 0-2 without summary", ""},
		{"thoughts alone need no summary", "t1 t2", interval(2), none, "interval 0-1 without summary", ""},
		{"the running invocation does not count", "u1 a1 u2 a2", interval(2), live("inv2"), "none", ""},
		{"the running invocation is left alone", "u1 a1 u2 a2 u3 a3", interval(2), live("inv3"), "interval 0-3", ""},
		{"a pinned event stays", "u1 a1 u2 a2", interval(2), compaction.Run{Pinned: []string{"e3"}}, "interval 0-2", ""},
		{"a pinned event divides", "u1 a1 u2 a2 u3", interval(2), compaction.Run{Pinned: []string{"e1"}}, "interval 0-0", ""},
		{"a pinned response keeps its call", "u1 c1(x) r1(x) u2 a2", interval(2), compaction.Run{Pinned: []string{"e2"}}, "interval 0-0", ""},

		// The newest invocations stay.
		{"the newest invocation stays as it was said", "u1 a1 u2 a2 u3 a3", retaining(1, interval(2)), none, "interval 0-3", ""},
		{"and does not count", "u1 a1 u2 a2", retaining(1, interval(2)), none, "none", ""},
		{"two of them", "u1 a1 u2 a2 u3 a3", retaining(2, interval(1)), none, "interval 0-1", ""},
		{"one that says nothing is none of them", "u1 a1 u2 a2 u3 a3 d4", retaining(1, interval(2)), none, "interval 0-3", ""},
		{"the running one is one of them", "u1 a1 u2 a2 u3", retaining(1, interval(2)), live("inv3"), "interval 0-3", ""},
		{"one that is too long: the question and the end stay", "u1 a1 u2 a2*40 a2*40 a2*10", retaining(1, with(interval(9), func(c *compaction.Config) { c.Limits().RetainedTokens = 20 })), none, "interval 0-1",
			"the interval is 9, but one is enough, because the newest invocations have more than 20 tokens"},
		{"with as many invocations as the interval", "u1 a1 u2 a2*40 a2*40 a2*10", retaining(1, with(interval(1), func(c *compaction.Config) { c.Limits().RetainedTokens = 20 })), none, "interval 0-1", "2 invocations have events that are not summarised; the interval is 1"},
		{"and then what is between", "S u2 a2*40 a2*40 a2*10", retaining(1, with(interval(9), func(c *compaction.Config) { c.Limits().RetainedTokens = 20 })), none, "interval 2-3", ""},
		{"the token trigger leaves it while it fits", "u1*10 a1*30 u2*10 a2*5", retaining(1, byTokens(40, 1)), none, "tokens 0-1", ""},
		{"and its end if it does not", "u1*10 a1*10 u2*10 a2*30", retaining(1, byTokens(40, 1)), none, "tokens 0-1", ""},
		{"events that say nothing are no part of the tail", "u1*10 a1*30 u2*10 d2 a2*5 d2 d2 d2", byTokens(40, 2), none, "tokens 0-1", ""},

		// A call and its response are covered together.
		{"a call with its response", "u1 c1(x) r1(x) a1 u2", interval(2), none, "interval 0-4", ""},
		{"an open call in the middle", "u1 c2(x) u3 u4", interval(2), none, "interval 0-0", ""},
		{"an open call at the head", "c1(x) u2 a2 u3 a3", interval(2), none, "interval 1-4", ""},
		{"parallel calls, one open: all of them stay", "u1 c1(x,y) r1(x) u2 u3", interval(2), none, "interval 0-0", ""},
		{"parallel calls, answered one by one", "u1 c1(x,y) r1(x) r1(y) u2", interval(2), none, "interval 0-4", ""},
		{"an id used twice, the second open", "u1 c1(x) r1(x) c2(x) u3 a3", interval(2), none, "interval 0-2", ""},
		{"a long-running call with a placeholder is open", "u1 l1(x) r1(x) a1 u2 a2", interval(2), none, "interval 0-0", ""},
		{"and planning steps past it", "l1(x) r1(x) a1 u2 a2", interval(2), none, "interval 2-4", ""},
		{"a long-running call that the user's side answered", "u1 l1(x) r1(x) a1 u2 R2(x) a2", interval(2), none, "interval 0-6", ""},
		{"answered after others were summarised: goes with its answer", "l1(x) r1(x) S R2(x) a2 u3", interval(2), none, "interval 3-5 also 0-1", ""},
		{"a confirmation that is open keeps what it is about", "u1 c1(x) r1(x) q1(y:x) u2 a2 u3", interval(3), none, "interval 0-0", ""},
		{"confirmed, but the call has not returned since", "u1 c1(x) r1(x) q1(y:x) R2(y) u3 a3", interval(2), none, "interval 0-0", ""},
		{"confirmed and returned", "u1 c1(x) r1(x) q1(y:x) R2(y) r2(x) u3", interval(2), none, "interval 0-6", ""},
		{"dead calls over the limit are covered", "c1(x) c2(y) u3 a3 u4", with(interval(2), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }), none, "interval 0-0", ""},
		{"the newest invocation's open call is not dead", "c1(x) u1 c2(y)", with(interval(1), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }), none, "interval 1-1", ""},
		{"what would have gone from before it would bring a call first", "c1(x) l1(y) r1(x) u2 a2 u3", interval(2), none, "interval 3-5", ""},
		{"and does not count as waiting", "c1(x) l1(y) r1(x) u2 a2", interval(2), none, "none", ""},
		{"a late answer does not keep what is behind it waiting", "l1(x) r1(x) c1(y) R2(x) a2 u3 a3", interval(2), none, "interval 4-6", ""},
		{"nor does a first slice that cannot go", "d1 c2(x)*80 r2(x)*80 u3 a3", with(interval(2), func(c *compaction.Config) { c.Limits().InputTokens = 100 }), none, "interval 1-2", ""},
		{"an open call of the newest invocation that was named", "c1(x) c1(y) u a u a", with(interval(2), func(c *compaction.Config) { c.Limits().OpenCalls = 1 }), none, "interval 2-5", ""},
		{"a response without call is like any event", "u1 r1(x) u2", interval(2), none, "interval 0-2", ""},

		// The summarizer's input limits the window.
		{"as far as the input reaches, by invocations", "u1*50 a1*50 u2*50 a2*50 u3*50", with(interval(2), func(c *compaction.Config) { c.Limits().InputTokens = 175 }), none, "interval 0-1", ""},
		{"within an invocation if one alone is too long", "u1*50 a1*50 a1*50 a1*50 u2*50", with(interval(2), func(c *compaction.Config) { c.Limits().InputTokens = 175 }), none, "interval 0-2", "a pass reads at most about 175 tokens"},
		{"at least one unit, however long", "u1*130 c1(x)*150 a1 r1(x)*150 u2", with(interval(2), func(c *compaction.Config) { c.Limits().InputTokens = 100 }), none, "interval 0-0", ""},
		{"a unit is not divided", "c1(x)*150 a1 r1(x)*150 u2 a2", with(interval(2), func(c *compaction.Config) { c.Limits().InputTokens = 100 }), none, "interval 0-2", ""},

		{"the oldest stretch first, however small", "u1*1 c9(x) u2*99 a2*99", interval(2), none, "interval 0-0", ""},

		// Windows of the token trigger.
		{"under the threshold", "u1*10 a1*10 u2*10 a2*10", byTokens(41, 1), none, "none", ""},
		{"at the threshold", "u1*10 a1*10 u2*10 a2*10", byTokens(40, 1), none, "tokens 0-2", ""},
		{"it leaves the tail", "u1*10 a1*10 u2*10 a2*10", byTokens(40, 3), none, "tokens 0-0", ""},
		{"the tail is all there is", "u1*10 a1*10 u2*10 a2*10", byTokens(40, 4), none, "none", ""},
		{"summaries are no part of the tail", "u1*10 a1*10 S u2*10 a2*10", byTokens(40, 2), none, "tokens 0-1", ""},
		{"a call in the tail keeps its response", "u1*10 c1(x)*10 a1*10 r1(x)*10 a1*10", byTokens(40, 2), none, "tokens 0-0", ""},
		{"measured: under the threshold though the estimate is over", "u1*99 a1=30", byTokens(50, 1), none, "none", ""},
		{"measured: over the threshold though the estimate is under", "u1*10 a1=900 u2", byTokens(500, 1), none, "none", ""},
		{"measured: and there is something to gain", "u1*40 a1=900 u2", byTokens(500, 1), none, "tokens 0-1", ""},
		{"inside a running invocation, the question stays", "u1*10 a1*10 a1*10 a1*10", byTokens(40, 1), live("inv1"), "tokens 1-2", ""},
		{"the question before stays if the newest only answers a call", "u1*10 c1(x)*10 r1(x)*10 R1(y)*10 a1*10", byTokens(40, 1), live("inv1"), "tokens 1-3", ""},
		{"too little to be worth a call", "u1*3 a1*99 a1*99", byTokens(100, 2), none, "none", ""},
		{"both triggers: the interval first", "u1*10 a1*10 u2*10 a2*10", both(2, 40, 1), none, "interval 0-3", ""},
		{"both triggers: the tokens if the interval is not reached", "u1*10 a1*10 u2*10 a2*10", both(3, 40, 1), none, "tokens 0-2", ""},

		// A window covers one or several branches, each with its own summary.
		{"branches are not mixed", "A/u1 B/u1 A/a1 B/a1 u2", interval(2), none, "interval 0-4 A:0,2 B:1,3 :4", ""},
		{"isolation scopes are not mixed", "A!/u1 u1 A!/a1 u2", interval(2), none, "interval 0-3 A!:0,2 :1,3", ""},
		{"runs of a branch are one", "A@1/u1 A@2/u2", interval(2), none, "interval 0-1", ""},
		{"a branch with state alone gets no summary", "A/d1 u1 A/d2 u2", interval(2), none, "interval 0-3", ""},

		// Compaction records of ADK in the log.
		{"a record whose text no model sees stays", "u1 C u2", interval(2), none, "interval 0-0", ""},
		{"and is not merged", "S S S C", interval(9), none, "none", ""},

		// Summaries of one level are merged into the next level.
		{"three summaries of a level", "S S S u9", interval(9), none, "none", ""},
		{"four summaries of a level", "S S S S u9", interval(9), none, "tiers 0-3 merged", ""},
		{"the oldest four", "S S S S S u9", interval(9), none, "tiers 0-3 merged", ""},
		{"levels are kept apart", "S2 S2 S2 S S S", interval(9), none, "none", ""},
		{"the lowest level first", "S2 S2 S2 S2 S S S S", interval(9), none, "tiers 4-7 merged", ""},
		{"a raw event between keeps them apart", "S S u8 S S", interval(9), none, "none", ""},
		{"raw events before tiers", "S S S S u8 u9", interval(2), none, "interval 4-5", ""},
		{"a lower level before a higher one counts with it", "S2 S S2 S2 S", interval(9), none, "tiers 0-3 merged", ""},
		{"branches are merged each on its own", "A/S B/S A/S B/S A/S B/S A/S B/S", interval(9), none, "tiers 6-6 also 0-0 also 2-2 also 4-4 merged", ""},
		{"with K = 2", "S S u9", with(interval(9), func(c *compaction.Config) { c.Limits().Summaries = 2 }), none, "tiers 0-1 merged", ""},
		{"under token pressure, the lowest level that has two", "S2 S2 S S u9*50", byTokens(60, 1), none, "tokens 2-3 merged", ""},
		{"under token pressure, two of unlike level", "S2 S u9*50", byTokens(60, 1), none, "tokens 0-1 merged", ""},
		{"nothing is left to merge", "S u9*90", byTokens(60, 1), none, "none", ""},

		// A model's API would refuse a prompt that begins with a call.
		{"removing changes of state must not let a call come first", "d1 d2 c3(x) r3(x)", interval(2), live("inv3"), "none", ""},
	})
}

// planned is a test case of a plan: a log, a configuration, and the expected window and reason.
type planned struct {
	name, log string
	cfg       compaction.Config
	run       compaction.Run
	want      string // a decision in the form that decided returns
	says      string
}

// plan checks each row twice, because Plan must be deterministic.
func plan(t *testing.T, rows []planned) {
	t.Helper()
	for _, row := range rows {
		v := script(t, row.log)
		d, err := compaction.Plan(v, row.cfg, row.run)
		if got := decided(d); err != nil || got != row.want || d.Reason == "" || !strings.Contains(d.Reason, row.says) {
			t.Errorf("%s: log %q\n got %s (%s), %v\nwant %s (%s)", row.name, row.log, got, d.Reason, err, row.want, row.says)
		}
		if again, _ := compaction.Plan(v, row.cfg, row.run); decided(again) != decided(d) || again.Reason != d.Reason {
			t.Errorf("%s: planned again: %s (%s), then %s (%s)", row.name, decided(d), d.Reason, decided(again), again.Reason)
		}
	}
}

// A call of the newest invocation stays visible even if the request to the user about it is old. A patch that hides
// such a call is refused.
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

func TestPromptSize(t *testing.T) {
	for _, row := range []struct {
		log      string
		want     int
		measured bool
	}{
		{"u1 a1*0=50000 u2*0 a2*0=60000", 60000, true},
		{"a1*0=60000 S", 20, false},
		{"a1*0=60000 S a2*0=100", 100, true},
		{"u1*0 c1(x)*100000 a1*0=50", 50, true},
		{"a1*0=50 r1(x)*100000", 50 + patch.EstimateTextTokens(`tool{"r":"`+strings.Repeat("x", 400_000)+`"}`), true},
	} {
		got, measured := compaction.PromptTokens(script(t, row.log))
		if got != row.want || measured != row.measured {
			t.Errorf("%q takes %d tokens (measured: %v), want %d (%v)", row.log, got, measured, row.want, row.measured)
		}
	}
}

// A forced merge must bring the prompt below the threshold, or save a sixteenth of the threshold. The savings are
// computed with the longest answer that is accepted.
func TestForcedMergeIsWorthItsCall(t *testing.T) {
	many := strings.Repeat("S ", 13) // 260 tokens; a merge saves a quarter of them
	const none, merges = "nothing to do: the prompt has", "only summaries are left to merge"
	tokens := func(name, log string, threshold int, want, says string) planned {
		cfg := with(compaction.Config{Enabled: true, TokenThreshold: threshold, EventRetentionSize: 1}, func(c *compaction.Config) { c.Limits().Summaries = 20 })
		return planned{name, log, cfg, compaction.Run{}, want, says}
	}
	plan(t, []planned{
		tokens("a quarter saved of two short ones: no sixteenth", "S S u9*300", 161, "none", none),
		tokens("a sixteenth", "S S u9*300", 160, "tokens 0-1 merged", merges),
		tokens("down to the threshold", "S S u9*300", 330, "none", none),
		tokens("under it", "S S u9*300", 331, "tokens 0-1 merged", merges),
		tokens("a quarter of long ones: no sixteenth", many+"u9*2300", 1041, "none", none),
		tokens("a sixteenth of long ones", many+"u9*2300", 1040, "tokens 0-12 merged", merges),
		tokens("long ones down to the threshold", many+"u9*2300", 2495, "none", none),
		tokens("long ones under it", many+"u9*2300", 2496, "tokens 0-12 merged", merges),
	})
}

// A forced merge takes summaries of the lowest level among all branches. It prefers two summaries of the same level
// to two of different levels, even if the different levels are lower.
func TestTheLowestLevelIsMergedFirst(t *testing.T) {
	tiers := with(every(9, 0, nil), func(c *compaction.Config) { c.Limits().Summaries = 2 })
	forced := compaction.Config{Enabled: true, TokenThreshold: 160, EventRetentionSize: 1}
	plan(t, []planned{
		{"the second branch", "A/S2 A/S2 B/S B/S u9", tiers, compaction.Run{}, "tiers 2-3 merged", ""},
		{"the first", "A/S A/S B/S2 B/S2 u9", tiers, compaction.Run{}, "tiers 0-1 merged", ""},
		{"forced, the second", "A/S2 A/S2 B/S B/S u9*300", forced, compaction.Run{}, "tokens 2-3 merged", ""},
		{"forced, the first", "A/S A/S B/S2 B/S2 u9*300", forced, compaction.Run{}, "tokens 0-1 merged", ""},
		{"two of one level", "S3 S3 S2 S u9*300", forced, compaction.Run{}, "tokens 0-1 merged", ""},
	})
}

// A window lists each invocation of its raw events once, in the order of their first events.
func TestInvocationsOfAWindow(t *testing.T) {
	cfg := compaction.Config{Enabled: true, CompactionInterval: 2}
	d := testlog.Must(compaction.Plan(script(t, "u1 u2 a1 a2 u3 a1 a3 u2"), cfg, compaction.Run{}))(t)
	if got, want := d.Window.Invocations, []string{"inv1", "inv2", "inv3"}; !slices.Equal(got, want) {
		t.Errorf("the invocations are %q, want %q", got, want)
	}
}

// The token trigger plans a window only if its events have at least a sixteenth of the threshold.
func TestTokenTriggerIsWorthItsCall(t *testing.T) {
	tokens := func(log string, threshold int, want, says string) planned {
		return planned{says, log, compaction.Config{Enabled: true, TokenThreshold: threshold, EventRetentionSize: 2}, compaction.Run{}, want, says}
	}
	plan(t, []planned{
		tokens("u1*6 a1*99 a1*99", 97, "none", "has 204 tokens; the threshold is 97, but only 6 tokens"),
		tokens("u1*7 a1*99 a1*99", 97, "tokens 0-0", "has 205 tokens; the threshold is 97"),
		tokens("u1*6 a1*99 a1*99", 96, "tokens 0-0", "has 204 tokens; the threshold is 96"),
		tokens("u1*6 a1*99 a1*99", 205, "none", "204 of 205 tokens"),
		tokens("u1*6 a1*99 a1*99", 1, "tokens 0-0", "the threshold is 1"),
	})
}

// paid is a summarizer that reports a price for its tokens.
type paid struct{ *scripted }

func (paid) Price() (read, written float64) { return 1, 5 }

// A pass is planned if it saves more than it costs. It is also planned if it costs hardly anything, if the caller
// forces it, or if the prompt has reached its limit.
func TestPassesThatPay(t *testing.T) {
	turns := strings.Repeat("u1*10 a1*10 ", 60) + "u2*10 a2*10"
	long := "u1*10 a1*20000 " + turns
	results := "u1 c1(x) r1(x)*900 c1(y) r1(y)*10 " // a clearing changes a short part of the prompt
	late := results + "u1*9000 a1*9000"             // a clearing changes a long part of the prompt
	plan(t, []planned{
		{"what costs nothing", strings.Repeat("u1*10 a1*10 ", 5) + "u2*10 a2*10", every(2, 0, nil), compaction.Run{}, "interval 0-11", ""},
		{"a long session", long, every(2, 0, nil), compaction.Run{}, "interval 0-123", ""},
		{"a long session, for a model that costs", long, every(2, 0, paid{&scripted{}}), compaction.Run{}, "none", "pay"},
		{"asked for", long, every(2, 0, paid{&scripted{}}), compaction.Run{Force: true}, "interval 0-123", ""},
		{"clearing that breaks little", results, clearing(1, 1), compaction.Run{}, "clearing 2-2 without summary", ""},
		{"clearing that breaks much", late, clearing(1, 1), compaction.Run{}, "none", "pay"},
		{"a tail that is longer than what can go", "u1*1000 a1*1000 u2*3000", byTokens(2_000, 1), compaction.Run{}, "none", "pay"},
		{"far over the threshold too, where that would be due again soon", "u1*1000 a1*2999 u2*4000", byTokens(2_000, 1), compaction.Run{}, "none", "pay"},
		{"but not if half can go", "u1*1000 a1*3000 u2*4000", byTokens(2_000, 1), compaction.Run{}, "tokens 0-1", ""},
		{"what must stay is no reason", "u1*1000 a1*2000 u2*236000", byTokens(2_000, 1), compaction.Run{}, "none", "pay"},
		{"nor for the interval", "u1*1000 a1*2000 u2*10 c3(x) r3(x)*236000", every(2, 0, nil), compaction.Run{Pinned: []string{"e4"}}, "none", "pay"},
		{"a large prompt that can go is", "u1*16500 a1*16000 u2*33000", byTokens(60_000, 1), compaction.Run{}, "tokens 0-1", ""},
	})
}
