package compaction_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
)

// paid is a summarizer whose calls cost something.
type paid struct{ *scripted }

func (paid) Price() (read, written float64) { return 1, 5 }

// A pass is made when it pays. One that hardly costs anything always is, and so is one that a
// person asks for, or by which the limit of the prompt can be held.
func TestPassesThatPay(t *testing.T) {
	turns := strings.Repeat("u1*10 a1*10 ", 60) + "u2*10 a2*10"
	long := "u1*10 a1*20000 " + turns
	results := "u1 c1(x) r1(x)*900 c1(y) r1(y)*10 " // clearing breaks little
	late := results + "u1*9000 a1*9000"             // and here much
	tokens := func(threshold, retain int) compaction.Config {
		return compaction.Config{Enabled: true, TokenThreshold: threshold, EventRetentionSize: retain}
	}
	for _, row := range []struct {
		name, log string
		cfg       compaction.Config
		run       compaction.Run
		want      string
	}{
		{"what costs nothing", strings.Repeat("u1*10 a1*10 ", 5) + "u2*10 a2*10", every(2, 0, nil), compaction.Run{}, "interval 0-11"},
		{"a long session", long, every(2, 0, nil), compaction.Run{}, "interval 0-123"},
		{"a long session, for a model that costs", long, every(2, 0, paid{&scripted{}}), compaction.Run{}, "none"},
		{"asked for", long, every(2, 0, paid{&scripted{}}), compaction.Run{Force: true}, "interval 0-123"},
		{"clearing that breaks little", results, clearing(1, 1), compaction.Run{}, "clearing 2-2 without summary"},
		{"clearing that breaks much", late, clearing(1, 1), compaction.Run{}, "none"},
		{"a tail that is longer than what can go", "u1*1000 a1*1000 u2*3000", tokens(2_000, 1), compaction.Run{}, "none"},
		{"far over the threshold too, where that would be due again soon", "u1*1000 a1*2999 u2*4000", tokens(2_000, 1), compaction.Run{}, "none"},
		{"but not if half can go", "u1*1000 a1*3000 u2*4000", tokens(2_000, 1), compaction.Run{}, "tokens 0-1"},
		{"nor in a prompt that is large", "u1*1000 a1*2000 u2*29000", tokens(2_000, 1), compaction.Run{}, "tokens 0-1"},
	} {
		d, err := compaction.Plan(script(t, row.log), row.cfg, row.run)
		if got := decided(d); err != nil || got != row.want {
			t.Errorf("%s: got %s (%s), %v, want %s", row.name, got, d.Reason, err, row.want)
		}
		if (d.Window == nil) != strings.Contains(d.Reason, "pay") {
			t.Errorf("%s: the reason is %q", row.name, d.Reason)
		}
	}
}
