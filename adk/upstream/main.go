// Command upstream runs ADK's own tests with a patchlog service instead of ADK's in-memory service. It reports the
// tests whose outcomes differ.
//
//	go run ./upstream [-backend memory|bolt] [-compact] [package ...]
//
// The command copies the source of the required version of ADK's module to a temporary directory. In the copy, it
// changes session.InMemoryService to return a patchlog service. Then it runs the tests of all packages that may call
// InMemoryService. Each test runs twice: first with ADK's service, then with patchlog's. Arguments select packages,
// such as runner or server/adkrest.
//
// Every difference must be listed in differences.txt with its reason. The command fails if a difference is not
// listed, or if a listed difference no longer exists. If the module cache lacks a module that ADK's tests need, Go
// downloads the module.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/patchlog-dev/patchlog/adk/upstream/standin"
)

//go:embed differences.txt
var differencesText string

// modes are the configurations in which patchlog's service can be tested.
var modes = []string{standin.Memory, standin.Bolt, compacted}

const compacted = "compact"

type options struct {
	backend  string
	compact  bool
	source   string
	keep     bool
	verbose  bool
	packages []string
}

func main() {
	var o options
	flag.StringVar(&o.backend, "backend", standin.Memory, "backend that stores the sessions: memory or bolt")
	flag.BoolVar(&o.compact, "compact", false, "compact sessions as early as possible")
	flag.StringVar(&o.source, "source", "", "directory with the source of another version of ADK")
	flag.BoolVar(&o.keep, "keep", false, "keep the temporary directory and print its path")
	flag.BoolVar(&o.verbose, "v", false, "print the output of all tests that differ, even of tests listed in differences.txt")
	flag.Parse()
	o.packages = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

// mode returns the name that differences.txt uses for the configuration of the run.
func (o options) mode() string {
	if o.compact {
		return compacted
	}
	return o.backend
}

func (o options) run(ctx context.Context, out io.Writer) (err error) {
	if !slices.Contains(modes[:2], o.backend) {
		return fmt.Errorf("-backend is %q, not one of %q", o.backend, modes[:2])
	}
	known, err := parseDifferences(strings.NewReader(differencesText))
	if err != nil {
		return err
	}
	if o.source == "" {
		dir, err := goCommand(ctx, ".", "list", "-m", "-f", "{{.Dir}}", adkModule)
		if err != nil {
			return err
		}
		if o.source = strings.TrimSpace(string(dir)); o.source == "" {
			if _, err := goCommand(ctx, ".", "mod", "download", adkModule); err != nil {
				return err
			}
			return o.run(ctx, out)
		}
	}
	folder, err := os.MkdirTemp("", "upstream")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(out, folder)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	}
	t, err := newTree(ctx, o.source, folder, os.Stderr)
	if err != nil {
		return err
	}
	packages, err := selectPackages(t.packages, o.packages)
	if err != nil {
		return err
	}
	return o.compare(ctx, out, t, packages, known)
}

// selectPackages returns the packages with the given names, or all packages if no names are given.
func selectPackages(all, names []string) (chosen []string, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		path := adkModule + "/" + strings.TrimPrefix(filepath.ToSlash(name), "./")
		if !slices.Contains(all, path) {
			return nil, fmt.Errorf("%q is not a package of ADK whose tests call session.InMemoryService", name)
		}
		chosen = append(chosen, path)
	}
	return chosen, nil
}

// compare runs the tests of packages with both services and prints a report. It returns an error if the outcomes do
// not match the known differences.
func (o options) compare(ctx context.Context, out io.Writer, t *tree, packages []string, known []difference) error {
	services := filepath.Join(t.folder, "services")
	if err := os.Mkdir(services, 0o755); err != nil {
		return err
	}
	env := []string{standin.BackendVariable + "=" + o.backend, standin.FolderVariable + "=" + services}
	if o.compact {
		env = append(env, standin.CompactVariable+"=1")
	}
	fmt.Fprintf(t.progress, "testing %d packages with ADK's service, then with patchlog's; nothing is printed while a package is built and tested\n", len(packages))
	began := time.Now()
	theirs, err := t.run(ctx, packages, "")
	if err != nil {
		return err
	}
	switched := time.Now()
	ours, err := t.run(ctx, packages, "", env...)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ADK's service: %v, patchlog's: %v\n", switched.Sub(began).Round(time.Second), time.Since(switched).Round(time.Second))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	want := expected(known, o.mode(), packages)
	found := differing(theirs, ours)
	if found, err = t.rerunUnexpected(ctx, out, found, want, env); err != nil {
		return err
	}
	created, err := countServices(services)
	if err != nil {
		return err
	}
	if len(created) == 0 {
		return errors.New("no test created a session service, so the hook does not work")
	}
	report{theirs: theirs, ours: ours, packages: packages, found: found, want: want, created: created}.print(out, o.verbose)
	return verdict(found, want, theirs, ours)
}

// rerunUnexpected repeats the tests that differ unexpectedly, with both services, and returns the tests that still
// differ. Tests with timeouts sometimes fail on a busy machine.
func (t *tree) rerunUnexpected(ctx context.Context, out io.Writer, found []test, want map[test]difference, env []string) (still []test, err error) {
	byPackage := map[string][]string{} // names of top-level tests, by package
	for _, f := range found {
		if _, listed := want[f]; !listed && f.name != "" {
			top, _, _ := strings.Cut(f.name, "/")
			byPackage[f.pkg] = append(byPackage[f.pkg], regexp.QuoteMeta(top))
		}
	}
	differs := map[test]bool{}
	for pkg, tops := range byPackage {
		pattern := "^(" + strings.Join(tops, "|") + ")$"
		theirs, err := t.run(ctx, []string{pkg}, pattern)
		if err != nil {
			return nil, err
		}
		ours, err := t.run(ctx, []string{pkg}, pattern, env...)
		if err != nil {
			return nil, err
		}
		for _, f := range differing(theirs, ours) {
			differs[f] = true
		}
	}
	for _, f := range found {
		_, listed := want[f]
		if listed || f.name == "" || differs[f] {
			still = append(still, f)
			continue
		}
		fmt.Fprintf(out, "%s differed, but not in a second run\n", f)
	}
	return still, nil
}

// countServices returns how many patchlog services were created in each package.
func countServices(folder string) (map[string]int, error) {
	entries, err := os.ReadDir(folder)
	created := map[string]int{}
	for _, e := range entries {
		name := e.Name()
		created[name[:strings.LastIndexByte(name, '.')]]++
	}
	return created, err
}

type report struct {
	theirs, ours results
	packages     []string
	found        []test
	want         map[test]difference
	created      map[string]int
}

func (r report) print(out io.Writer, verbose bool) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package\tservices\ttests\tsame\tdiffer")
	services, total, differ := 0, 0, 0
	for _, pkg := range r.packages {
		tests, others := 0, 0
		for t := range r.theirs.outcomes {
			if t.pkg == pkg && t.name != "" {
				tests++
			}
		}
		for _, t := range r.found {
			if t.pkg == pkg {
				others++
			}
		}
		created := r.created[strings.ReplaceAll(pkg, "/", "_")]
		note := ""
		if r.theirs.buildFailed[pkg] {
			note = "not run: the build failed"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", short(pkg), created, tests, tests-others, others, note)
		services, total, differ = services+created, total+tests, differ+others
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t%d\n", services, total, total-differ, differ)
	_ = w.Flush()
	for _, t := range slices.SortedFunc(maps.Keys(r.theirs.outcomes), compareTests) {
		if t.name != "" && r.theirs.outcomes[t] == failed {
			fmt.Fprintf(out, "%s fails with ADK's service too\n", t)
		}
	}
	byReason := map[string][]test{}
	for _, t := range r.found {
		byReason[r.want[t].reason] = append(byReason[r.want[t].reason], t)
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintln(out, cmp.Or(reason, "Not in differences.txt:"))
		for _, t := range byReason[reason] {
			fmt.Fprintf(out, "    %s: %s, with ADK's service %s\n", t, outcomeText(r.ours, t), outcomeText(r.theirs, t))
			if reason == "" || verbose {
				fmt.Fprintln(out, r.ours.output[t])
			}
		}
	}
}

func outcomeText(r results, t test) string {
	switch o, ran := r.outcomes[t]; {
	case !ran:
		return "not run"
	case o == "":
		return "not ended"
	default:
		return string(o)
	}
}

// verdict returns an error that lists unexpected and missing differences.
func verdict(found []test, want map[test]difference, theirs, ours results) error {
	var errs []error
	for _, t := range found {
		if _, listed := want[t]; !listed {
			errs = append(errs, fmt.Errorf("%s differs, but is not in differences.txt; add it with its reason, or fix the difference", t))
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(want), compareTests) {
		_, ran := theirs.outcomes[t]
		switch {
		case slices.Contains(found, t) || want[t].sometimes && ran:
		case !ran:
			errs = append(errs, fmt.Errorf("%s is in differences.txt, but no such test ran; remove it", t))
		default:
			errs = append(errs, fmt.Errorf("%s is in differences.txt, but does not differ; remove it", t))
		}
	}
	for _, r := range []results{theirs, ours} {
		for _, pkg := range slices.Sorted(maps.Keys(r.buildFailed)) {
			if r.buildFailed[pkg] {
				errs = append(errs, fmt.Errorf("%s cannot be built:\n%s", short(pkg), r.output[test{pkg, ""}]))
			}
		}
	}
	return errors.Join(errs...)
}
