// Command quality measures compacted sessions offline. Its tables contain the following:
//
//   - how many of the identifiers that recorded agents needed later were visible, or found by recall
//   - what summaries lost and invented
//   - the cost of prompts and summaries
//
// It reads the sessions in the repository, and the large corpus if that is next to the repository. The results are
// deterministic.
//
//	go run ./bench/quality                                    # tables, as Markdown
//	go run ./bench/quality -policies default -probes report
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/quality"
)

func main() {
	only := flag.String("policies", "", "measure only the policies with these `NAMES`, separated by semicolons, beside none")
	probes := flag.String("probes", string(all), "ask `HALF` of the probes: choose, report, or all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, ".", strings.Split(*only, ";"), probeHalf(*probes)); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// run measures the sets of sessions in the repository with the given root, or next to that repository.
func run(ctx context.Context, out io.Writer, root string, only []string, probes probeHalf) error {
	sets, err := readSets(root)
	if err != nil {
		return err
	}
	compared := policies()
	if only[0] != "" {
		compared = slices.DeleteFunc(compared, func(p quality.Policy) bool { return p.Name != "none" && !slices.Contains(only, p.Name) })
	}
	for _, s := range sets {
		r, err := measure(ctx, s, compared, probes)
		if err != nil {
			return err
		}
		r.tables(out)
	}
	return nil
}
