package adk_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// compactions counts what was written, by trigger.
type compactions struct {
	mu    sync.Mutex
	wrote map[compaction.Trigger]int
	level int
}

func (c *compactions) see(t *testing.T) func(compaction.Attempt[store.Key]) {
	return func(a compaction.Attempt[store.Key]) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case a.Outcome == compaction.Wrote:
			c.wrote[a.Trigger]++
			c.level = max(c.level, a.Written.Level)
		case a.Outcome == compaction.Failed:
			t.Errorf("a compaction failed: %v", a.Err)
		}
	}
}

// A runner's conversation that is compacted all along: see [TestRunner]. The models always
// get a prompt that is bounded, whole, and has the question and the summaries.
func TestRunnerWithCompaction(t *testing.T) {
	byInterval := compaction.Config{Enabled: true, CompactionInterval: 3, OverlapSize: 1}
	byTokens := compaction.Config{Enabled: true, TokenThreshold: 1500, EventRetentionSize: 4}
	both := byInterval
	both.TokenThreshold, both.EventRetentionSize = byTokens.TokenThreshold, byTokens.EventRetentionSize
	for _, c := range []struct {
		name   string
		cfg    compaction.Config
		plugin bool
		most   int // contents in a prompt
		by     []compaction.Trigger
	}{
		{"interval", byInterval, false, 40, []compaction.Trigger{compaction.ByInterval, compaction.ByTiers}},
		{"interval, with plugin", byInterval, true, 36, []compaction.Trigger{compaction.ByInterval, compaction.ByTiers}},
		{"tokens", byTokens, false, 24, []compaction.Trigger{compaction.ByTokens}},
		{"both, with plugin", both, true, 24, []compaction.Trigger{compaction.ByInterval, compaction.ByTiers}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Summarizer = adk.Summarizer(shortener{})
			path := filepath.Join(t.TempDir(), "sessions.db")
			done := compactions{wrote: map[compaction.Trigger]int{}}
			reopen := func() (*store.Store, *adk.Service) {
				s := opened(t)(store.Open(path, store.Options{Durability: store.Relaxed}))
				svc, err := adk.NewService(s, adk.Options{Compaction: c.cfg, Hooks: adk.Hooks{OnCompaction: done.see(t)}})
				no(t, err)
				return s, svc
			}
			db, sessions := reopen()
			p := startWith(t, sessions, c.plugin)
			var events []*session.Event
			longest, inRun, summarised := 0, 0, 0
			for turn := 1; turn <= runTurns; turn++ {
				got, _ := p.turn(t, turn)
				events = append(events, got...)
				prompts := p.taken()
				checkTurn(t, turn, prompts)
				for _, prompts := range prompts {
					summaries := 0
					for _, prompt := range prompts {
						longest = max(longest, len(prompt))
						n := checkSummaries(t, turn, prompt)
						if n > summaries && summaries > 0 || len(prompt) < len(prompts[0]) {
							inRun++
						}
						summaries = n
					}
					summarised = max(summarised, summaries)
				}
				sessions.Settle(t)
				if turn%restartEvery == restartEvery-5 {
					no(t, sessions.Close(t.Context()))
					no(t, db.Close())
					db, sessions = reopen()
					p = startWith(t, sessions, c.plugin)
				}
			}
			t.Logf("written: %v up to level %d, longest prompt %d, most summaries %d, inside runs %d", done.wrote, done.level, longest, summarised, inRun)
			if longest > c.most {
				t.Errorf("a prompt has %d contents", longest)
			}
			for _, by := range c.by {
				if done.wrote[by] == 0 {
					t.Errorf("nothing was compacted by %s: %v", by, done.wrote)
				}
			}
			sess := get(t, sessions, "s")
			equal(t, "state", stateOf(sess), map[string]any{"count": runTurns / 5, "last": "k57"})
			checkAudit(t, sessions, sess, events)
			no(t, sessions.Close(t.Context()))
		})
	}
}

// checkSummaries counts a prompt's summaries. They stand before the question, and what is
// raw is in the order in which it was said.
func checkSummaries(t *testing.T, turn int, prompt []*genai.Content) (n int) {
	t.Helper()
	newest := 0
	for i, c := range prompt {
		var asked int
		if _, err := fmt.Sscanf(c.Parts[0].Text, "turn %d", &asked); err == nil {
			if asked < newest {
				t.Fatalf("turn %d: question %d comes after %d", turn, asked, newest)
			}
			newest = asked
		}
		if !isSummary(c) {
			continue
		}
		n++
		if newest == turn {
			t.Fatalf("turn %d: content %d of %d is a summary after the question", turn, i, len(prompt))
		}
	}
	return n
}

func startWith(t *testing.T, sessions *adk.Service, withPlugin bool) *process {
	t.Helper()
	p := start(t, sessions)
	p.details = strings.Repeat("The details of the question are these. ", 8)
	for _, m := range p.models {
		m.details = strings.Repeat("The answer has details too. ", 8)
	}
	if !withPlugin {
		return p
	}
	var err error
	p.runner, err = runner.New(runner.Config{
		AppName:        "app",
		Agent:          newAgent(t, p.models["root"], newAgent(t, p.models["billing"])),
		SessionService: sessions, AutoCreateSession: true,
		PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{sessions.Plugin()}},
	})
	no(t, err)
	return p
}

// A transfer to a sub-agent, then everything compacted. The runner's next
// turn still goes to the sub-agent.
func TestTransferCompactedAway(t *testing.T) {
	db := opened(t)(store.OpenMemory(store.Options{}))
	cfg := compaction.Config{Enabled: true, CompactionInterval: 1, Summarizer: adk.Summarizer(shortener{})}
	sessions, err := adk.NewService(db, adk.Options{Compaction: cfg})
	no(t, err)
	p := startWith(t, sessions, true)
	for _, turn := range []int{transferTurn - 1, transferTurn, transferTurn + 3, transferTurn + 4} {
		p.turn(t, turn)
		sessions.Settle(t)
		prompts := p.taken()
		if turn > transferTurn && len(prompts["root"])+len(prompts["billing"]) != len(prompts["billing"]) {
			t.Fatalf("turn %d went to root", turn)
		}
	}
	raw := 0
	for e := range get(t, sessions, "s").Events().All() {
		if !isSummary(e.Content) {
			raw++
		}
	}
	if raw > 3 { // root's newest event with its call, and billing's newest
		t.Errorf("%d events are still raw", raw)
	}
}
