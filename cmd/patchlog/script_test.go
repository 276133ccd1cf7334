package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScripts runs the scripts in testdata. A script is text in which a line that begins
// with "$ " is a command; what is expected of it follows: lines of standard output
// behind "| ", of standard error behind "! ", and the exit code behind "= " unless it is
// 0. All other lines are comment. Files that the script needs stand at its end, each
// behind a line "-- name --". With -update, the expected lines are written anew.
//
// Commands are patchlog itself, cat FILE, cmp FILE FILE, rm FILE, and missing FILE,
// with < and > as in a shell. The clock stands still, summaries are inShort's, and new
// ids show as new-1, new-2 and so on, in the order in which the script shows them first.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			path, err := filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			runScript(t, path)
		})
	}
}

func runScript(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	end := slices.IndexFunc(lines, isFileMark)
	if end < 0 {
		end = len(lines)
	}
	writeFiles(t, lines[end:])
	sh := newShell()
	var got []string
	for i := 0; i < end; i++ {
		got = append(got, lines[i])
		line, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			continue
		}
		for i+1 < end && isExpectation(lines[i+1]) {
			i++
		}
		got = append(got, sh.run(line)...)
	}
	got = append(got, lines[end:]...)
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i := range max(len(got), len(lines)) {
		if i >= len(got) || i >= len(lines) || got[i] != lines[i] {
			t.Fatalf("line %d:\n got %q\nwant %q", i+1, slices.Concat(got[min(i, len(got)):], []string{"(end)"})[0], slices.Concat(lines[min(i, len(lines)):], []string{"(end)"})[0])
		}
	}
}

func isFileMark(line string) bool {
	return strings.HasPrefix(line, "-- ") && strings.HasSuffix(line, " --")
}

func isExpectation(line string) bool {
	return len(line) > 0 && strings.ContainsRune("|!=", rune(line[0])) && (len(line) == 1 || line[1] == ' ')
}

func writeFiles(t *testing.T, lines []string) {
	t.Helper()
	var name string
	for _, line := range lines {
		if isFileMark(line) {
			name = strings.TrimSuffix(strings.TrimPrefix(line, "-- "), " --")
			line = ""
		} else {
			line += "\n"
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(line)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// shell runs the commands of a script, with a clock and ids that a test can expect.
type shell struct {
	env   map[string]string
	made  int               // ids
	shown map[string]string // by id made
}

func newShell() *shell {
	return &shell{env: map[string]string{}, shown: map[string]string{}}
}

// madeID matches the ids that the shell makes, and random UUIDs.
var madeID = regexp.MustCompile(`made-\d+|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

var duration = regexp.MustCompile(`("durationMs":)\d+`)

// show returns a line of output as a script expects it.
func (sh *shell) show(mark, line string) string {
	line = madeID.ReplaceAllStringFunc(line, func(id string) string {
		if sh.shown[id] == "" {
			sh.shown[id] = fmt.Sprintf("new-%d", len(sh.shown)+1)
		}
		return sh.shown[id]
	})
	line = duration.ReplaceAllString(line, "${1}0")
	return strings.TrimSpace(mark + " " + strings.TrimSuffix(line, "\n"))
}

// app returns an app that reads and writes what the test wants.
func (sh *shell) app(stdin string, stdout, stderr *bytes.Buffer) *app {
	a := newApp(strings.NewReader(stdin), stdout, stderr, func(name string) string { return sh.env[name] })
	a.options.Logger = slog.New(slog.DiscardHandler)
	a.options.Now = func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 600, time.UTC) }
	a.options.NewID = func() string {
		sh.made++
		return fmt.Sprintf("made-%d", sh.made)
	}
	a.extractive = compaction.SummarizerFunc(inShort)
	return a
}

// inShort is a summarizer whose words do not change when the real one becomes better.
func inShort(_ context.Context, r compaction.Request) (compaction.Response, error) {
	text := fmt.Sprintf("%s to %s in short", r.Events[0].ID(), r.Events[len(r.Events)-1].ID())
	return compaction.Response{Text: text, Model: extractive}, nil
}

// run runs a line of a script and returns what came of it, as the script would expect
// it.
func (sh *shell) run(line string) []string {
	words, in, out, err := splitLine(line)
	if err != nil {
		return []string{"! " + err.Error(), "= 1"}
	}
	stdin := ""
	if in != "" {
		text, err := os.ReadFile(in)
		if err != nil {
			return []string{"! " + err.Error(), "= 1"}
		}
		stdin = string(text)
	}
	var stdout, stderr bytes.Buffer
	code := sh.command(words, stdin, &stdout, &stderr)
	if out != "" {
		if err := os.WriteFile(out, stdout.Bytes(), 0o644); err != nil {
			return []string{"! " + err.Error(), "= 1"}
		}
		stdout.Reset()
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		got = append(got, sh.show("|", line))
	}
	for line := range strings.Lines(stderr.String()) {
		got = append(got, sh.show("!", line))
	}
	if code != 0 {
		got = append(got, fmt.Sprint("= ", code))
	}
	return got
}

func (sh *shell) command(words []string, stdin string, stdout, stderr *bytes.Buffer) int {
	fail := func(err error) int {
		if err == nil {
			return 0
		}
		fmt.Fprintln(stderr, err)
		return 1
	}
	switch words[0] {
	case "patchlog":
		return sh.app(stdin, stdout, stderr).run(context.Background(), words[1:])
	case "env":
		name, value, _ := strings.Cut(words[1], "=")
		sh.env[name] = value
		return 0
	case "cat":
		text, err := os.ReadFile(words[1])
		stdout.Write(text)
		return fail(err)
	case "cmp":
		a, err1 := os.ReadFile(words[1])
		b, err2 := os.ReadFile(words[2])
		if err := errors.Join(err1, err2); err != nil {
			return fail(err)
		}
		if !bytes.Equal(a, b) {
			return fail(fmt.Errorf("%s and %s differ", words[1], words[2]))
		}
		return 0
	case "missing":
		if _, err := os.Stat(words[1]); err == nil {
			return fail(fmt.Errorf("%s is there", words[1]))
		}
		return 0
	}
	return fail(fmt.Errorf("unknown command %q", words[0]))
}

// splitLine splits a line as a shell does, quotes and redirections too.
func splitLine(line string) (words []string, in, out string, err error) {
	var word strings.Builder
	started := false
	quote := rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, started = r, true
		case quote == 0 && r == ' ':
			if started {
				words = append(words, word.String())
				word.Reset()
				started = false
			}
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if quote != 0 {
		return nil, "", "", fmt.Errorf("unclosed %c", quote)
	}
	if started {
		words = append(words, word.String())
	}
	for i := 0; i < len(words); {
		switch words[i] {
		case "<":
			in = words[i+1]
		case ">":
			out = words[i+1]
		default:
			i++
			continue
		}
		words = slices.Delete(words, i, i+2)
	}
	return words, in, out, nil
}
