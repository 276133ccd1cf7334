package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/quality"
)

// The figures are deterministic. The tables include every family in which calls need identifiers.
func TestTables(t *testing.T) {
	sets, err := readSets("../..")
	if err != nil {
		t.Fatal(err)
	}
	some := []quality.Policy{quality.None(), quality.Compact("default", compaction.DefaultConfig()), quality.Compact("tokens 4k", byTokens)}
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

func TestRunFails(t *testing.T) {
	if err := run(t.Context(), io.Discard, t.TempDir(), []string{""}, all); err == nil || !strings.Contains(err.Error(), "root of the repository") {
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
	if err := run(t.Context(), io.Discard, dir, []string{""}, all); err == nil || !strings.Contains(err.Error(), "s.jsonl") {
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
