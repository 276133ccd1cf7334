package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// command is a command line in a document, with the folder in which it runs.
type command struct {
	doc, dir, line string
}

func (c command) String() string { return c.doc + ": " + c.line }

var (
	codeBlock   = regexp.MustCompile("(?s)```.*?\n```")
	changeDir   = regexp.MustCompile(`^cd ([\w/.-]+)(?: && |$)`)
	assignment  = regexp.MustCompile(`^[A-Z_]+=\S* `)
	commandLine = regexp.MustCompile(`^(patchlog|patchlog-sqlite|go test|go run|make) `)
	longFlag    = regexp.MustCompile(`(?:^| )(--[a-z-]+)`)
	shortFlag   = regexp.MustCompile(`(?:^| )-([a-z][a-z.-]*)`)
	imported    = regexp.MustCompile(`"github.com/patchlog-dev/patchlog/(internal/fuzz/\w+)"`)
	patterns    = regexp.MustCompile(`-(run|bench) '?([^' ]+)'?`)
)

// shownCommands returns the commands that the documents show in indented blocks and in code within sentences. A "cd"
// on a line of its own applies to the rest of its indented block. In "cd x && y", it applies only to y.
func shownCommands(t *testing.T) []command {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []command
	for _, doc := range append(files, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md") {
		text := codeBlock.ReplaceAllString(read(t, doc), "")
		dir := "."
		add := func(line string) {
			line, _, _ = strings.Cut(line, " # ")
			line = strings.TrimSpace(line)
			if m := changeDir.FindStringSubmatch(line); m != nil {
				dir, line = m[1], line[len(m[0]):]
			}
			line = assignment.ReplaceAllString(line, "")
			if commandLine.MatchString(line + " ") {
				all = append(all, command{doc, dir, line})
			}
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "    ") && !strings.Contains(line, "`") {
				add(line)
				if strings.Contains(line, " && ") {
					dir = "."
				}
				continue
			}
			dir = "."
			for _, q := range quoted.FindAllStringSubmatch(line, -1) {
				add(q[1])
				dir = "."
			}
		}
	}
	return all
}

// Every command that a document shows exists, with the flags, tests and benchmarks that it names.
func TestShownCommandsExist(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "patchlog")
	build := exec.Command("go", "build", "-o", binary, "./cmd/patchlog")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	counts := map[string]int{}
	for _, c := range shownCommands(t) {
		fields := strings.Fields(c.line)
		switch fields[0] {
		case "patchlog", "patchlog-sqlite":
			counts["patchlog"]++
			checkPatchlog(t, binary, c, fields[1:])
		case "make":
			for _, target := range fields[1:] {
				counts["make"]++
				if !strings.Contains(target, "=") && !strings.Contains(read(t, "../Makefile"), "\n"+target+": ") {
					t.Errorf("%s: there is no target %s", c, target)
				}
			}
		case "go":
			counts["go "+fields[1]]++
			checkGo(t, c, fields)
		}
	}
	for kind, least := range map[string]int{"patchlog": 30, "go test": 15, "go run": 4, "make": 5} {
		if counts[kind] < least {
			t.Errorf("%d commands %q were found, want %d at least", counts[kind], kind, least)
		}
	}
}

// Tests of the command run every patchlog command that a document shows, and each of its flags.
func TestShownCommandsAreTested(t *testing.T) {
	scripts, err := filepath.Glob("../internal/command/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var run []string // command lines of scripts
	for _, script := range scripts {
		for line := range strings.Lines(read(t, script)) {
			if _, command, ok := strings.Cut(line, "patchlog "); ok {
				run = append(run, command+" ")
			}
		}
	}
	isRun := func(name, flag string) bool {
		for _, line := range run {
			if (strings.HasPrefix(line, name+" ") || strings.HasPrefix(line, name+"\n")) && strings.Contains(line, flag) {
				return true
			}
		}
		return false
	}
	for _, c := range shownCommands(t) {
		args := strings.Fields(c.line)
		if !strings.HasPrefix(args[0], "patchlog") || len(args) < 2 || strings.HasPrefix(args[1], "-") || args[1] == "COMMAND" {
			continue
		}
		flags := longFlag.FindAllStringSubmatch(c.line, -1)
		for _, flag := range append(flags, []string{"", ""}) {
			if !isRun(args[1], flag[1]) {
				t.Errorf("%s: no script runs patchlog %s %s", c, args[1], flag[1])
			}
		}
	}
}

func checkPatchlog(t *testing.T, binary string, c command, args []string) {
	t.Helper()
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || args[0] == "COMMAND" {
		return
	}
	name := args[:1]
	if slices.Contains([]string{"patch", "completion"}, args[0]) && len(args) > 1 {
		name = args[:2]
	}
	out, err := exec.Command(binary, append(slices.Clone(name), "--help")...).CombinedOutput()
	if help := string(out); err != nil || !strings.Contains(help, "patchlog "+strings.Join(name, " ")) {
		t.Errorf("%s: there is no such command (%v)", c, err)
	} else {
		for _, flag := range longFlag.FindAllStringSubmatch(c.line, -1) {
			if !strings.Contains(help, flag[1]+" ") && !strings.Contains(help, flag[1]+"\n") {
				t.Errorf("%s: there is no flag %s", c, flag[1])
			}
		}
	}
}

// checkGo checks that the packages, the functions and the flags of a "go test" or "go run" command exist.
func checkGo(t *testing.T, c command, fields []string) {
	t.Helper()
	var source strings.Builder
	for _, arg := range append(slices.Clone(fields[2:]), ".") {
		arg = strings.TrimSuffix(strings.TrimSuffix(arg, "..."), "/")
		if arg != "." && !strings.HasPrefix(arg, "./") || arg == "." && source.Len() > 0 {
			continue
		}
		dir := filepath.Join("..", c.dir, arg)
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			if arg != "." {
				t.Errorf("%s: %s is no package", c, arg)
			}
			continue
		}
		for _, file := range files {
			source.WriteString(read(t, file))
		}
	}
	for _, i := range imported.FindAllStringSubmatch(source.String(), -1) { // packages of internal/fuzz may declare flags
		files, err := filepath.Glob(filepath.Join("..", i[1], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source.WriteString(read(t, file))
		}
	}
	for _, m := range patterns.FindAllStringSubmatch(c.line, -1) {
		kind := map[string]string{"run": "(Test|Fuzz|Example)", "bench": "Benchmark"}[m[1]]
		for _, name := range strings.Split(m[2], "|") {
			pattern := `func ` + kind + `\w*` + strings.TrimSuffix(strings.TrimPrefix(name, kind), "$")
			if name != "^$" && name != "-" && name != "." && !regexp.MustCompile(pattern).MatchString(source.String()) &&
				!regexp.MustCompile(`func `+strings.TrimSuffix(name, "$")).MatchString(source.String()) {
				t.Errorf("%s: no test or benchmark is called %s", c, name)
			}
		}
	}
	standard := []string{"run", "bench", "benchtime", "benchmem", "short", "timeout", "v", "cpu", "race", "args"}
	for _, m := range shortFlag.FindAllStringSubmatch(c.line, -1) {
		if !slices.Contains(standard, m[1]) && !strings.Contains(source.String(), `"`+m[1]+`"`) && !strings.HasPrefix(m[1], "rapid.") {
			t.Errorf("%s: there is no flag -%s", c, m[1])
		}
	}
}
