package bench_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func viewOf(b *testing.B, events []*patch.Event) fold.View {
	b.Helper()
	records := make([]patch.Record, len(events))
	for i, e := range events {
		records[i] = patch.Record{Seq: uint64(i + 1), Event: e}
	}
	v, err := fold.New("", nil).Apply(records...)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func told(context.Context, compaction.Request) (compaction.Response, error) {
	return compaction.Response{Text: "told"}, nil
}

// BenchmarkPlan plans, at any cost, on a view that has been planned on before.
func BenchmarkPlan(b *testing.B) {
	interval := compaction.DefaultConfig()
	tokens := compaction.Config{Enabled: true, TokenThreshold: 1_000, EventRetentionSize: 20}
	high := compaction.Config{Enabled: true, TokenThreshold: 1_000_000, EventRetentionSize: 20}
	for _, c := range []struct {
		name string
		cfg  compaction.Config
	}{{"interval", interval}, {"tokens", tokens}, {"nothing", high}} {
		for _, n := range []int{100, 1_000, 10_000} {
			b.Run(fmt.Sprintf("trigger=%s/events=%d", c.name, n), func(b *testing.B) {
				v := viewOf(b, testlog.Turns(0, n))
				for b.Loop() {
					d, err := compaction.Plan(v, c.cfg, compaction.Run{Force: true})
					if err != nil || (d.Window != nil) != (c.name != "nothing") {
						b.Fatal(d, err)
					}
				}
			})
		}
	}
}

// BenchmarkNothingToCompact is what an invocation costs after which no trigger fires, in
// a session of so many invocations that has been compacted all along.
func BenchmarkNothingToCompact(b *testing.B) {
	ctx := context.Background()
	for _, n := range []int{100, 2_000} {
		b.Run(fmt.Sprintf("invocations=%d", n), func(b *testing.B) {
			st, err := store.OpenMemory(store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			key := store.Key{App: "a", User: "u", Session: "s"}
			if _, err := st.Create(ctx, key, nil); err != nil {
				b.Fatal(err)
			}
			cfg := compaction.DefaultConfig()
			cfg.Summarizer = compaction.SummarizerFunc(told)
			c, err := compaction.New(st, cfg, compaction.Options[store.Key]{})
			if err != nil {
				b.Fatal(err)
			}
			for i := range n + 2 {
				if _, err := st.AppendEvents(ctx, key, store.AppendOptions{}, testlog.Turns(4*i, 4)...); err != nil {
					b.Fatal(err)
				}
				if _, err := c.MaybeCompact(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
			v, err := st.View(ctx, key)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(v.Len()), "visible")
			for b.Loop() {
				if done, err := c.MaybeCompact(ctx, key); err != nil || done != nil {
					b.Fatal(done, err)
				}
			}
		})
	}
}
