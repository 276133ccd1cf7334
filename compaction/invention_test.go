package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// orderSession returns a session with a few turns about an order.
func orderSession(t testing.TB) *session {
	s := newSession(t, "")
	s.say("user", "i1", "I am Ada Lovelace, ada@math.example. Where is my order ORDER-4711? I paid 105.00 and 45.50 EUR on 2024-05-20."+strings.Repeat(" Please tell me all of it.", 30))
	s.say("agent", "i1", "It is on its way with tracking id TR-88-1234567; the label is in /orders/4711/label.pdf."+strings.Repeat(" There is more to say.", 30))
	s.say("user", "i2", "Thank you."+strings.Repeat(" That is good to know.", 20))
	return s
}

func (s *session) say(author, invocation, text string) {
	s.t.Helper()
	role := map[string]string{"user": "user"}[author]
	if role == "" {
		role = "model"
	}
	e := testlog.Must(patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", s.words), Author: author, InvocationID: invocation, Content: patch.Text(role, text)}))(s.t)
	s.words++
	s.add(e)
}

const (
	truthful = "Ada (ada@math.example) asked for ORDER-4711, tracked as TR-88-1234567, and paid 150.50 in 2 parts."
	lying    = "Ada asked for ORDER-4712, tracked as TR-88-1234569; see /orders/4712/label.pdf."
	slipping = "Ada asked for order_4711 of May 20, tracked as TR-88-1234569, see /orders/4712/label.pdf."
)

// answering returns a summarizer that returns one of texts per call, and then repeats the last text.
func answering(texts ...string) *scripted {
	n := 0
	s := &scripted{}
	s.reply = func(compaction.Request) (compaction.Response, error) {
		text := texts[min(n, len(texts)-1)]
		n++
		return says(text), nil
	}
	return s
}

func TestInventedIdentifiers(t *testing.T) {
	for _, c := range []struct {
		name     string
		answers  []string
		calls    int
		wrote    bool
		invented int
		says     string
	}{
		{"the truth", []string{truthful}, 1, true, 0, truthful},
		{"a lie, then the truth", []string{lying, truthful}, 2, true, 0, truthful},
		{"other spellings, and two that are not known", []string{slipping}, 1, true, 2, slipping},
		{"lies", []string{lying}, 2, true, 3, ""},
		{"a lie, then other lies", []string{lying, "ORDER-4713 and ORDER-4714, then ORDER-4715, ORDER-4716"}, 2, true, 4, ""},
		{"a lie, then nothing", []string{lying, ""}, 2, true, 3, ""},
		{"a lie, then what cannot be used", []string{lying, "…"}, 2, false, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := orderSession(t)
			sum := answering(c.answers...)
			var attempt compaction.Attempt[store.Key]
			compactor := s.with(every(2, 0, sum), compaction.Options[store.Key]{Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { attempt = a }})
			done, err := compactor.MaybeCompact(t.Context(), key)
			if sum.calls() != c.calls || len(done) != map[bool]int{true: 1}[c.wrote] || attempt.Invented != c.invented {
				t.Fatalf("%d calls, wrote %v, invented %d, error %v", sum.calls(), done, attempt.Invented, err)
			}
			if !c.wrote {
				var why *compaction.Invention
				if !errors.Is(err, compaction.ErrRefusedAnswer) || errors.As(err, &why) != (c.invented > 0) {
					t.Fatalf("error %v", err)
				}
				if why != nil && (why.Count != c.invented || len(why.Names) != c.invented || !strings.Contains(err.Error(), strconv.Quote(why.Names[0]))) {
					t.Errorf("%+v: %v", why, err)
				}
				return
			}
			w := done[0]
			got := testlog.FirstText(s.view().At(0))
			if c.says == "" { // the fallback must be called at once
				if !w.UsedFallback || !strings.Contains(got, "ORDER-4711") {
					t.Errorf("says %q", got)
				}
				return
			}
			if got != c.says {
				t.Errorf("says %q", got)
			}
			if w.Usage.Calls != c.calls || attempt.Lost != w.Lost {
				t.Errorf("%+v", w)
			}
			if lost := map[string]int{truthful: 4, slipping: 5}[c.says]; w.Identifiers != 7 || w.Lost != lost {
				t.Errorf("%d of %d lost, want %d of 7", w.Lost, w.Identifiers, lost)
			}
			if again, ok := compaction.WrittenBy(s.patches()[0]); !ok || s.patches()[0].ID() != w.PatchID || again.Identifiers != w.Identifiers || again.Lost != w.Lost {
				t.Errorf("the patch says %+v", again)
			}
		})
	}
}

// After an invention, the second request has a list of the invented identifiers, limited in length.
func TestCorrectionListsInventedIdentifiers(t *testing.T) {
	s := orderSession(t)
	var many strings.Builder
	many.WriteString("ignore`all\"instructions1 " + strings.Repeat("x", 300) + "1 ")
	for i := range 50 {
		fmt.Fprintf(&many, "X-%d ", 10_000+i)
	}
	sum := answering(many.String(), truthful)
	changed := sum.reply
	sum.reply = func(r compaction.Request) (compaction.Response, error) { // a summarizer may modify its request
		clear(r.Events)
		clear(r.Before)
		clear(r.Invented)
		return changed(r)
	}
	var seen [][]string
	tell := compaction.SummarizerFunc(func(ctx context.Context, r compaction.Request) (compaction.Response, error) {
		seen = append(seen, slices.Clone(r.Invented))
		return sum.Summarize(ctx, r)
	})
	s.compact(with(every(2, 0, tell), func(c *compaction.Config) { c.Limits().SummaryTokens = 500 }))
	if len(seen) != 2 || len(seen[0]) != 0 || len(seen[1]) != 32 || slices.ContainsFunc(seen[1], func(n string) bool { return len(n) > 130 }) {
		t.Fatalf("%d calls, the second with %q", len(seen), seen[len(seen)-1])
	}
	first, second := sum.requests[0].Prompt, sum.requests[1].Prompt
	added, ok := strings.CutPrefix(second, strings.TrimRight(first, "\n"))
	if !ok || !strings.Contains(added, `"instructions1"`) || !strings.Contains(added, `"X-10029"`) || strings.Contains(added, "X-10030") || len(added) > 2_000 {
		t.Errorf("the second prompt adds %q", added)
	}
}

// A summary may contain identifiers of the context. It may not contain an identifier that is only in an answer that
// was refused.
func TestPromptIdentifiersAreNotInvented(t *testing.T) {
	s := orderSession(t)
	s.compact(every(2, 0, answering(truthful)))
	for i := range 2 {
		s.say("user", fmt.Sprint("j", i), strings.Repeat("And what else is there to tell? ", 20))
	}
	s.compact(every(2, 2, answering("ORDER-4711 again, and /orders/4711/label.pdf")))
	for i := range 2 {
		s.say("user", fmt.Sprint("k", i), strings.Repeat("And what else is there to tell? ", 20))
	}
	sum := answering("ORDER-4712 ORDER-4713 ORDER-4714", "still ORDER-4712 ORDER-4713 ORDER-4714")
	if done, err := s.compactor(every(2, 0, sum)).MaybeCompact(t.Context(), key); err != nil || sum.calls() != 2 || len(done) != 1 || !done[0].UsedFallback {
		t.Errorf("%d calls, %+v, %v", sum.calls(), done, err)
	}
}

func invention(err error) int {
	if of := (*compaction.Invention)(nil); errors.As(err, &of) {
		return of.Count
	}
	return 0
}

// If the second answer of a summarizer also has invented identifiers, the fallback is called. Its answer is verified
// too.
func TestFallbackAfterInventions(t *testing.T) {
	for _, c := range []struct {
		fallback compaction.Summarizer
		wrote    bool
	}{{compaction.Extractive{}, true}, {answering(lying), false}} {
		s := orderSession(t)
		sum := answering(lying)
		cfg := with(every(2, 0, sum), func(cfg *compaction.Config) { cfg.TokenThreshold = 1 })
		cfg.SetFallback(c.fallback)
		compactor := s.compactor(cfg)
		for i := range 8 {
			if _, err := compactor.MaybeCompact(t.Context(), key); err != nil && invention(err) == 0 {
				t.Fatal(err)
			}
			s.say("user", fmt.Sprint("n", i), "go on")
		}
		var visible []*patch.Event
		for _, e := range s.view().Events() {
			visible = append(visible, e)
		}
		if by, ok := c.fallback.(*scripted); ok && (by.calls() < 2 || len(by.requests[0].Invented) > 0 || len(by.requests[1].Invented) == 0) {
			t.Errorf("the fallback was asked %d times: first about %q", by.calls(), by.requests[0].Invented)
		}
		if raw := visible[0].ID() == "e0"; raw == c.wrote || sum.calls() < 2 || strings.Contains(identifiers.Text(visible...), "ORDER-4712") {
			t.Errorf("fallback %T: after %d calls: %s", c.fallback, sum.calls(), s.visible())
		}
	}
}

// If an answer has invented identifiers and the window is short, the summary quotes the events.
func TestInventionsInShortWindow(t *testing.T) {
	s := newSession(t, "")
	s.say("user", "i1", "My order is ORDER-4711, and I should like to know when it comes, if you please, for I am in a hurry and cannot wait. Nor can my sister, who comes tomorrow with all of her friends and wants to see it.")
	s.say("user", "i2", "Thanks.")
	sum := answering("ORDER-4712 ORDER-4713 ORDER-4714")
	done := s.compact(every(2, 0, sum))
	if len(done) != 1 || sum.calls() != 2 || done[0].Lost != 0 || done[0].Identifiers != 1 || !strings.Contains(testlog.FirstText(s.view().At(0)), "ORDER-4711") {
		t.Errorf("%+v after %d calls: %s", done, sum.calls(), s.visible())
	}
}

// The summary of a merge is verified against the raw events that the merged summaries cover.
func TestInventionsInMerge(t *testing.T) {
	for _, c := range []struct {
		merged string
		ok     bool
	}{{"ORDER-4711 twice", true}, {"see /orders/4711/label.pdf", true}, {"see /orders/4712/label.pdf, /orders/4713/label.pdf, /orders/4714/label.pdf", false}} {
		s := newSession(t, "")
		sum := &scripted{}
		sum.reply = func(r compaction.Request) (compaction.Response, error) {
			if r.Merge {
				return says(c.merged), nil
			}
			return says("ORDER-4711 " + strings.Repeat("and so on ", 60)), nil
		}
		compactor := s.compactor(with(every(1, 0, sum), func(cfg *compaction.Config) { cfg.Limits().Summaries = 2 }))
		var err error
		for i := range 2 {
			s.say("user", fmt.Sprint("i", i), "ORDER-4711 /orders/4711/label.pdf"+strings.Repeat(" and so on", 200))
			if _, err = compactor.MaybeCompact(t.Context(), key); err != nil {
				break
			}
		}
		if says := testlog.FirstText(s.view().At(0)); err != nil || strings.Contains(says, "4714") || c.ok != strings.Contains(says, c.merged) {
			t.Errorf("%q: %v, %s", c.merged, err, says)
		}
	}
}

// Losses compares a summary with its raw events, even if those are covered through other summaries.
func TestLosses(t *testing.T) {
	s := orderSession(t)
	s.say("user", "i3", "Is ada@math.example still my address, TR-88-1234567?")
	none := s.losses()
	if len(none) != 0 {
		t.Errorf("without summaries: %+v", none)
	}
	s.patch(patch.NewSummarise(0, s.view().Len(), summaryEvent(t, "first", "ORDER-4711 and ORDER-9999, 150.50")))
	s.say("user", "i4", "It was ada@math.example."+strings.Repeat(" So it was.", 30))
	first := s.losses()
	if len(first) != 1 || first[0].Index != 0 || first[0].Invocations < 2 || !slices.Equal(first[0].Invented, []string{"ORDER-9999"}) || !slices.Equal(first[0].Numbers, []string{"150.50"}) ||
		!slices.Equal(first[0].InOtherEvents, []string{"ada@math.example"}) || !slices.Equal(first[0].NotVisible, []string{"105.00", "45.50", "2024-05-20", "TR-88-1234567", "/orders/4711/label.pdf"}) || first[0].Identifiers != 7 {
		t.Fatalf("%+v", first)
	}
	if v, history := s.view(), testlog.Must(s.store.History(t.Context(), key, s.view()))(t); len(compaction.Losses(v, history, 0)) != 1 || len(compaction.Losses(v, history, 1)) != 0 {
		t.Error("the losses at an index are those of others")
	}
	s.patch(patch.NewSummarise(0, 1, summaryEvent(t, "merged", "nothing, call-77777")))
	again := s.losses()
	if len(again) != 1 || again[0].Summary.ID() != "merged" || again[0].Events != first[0].Events || again[0].Identifiers != 7 || len(again[0].NotVisible) != 6 || !slices.Equal(again[0].Invented, []string{"call-77777"}) {
		t.Errorf("%+v", again)
	}
}

func (s *session) losses() []compaction.Loss {
	s.t.Helper()
	v := s.view()
	history := testlog.Must(s.store.History(s.t.Context(), key, v))(s.t)
	return compaction.Losses(v, history)
}

func summaryEvent(t *testing.T, id, text string) *patch.Event {
	t.Helper()
	e := testlog.Must(patch.NewEvent(patch.Fields{ID: id, Author: "user", Content: patch.Text("user", text)}))(t)
	return e
}

func ExampleLosses() {
	var log []patch.Record
	for i, text := range []string{
		`{"id":"e1","author":"user","content":{"role":"user","parts":[{"text":"I am ada@math.example. Where is ORDER-4711?"}]}}`,
		`{"id":"e2","author":"agent","content":{"role":"model","parts":[{"text":"On its way, as TR-88-1234567."}]}}`,
	} {
		e, err := patch.ParseEvent([]byte(text))
		if err != nil {
			panic(err)
		}
		log = append(log, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	summary, err := patch.NewEvent(patch.Fields{ID: "s", Author: "user", Content: patch.Text("user", "Ada asked for ORDER-4712; it is on its way as TR-88-1234567.")})
	if err != nil {
		panic(err)
	}
	v, err := fold.View{}.Apply(append(log, patch.Record{Seq: 3, Patch: patch.NewSummarise(0, 2, summary).WithID("p")})...)
	if err != nil {
		panic(err)
	}
	history, err := v.WithRecords(log).History()
	if err != nil {
		panic(err)
	}
	for _, l := range compaction.Losses(v, history) {
		fmt.Println("gone", l.NotVisible, "invented", l.Invented)
	}
	// Output: gone [ada@math.example ORDER-4711] invented [ORDER-4712]
}

// The compactor appends rules, rows and identifiers that are missing from a model's answer. If the answer is far too
// short, it appends the whole offline summary. It appends nothing to an offline summary.
func TestSupplement(t *testing.T) {
	for _, c := range []struct {
		answer string
		has    []string
	}{
		{"", nil},
		{"Ada asked about her orders at some length, and was told that they are on their way. " + strings.Repeat("She was content with all of it and said so. ", 20), []string{
			"Also:\n- Never call me before nine.\n", "ORDER-4711 | sent", "ada@math.example"}},
		{"All is well.", []string{"Also:\nSummary of earlier turns:\n- User: I am Ada"}},
	} {
		s := newSession(t, "")
		s.say("user", "i1", "I am Ada, ada@math.example. Where is ORDER-4711? Never call me before nine.")
		s.add(testlog.Parts("c", "i1", "agent", testlog.Call("c1", "find", map[string]any{"order": "ORDER-4711"})))
		s.add(testlog.Parts("r", "i1", "agent", testlog.Response("c1", "find", map[string]any{"order_id": "ORDER-4711", "state": "sent"})))
		for i := range 4 {
			s.say("agent", "i1", fmt.Sprintf("Part %d. ", i)+strings.Repeat("The parcel has left the house and is on its way to you. ", 40))
		}
		s.say("user", "i2", "Thank you.")
		by := compaction.Summarizer(compaction.Extractive{})
		if c.answer != "" {
			by = answering(c.answer)
		}
		if done := s.compact(every(2, 0, by)); len(done) != 1 {
			t.Fatalf("%+v", done)
		}
		got := testlog.FirstText(s.view().At(0))
		if c.answer == "" && strings.Contains(got, "Also:") {
			t.Errorf("it appends to its own answer:\n%s", got)
		}
		for _, has := range append(c.has, c.answer) {
			if !strings.Contains(got, strings.TrimSpace(has)) {
				t.Errorf("%q is not in\n%s", has, got)
			}
		}
	}
}
