// Command quality measures what compacted sessions are worth: how much of what recorded
// agents needed later they would still have seen, and what it costs.
//
//	go run ./bench/quality
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/quality"
	"github.com/patchlog-dev/patchlog/patch"
)

func main() {
	dir := os.Args[1]
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	families := map[string][]quality.Recording{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			panic(err)
		}
		records, _, err := patch.NewDecoder(bytes.NewReader(text), f).ReadAll()
		if err != nil {
			panic(err)
		}
		var events []*patch.Event
		for _, r := range records {
			if r.Event != nil {
				events = append(events, r.Event)
			}
		}
		rec, err := quality.Record(events)
		if err != nil {
			panic(err)
		}
		name := filepath.Base(filepath.Dir(f))
		if strings.HasPrefix(name, "tau") {
			if rec.Invocations() >= 10 {
				name += " long"
			} else {
				name += " short"
			}
		}
		families[name] = append(families[name], rec)
	}
	table := compaction.Config{Enabled: true, CompactionInterval: 2, OverlapSize: 1, TokenThreshold: 4_000, EventRetentionSize: 6, MaxSummaryTokens: 600}
	for _, p := range []quality.Policy{
		quality.None(), quality.Truncate(4000), quality.Clear(3, 0), quality.Clear(3, 5000),
		quality.Roll(4000, 6, compaction.Extractive{}),
		quality.Compact("table", table), quality.Compact("default", compaction.DefaultConfig()),
		quality.Compact("tokens 4k", compaction.Config{Enabled: true, TokenThreshold: 4000, EventRetentionSize: 10}),
		quality.Compact("tokens 16k", compaction.Config{Enabled: true, TokenThreshold: 16000, EventRetentionSize: 10}),
	} {
		for _, name := range []string{"tau-bench long", "tau-bench short", "pi", "tau2-domains long", "mini-swe-agent"} {
			var sum quality.Figures
			for _, rec := range families[name] {
				f, err := rec.Replay(context.Background(), p)
				if err != nil {
					panic(fmt.Sprint(p.Name, " ", name, ": ", err))
				}
				sum.Add(f)
			}
			fmt.Printf("%-30s %-18s needed %5d seen %.1f%% at %.1f%% turns %d breaks %d cost %.0f passes %d held %d lost %d invented %d\n", p.Name, name, sum.Needed, 100*sum.SeenShare(), 100*sum.VisibleShare(), sum.Turns, sum.Breaks, sum.Cost(), sum.Passes, sum.Held, sum.Lost, sum.Invented)
		}
	}
}
