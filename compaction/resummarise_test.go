package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// What compaction made of several branches is erased branch by branch, and made anew by the
// configuration's summarizer, merged summaries too.
func TestResummariseCompacted(t *testing.T) {
	ctx := t.Context()
	st, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Create(ctx, key, nil); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("it was said at length and more than once ", 12)
	for i := range 16 {
		for _, branch := range []string{"", "x", "y"} {
			author := "agent"
			if branch == "" {
				author = "user"
			}
			e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i, branch), InvocationID: fmt.Sprint("i", i), Author: author, Branch: branch,
				Content: patch.Text("user", fmt.Sprintf("%s fact-%d%s", long, i, branch))})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.AppendEvents(ctx, key, store.AppendOptions{}, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	var asked []compaction.Request
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.MaxSummaries, cfg.MaxInputTokens = 2, 2, 1_000
	cfg.MaxInvented = compaction.NotVerified
	cfg.Summarizer = compaction.SummarizerFunc(func(ctx context.Context, r compaction.Request) (compaction.Response, error) {
		asked = append(asked, r)
		var facts []string
		for _, e := range r.Events {
			for _, word := range strings.Fields(firstText(e)) {
				if strings.HasPrefix(word, "fact-") {
					facts = append(facts, word)
				}
			}
		}
		return says(strings.Join(facts, " ")), nil
	})
	c, err := compaction.New(st, cfg, compaction.Options[store.Key]{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.MaybeCompact(ctx, key); err != nil {
		t.Fatal(err)
	}
	count := func(text string) (n int) {
		for r, err := range st.RawEvents(ctx, key, 1) {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Events() {
				if strings.Contains(firstText(e), text) {
					n++
				}
			}
		}
		return n
	}
	ofY := count("fact-1y")
	if count("fact-1x") < 3 || ofY < 3 {
		t.Fatalf("%d and %d events tell: there is nothing to test", count("fact-1x"), ofY)
	}
	made, err := compaction.Resummariser(cfg)
	if err != nil {
		t.Fatal(err)
	}
	asked = nil
	done, err := st.Erase(ctx, key, store.EraseSelection{EventIDs: []string{"e1x"}}, store.EraseOptions{Summaries: store.RemakeSummaries, Resummarise: made})
	if err != nil {
		t.Fatal(err)
	}
	if got := done.Sessions[0]; len(got.Blank) != 0 || len(got.Remade) != len(got.Events)-1 {
		t.Errorf("of %d events %d were made anew, and %d not", len(got.Events), len(got.Remade), len(got.Blank))
	}
	for _, e := range done.Sessions[0].Events[1:] {
		if e.Why != store.ErasedStandsFor {
			t.Errorf("%+v", e)
		}
	}
	if count("fact-1x") != 0 || count("fact-1y") != ofY || count("fact-0x") < 3 {
		t.Errorf("fact-1x is told %d times, fact-1y %d, fact-0x %d", count("fact-1x"), count("fact-1y"), count("fact-0x"))
	}
	merges := 0
	for _, r := range asked {
		if r.Merge {
			merges++
		}
		if len(r.Before) > 0 || strings.Contains(r.Prompt, "fact-1x") || !strings.Contains(r.Prompt, "fact-0x") {
			t.Errorf("asked %q", r.Prompt)
		}
	}
	if merges == 0 || merges == len(asked) {
		t.Errorf("asked %d times, %d of them to merge", len(asked), merges)
	}
	for p, err := range st.Verify(ctx, store.VerifyOptions{}) {
		t.Errorf("%v, %v", p, err)
	}
}

func TestResummariser(t *testing.T) {
	ctx := t.Context()
	long := parseEvent(t, event{"id": "e", "author": "user", "content": event{"parts": []event{{"text": strings.Repeat("a long story ", 80)}}}})
	short := parseEvent(t, event{"id": "e", "author": "user", "content": event{"parts": []event{{"text": "yes"}}}})
	broken := errors.New("broken")
	answering := func(r compaction.Response, err error) compaction.Summarizer {
		return compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) { return r, err })
	}
	for name, c := range map[string]struct {
		first, fallback compaction.Summarizer
		of              *patch.Event
		want            string
		err             error
	}{
		"a summary":           {answering(says("a story"), nil), nil, long, "a story", nil},
		"too short to ask":    {answering(says(""), broken), nil, short, "user: yes", nil},
		"declined":            {answering(says(""), nil), answering(says("other"), nil), long, "", nil},
		"an error":            {answering(says(""), broken), nil, long, "", broken},
		"not whole":           {answering(compaction.Response{Text: "a", FinishReason: "MAX_TOKENS"}, nil), nil, long, "", compaction.ErrRefusedAnswer},
		"invented":            {answering(says("order 4711-A"), nil), nil, long, "", compaction.ErrRefusedAnswer},
		"the fallback":        {answering(says(""), broken), answering(says("other"), nil), long, "other", nil},
		"the fallback, too":   {answering(says(""), broken), answering(says(""), errors.ErrUnsupported), long, "", errors.ErrUnsupported},
		"offline":             {nil, nil, long, "", nil},
		"no event":            {answering(says("a"), nil), nil, nil, "", patch.ErrInvalid},
		"panics are an error": {compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) { panic("x") }), nil, long, "", compaction.ErrSummarizerPanic},
	} {
		cfg := compaction.DefaultConfig()
		cfg.Summarizer, cfg.Fallback, cfg.MaxInvented = c.first, c.fallback, 0
		made, err := compaction.Resummariser(cfg)
		if err != nil {
			t.Fatal(err)
		}
		text, err := made(ctx, nil, []*patch.Event{c.of})
		if !errors.Is(err, c.err) || name != "offline" && !strings.HasSuffix(text, c.want) || c.want == "" && text != "" && name != "offline" || name == "offline" && text == "" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if _, err := compaction.Resummariser(compaction.Config{CompactionInterval: -1}); err == nil {
		t.Error("a configuration that makes no sense is taken")
	}
}
