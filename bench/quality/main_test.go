package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/quality"
)

// The measure gives the same digits each time, in tables of all families that need something.
func TestTables(t *testing.T) {
	sets, err := readSets("../..")
	if err != nil {
		t.Fatal(err)
	}
	some := []quality.Policy{quality.None(), quality.Compact("default", byDefault), quality.Compact("tokens 4k", byTokens)}
	var first string
	for range 2 {
		r, err := measure(t.Context(), sets[0], some, all)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r.tables(&out)
		if first == "" {
			first = out.String()
		}
		if out.String() != first {
			t.Errorf("the second time\n%s\nthe first\n%s", out.String(), first)
		}
	}
	for _, want := range []string{
		"## the sessions that the repository carries", "**tau-bench, long**", "**mini-swe-agent, one task**",
		"| none | 100.0 % | 100.0 % | 100.0 % | 100.0 % | 0 | 100.0 % | 0 | – | 0 |",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("the tables have no %q:\n%s", want, first)
		}
	}
}

// Each policy that is compared runs on a session, and the plots are of policies that there are.
func TestPolicies(t *testing.T) {
	sets, err := readSets("../..")
	if err != nil {
		t.Fatal(err)
	}
	one := set{name: "one <session>"}
	for _, f := range sets[0].families {
		if f.name == "mini-swe-agent, one task" {
			one.families = []family{{f.name, f.sessions[:1]}}
		}
	}
	r, err := measure(t.Context(), one, policies(), all)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.figures) != len(policies()) {
		t.Errorf("figures of %d policies, want %d", len(r.figures), len(policies()))
	}
	for _, p := range plotted {
		if r.figures[[2]string{p.policy, one.families[0].name}].Turns == 0 {
			t.Errorf("%q is plotted, and there is no such policy", p.policy)
		}
	}
	for _, plot := range []string{r.seenPlot(), r.costPlot()} {
		dec := xml.NewDecoder(strings.NewReader(plot))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("the plot is no XML: %v", err)
			}
		}
		if !strings.Contains(plot, "one &lt;session&gt;; go run ./bench/quality -svg docs") {
			t.Error("the plot does not say what it was made of")
		}
	}
}

func TestRunFails(t *testing.T) {
	if err := run(t.Context(), io.Discard, t.TempDir(), "", []string{""}, all); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("elsewhere: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "fuzz", "testdata", "sessions", "a")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "s.jsonl"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), io.Discard, dir, "", []string{""}, all); err == nil || !strings.Contains(err.Error(), "s.jsonl") {
		t.Errorf("a file that is no session: %v", err)
	}
	if _, err := measure(t.Context(), set{}, []quality.Policy{quality.None(), quality.None()}, all); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("one policy twice: %v", err)
	}
	bad := set{name: "x", families: []family{{"y", make([]session, 1)}}}
	if _, err := measure(t.Context(), bad, []quality.Policy{quality.Compact("wrong", compaction.Config{Enabled: true})}, all); err == nil || !strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong policy: %v", err)
	}
}
