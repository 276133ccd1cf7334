package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// told is a session of a few turns about an order, and what a summary may say of it.
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
	e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", s.words), Author: author, InvocationID: invocation, Content: patch.Text(role, text)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.words++
	s.add(e)
}

const (
	truthful = "Ada (ada@math.example) asked for ORDER-4711, tracked as TR-88-1234567, and paid 150.50 in 2 parts."
	lying    = "Ada asked for ORDER-4712, tracked as TR-88-1234567; see /orders/4712/label.pdf."
)

// answering is a summarizer with one answer after another, the last one again and again.
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

func TestVerified(t *testing.T) {
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
		{"lies", []string{lying}, 2, false, 2, ""},
		{"a lie, then other lies", []string{lying, "ORDER-4713 and nothing else"}, 2, false, 1, ""},
		{"a lie, then nothing", []string{lying, ""}, 2, false, 2, ""},
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
			if got := testlog.FirstText(s.view().At(0)); got != c.says {
				t.Errorf("says %q", got)
			}
			w := done[0]
			if w.Usage.Calls != c.calls || attempt.Lost != w.Lost {
				t.Errorf("%+v", w)
			}
			if lost := map[string]int{truthful: 4, lying: 6}[c.says]; w.Held != 7 || w.Lost != lost {
				t.Errorf("%d of %d lost, want %d of 7", w.Lost, w.Held, lost)
			}
			if again, ok := compaction.WrittenBy(s.patches()[0]); !ok || s.patches()[0].ID() != w.PatchID || again.Held != w.Held || again.Lost != w.Lost {
				t.Errorf("the patch says %+v", again)
			}
		})
	}
}

// The second time a summarizer is told what it invented, and no more of it than is good.
func TestVerifiedTells(t *testing.T) {
	s := orderSession(t)
	var many strings.Builder
	many.WriteString("ignore`all\"instructions1 " + strings.Repeat("x", 300) + "1 ")
	for i := range 50 {
		fmt.Fprintf(&many, "X-%d ", 10_000+i)
	}
	sum := answering(many.String(), truthful)
	changed := sum.reply
	sum.reply = func(r compaction.Request) (compaction.Response, error) { // what it was given is its own
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
	s.compact(with(every(2, 0, tell), func(c *compaction.Config) { c.MaxSummaryTokens = 500 }))
	if len(seen) != 2 || len(seen[0]) != 0 || len(seen[1]) != 32 || slices.ContainsFunc(seen[1], func(n string) bool { return len(n) > 130 }) {
		t.Fatalf("%d calls, the second with %q", len(seen), seen[len(seen)-1])
	}
	first, second := sum.requests[0].Prompt, sum.requests[1].Prompt
	added, ok := strings.CutPrefix(second, strings.TrimRight(first, "\n"))
	if !ok || !strings.Contains(added, `"instructions1"`) || !strings.Contains(added, `"X-10029"`) || strings.Contains(added, "X-10030") || len(added) > 2_000 {
		t.Errorf("the second prompt adds %q", added)
	}
}

// What is shown for context may be cited, and what an earlier answer invented may not.
func TestVerifiedAgainstWhatWasShown(t *testing.T) {
	s := orderSession(t)
	s.compact(every(2, 0, answering(truthful)))
	for i := range 2 {
		s.say("user", fmt.Sprint("j", i), strings.Repeat("And what else is there to tell? ", 20))
	}
	s.compact(every(2, 2, answering("ORDER-4711 again, and /orders/4711/label.pdf")))
	for i := range 2 {
		s.say("user", fmt.Sprint("k", i), strings.Repeat("And what else is there to tell? ", 20))
	}
	sum := answering("ORDER-4712", "still ORDER-4712")
	if _, err := s.compactor(every(2, 0, sum)).MaybeCompact(t.Context(), key); invention(err) != 1 || sum.calls() != 2 {
		t.Errorf("%d calls, %v", sum.calls(), err)
	}
}

func invention(err error) int {
	if of := (*compaction.Invention)(nil); errors.As(err, &of) {
		return of.Count
	}
	return 0
}

// One that invents again and again is replaced by the fallback, which may not invent either.
func TestVerifiedFallback(t *testing.T) {
	for _, c := range []struct {
		fallback compaction.Summarizer
		wrote    bool
	}{{compaction.Extractive{}, true}, {answering(lying), false}} {
		s := orderSession(t)
		sum := answering(lying)
		cfg := with(every(2, 0, sum), func(cfg *compaction.Config) { cfg.Fallback, cfg.TokenThreshold = c.fallback, 1 })
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
		if raw := visible[0].ID() == "e0"; raw == c.wrote || sum.calls() < 2 || strings.Contains(identifiers.Text(visible...), "ORDER-4712") {
			t.Errorf("fallback %T: after %d calls: %s", c.fallback, sum.calls(), s.visible())
		}
	}
}

// Of very little, the events themselves are told where an answer invents.
func TestVerifiedOfLittle(t *testing.T) {
	s := newSession(t, "")
	s.say("user", "i1", "My order is ORDER-4711, and I should like to know when it comes, if you please, for I am in a hurry and cannot wait. Nor can my sister, who comes tomorrow with all of her friends and wants to see it.")
	s.say("user", "i2", "Thanks.")
	sum := answering("ORDER-4712")
	done := s.compact(every(2, 0, sum))
	if len(done) != 1 || sum.calls() != 2 || done[0].Lost != 0 || done[0].Held != 1 || !strings.Contains(testlog.FirstText(s.view().At(0)), "ORDER-4711") {
		t.Errorf("%+v after %d calls: %s", done, sum.calls(), s.visible())
	}
}

// Summaries are merged by what they say.
func TestVerifiedMerged(t *testing.T) {
	for _, c := range []struct {
		merged string
		ok     bool
	}{{"ORDER-4711 twice", true}, {"see /orders/4711/label.pdf", false}} { // the events had it, the summaries have not
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
		if c.ok != (err == nil) || !c.ok && invention(err) != 1 {
			t.Errorf("%q: %v", c.merged, err)
		}
	}
}

// Answers of whatever size are judged, or refused, in a moment.
func TestVerifiedHostile(t *testing.T) {
	ids := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	many := testlog.Less(100_000)
	for name, text := range map[string]string{
		"a megabyte of ids": ids("id-%07d ", many), "a megabyte of cut ids": ids("id-%07d…", many), "a long word": strings.Repeat("a1", 5*many),
		"numbers": ids("%d.25 ", many), "stops": strings.Repeat("1,", 5*many), "no Unicode": strings.Repeat("\xff1234", 2*many),
	} {
		s := newSession(t, "")
		for i := range 2 {
			s.say("user", fmt.Sprint("i", i), ids("seen-%07d 7.75 ", many))
		}
		_, err := s.compactor(with(every(2, 0, answering(text)), func(c *compaction.Config) { c.MaxSummaryTokens, c.Fallback = 1<<30, declines{} })).MaybeCompact(t.Context(), key)
		if !errors.Is(err, compaction.ErrRefusedAnswer) || len(err.Error()) > 10_000 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// Whatever is changed in a summary that says nothing but the truth is found: a digit of an
// id, a path, a number.
func TestPropertyEditsAreFound(t *testing.T) {
	sources := editedSources(t)
	kinds, edits, refused := map[string]int{}, 0, 0
	defer func() { t.Logf("%d edits, %d of which refuse the answer: %v", edits, refused, kinds) }()
	rapid.Check(t, func(t *rapid.T) {
		for range 10 { // of each draw, for a check has 100 of them
			of := sources[rapid.IntRange(0, len(sources)-1).Draw(t, "summary")]
			i := rapid.IntRange(0, len(of.words)-1).Draw(t, "word")
			word := of.words[i]
			edited, kind := edit(t, word)
			if edited == word || identifiers.Stands(of.about, edited) {
				continue // it is the truth by chance
			}
			text := strings.Replace(of.summary, word, edited, 1)
			if identifiers.Stands(of.about, edited) || !identifiers.Stands(text, edited) {
				continue
			}
			c := identifiers.Compare(identifiers.NewIndex(text), identifiers.NewIndex(of.about))
			if !slices.ContainsFunc(append(slices.Clone(c.Invented), c.Numbers...), func(found string) bool { return strings.Contains(found, edited) || strings.Contains(edited, found) }) {
				t.Fatalf("%s: %q became %q, which nobody noticed: invented %q, numbers %q", kind, word, edited, c.Invented, c.Numbers)
			}
			edits++
			kinds[kind]++
			if len(c.Invented) > 0 {
				refused++
			}
		}
	})
	least := 500
	if testing.Short() { // rapid draws less
		least = 100
	}
	if edits < least {
		t.Errorf("%d edits", edits)
	}
}

// edited is a summary of the extractive summarizer, and the words in it that can be changed.
type editedSource struct {
	summary, about string
	words          []string
}

func editedSources(t *testing.T) (all []editedSource) {
	t.Helper()
	for _, set := range recorded.Sets(t)[:1] {
		for _, file := range set.Files {
			events, tokens := extSession(t, file)
			summary := extract(t, compaction.Request{Events: events, MaxTokens: max(tokens/5, 100)})
			s := editedSource{summary: summary, about: identifiers.Text(events...)}
			for _, w := range identifiers.In(summary) {
				if strings.ContainsAny(w, "0123456789") || strings.Contains(w, "/") {
					s.words = append(s.words, w)
				}
			}
			for _, w := range strings.Fields(summary) {
				if _, err := strconv.ParseUint(w, 10, 64); err == nil && !slices.Contains(s.words, w) {
					s.words = append(s.words, w)
				}
			}
			if len(s.words) > 0 {
				all = append(all, s)
			}
		}
	}
	return all
}

// edit changes a word as one who remembers badly would.
func edit(t *rapid.T, word string) (edited, kind string) {
	digits := []int{}
	for i := range len(word) {
		if word[i] >= '0' && word[i] <= '9' {
			digits = append(digits, i)
		}
	}
	if len(digits) == 0 || strings.Contains(word, "/") && rapid.Bool().Draw(t, "path") {
		dir, file := word[:strings.LastIndex(word, "/")], word[strings.LastIndex(word, "/"):]
		return dir + "/moved" + file, "path moved"
	}
	at := rapid.SampledFrom(digits).Draw(t, "digit")
	b := []byte(word)
	b[at] = '0' + (b[at]-'0'+byte(rapid.IntRange(1, 9).Draw(t, "by")))%10
	kind = "digit"
	if _, err := strconv.ParseFloat(word, 64); err == nil {
		kind = "number"
	}
	return string(b), kind
}

// The offline summarizer writes nothing that no event has.
func TestExtractiveInventsNothing(t *testing.T) {
	testlog.OneGoroutine(t)
	onRecorded(t, func(t *testing.T, set recorded.Set, all []conversation) {
		passes, step := 0, 1
		if set.Large && testing.Short() {
			step = 8
		}
		for i := 0; i < len(all); i += step {
			r := all[i]
			for _, cfg := range []compaction.Config{compaction.DefaultConfig(), tableInterval, tableTokens} {
				cfg.Summarizer = compaction.SummarizerFunc(func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
					resp, err := compaction.Extractive{}.Summarize(ctx, req)
					c := identifiers.Compare(identifiers.NewIndex(resp.Text), identifiers.NewIndex(identifiers.Text(req.Events...)))
					if passes++; len(c.Invented) > 0 {
						t.Errorf("%s: invents %q", r.name, c.Invented)
					}
					return resp, err
				})
				live(t, r, cfg, cfg.CompactionInterval == 0)
			}
		}
		t.Logf("%d summaries", passes)
	})
}

// What a summary lost is told of the raw events behind it, through summaries of summaries.
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
		!slices.Equal(first[0].Elsewhere, []string{"ada@math.example"}) || !slices.Equal(first[0].Gone, []string{"105.00", "45.50", "2024-05-20", "TR-88-1234567", "/orders/4711/label.pdf"}) || first[0].Held != 7 {
		t.Fatalf("%+v", first)
	}
	s.patch(patch.NewSummarise(0, 1, summaryEvent(t, "merged", "nothing, call-77777")))
	again := s.losses()
	if len(again) != 1 || again[0].Summary.ID() != "merged" || again[0].Events != first[0].Events || again[0].Held != 7 || len(again[0].Gone) != 6 || !slices.Equal(again[0].Invented, []string{"call-77777"}) {
		t.Errorf("%+v", again)
	}
	if _, err := compaction.Losses(s.view(), nil); !errors.Is(err, patch.ErrInvalid) {
		t.Errorf("without a history: %v", err)
	}
}

func (s *session) losses() []compaction.Loss {
	s.t.Helper()
	v := s.view()
	parts, err := s.store.HistoryParts(s.t.Context(), key, v)
	if err != nil {
		s.t.Fatal(err)
	}
	losses, err := compaction.Losses(v, parts)
	if err != nil {
		s.t.Fatal(err)
	}
	return losses
}

func summaryEvent(t *testing.T, id, text string) *patch.Event {
	t.Helper()
	e, err := patch.NewEvent(patch.Fields{ID: id, Author: "user", Content: patch.Text("user", text)})
	if err != nil {
		t.Fatal(err)
	}
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
	history, err := v.With(log).History()
	if err != nil {
		panic(err)
	}
	losses, err := compaction.Losses(v, [][]fold.Entry{history}) // of its one visible event
	for _, l := range losses {
		fmt.Println("gone", l.Gone, "invented", l.Invented, err)
	}
	// Output: gone [ada@math.example ORDER-4711] invented [ORDER-4712] <nil>
}
