package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// everyCommand returns the commands that are no family of others.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var all []*cobra.Command
	for _, c := range cmd.Commands() {
		all = append(all, everyCommand(c)...)
	}
	return all
}

func testRoot() *cobra.Command {
	var out bytes.Buffer
	return newShell().app("", &out, &out).rootCommand()
}

// TestCompletion asks for completions as the shells' scripts do, and checks each script's
// syntax with its shell, where that is installed.
func TestCompletion(t *testing.T) {
	t.Chdir(t.TempDir())
	for shell, flag := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute", "powershell": ""} {
		script := must(t, "", "completion", shell)
		if !strings.Contains(script, "patchlog") {
			t.Errorf("%s: no script: %q", shell, script)
		}
		path, err := exec.LookPath(shell)
		if err != nil || flag == "" {
			t.Logf("%s is not installed, or cannot check: its script's syntax is not checked", shell)
			continue
		}
		testlog.NoError(t, os.WriteFile(shell+".script", []byte(script), 0o644))
		if out, err := exec.Command(path, flag, shell+".script").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
	must(t, `{"id":"e1","invocationId":"i","author":"user"}`+"\n"+`{"id":"e2","invocationId":"i","author":"agent"}`+"\n", "import", "a/u/s", "-")
	must(t, "", "pin", "a/u/s", "e1")
	const noFiles, files = ":4", ":0"
	for typed, want := range map[string]string{
		"":                         "audit backup compact completion delete demo diff docs erase export fork help import log loss patch pin retain revert rewind salvage search serve sessions stats vacuum verify :4",
		"s":                        "salvage search serve sessions stats " + noFiles,
		"docs ":                    "man " + noFiles,
		"patch a/u/s 0 1 --state ": "keep drop " + noFiles,
		"log a/u/s --":             "--db --json --at --help --history --last --turn --type " + noFiles,
		"pin a/u/s 1 --re":         "--remove " + noFiles,
		"completion z":             "zsh " + noFiles,
		"import k bas":             files,
		"import ":                  files,
		"log a":                    "a/u/s " + noFiles,
		"pin a/u/s ":               "1 2 " + noFiles,
		"revert a/u/s ":            "3 " + noFiles,
		"rewind a/u/s ":            "1 " + noFiles,
		"erase a/u/s 1 2":          "2 " + noFiles,
		"import x --format c":      "lines patchlog adk pi claude-code codex " + noFiles,
		"compact k --summarizer g": "gemini extractive " + noFiles,
		"export k --redact=i":      "key card iban email phone ip " + noFiles,
		"log --db bas":             files,
		"docs man ":                ":16",
	} {
		var got, errs bytes.Buffer
		words := strings.Split(typed, " ")
		if code := newShell().app("", &got, &errs).run(t.Context(), append([]string{cobra.ShellCompRequestCmd}, words...)); code != 0 {
			t.Errorf("%q: exit code %d", typed, code)
		}
		var choices []string
		for line := range strings.Lines(got.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			choices = append(choices, word)
		}
		if got := strings.Join(choices, " "); got != want {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
	}
}

// Every command explains itself, with examples, and has a manual page of its own.
func TestDocs(t *testing.T) {
	dir := t.TempDir()
	must(t, "", "docs", "man", dir)
	root := testRoot()
	for _, cmd := range everyCommand(root) {
		own := cmd.Name() != "help" && cmd.Parent().Name() != "completion"
		if cmd.Short == "" || own && (!strings.Contains(cmd.Example, "patchlog") || cmd.Args == nil) {
			t.Errorf("%s: no text, example or arguments", cmd.CommandPath())
		}
		if !own {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil || !bytes.Contains(page, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: no page, or a poor one (%v)", cmd.CommandPath(), err)
		}
	}
	if !slices.ContainsFunc(everyCommand(root), func(c *cobra.Command) bool { return c.Name() == "man" }) {
		t.Error("commands of commands are missing")
	}
}
