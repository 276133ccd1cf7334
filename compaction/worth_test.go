package compaction_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
)

// A merge under token pressure has to bring the prompt under the threshold, or save a
// sixteenth of it. What it saves is what the longest answer that is accepted leaves.
func TestForcedMergeIsWorthItsCall(t *testing.T) {
	tokens := func(threshold int) compaction.Config {
		return with(compaction.Config{Enabled: true, TokenThreshold: threshold, EventRetentionSize: 1}, func(c *compaction.Config) { c.Limits().Summaries = 20 })
	}
	many := strings.Repeat("S ", 13) // 260 tokens, of which a quarter is saved
	for _, row := range []struct {
		name, log string
		threshold int
		want      string
	}{
		{"a quarter saved of two short ones: no sixteenth", "S S u9*300", 161, "none"},
		{"a sixteenth", "S S u9*300", 160, "tokens 0-1 merged"},
		{"down to the threshold", "S S u9*300", 330, "none"},
		{"under it", "S S u9*300", 331, "tokens 0-1 merged"},
		{"a quarter of long ones: no sixteenth", many + "u9*2300", 1041, "none"},
		{"a sixteenth of long ones", many + "u9*2300", 1040, "tokens 0-12 merged"},
		{"long ones down to the threshold", many + "u9*2300", 2495, "none"},
		{"long ones under it", many + "u9*2300", 2496, "tokens 0-12 merged"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := compaction.Plan(script(t, row.log), tokens(row.threshold), compaction.Run{})
			if err != nil {
				t.Fatal(err)
			}
			if got := decided(d); got != row.want {
				t.Errorf("log %q\n got %s (%s)\nwant %s", row.log, got, d.Reason, row.want)
			}
			says := "only summaries are left to merge"
			if row.want == "none" {
				says = "nothing to do: the prompt takes"
			}
			if !strings.Contains(d.Reason, says) {
				t.Errorf("the reason is %q, want %q", d.Reason, says)
			}
		})
	}
}

// Of the summaries that could be merged, those of the lowest level in all branches go
// first, and two of one level before two of lower ones.
func TestTheLowestLevelIsMergedFirst(t *testing.T) {
	tiers := with(every(9, 0, nil), func(c *compaction.Config) { c.Limits().Summaries = 2 })
	forced := compaction.Config{Enabled: true, TokenThreshold: 160, EventRetentionSize: 1}
	for _, row := range []struct {
		log  string
		cfg  compaction.Config
		want string
	}{
		{"A/S2 A/S2 B/S B/S u9", tiers, "tiers 2-3 merged"},
		{"A/S A/S B/S2 B/S2 u9", tiers, "tiers 0-1 merged"},
		{"A/S2 A/S2 B/S B/S u9*300", forced, "tokens 2-3 merged"},
		{"A/S A/S B/S2 B/S2 u9*300", forced, "tokens 0-1 merged"},
		{"S3 S3 S2 S u9*300", forced, "tokens 0-1 merged"},
	} {
		d, err := compaction.Plan(script(t, row.log), row.cfg, compaction.Run{})
		if got := decided(d); err != nil || got != row.want {
			t.Errorf("log %q: got %s (%s), %v, want %s", row.log, got, d.Reason, err, row.want)
		}
	}
}

// A window names each invocation of its raw events once, in the order in which they begin.
func TestInvocationsOfAWindow(t *testing.T) {
	cfg := compaction.Config{Enabled: true, CompactionInterval: 2}
	d, err := compaction.Plan(script(t, "u1 u2 a1 a2 u3 a1 a3 u2"), cfg, compaction.Run{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Window.Invocations, []string{"inv1", "inv2", "inv3"}; !slices.Equal(got, want) {
		t.Errorf("the invocations are %q, want %q", got, want)
	}
}

// What the token trigger takes has to be a sixteenth of the threshold.
func TestTokenTriggerIsWorthItsCall(t *testing.T) {
	for _, row := range []struct {
		log       string
		threshold int
		want      string
		says      string
	}{
		{"u1*6 a1*99 a1*99", 97, "none", "takes 204 tokens, the threshold is 97, but only 6 of them"},
		{"u1*7 a1*99 a1*99", 97, "tokens 0-0", "takes 205 tokens, the threshold is 97"},
		{"u1*6 a1*99 a1*99", 96, "tokens 0-0", "takes 204 tokens, the threshold is 96"},
		{"u1*6 a1*99 a1*99", 205, "none", "204 of 205 tokens"},
		{"u1*6 a1*99 a1*99", 1, "tokens 0-0", "the threshold is 1"},
	} {
		cfg := compaction.Config{Enabled: true, TokenThreshold: row.threshold, EventRetentionSize: 2}
		d, err := compaction.Plan(script(t, row.log), cfg, compaction.Run{})
		if err != nil {
			t.Fatal(err)
		}
		if got := decided(d); got != row.want {
			t.Errorf("log %q, threshold %d\n got %s (%s)\nwant %s", row.log, row.threshold, got, d.Reason, row.want)
		}
		if !strings.Contains(d.Reason, row.says) {
			t.Errorf("the reason is %q, want %q", d.Reason, row.says)
		}
	}
}
