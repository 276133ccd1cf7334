package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestCompletion checks each script's syntax with its shell, where that is installed.
func TestCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	for shell, flag := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		script := must(t, "", "completion", shell)
		for _, cmd := range commands() {
			if _, second, ok := strings.Cut(cmd.name, " "); !strings.Contains(script, cmd.name) && !(ok && strings.Contains(script, second)) {
				t.Errorf("%s: %s is missing", shell, cmd.name)
			}
		}
		if !strings.Contains(script, "allow-orphans") {
			t.Errorf("%s: flags are missing", shell)
		}
		if err := os.WriteFile(shell+".script", []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: its script's syntax is not checked", shell)
			continue
		}
		if out, err := exec.Command(path, flag, shell+".script").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return
	}
	for typed, want := range map[string]string{
		"patchlog ''":                     "demo import export log audit state sessions stats delete patch revert rewind fork diff compact fold verify completion help",
		"patchlog s":                      "state sessions stats",
		"patchlog patch ''":               "splice truncate-before summarise",
		"patchlog patch su":               "summarise",
		"patchlog patch splice a/u/s --k": "--keep-state",
		"patchlog log a/u/s --":           "--at --db --json --last",
		"patchlog completion z":           "zsh",
		"patchlog import k bas":           "",
		"patchlog log --db bas":           "bash.script",
	} {
		script := "source ./bash.script; COMP_WORDS=(" + typed + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _patchlog; echo \"${COMPREPLY[*]}\""
		out, err := exec.Command(bash, "-c", script).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", typed, got, err, want)
		}
	}
}
