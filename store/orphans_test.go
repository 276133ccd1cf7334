package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// modelSummary is a summary of role model.
func modelSummary(id string) *patch.Event {
	return event(`{"id":%q,"author":"s","content":{"role":"model","parts":[{"text":"summary"}]}}`, id)
}

// named is an event with a call or a response without id.
func named(id, kind string) *patch.Event {
	return event(`{"id":%q,"invocationId":"inv0","author":"agent","content":{"role":"user","parts":[{%q:{"name":"lookup"}}]}}`, id, kind)
}

func longRunning(id, inv, callID string) *patch.Event {
	return event(`{"id":%q,"invocationId":%q,"author":"agent","longRunningToolIds":[%q],
		"content":{"role":"model","parts":[{"functionCall":{"id":%q,"name":"tool","args":{}}}]}}`, id, inv, callID, callID)
}

func TestRefusesOrphans(t *testing.T) {
	cases := []struct {
		name    string
		events  []*patch.Event
		before  *patch.PatchEvent // applied first
		patch   *patch.PatchEvent
		orphans []string // event and call of each that the error lists
		suggest string   // "start count", an event id, or "" for none
	}{
		{"response loses its call",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), answer("r", "inv1", "k"), say("b")}, nil,
			patch.NewSplice(1, 1), []string{"r k"}, "1 2"},
		{"call loses its response",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), answer("r", "inv1", "k"), say("b")}, nil,
			patch.NewSplice(2, 1), []string{"c k"}, "1 2"},
		{"summary splits a pair",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), answer("r", "inv1", "k"), say("b")}, nil,
			patch.NewSummarise(0, 2, summary("s")), []string{"r k"}, "0 3"},
		{"truncation splits a pair",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), say("b"), answer("r", "inv1", "k"), say("d")}, nil,
			patch.NewTruncateBefore("b"), []string{"r k"}, "a"}, // not c: a call must not come first
		{"new response without call",
			[]*patch.Event{say("a"), say("b")}, nil,
			patch.NewSplice(1, 1, answer("new", "inv1", "k")), []string{"new k"}, ""},
		{"new response before its call",
			[]*patch.Event{say("a"), say("b"), call("c", "inv0", "k"), say("d")}, nil,
			patch.NewSplice(1, 1, answer("new", "inv1", "k")), []string{"new k"}, ""},
		{"response would answer another call", // the second pair loses its call
			[]*patch.Event{say("a"), call("c1", "inv1", "k"), answer("r1", "inv1", "k"), call("c2", "inv1", "k"), answer("r2", "inv1", "k"), say("b")}, nil,
			patch.NewSplice(3, 1), []string{"r2 k"}, "3 2"},
		{"parallel calls, one response cut",
			[]*patch.Event{say("a"), call("c", "inv1", "k1", "k2", "k3"), answer("r1", "inv1", "k1"), answer("r2", "inv1", "k2"), answer("r3", "inv1", "k3")}, nil,
			patch.NewSplice(3, 1), []string{"c k2"}, "1 4"},
		{"parts without ids pair by name",
			[]*patch.Event{say("a"), named("c", "functionCall"), named("r", "functionResponse"), say("b")}, nil,
			patch.NewSplice(2, 1), []string{"c "}, "1 2"},
		{"open call of the newest invocation",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), say("b")}, nil,
			patch.NewSplice(1, 1), []string{"c k"}, ""},
		{"open call of the newest invocation, truncated",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), say("b")}, nil,
			patch.NewTruncateBefore("b"), []string{"c k"}, "a"},
		{"open long-running call",
			[]*patch.Event{say("a"), longRunning("c", "inv0", "k"), say("b")}, nil,
			patch.NewSummarise(0, 2, summary("s")), []string{"c k"}, ""},
		{"call comes first",
			[]*patch.Event{say("a"), call("c", "inv1", "k"), answer("r", "inv1", "k"), say("b")}, nil,
			patch.NewSplice(0, 1), []string{"c k"}, "0 3"},
		{"call comes first by truncation",
			[]*patch.Event{say("a"), say("b"), call("c", "inv1", "k"), answer("r", "inv1", "k")}, nil,
			patch.NewTruncateBefore("c"), []string{"c k"}, "b"},
		{"call comes after a summary of role model",
			[]*patch.Event{say("a"), say("b"), call("c", "inv1", "k"), answer("r", "inv1", "k"), say("d")}, nil,
			patch.NewSummarise(0, 2, modelSummary("s")), []string{"c k"}, "0 4"},
		{"call comes after a summary that was there",
			[]*patch.Event{say("a"), say("b"), say("d"), call("c", "inv1", "k"), answer("r", "inv1", "k")}, patch.NewSummarise(0, 2, modelSummary("s")),
			patch.NewSplice(1, 1), []string{"c k"}, "1 3"}, // from 0 on, the call would come first
	}
	onEach(t, func(e *env) {
		for i, c := range cases {
			e.Run(c.name, func(t *testing.T) {
				e := e.with(t)
				if i > 0 {
					e.no(e.store.Delete(ctx, key))
				}
				e.create(nil)
				e.append(c.events...)
				if c.before != nil {
					e.apply(c.before)
				}
				e.checkOrphans(c.patch.WithID("p"), c.orphans, c.suggest)
				// What the suggestion says passes; so does the patch itself if asked to.
				if suggested := suggestion(c.patch, c.suggest); suggested != nil {
					p, err := e.store.Preview(ctx, key, store.PatchOptions{On: e.view()}, suggested)
					e.no(err)
					if p.After.Len() == 0 && c.patch.Type() != patch.Splice {
						e.Error("the suggestion leaves nothing")
					}
				}
				n := e.view().Len()
				c2, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: e.view(), AllowOrphans: true}, c.patch.WithID("p"))
				e.no(err)
				if skipped := e.skipped(c2.View); len(skipped) > 0 || c2.View.Len() == n && c.patch.Count() != len(c.patch.NewEvents()) {
					e.Errorf("allowed, but %d events became %d, skipped %v", n, c2.View.Len(), skipped)
				}
			})
		}
	})
}

func (e *env) checkOrphans(p *patch.PatchEvent, orphans []string, suggest string) {
	e.Helper()
	names := []string{}
	for _, o := range orphans {
		id, callID, _ := strings.Cut(o, " ")
		names = append(names, fmt.Sprintf("%q", id), fmt.Sprintf("%q", callID))
	}
	err := e.refuse(store.PatchOptions{On: e.view()}, one(p), fold.ErrOrphanedCall, names...)
	got := as[*fold.OrphanError](e, err)
	var list []string
	for _, o := range got.Orphans {
		list = append(list, o.EventID+" "+o.CallID)
	}
	e.same("orphans", fmt.Sprint(list), fmt.Sprint(orphans))
	text := ""
	switch {
	case got.Suggested && got.EventID != "":
		text = got.EventID
	case got.Suggested:
		text = fmt.Sprint(got.Start, " ", got.Count)
	}
	e.same("suggestion", text, suggest)
	for part := range strings.FieldsSeq(suggest) {
		if !strings.Contains(err.Error(), part) {
			e.Errorf("error %q does not suggest %s", err, suggest)
		}
	}
}

// suggestion returns the patch with the span that an error suggests.
func suggestion(p *patch.PatchEvent, suggest string) *patch.PatchEvent {
	var start, count int
	_, _ = fmt.Sscan(suggest, &start, &count)
	switch {
	case suggest == "":
		return nil
	case p.Type() == patch.TruncateBefore:
		return patch.NewTruncateBefore(suggest)
	case p.Type() == patch.Summarise:
		return patch.NewSummarise(start, count, p.NewEvents()[0])
	}
	return patch.NewSplice(start, count, p.NewEvents()...)
}

// What was open or unpaired before a patch never counts against it.
func TestOrphansThatWereThereBefore(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(
			answer("r0", "inv0", "none"),                // 0: answers nothing
			say("a1"),                                   // 1
			call("c1", "inv0", "k1"),                    // 2: never answered, of an older invocation
			say("a2"),                                   // 3
			call("c2", "inv0", "k2"),                    // 4
			answer("r2", "inv0", "k2"),                  // 5
			answer("r2 again", "inv0", "k2"),            // 6: amends
			event(`{"id":"end","invocationId":"inv9"}`), // 7
		)
		for _, p := range []*patch.PatchEvent{
			patch.NewSplice(1, 1), patch.NewSplice(2, 1), patch.NewSplice(0, 1), patch.NewSplice(0, 2, say("x")),
			patch.NewSummarise(0, 4, summary("s")), patch.NewSplice(6, 1), patch.NewSplice(5, 1), patch.NewSplice(4, 3),
			patch.NewTruncateBefore("a2"), patch.NewTruncateBefore("end"),
		} {
			_, err := e.store.Preview(ctx, key, asOfNow, p)
			if err != nil {
				e.Errorf("%s: %v", p, err)
			}
		}
	})
}

// A replacement may bring a pair of its own, or the response that was missing.
func TestReplacementsWithCalls(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), call("c1", "inv1", "k1"), say("a2"))
		e.apply(patch.NewSplice(2, 0, answer("r1", "inv1", "k1")))
		e.apply(patch.NewSplice(1, 2, call("c2", "inv1", "k2"), answer("r2", "inv1", "k2")))
		e.apply(patch.NewSplice(1, 2, say("b")))
		e.same("visible", ids(e.view()), "a1 b a2")
	})
}
