package compaction_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A summarizer is told the focus of the call, in one line and not without end.
func TestFocus(t *testing.T) {
	for _, row := range []struct{ focus, want string }{
		{"", ""},
		{"the  colours\nand\u2028sizes", "the colours and sizes"},
		{strings.Repeat("ü", 5_000), strings.Repeat("ü", compaction.MaxFocus-1) + "…"},
		{compaction.History, compaction.History},
	} {
		s := newSession(t, "u1*100 a1*100")
		sum := &scripted{}
		c := s.compactor(every(1, 0, sum))
		if _, err := c.Compact(t.Context(), key, compaction.Run{Focus: row.focus}); err != nil {
			t.Fatal(err)
		}
		r := sum.requests[0]
		if r.Focus != row.want {
			t.Errorf("%.20q: the focus is %.40q", row.focus, r.Focus)
		}
		begins := "Above all, keep what concerns this: " + row.want + "\n\nYou keep the memory"
		if row.want == "" {
			begins = "You keep the memory"
		}
		if !strings.HasPrefix(r.Prompt, begins) {
			t.Errorf("%.20q: the prompt begins with %.200q", row.focus, r.Prompt)
		}
	}
}

func preparing(t *testing.T, s *session, cfg compaction.Config, prepare func(context.Context, compaction.PrepareRequest[store.Key]) (string, error)) *compaction.Compactor[store.Key] {
	t.Helper()
	c := s.with(cfg, compaction.Options[store.Key]{Prepare: prepare, Logger: slog.New(slog.DiscardHandler)})
	return c
}

// What must be kept stands in the summary, whatever the summarizer says, in the room that the
// summary has.
func TestPrepareKeeps(t *testing.T) {
	for _, row := range []struct{ name, keep, want string }{
		{"nothing", " ", "told"},
		{"a line", "the gate is 4711\n", "told\nthe gate is 4711"},
		{"too much", strings.Repeat("x", 1_000), "told\n" + strings.Repeat("x", 199) + "…"},
	} {
		s := newSession(t, "u1*100 a1*100")
		sum := &scripted{}
		var asked []compaction.PrepareRequest[store.Key]
		c := preparing(t, s, every(1, 0, sum), func(_ context.Context, p compaction.PrepareRequest[store.Key]) (string, error) {
			asked = append(asked, p)
			clear(p.Events) // they are its own
			return row.keep, nil
		})
		if _, err := c.MaybeCompact(t.Context(), key); err != nil {
			t.Fatal(row.name, err)
		}
		if got := testlog.FirstText(s.view().At(0)); got != row.want {
			t.Errorf("%s: the summary is %q, want %q", row.name, got, row.want)
		}
		if len(asked) != 1 || len(asked[0].Events) != 2 || asked[0].Key != key || asked[0].Trigger != compaction.ByInterval || asked[0].View.Len() != 2 || asked[0].Merge {
			t.Errorf("%s: asked was %+v", row.name, asked)
		}
		if r := sum.requests[0]; r.MaxTokens+patch.EstimateTextTokens(strings.TrimPrefix(row.want, "told")) > 100 || r.AimTokens > r.MaxTokens {
			t.Errorf("%s: the summarizer may say %d tokens, and aims at %d", row.name, r.MaxTokens, r.AimTokens)
		}
	}
}

// It can be against it; a summarizer is not asked then. One that panics or hangs does no harm.
func TestPrepareVetoes(t *testing.T) {
	no := errors.New("no")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for _, row := range []struct {
		name    string
		prepare func(context.Context, compaction.PrepareRequest[store.Key]) (string, error)
		want    error
		outcome func(compaction.Stats) uint64
	}{
		{"veto", func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) { return "kept", no }, no, func(s compaction.Stats) uint64 { return s.Vetoed }},
		{"panic", func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) { panic("no") }, compaction.ErrPanic, func(s compaction.Stats) uint64 { return s.Failed }},
		{"hangs", func(context.Context, compaction.PrepareRequest[store.Key]) (string, error) { <-release; return "", nil }, context.DeadlineExceeded, func(s compaction.Stats) uint64 { return s.Failed }},
	} {
		s := newSession(t, "u1*100 a1*100")
		sum := &scripted{}
		c := preparing(t, s, with(every(1, 0, sum), func(c *compaction.Config) { c.Timeout = 20 * time.Millisecond }), row.prepare)
		if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, row.want) {
			t.Errorf("%s: the error is %v", row.name, err)
		}
		if n := row.outcome(c.Stats()); n != 1 || sum.calls() != 0 || s.visible() != "e0 e1" {
			t.Errorf("%s: %+v, %d calls, visible is %s", row.name, c.Stats(), sum.calls(), s.visible())
		}
	}
}
