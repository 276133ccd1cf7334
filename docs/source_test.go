package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sourcesOf returns the product files of a folder and of its subfolders, by their paths from the root.
func sourcesOf(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := fs.WalkDir(os.DirFS(".."), folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("there is no source in %s", folder)
	}
	return files
}

// ioPackages matches the packages that a pure package must not import. They give access to files, networks,
// other processes, contexts and streams.
var ioPackages = regexp.MustCompile(`^(bufio|context|database|embed|io|log|net|os|syscall)(/.*)?$`)

// clockFuncs lists the functions of package time that a pure package must not call, because they read the clock
// or wait.
var clockFuncs = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// streamFuncs matches the functions of package fmt that use stdin or stdout.
var streamFuncs = regexp.MustCompile(`^(Print|Scan)(f|ln)?$`)

// exceptions lists the imports that a file may have although they match ioPackages. The text form is read from
// and written to streams. The dictionary for the compression of records is an embedded file. Package netip
// parses addresses and uses no network.
var exceptions = map[string][]string{
	"patch/text.go":                        {"bufio", "io"},
	"internal/recordform/packed/packed.go": {"embed"},
	"patch/redact/addresses.go":            {"net/netip"},
}

// plannerFiles lists the pure files of package compaction.
var plannerFiles = []string{"backoff.go", "lineage.go", "opencalls.go", "balance.go", "plan.go", "request.go", "summary.go", "planner.go", "tiers.go", "window.go"}

func TestPurePackages(t *testing.T) {
	files := map[string]*ast.File{}
	for _, folder := range []string{"internal/jsonvalue", "internal/recordform", "patch", "fold", "snapshot"} {
		for path, f := range sourcesOf(t, folder) {
			files[path] = f
		}
	}
	compaction := sourcesOf(t, "compaction")
	for _, name := range plannerFiles {
		f, there := compaction["compaction/"+name]
		if !there {
			t.Errorf("compaction/%s does not exist; correct plannerFiles", name)
			continue
		}
		files["compaction/"+name] = f
	}
	for path, f := range files {
		for _, reach := range forbiddenUses(f, exceptions[path]) {
			t.Errorf("%s %s", path, reach)
		}
	}
	for path, but := range exceptions {
		if len(forbiddenUses(files[path], nil)) < len(but) {
			t.Errorf("%s needs no exception for each of %q", path, but)
		}
	}
}

// forbiddenUses describes each import and call of a file that a pure package must not have, except the allowed
// imports.
func forbiddenUses(f *ast.File, allowed []string) []string {
	var out []string
	for _, i := range f.Imports {
		if path := strings.Trim(i.Path.Value, `"`); ioPackages.MatchString(path) && !slices.Contains(allowed, path) {
			out = append(out, "imports "+path)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch x, _ := s.X.(*ast.Ident); {
		case x == nil:
		case x.Name == "time" && slices.Contains(clockFuncs, s.Sel.Name):
			out = append(out, "calls time."+s.Sel.Name)
		case x.Name == "fmt" && streamFuncs.MatchString(s.Sel.Name):
			out = append(out, "calls fmt."+s.Sel.Name)
		}
		return true
	})
	return out
}

// A view contains only data. It contains no interface and no function that could read from a store.
func TestViewTypes(t *testing.T) {
	for _, folder := range []string{"fold", "snapshot"} {
		for path, f := range sourcesOf(t, folder) {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.InterfaceType:
					if len(n.Methods.List) > 0 {
						t.Errorf("%s declares an interface with methods", path)
					}
				case *ast.StructType:
					for _, field := range n.Fields.List {
						if _, is := field.Type.(*ast.FuncType); is {
							t.Errorf("%s has a struct with a function", path)
						}
					}
				}
				return true
			})
		}
	}
}

func TestForbiddenUses(t *testing.T) {
	const source = `package p
import ("context"; "os/exec"; "io"; "time"; "fmt")
var _, _ = time.Now(), fmt.Println
var _ = fmt.Sprint(time.Second)
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"imports context", "imports os/exec", "calls time.Now", "calls fmt.Println"}
	if got := forbiddenUses(f, []string{"io"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
