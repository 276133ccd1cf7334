package adk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The README's agent compiles, and talks to no one until it is run.
func TestReadmeAgentCompiles(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	no(t, err)
	blocks := regexp.MustCompile("(?s)```go adk\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d agents", len(blocks))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	no(t, os.WriteFile(file, blocks[0][1], 0o600))
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "agent"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
