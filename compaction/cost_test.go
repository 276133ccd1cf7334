package compaction_test

import (
	"math"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
)

func TestBreakEven(t *testing.T) {
	for _, row := range []struct {
		b    compaction.Balance
		want int
	}{
		{compaction.Balance{Once: -1, EachTurn: 5}, 1},
		{compaction.Balance{Once: 0, EachTurn: 0}, 1},
		{compaction.Balance{Once: 10, EachTurn: 0}, 0},
		{compaction.Balance{Once: 10, EachTurn: -1}, 0},
		{compaction.Balance{Once: 10, EachTurn: 1e-300}, 0},
		{compaction.Balance{Once: 10, EachTurn: 5}, 3},
		{compaction.Balance{Once: 11, EachTurn: 5}, 4},
	} {
		if got := row.b.BreakEven(); got != row.want {
			t.Errorf("%+v breaks even after %d turns, want %d", row.b, got, row.want)
		}
	}
}

// A pass that intervals or clearing ask for is made when it pays; what a limit of tokens
// asks for is made at any cost.
func TestPassesThatPay(t *testing.T) {
	short := strings.Repeat("u1*10 a1*10 ", 5) + "u2*10 a2*10"
	long := "u1*10 a1*20000 " + strings.Repeat("u1*10 a1*10 ", 60) + "u2*10 a2*10"
	results := "u1 c1(x) r1(x)*900 c1(y) r1(y)*10 " // clearing breaks little
	late := results + "u1*9000 a1*9000"             // and here much
	paid := &scripted{}
	cost := func(c compaction.Config, change ...func(*compaction.Cost)) compaction.Config {
		c.Cost = compaction.DefaultCost()
		for _, f := range change {
			f(&c.Cost)
		}
		return c
	}
	interval := every(2, 0, nil)
	for _, row := range []struct {
		name, log string
		cfg       compaction.Config
		want      string
	}{
		{"at any cost", short, interval, "interval 0-11"},
		{"a short session", short, cost(interval), "none"},
		{"at any risk", short, cost(interval, func(c *compaction.Cost) { c.Risk = 10 }), "interval 0-11"},
		{"at any risk, if it pays in two turns", short, cost(interval, func(c *compaction.Cost) { c.Risk, c.Turns = 10, 2 }), "none"},
		{"a long session", long, cost(interval), "interval 0-123"},
		{"a long session, for a model that costs", long, cost(every(2, 0, paid)), "none"},
		{"for one that is free", long, cost(every(2, 0, paid), func(c *compaction.Cost) { c.Read, c.Written = 0, 0 }), "interval 0-123"},
		{"a limit of the prompt", short, cost(compaction.Config{Enabled: true, TokenThreshold: 100, EventRetentionSize: 1}), "tokens 0-10"},
		{"clearing that breaks little", results, cost(clearing(1, 1), func(c *compaction.Cost) { c.Risk = 0.1 }), "clearing 2-2 without summary"},
		{"clearing that breaks much", late, cost(clearing(1, 1), func(c *compaction.Cost) { c.Risk = 0.1 }), "none"},
	} {
		d, err := compaction.Plan(script(t, row.log), row.cfg, compaction.Run{})
		if got := decided(d); err != nil || got != row.want {
			t.Errorf("%s: got %s (%s), %v, want %s", row.name, got, d.Reason, err, row.want)
		}
		counts := row.cfg.Cost.Turns > 0 && row.cfg.TokenThreshold == 0
		if counts != (d.Balance != nil) {
			t.Errorf("%s: the balance is %+v", row.name, d.Balance)
		}
		if counts && (d.Window == nil) != strings.Contains(d.Reason, "pay") {
			t.Errorf("%s: the reason is %q", row.name, d.Reason)
		}
	}
}

// The balance by hand: at the turns of the model, 10 fresh tokens, then 10 cached and 20 fresh.
// The window takes 40 tokens, of which a summary need not be shorter.
func TestBalance(t *testing.T) {
	cfg := every(2, 0, nil)
	cfg.Cost = compaction.DefaultCost()
	d, err := compaction.Plan(script(t, "u1*10 a1*10 u2*10 a2*10"), cfg, compaction.Run{})
	if err != nil || d.Balance == nil {
		t.Fatal(d, err)
	}
	want := compaction.Balance{Once: 1.25*40 - 0.1*40, Spent: 1.25*10 + 0.1*10 + 1.25*20}
	for _, f := range [][2]float64{{d.Balance.Once, want.Once}, {d.Balance.EachTurn, want.EachTurn}, {d.Balance.Spent, want.Spent}, {d.Balance.Saved, want.Saved}} {
		if math.Abs(f[0]-f[1]) > 1e-9 {
			t.Fatalf("the balance is %+v, want %+v", *d.Balance, want)
		}
	}
}

// Where what may not go takes most of the limit, the passes are fewer where costs count.
func TestFewerPassesAtALimit(t *testing.T) {
	passes := func(cfg compaction.Config) (n int) {
		s := newSession(t, "u1*900 ")
		cfg.TokenThreshold, cfg.EventRetentionSize, cfg.Enabled = 1_000, 1, true
		c := s.compactor(cfg)
		for range 60 {
			s.append("a1*100")
			done, err := c.Compact(t.Context(), key, compaction.Run{Invocation: "inv1"})
			if err != nil {
				t.Fatal(err)
			}
			n += len(done)
		}
		return n
	}
	always, paying := passes(compaction.Config{}), passes(compaction.Config{Cost: compaction.DefaultCost()})
	if paying == 0 || always < 3*paying {
		t.Errorf("%d passes, and %d where costs count", always, paying)
	}
}
