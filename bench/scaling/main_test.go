package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// docs/OPERATIONS.md has what the command prints.
func TestDocumented(t *testing.T) {
	var out strings.Builder
	report(&out)
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```\n"+out.String()+"```") {
		t.Errorf("docs/OPERATIONS.md does not have what go run ./bench/scaling prints:\n%s", out.String())
	}
}

func TestCompute(t *testing.T) {
	c := costs{appendLone: 10 * time.Millisecond, appendGroup: time.Millisecond, walFirst: 1000, walLater: 100, most: 480, table: 10, heap: 1}
	p := profile{events: 120, visible: 50, hot: time.Hour, peak: 2}
	s := server{cores: 1, log: 1, storage: 1, connections: 10, checkpoint: 5 * time.Minute}
	l := compute(86_400, c, p, s) // one a second, in the busiest hour two
	want := load{
		events:  240,
		lone:    2.4,
		group:   0.24,
		log:     240 * (0.1*1000 + 0.9*100), // ten events between two checkpoints
		commits: 2 * 120,
		hot:     2 * 2 * 3600,
		stored:  86_400 * 120 * 10,
	}
	for _, x := range []struct {
		what      string
		got, want float64
	}{
		{"events", l.events, want.events}, {"lone", l.lone, want.lone}, {"group", l.group, want.group},
		{"log", l.log, want.log}, {"hot", l.hot, want.hot}, {"stored", l.stored, want.stored}, {"commits", l.commits, want.commits},
		{"memory", l.memory, want.hot * 50},
	} {
		if x.got < x.want*0.999 || x.got > x.want*1.001 {
			t.Errorf("%s: %v, want %v", x.what, x.got, x.want)
		}
	}
	// As many sessions as a limit says bring a server there.
	for i, l := range limits(c, p, s, 30) {
		at := compute(l.sessions, c, p, s)
		if got := []float64{at.lone, at.group, at.events / c.most, at.log, at.memory / each.cache, at.stored * 30}[i]; got < 0.999 || got > 1.001 {
			t.Errorf("%s: %v at %v sessions a day, want 1", l.what, got, l.sessions)
		}
	}
}
