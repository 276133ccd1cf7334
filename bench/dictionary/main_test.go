package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A dictionary is the same each time, and shortens records of sessions that it was not made of.
func TestRun(t *testing.T) {
	t.Chdir("../..")
	var dictionaries [][]byte
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(t.TempDir(), name)
		if err := run(nil, path, 12_000); err != nil {
			t.Fatal(err)
		}
		d, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		dictionaries = append(dictionaries, d)
	}
	if !bytes.Equal(dictionaries[0], dictionaries[1]) {
		t.Error("two dictionaries of the same sessions differ")
	}
	if n := len(dictionaries[0]); n != 12_000 {
		t.Errorf("the dictionary has %d bytes", n)
	}
	var out strings.Builder
	if err := run(&out, "", 12_000); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, family := range []string{"adk", "mini-swe-agent", "pi", "swe-agent", "tau-bench", "tau2-domains", "all"} {
		f := strings.Fields(lines[3+i])
		if len(f) != 2 || f[0] != family {
			t.Fatalf("line %q, want one of %s", lines[3+i], family)
		}
		if share, err := strconv.ParseFloat(f[1], 64); err != nil || share < 0.2 || share > 0.65 {
			t.Errorf("%s takes %s of its JSON", family, f[1])
		}
	}
}
