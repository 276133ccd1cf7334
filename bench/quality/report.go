package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/internal/quality"
)

// results are the figures of a set.
type results struct {
	set      set
	policies []string
	figures  map[[2]string]quality.Figures // by policy and family
	lone     map[[2]string][]point         // each session's, by policy and family
}

// point is a session's cost.
type point struct {
	rawTokens int // at the last turn
	cost      float64
}

// measure replays each session of a set under each policy, and asks half of its probes.
func measure(ctx context.Context, s set, policies []quality.Policy, asked half) (results, error) {
	for i, p := range policies {
		if slices.ContainsFunc(policies[:i], func(o quality.Policy) bool { return o.Name == p.Name }) {
			return results{}, fmt.Errorf("two policies are called %q", p.Name) // and would be added up
		}
	}
	out := results{set: s, figures: map[[2]string]quality.Figures{}, lone: map[[2]string][]point{}}
	type job struct {
		policy quality.Policy
		family family
		at     int
	}
	jobs := make(chan job)
	var mu sync.Mutex
	var failed error
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				of := j.family.sessions[j.at]
				f, err := of.Replay(ctx, j.policy, asked.of(of.probes)...)
				mu.Lock()
				if err != nil && failed == nil {
					failed = fmt.Errorf("%s, session %d, under %q: %w", j.family.name, j.at, j.policy.Name, err)
				}
				key := [2]string{j.policy.Name, j.family.name}
				sum := out.figures[key]
				sum.Add(f)
				out.figures[key] = sum
				if out.lone[key] == nil {
					out.lone[key] = make([]point, len(j.family.sessions))
				}
				out.lone[key][j.at] = point{of.Tokens(), f.Cost()}
				mu.Unlock()
			}
		})
	}
	for _, p := range policies {
		out.policies = append(out.policies, p.Name)
		for _, f := range s.families {
			for i := range f.sessions {
				jobs <- job{p, f, i}
			}
		}
	}
	close(jobs)
	workers.Wait()
	return out, failed
}

// tables writes a table for each family in which calls needed something, and one for each of
// which something is asked, or whose tools returned related values.
func (r results) tables(out io.Writer) {
	fmt.Fprintf(out, "## %s\n", r.set.name)
	for _, f := range r.set.families {
		none := r.figures[[2]string{r.policies[0], f.name}]
		if none.Needed > 0 {
			fmt.Fprintf(out, "\n**%s**: %d sessions, %d turns, %d identifiers needed\n\n", f.name, none.Sessions, none.Turns, none.Needed)
			fmt.Fprintln(out, "| policy | seen | in reach | blind | visible | breaks | cost | passes | lost | invented |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
			for _, p := range r.policies {
				g := r.figures[[2]string{p, f.name}]
				fmt.Fprintf(out, "| %s | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %d | %.1f %% | %d | %s | %d |\n", p,
					100*g.SeenShare(), 100*g.InReachShare(), 100*g.InReachBlindShare(), 100*g.VisibleShare(),
					g.Breaks, 100*g.Cost()/none.Cost(), g.Passes, lost(g), g.Invented)
			}
		}
		if none.Probes+none.Related > 0 {
			r.factTable(out, f, none)
		}
	}
	fmt.Fprintln(out)
}

// factTable writes which facts in words and relations are in sight at the sessions' ends.
func (r results) factTable(out io.Writer, f family, none quality.Figures) {
	fmt.Fprintf(out, "\n**%s, at the end**: %d facts, %d of them elsewhere too; %d relations\n\n", f.name, none.Probes, none.Elsewhere, none.Related)
	fmt.Fprintln(out, "| policy | visible | in sight | strict | found | lost | both values | on one line |\n|---|---:|---:|---:|---:|---:|---:|---:|")
	for _, p := range r.policies {
		g := r.figures[[2]string{p, f.name}]
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", p, percent(g.EndVisible, g.EndRaw),
			percent(g.InSight, g.Probes), percent(g.Strict, g.Probes), percent(g.Found, g.Probes),
			percent(g.Probes-g.InSight-g.Found, g.Probes), percent(g.BothInSight, g.Related), percent(g.OnOneLine, g.Related))
	}
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// lost says how much of what summaries stand for they do not say.
func lost(f quality.Figures) string {
	if f.Held == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(f.Lost)/float64(f.Held))
}
