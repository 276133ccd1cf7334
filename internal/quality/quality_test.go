package quality_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// say returns a text event with the given role. If args is not nil, the event also has a function call.
func say(id, invocation, role, text string, args map[string]any) *patch.Event {
	author := "agent"
	if role == "user" {
		author = "user"
	}
	parts := []any{}
	if text != "" {
		parts = append(parts, map[string]any{"text": text})
	}
	if args != nil {
		parts = append(parts, testlog.Call("call-"+id, "f", args))
	}
	return testlog.New(patch.Fields{
		ID: id, Author: author, InvocationID: invocation, Content: map[string]any{"role": role, "parts": parts},
		UsageMetadata: map[string]any{"promptTokenCount": 1_000_000},
	})
}

// answer returns an event with the response to a call.
func answer(id, invocation, call, text string) *patch.Event {
	return testlog.New(patch.Fields{ID: id, Author: "agent", InvocationID: invocation, Content: map[string]any{
		"role": "user", "parts": []any{testlog.Response("call-"+call, "f", map[string]any{"result": text})},
	}})
}

// needy returns a session whose last call needs two identifiers of the first turn. The user repeats one of them
// before the call. The call also has an identifier that no earlier event contains.
func needy(t *testing.T) quality.Recording {
	t.Helper()
	events := []*patch.Event{
		say("u1", "i1", "user", "My order is ORDER-4711 and my card ends with 99887.", nil),
		say("a1", "i1", "model", "Thank you.", nil),
	}
	for i := range 4 {
		inv := fmt.Sprint("j", i)
		events = append(events,
			say("u"+inv, inv, "user", strings.Repeat("tell me more of it ", 20), nil),
			say("a"+inv, inv, "model", strings.Repeat("there is much to tell ", 20), nil))
	}
	events = append(events,
		say("u9", "i9", "user", "Then pay for ORDER-4711.", nil),
		say("a9", "i9", "model", "", map[string]any{"order": "ORDER-4711", "card": 99887, "note": "never-said-55555"}),
		answer("r9", "i9", "a9", "paid"))
	rec, err := quality.Record(events)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func replay(t *testing.T, rec quality.Recording, p quality.Policy) quality.Figures {
	t.Helper()
	f, err := rec.Replay(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// An identifier in a call's arguments counts as needed if an earlier event contains it. It counts as seen if it is
// visible at the time of the call.
func TestReplay(t *testing.T) {
	rec := needy(t)
	if n := rec.Invocations(); n != 6 {
		t.Errorf("%d invocations", n)
	}
	none := replay(t, rec, quality.None())
	if none.Needed != 2 || none.Seen != 2 || none.Turns != 6 || none.Breaks != 0 || none.VisibleTokens != none.RawTokens || none.Passes != 0 {
		t.Errorf("left as it is: %+v", none)
	}
	// A token of a prompt is fresh in the first turn that includes it, and cached in later turns.
	if none.FreshTokens >= none.VisibleTokens || none.CachedTokens+none.FreshTokens != none.VisibleTokens {
		t.Errorf("left as it is: %d fresh and %d cached tokens of %d", none.FreshTokens, none.CachedTokens, none.VisibleTokens)
	}
	cut := replay(t, rec, quality.Truncate(200))
	if cut.Seen != 2 || cut.Breaks == 0 || cut.VisibleTokens >= none.VisibleTokens {
		t.Errorf("truncated, the first event stays: %+v", cut)
	}
	short := replay(t, rec, alwaysSummarise("They talked at length.", 100))
	if short.Seen != 1 || short.Lost != short.Identifiers || short.Identifiers == 0 || short.Invented != 0 || short.Summaries == 0 {
		t.Errorf("with summaries that say nothing: %+v", short)
	}
	if short.ReadTokens == 0 || short.WrittenTokens == 0 || short.Cost() <= 0 {
		t.Errorf("a summarizer that is no offline one costs: %+v", short)
	}
	liar := compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		return compaction.Response{Text: "Order ORDER-4712, card 99887, receipts RC-10001 and RC-10002."}, nil
	})
	if refused := replay(t, rec, quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: liar})); refused.Invented != 0 || refused.Passes == 0 || refused.Seen != 2 {
		t.Errorf("with summaries that lie, in whose place the offline one writes: %+v", refused)
	}
	offline := replay(t, rec, quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2}))
	if offline.Passes == 0 || offline.ReadTokens+offline.WrittenTokens != 0 {
		t.Errorf("offline: %+v", offline)
	}
	if again := replay(t, rec, quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2})); again != offline {
		t.Errorf("%+v the second time, %+v the first", again, offline)
	}
}

// alwaysSummarise is a policy that compacts every two invocations. Its summarizer always returns text.
func alwaysSummarise(text string, _ int) quality.Policy {
	s := compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		return compaction.Response{Text: text}, nil
	})
	return quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: s})
}

// A policy can be used for several sessions, because it keeps no state between them.
func TestPoliciesKeepNothing(t *testing.T) {
	rec := needy(t)
	for _, p := range []quality.Policy{
		quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2, TokenThreshold: 300, EventRetentionSize: 2}),
		quality.Roll("", 200, 2, compaction.Extractive{}), quality.Clear(0, 0), quality.Truncate(100),
	} {
		if first, second := replay(t, rec, p), replay(t, rec, p); first != second {
			t.Errorf("%+v, then %+v", first, second)
		}
	}
}

func TestRoll(t *testing.T) {
	f := replay(t, needy(t), quality.Roll("", 200, 2, compaction.Extractive{}))
	if f.Summaries < 2 || f.VisibleShare() > 0.7 || f.Identifiers == 0 {
		t.Errorf("%+v", f)
	}
}

func TestClear(t *testing.T) {
	var events []*patch.Event
	for i := range 6 {
		id := fmt.Sprint(i)
		events = append(events, say("c"+id, "i", "model", "", map[string]any{"n": i}), answer("r"+id, "i", "c"+id, strings.Repeat("long result ", 40)))
	}
	rec, err := quality.Record(slices.Insert(events, 0, say("u", "i", "user", "go", nil)))
	if err != nil {
		t.Fatal(err)
	}
	each, batch, never := replay(t, rec, quality.Clear(1, 0)), replay(t, rec, quality.Clear(1, 200)), replay(t, rec, quality.Clear(1, 100_000))
	if each.Passes <= batch.Passes || batch.Passes == 0 || never.Passes != 0 || each.Breaks <= batch.Breaks {
		t.Errorf("%d, %d and %d passes", each.Passes, batch.Passes, never.Passes)
	}
}

func TestReplayFails(t *testing.T) {
	broken := errors.New("broken")
	s := compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		return compaction.Response{}, broken
	})
	f := replay(t, needy(t), quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: s}))
	if f.Passes != 0 || f.Seen != 2 {
		t.Errorf("a summarizer that fails leaves the session as it is: %+v", f)
	}
	if _, err := needy(t).Replay(t.Context(), quality.Compact("", compaction.Config{Enabled: true})); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("a wrong configuration: %v", err)
	}
	if _, err := needy(t).Replay(t.Context(), quality.Roll("", 200, 2, s)); !errors.Is(err, broken) {
		t.Errorf("a rolling summary that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := needy(t).Replay(ctx, quality.Compact("", compaction.Config{Enabled: true, CompactionInterval: 2})); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}

func ExampleRecording_Replay() {
	var events []*patch.Event
	for i, text := range []string{
		`{"id":"e1","author":"user","invocationId":"i","content":{"role":"user","parts":[{"text":"Cancel booking HX-20417."}]}}`,
		`{"id":"e2","author":"agent","invocationId":"i","content":{"role":"model","parts":[{"functionCall":{"id":"c","name":"cancel","args":{"booking":"HX-20417"}}}]}}`,
	} {
		e, err := patch.ParseEvent([]byte(text))
		if err != nil {
			panic(fmt.Sprint(i, err))
		}
		events = append(events, e)
	}
	rec, err := quality.Record(events)
	if err != nil {
		panic(err)
	}
	f, err := rec.Replay(context.Background(), quality.None())
	fmt.Println(f.Seen, "of", f.Needed, err)
	// Output: 1 of 1 <nil>
}
