// Command report runs the benchmarks in docs/BENCHMARKS.md and writes that document and its plots:
//
//	go run ./bench/report
//
// The document's template is BENCHMARKS.md.tmpl in this folder. The template names the command of each figure, so
// figures and commands cannot diverge.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"
)

//go:embed BENCHMARKS.md.tmpl
var document string

func main() {
	out := flag.String("out", "docs", "the `folder` to write BENCHMARKS.md and its plots to")
	count := flag.Int("count", 3, "how often each benchmark runs; the medians are shown")
	flag.Parse()
	if err := report(*out, *count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(folder string, count int) error {
	var text bytes.Buffer
	r := reporter{folder: folder, bench: func(dir string, args []string) (io.Reader, error) {
		return runBenchmarks(dir, append(args, "-count", fmt.Sprint(count)))
	}}
	if err := r.render(&text, document); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "BENCHMARKS.md"), text.Bytes(), 0o644)
}

// runBenchmarks runs "go test" with args in a folder and returns its output.
func runBenchmarks(dir string, args []string) (io.Reader, error) {
	cmd := exec.Command("go", append([]string{"test", "-run", "^$", "-timeout", "2h"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, os.Stderr)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s in %s: %w", strings.Join(cmd.Args, " "), dir, err)
	}
	return &out, nil
}

// reporter renders the document. It runs each benchmark that the template names.
type reporter struct {
	folder  string // folder to which plots are written
	bench   func(dir string, args []string) (io.Reader, error)
	results results
}

func (r *reporter) render(w io.Writer, text string) error {
	r.results = results{}
	t, err := template.New("BENCHMARKS.md").Option("missingkey=error").Funcs(template.FuncMap{
		"machine": machine,
		"run":     r.run,
		"time":    r.time,
		"metric":  r.results.metric,
		"ratio":   r.ratio,
		"series":  func(label, pattern string) series { return series{label, pattern} },
		"plot":    r.plot,
	}).Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(w, nil)
}

// run runs the benchmarks of a package whose names match a pattern. It returns the command.
func (r *reporter) run(dir, pattern string, args ...string) (string, error) {
	module, pkg := ".", "./"+dir
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		module, pkg = dir, "."
	}
	out, err := r.bench(module, append([]string{"-bench", pattern, pkg}, args...))
	if err != nil {
		return "", err
	}
	if err := r.results.read(out); err != nil {
		return "", err
	}
	command := fmt.Sprintf("go test -run '^$' -bench '%s'", pattern)
	if len(args) > 0 {
		command += " " + strings.Join(args, " ")
	}
	if module != "." {
		return "`cd " + module + " && " + command + "`", nil
	}
	return "`" + command + " " + pkg + "`", nil
}

// time returns the median time per operation of a benchmark, with its unit.
func (r *reporter) time(name string) (string, error) {
	ns, err := r.results.median(name, "ns/op")
	return duration(ns), err
}

// ratio returns the time per operation of a benchmark, divided by the time per operation of a baseline.
func (r *reporter) ratio(name, baseline string) (string, error) {
	a, err := r.results.median(name, "ns/op")
	b, err2 := r.results.median(baseline, "ns/op")
	return figure(a/b) + " ×", errors.Join(err, err2)
}

// plot writes a plot of time against size. It returns the Markdown that embeds the plot.
func (r *reporter) plot(name, title, x, command string, lines ...series) (string, error) {
	svg, err := r.results.plot(title, x, command, lines)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(svg), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("![%s](%s)", title, name), nil
}

// machine describes the machine and the date of the run.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(info), "model name\t: "); ok {
			model, _, _ = strings.Cut(after, "\n")
		}
	}
	return fmt.Sprintf("%s, %d cores (%s), %s/%s, %s", time.Now().Format("January 2006"), runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
