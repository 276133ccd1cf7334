// Command quality measures what compacted sessions are worth: how much of what recorded
// agents needed later they would still have seen, or found by a look-up, what summaries lost
// and made up, and what prompts and summaries cost. It needs no model and no network, and gives
// the same digits each time. It takes the sessions that the repository carries, and those of the
// large corpus where it lies beside the repository.
//
//	go run ./bench/quality            # tables, as Markdown
//	go run ./bench/quality -svg docs  # and plots
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/quality"
)

func main() {
	svg := flag.String("svg", "", "write plots into this `DIR`")
	only := flag.String("policies", "", "measure only the policies with these `NAMES`, separated by semicolons, beside none")
	asked := flag.String("probes", string(all), "ask `HALF` of the probes: choose, report, or all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, ".", *svg, strings.Split(*only, ";"), half(*asked)); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// run measures the sets of sessions that lie in or beside the repository's root, and plots
// the last recorded ones.
func run(ctx context.Context, out io.Writer, root, svg string, only []string, asked half) error {
	sets, err := readSets(root)
	if err != nil {
		return err
	}
	var last results
	compared := policies()
	if only[0] != "" {
		compared = slices.DeleteFunc(compared, func(p quality.Policy) bool { return p.Name != "none" && !slices.Contains(only, p.Name) })
	}
	for i, s := range sets {
		r, err := measure(ctx, s, compared, asked)
		if err != nil {
			return err
		}
		r.tables(out)
		if i < len(sets)-1 {
			last = r
		}
	}
	if svg == "" {
		return nil
	}
	for name, plot := range map[string]string{"quality-seen.svg": last.seenPlot(), "quality-cost.svg": last.costPlot()} {
		if err := os.WriteFile(filepath.Join(svg, name), []byte(plot), 0o644); err != nil {
			return err
		}
	}
	return nil
}
