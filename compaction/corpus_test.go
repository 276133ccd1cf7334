package compaction_test

import (
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var table = flag.Bool("table", false, "print a table of the corpus")

// The configurations of the table: of sessions of ten and more invocations, and of one
// long one.
var (
	tableInterval = compaction.Config{Enabled: true, CompactionInterval: 2, OverlapSize: 1, TokenThreshold: 4_000, EventRetentionSize: 6, MaxSummaryTokens: 600}
	tableTokens   = compaction.Config{Enabled: true, TokenThreshold: 16_000, EventRetentionSize: 10}
)

// conversation is a recorded session.
type conversation struct {
	name        string
	events      []*patch.Event
	invocations []string // in the order in which they begin
}

// onRecorded runs a test on each set of recorded sessions.
func onRecorded(t *testing.T, run func(t *testing.T, set recorded.Set, all []conversation)) {
	t.Helper()
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) {
			var all []conversation
			for _, file := range set.Files {
				name, err := filepath.Rel(set.Dir, file)
				if err != nil {
					t.Fatal(err)
				}
				c := conversation{name: strings.TrimSuffix(filepath.ToSlash(name), ".jsonl")}
				c.events, _ = extSession(t, file)
				for _, e := range c.events {
					if id := e.InvocationID(); !slices.Contains(c.invocations, id) {
						c.invocations = append(c.invocations, id)
					}
				}
				all = append(all, c)
			}
			run(t, set, all)
		})
	}
}

// lived is a session as it was after its events had been appended and compacted on the
// way.
type lived struct {
	raw, visible             int // tokens, estimated
	rawEvents, visibleEvents int
	most                     int // the largest visible log on the way, in tokens
	state                    string
}

// live appends a session's events one by one. It compacts after each invocation, and,
// if during, also after each event, as a running agent would.
func live(t testing.TB, r conversation, cfg compaction.Config, during bool) lived {
	st, err := store.OpenMemory(store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	c, err := compaction.New(st, cfg, compaction.Options[store.Key]{Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	var out lived
	for i, e := range r.events {
		if _, err := st.AppendEvents(t.Context(), key, store.AppendOptions{}, e); err != nil {
			t.Fatal(err)
		}
		out.raw += e.EstimatedTokens()
		ended := i+1 == len(r.events) || r.events[i+1].InvocationID() != e.InvocationID()
		switch {
		case during:
			_, err = c.Compact(t.Context(), key, compaction.Run{Invocation: e.InvocationID()})
		case ended:
			_, err = c.MaybeCompact(t.Context(), key)
		default:
			continue
		}
		if err != nil {
			t.Fatalf("%s after event %d: %v", r.name, i, err)
		}
		v, err := st.View(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		out.visible = 0
		for _, e := range v.Events() {
			out.visible += e.EstimatedTokens()
		}
		out.most = max(out.most, out.visible)
		out.visibleEvents, out.state = v.Len(), fmt.Sprint(v.State())
	}
	out.rawEvents = len(r.events)
	n := 0
	for rec, err := range st.RawEvents(t.Context(), key, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Event != nil {
			if !patch.Same(rec, patch.Record{Event: r.events[n]}) {
				t.Fatalf("%s: raw event %d is not what was appended", r.name, n)
			}
			n++
		}
	}
	if n != len(r.events) {
		t.Fatalf("%s: %d raw events, of %d", r.name, n, len(r.events))
	}
	return out
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// TestCorpus compacts every recorded session as it grows. With -table it prints
// what became of those of the large corpus.
func TestCorpus(t *testing.T) {
	testlog.OneGoroutine(t)
	onRecorded(t, func(t *testing.T, set recorded.Set, all []conversation) {
		printed := *table && set.Large
		if printed {
			fmt.Println("| session | invocations | events | raw tokens | visible tokens | visible events | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
		}
		for _, r := range all {
			long := len(r.invocations) >= 10
			oneTask := len(r.invocations) == 1 && len(r.events) > 20
			if !long && !oneTask {
				continue
			}
			cfg := tableInterval
			if oneTask {
				cfg = tableTokens
			}
			got := live(t, r, cfg, oneTask)
			ratio := float64(got.visible) / float64(got.raw)
			if printed {
				fmt.Printf("| %s | %d | %d | %d | %d | %d | %.1f %% |\n", r.name, len(r.invocations), got.rawEvents, got.raw, got.visible, got.visibleEvents, 100*ratio)
			}
			if long && ratio > 0.35 { // a short one keeps the floor of the user's words
				t.Errorf("%s: %d of %d tokens are visible, %.1f %%", r.name, got.visible, got.raw, 100*ratio)
			}
			if oneTask && got.visible > cfg.TokenThreshold {
				t.Logf("%s: %d tokens are visible, the threshold is %d", r.name, got.visible, cfg.TokenThreshold)
			}
		}
	})
}

// The visible log of the session with the most events stays under a bound all along.
func TestLargestSessionIsBounded(t *testing.T) {
	testlog.OneGoroutine(t)
	onRecorded(t, func(t *testing.T, _ recorded.Set, all []conversation) {
		largest := longestOf(all, func(conversation) bool { return true })
		got := live(t, largest, tableInterval, false)
		t.Logf("%s: %d events of %d tokens; at most %d tokens visible after an invocation, %d at the end", largest.name, got.rawEvents, got.raw, got.most, got.visible)
		// What the token trigger leaves may be long: the last events, as they come.
		tail := 0
		for i := range largest.events {
			n := 0
			for _, e := range largest.events[i:min(len(largest.events), i+tableInterval.EventRetentionSize)] {
				n += e.EstimatedTokens()
			}
			tail = max(tail, n)
		}
		if bound := tableInterval.TokenThreshold + tableInterval.TokenThreshold/16 + tail; got.most > bound {
			t.Errorf("%d tokens were visible, the bound is %d", got.most, bound)
		}
	})
}

func longestOf(all []conversation, counts func(conversation) bool) (longest conversation) {
	for _, r := range all {
		if counts(r) && len(r.events) > len(longest.events) {
			longest = r
		}
	}
	return longest
}

func TestOneLongInvocation(t *testing.T) {
	testlog.OneGoroutine(t)
	onRecorded(t, func(t *testing.T, _ recorded.Set, all []conversation) {
		oneLongInvocation(t, longestOf(all, func(r conversation) bool { return len(r.invocations) == 1 }))
	})
}

func oneLongInvocation(t *testing.T, longest conversation) {
	t.Helper()
	interval := live(t, longest, every(compaction.DefaultInterval, compaction.DefaultOverlap, nil), true)
	if interval.visibleEvents != interval.rawEvents {
		t.Errorf("the interval fired inside one invocation: %d of %d events are visible", interval.visibleEvents, interval.rawEvents)
	}
	byDefault := compaction.DefaultConfig()
	if got := live(t, longest, byDefault, true); got.most >= byDefault.InvocationTokens+byDefault.InvocationTokens/2 {
		t.Errorf("by default %d tokens were visible at once, an invocation may take %d", got.most, byDefault.InvocationTokens)
	}
	cfg := tableTokens
	got := live(t, longest, cfg, true)
	t.Logf("%s: %d events, %d tokens; at most %d visible", longest.name, got.rawEvents, got.raw, got.most)
	if got.most > cfg.TokenThreshold+cfg.TokenThreshold/16 {
		t.Errorf("%d tokens were visible at once, the threshold is %d", got.most, cfg.TokenThreshold)
	}
	s := newSession(t, "")
	s.add(longest.events...)
	if _, err := s.compactor(cfg).Compact(t.Context(), key, compaction.Run{Invocation: longest.invocations[0]}); err != nil {
		t.Fatal(err)
	}
	task := longest.events[0]
	for _, e := range longest.events {
		if e.Author() == "user" && e.HasContent() {
			task = e
			break
		}
	}
	if at, ok := s.view().Find(task.ID()); !ok {
		t.Error("the task message is hidden")
	} else if at > 1 {
		t.Errorf("the task message is event %d", at)
	}
}
