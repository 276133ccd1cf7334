package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/quality"
)

// results are the figures of one set of sessions.
type results struct {
	set      set
	policies []string
	figures  map[[2]string]quality.Figures // key: policy and family
}

// measure replays each session of a set under each policy, with the selected probes.
func measure(ctx context.Context, s set, policies []quality.Policy, probes probeHalf) (results, error) {
	out := results{set: s, figures: map[[2]string]quality.Figures{}}
	for _, p := range policies {
		if slices.Contains(out.policies, p.Name) {
			return out, fmt.Errorf("two policies are called %q", p.Name) // figures of policies with the same name would be added
		}
		out.policies = append(out.policies, p.Name)
		for _, f := range s.families {
			var sum quality.Figures
			for i, of := range f.sessions {
				one, err := of.Replay(ctx, p, probes.of(of.probes)...)
				if err != nil {
					return out, fmt.Errorf("%s, session %d, under %q: %w", f.name, i, p.Name, err)
				}
				sum.Add(one)
			}
			out.figures[[2]string{p.Name, f.name}] = sum
		}
	}
	return out, nil
}

// tables writes a table for each family whose calls need identifiers, and a table of facts for each family with probes
// or related values.
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
					g.Breaks, 100*g.Cost()/none.Cost(), g.Passes, percent(g.Lost, g.Identifiers), g.Invented)
			}
		}
		if none.Probes+none.Related > 0 {
			r.factTable(out, f, none)
		}
	}
	fmt.Fprintln(out)
}

// factTable writes how many facts are visible at the ends of the sessions.
func (r results) factTable(out io.Writer, f family, none quality.Figures) {
	fmt.Fprintf(out, "\n**%s, at the end**: %d facts, %d of them elsewhere too; %d relations\n\n", f.name, none.Probes, none.ProbesElsewhere, none.Related)
	fmt.Fprintln(out, "| policy | visible | in sight | strict | found | lost | both values | on one line |\n|---|---:|---:|---:|---:|---:|---:|---:|")
	for _, p := range r.policies {
		g := r.figures[[2]string{p, f.name}]
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", p, percent(g.EndVisible, g.EndRaw),
			percent(g.ProbesVisible, g.Probes), percent(g.ProbesInContext, g.Probes), percent(g.ProbesFound, g.Probes),
			percent(g.Probes-g.ProbesVisible-g.ProbesFound, g.Probes), percent(g.BothVisible, g.Related), percent(g.OnOneLine, g.Related))
	}
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
