package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// test identifies a test of a package. If name is "", the test is the whole package, which fails if its tests
// cannot be built or if they end the process.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(short(t.pkg) + " " + t.name) }

func short(pkg string) string { return strings.TrimPrefix(pkg, adkModule+"/") }

// outcome is the result of a test: pass, fail or skip. It is "" if the test did not finish.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

type results struct {
	outcomes    map[test]outcome
	output      map[test]string
	buildFailed map[string]bool // packages that could not be built
}

// run runs the tests of packages. If pattern is not "", it is the value of the flag -run of go test.
func (t *tree) run(ctx context.Context, packages []string, pattern string, env ...string) (results, error) {
	// -trimpath makes the build cache usable although the directory has a new name each time.
	args := []string{"test", "-json", "-trimpath", "-vet=off", "-count=1", "-timeout=2m"}
	if pattern != "" {
		args = append(args, "-run="+pattern)
	}
	c := exec.CommandContext(ctx, "go", append(args, packages...)...)
	c.Dir, c.Env = t.module(), append(t.env(), env...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return results{}, err
	}
	r, err := parse(out, t.progress)
	if ended := c.Wait(); err == nil && len(r.outcomes) == 0 {
		err = fmt.Errorf("go test: %w\n%s", ended, stderr.Bytes())
	}
	return r, err
}

// parse reads the output of go test -json. It prints a line whenever a package ends.
func parse(in io.Reader, progress io.Writer) (results, error) {
	r := results{outcomes: map[test]outcome{}, output: map[test]string{}, buildFailed: map[string]bool{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e struct {
			Action, Package, Test, Output, FailedBuild, ImportPath string
			Elapsed                                                float64
		}
		if len(line) > 0 && json.Unmarshal(line, &e) == nil { // other lines, such as warnings, are not JSON
			key := test{e.Package, e.Test}
			switch e.Action {
			case "run":
				r.outcomes[key] = ""
			case "output":
				r.output[key] += e.Output
			case "build-output":
				of, _, _ := strings.Cut(e.ImportPath, " ")
				r.output[test{strings.TrimSuffix(of, "_test"), ""}] += e.Output
			case "pass", "fail", "skip":
				r.outcomes[key] = outcome(e.Action)
				r.buildFailed[e.Package] = r.buildFailed[e.Package] || e.FailedBuild != ""
				if e.Test == "" {
					fmt.Fprintf(progress, "%s %s %.1fs\n", e.Action, short(e.Package), e.Elapsed)
				}
			}
		}
		switch {
		case err == io.EOF:
			return r, nil
		case err != nil:
			return r, err
		}
	}
}
