// Package docs_test checks the documents against the code and the repository: the imports between packages, the
// modules that each package imports, the example of the README, the commands, and the links.
package docs_test

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/patchlog-dev/patchlog/"

// allowedImports has, for each package, the packages of this module that it may import. ARCHITECTURE.md lists the packages.
// The drawing packages.svg shows the main imports.
var allowedImports = map[string][]string{
	"internal/jsonvalue":             {},
	"internal/statekey":              {},
	"internal/syncdir":               {},
	"internal/words":                 {},
	"internal/records":               {"patch"},
	"internal/price":                 {},
	"internal/adkjson":               {"internal/jsonvalue", "patch"},
	"internal/recordform":            {"internal/recordform/packed"},
	"internal/recordform/packed":     {},
	"patch":                          {"internal/statekey", "internal/jsonvalue", "internal/tokens", "internal/recordform"},
	"patch/redact":                   {"internal/jsonvalue", "patch"},
	"fold":                           {"internal/records", "internal/statekey", "patch"},
	"fold/portable":                  {"patch", "fold"},
	"snapshot":                       {"patch", "fold"},
	"store/backend":                  {},
	"internal/blanks":                {"patch", "fold"},
	"store/internal/erase":           {"internal/blanks", "internal/recordform", "internal/records", "patch", "fold", "internal/traces", "store/backend", "store/internal/receipt", "store/internal/write"},
	"store/internal/receipt":         {"patch", "fold"},
	"store/internal/write":           {"internal/recordform", "internal/records", "patch", "fold", "store/backend", "store/internal/groupcommit", "store/internal/receipt"},
	"internal/traces":                {"patch"},
	"store/internal/salvage":         {"internal/recordform", "internal/records", "patch", "store/backend", "store/bolt", "store/internal/receipt"},
	"store/internal/groupcommit":     {},
	"store/bolt":                     {"internal/syncdir", "store/backend", "store/internal/groupcommit"},
	"store/memory":                   {"store/backend"},
	"recall":                         {"internal/records", "internal/tokens", "internal/traces", "patch", "patch/redact", "fold", "internal/identifiers"},
	"store":                          {"internal/records", "store/internal/erase", "store/internal/receipt", "store/internal/salvage", "store/internal/write", "internal/statekey", "internal/recordform", "patch", "patch/redact", "fold", "snapshot", "store/backend", "store/bolt", "store/memory"},
	"store/pg":                       {"patch", "store", "store/backend", "store/internal/groupcommit"},
	"store/pg/pgtest":                {},
	"store/storetest":                {"store/backend"},
	"store/migrate":                  {"fold/portable", "internal/statekey", "internal/adkjson", "internal/present", "patch", "fold", "store", "compaction", "compaction/adkrecord"},
	"compaction/internal/oneline":    {},
	"compaction/internal/transcript": {"patch", "compaction/internal/oneline", "internal/summaries"},
	"internal/tokens":                {},
	"internal/summaries":             {"patch"},
	"internal/ties":                  {"fold"},
	"internal/identifiers":           {"patch", "internal/jsonvalue", "internal/words"},
	"compaction":                     {"internal/price", "internal/records", "internal/blanks", "patch", "patch/redact", "fold", "internal/summaries", "internal/ties", "compaction/internal/extractive", "internal/identifiers", "compaction/internal/transcript", "internal/tokens"},
	"compaction/adkrecord":           {"internal/records", "patch", "fold", "compaction", "internal/summaries", "internal/ties"},
	"internal/quality":               {"internal/price", "internal/records", "patch", "fold", "recall", "compaction", "internal/identifiers", "internal/jsonvalue", "internal/words"},
	"compaction/gemini":              {"internal/price", "patch", "compaction", "compaction/internal/oneline"},
	"fuzz":                           {"patch"},
	"inspector":                      {"internal/records", "internal/statekey", "patch", "patch/redact", "fold", "recall", "store", "compaction", "compaction/adkrecord", "internal/identifiers", "internal/ops", "internal/present"},
	"internal/present":               {"patch", "fold", "store", "compaction", "compaction/adkrecord", "internal/records"},
	"internal/ops":                   {"internal/summaries", "patch", "fold", "store", "compaction", "internal/present"},
	"cmd/patchlog":                   {"internal/command"},
	"cmd/patchlog-sqlite":            {"internal/command"},
	"internal/filler":                {"patch"},
	"internal/testlog":               {"patch"},
	"internal/teststore":             {"store"},
	"internal/terminal":              {"internal/present"},
	"internal/database":              {"internal/syncdir", "store", "store/pg"},
	"internal/sources":               {"internal/database", "patch", "store", "store/migrate"},
	"internal/command":               {"patch", "patch/redact", "fold", "recall", "store", "store/backend", "store/migrate", "compaction", "compaction/gemini", "inspector", "internal/database", "internal/ops", "internal/present", "internal/sources", "internal/terminal"},
	"internal/fuzz/recorded":         {"internal/records", "patch"},
	"internal/fuzz/ops":              {"internal/testlog", "internal/records", "internal/recordform", "fuzz", "patch", "fold", "store", "store/backend"},
	"internal/fuzz/kill":             {"fuzz", "internal/fuzz/long", "internal/fuzz/ops", "internal/fuzz/linear", "store"},
	"internal/fuzz/endurance":        {},
	"internal/fuzz/long":             {},
	"internal/fuzz/memory":           {},
	"internal/fuzz/linear":           {"internal/fuzz/long", "internal/testlog", "internal/statekey", "fuzz", "internal/fuzz/ops", "patch", "fold", "snapshot", "store", "store/backend"},
	"internal/fuzz/power":            {},
	"internal/fuzz/damage":           {},
	"internal/fuzz/hostile":          {},
	"internal/fuzz/machine":          {"internal/testlog", "internal/records", "internal/statekey", "fuzz", "internal/fuzz/ops", "patch", "fold", "recall", "snapshot", "store", "store/backend", "store/bolt", "store/storetest"},

	"compaction/internal/extractive": {"internal/records", "internal/tokens", "patch", "internal/summaries", "internal/identifiers", "internal/jsonvalue", "internal/words"},
}

// allowedModules has the other modules that each package may import, as prefixes of import paths.
var allowedModules = map[string][]string{
	"internal/recordform/packed": {"github.com/klauspost/compress"},
	"internal/jsonvalue":         {"github.com/go-json-experiment/json"},
	"patch":                      {"github.com/google/uuid", "github.com/go-json-experiment/json", "github.com/vmihailenco/msgpack"},
	"recall":                     {"github.com/kljensen/snowball", "golang.org/x/text"},
	"store":                      {"github.com/vmihailenco/msgpack", "github.com/google/uuid"},
	"store/bolt":                 {"go.etcd.io/bbolt"},
	"store/internal/receipt":     {"github.com/google/uuid"},
	"store/internal/write":       {"github.com/google/uuid"},
	"store/migrate":              {"github.com/google/uuid"},
	"store/pg":                   {"github.com/jackc/pgx/v5"},
	"store/pg/pgtest":            {"github.com/jackc/pgx/v5"},
	"compaction":                 {"github.com/google/uuid"},
	"compaction/adkrecord":       {"github.com/google/uuid"},
	"compaction/gemini":          {"google.golang.org/genai"},
	"inspector":                  {"github.com/google/uuid"},
	"internal/testlog":           {"github.com/google/go-cmp"},
	"fuzz":                       {"pgregory.net/rapid"},
	"internal/fuzz/linear":       {"github.com/anishathalye/porcupine"},
	"internal/fuzz/machine":      {"pgregory.net/rapid"},
	"cmd/patchlog-sqlite":        {"modernc.org/sqlite"},
	"internal/terminal":          {"github.com/go-json-experiment/json", "github.com/mattn/go-runewidth", "golang.org/x/term"},
	"internal/sources":           {"github.com/jackc/pgx/v5"},
	"internal/command":           {"github.com/spf13/cobra", "github.com/spf13/pflag"},
}

func TestImports(t *testing.T) {
	list := exec.Command("go", "list", "-json=ImportPath,Imports,Name", "./...")
	list.Dir = ".."
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Name string
			Imports          []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "docs" || strings.HasPrefix(name, "bench") { // they have only tests and benchmarks
			continue
		}
		seen++
		owner := ownerOf(name)
		allowed, ok := allowedImports[owner]
		if !ok {
			t.Errorf("package %s has no entry in allowedImports; add it there and to ARCHITECTURE.md", name)
			continue
		}
		for _, i := range p.Imports {
			local, ours := strings.CutPrefix(i, module)
			target := ownerOf(local)
			switch {
			case ours && target != owner && !slices.Contains(allowed, target):
				t.Errorf("%s must not import package %s", name, local)
			case !ours && strings.Contains(strings.Split(i, "/")[0], ".") &&
				!slices.ContainsFunc(allowedModules[owner], func(prefix string) bool { return strings.HasPrefix(i, prefix) }):
				t.Errorf("%s must not import %s", name, i)
			}
		}
	}
	if seen < len(allowedImports) {
		t.Errorf("%d packages, but allowedImports has %d", seen, len(allowedImports))
	}
}

// In the drawing packages.svg, each arrow is an import between two boxes.
func TestDrawnImports(t *testing.T) {
	drawing := read(t, "packages.svg")
	drawn := regexp.MustCompile(`<title>(\S+) → (\S+)</title>`).FindAllStringSubmatch(drawing, -1)
	if len(drawn) < 20 {
		t.Errorf("%d arrows were found in packages.svg", len(drawn))
	}
	imports := maps.Clone(allowedImports)
	imports["adk"] = importsOf(t, "../adk")
	for _, arrow := range drawn {
		if from, to := arrow[1], arrow[2]; !slices.Contains(imports[from], to) {
			t.Errorf("packages.svg draws %s → %s, which is not an import", from, to)
		}
		for _, name := range arrow[1:] {
			if !strings.Contains(drawing, ">"+name+"</text>") {
				t.Errorf("packages.svg has no box %s", name)
			}
		}
	}
}

// importsOf returns the packages of this module that the package in a folder imports.
func importsOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	list := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".")
	list.Dir = folder
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if name, ours := strings.CutPrefix(path, module); ours {
			names = append(names, name)
		}
	}
	return names
}

// ARCHITECTURE.md names each package in its table of layers. In the table, "…" stands for the folder of the preceding
// package.
func TestArchitectureNamesPackages(t *testing.T) {
	_, table, ok := strings.Cut(read(t, "ARCHITECTURE.md"), "\n| layer | packages |\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table of layers")
	}
	named := map[string]bool{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		parent := ""
		for _, q := range quoted.FindAllStringSubmatch(line, -1) {
			name := strings.Replace(q[1], "…", parent, 1)
			parent, named[name] = path.Dir(name), true
		}
	}
	for name := range allowedImports {
		if !named[name] && !strings.HasPrefix(name, "internal/fuzz/") {
			t.Errorf("ARCHITECTURE.md does not name %s", name)
		}
	}
}

// The packages that every program with a log needs import only these modules and the standard library.
func TestCoreDependencies(t *testing.T) {
	modules := []string{"github.com/go-json-experiment/json", "github.com/google/uuid", "github.com/klauspost/compress", "github.com/vmihailenco/msgpack/v5", "github.com/vmihailenco/tagparser/v2", "go.etcd.io/bbolt", "golang.org/x/sys"}
	deps := func(names ...string) []string {
		list := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, names...)...)
		list.Dir = ".."
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		paths := strings.Fields(string(out))
		slices.Sort(paths)
		return slices.Compact(paths)
	}
	own := strings.TrimSuffix(module, "/")
	if got, want := deps("./patch", "./fold", "./snapshot", "./store", "./compaction"), append(slices.Clone(modules), own); !equalSorted(got, want) {
		t.Errorf("patch, fold, snapshot, store and compaction import the modules %v, want %v", got, want)
	}
	for _, dep := range deps("./fuzz") {
		if dep != own && dep != "pgregory.net/rapid" && !slices.Contains(modules, dep) {
			t.Errorf("fuzz imports %s", dep)
		}
	}
}

// If a program imports package store, go mod tidy also downloads the modules that the tests of store and of its
// dependencies import. Module genai is large, so only compaction/gemini and its tests import it.
func TestGenaiImports(t *testing.T) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./...")
	list.Dir = ".."
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var importers []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); slices.Contains(fields[1:], "google.golang.org/genai") {
			importers = append(importers, strings.TrimPrefix(fields[0], module))
		}
	}
	if !slices.Equal(importers, []string{"compaction/gemini"}) {
		t.Errorf("genai is imported by %q", importers)
	}
}

func equalSorted(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// ownerOf returns the entry of allowedImports to which a package belongs.
func ownerOf(name string) string {
	if _, listed := allowedImports[name]; listed {
		return name
	}
	owner, _, _ := strings.Cut(name, "/internal/")
	return owner
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadmeExampleRuns(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../README.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("README.md has no Go example")
	}
	for _, block := range blocks {
		dir := t.TempDir()
		file := filepath.Join(dir, "main.go")
		if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		binary := filepath.Join(dir, "example")
		if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		run := exec.Command(binary)
		run.Dir = dir
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := strings.TrimSpace(string(out)); !strings.Contains(read(t, "../README.md"), "The first run prints `"+got+"`") {
			t.Errorf("the example prints %q, which README.md does not say", got)
		}
	}
}

func TestLinks(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md") {
		text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(read(t, file), "") // code has no links
		for _, link := range regexp.MustCompile(`\]\(([^):]+)\)`).FindAllStringSubmatch(text, -1) {
			target, section, ok := strings.Cut(link[1], "#")
			if target = filepath.Join(filepath.Dir(file), target); link[1][0] == '#' {
				target = file
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if ok && !slices.Contains(headings(read(t, target)), section) {
				t.Errorf("%s: %s has no heading #%s", file, target, section)
			}
		}
	}
}

// headings returns the anchors of the headings of a page.
func headings(text string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// FORMAT.md describes each bucket of a database file.
func TestFormatNamesBuckets(t *testing.T) {
	buckets := regexp.MustCompile(`bucket\w+ += \[\]byte\("(\w+)"\)`).FindAllStringSubmatch(read(t, "../store/bolt/bolt.go"), -1)
	if len(buckets) < 10 {
		t.Errorf("%d buckets were found", len(buckets))
	}
	for _, bucket := range buckets {
		if !strings.Contains(read(t, "FORMAT.md"), "\n| `"+bucket[1]+"` |") {
			t.Errorf("FORMAT.md has no bucket %s", bucket[1])
		}
	}
}

// The figures in SETTINGS.md belong to the configurations that SETTINGS.md shows.
func TestSettings(t *testing.T) {
	measured := read(t, "../bench/quality/policies.go")
	lines := regexp.MustCompile(`(?m)^cfg\.\w+ = \w+`).FindAllString(read(t, "SETTINGS.md"), -1)
	if len(lines) < 3 {
		t.Errorf("%d settings were found", len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(measured, "\t"+line+"\n") {
			t.Errorf("bench/quality has no policy with %q", line)
		}
	}
}

// Every target has a comment, because "make help" lists only targets with comments.
func TestMakeTargets(t *testing.T) {
	makefile := read(t, "../Makefile")
	_, phony, _ := strings.Cut(makefile, ".PHONY: ")
	phony, _, _ = strings.Cut(phony, "\n")
	targets := strings.Fields(phony)
	if !slices.Contains(targets, "test") {
		t.Fatalf("the targets are %q", targets)
	}
	for _, target := range targets {
		if !regexp.MustCompile(`(?m)^` + target + `:.*## \S`).MatchString(makefile) {
			t.Errorf("make %s has no ## comment", target)
		}
	}
}
