package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each exported method of a store or a view, and each exported function of package snapshot, occurs in an
// example.
func TestExamples(t *testing.T) {
	for folder, typ := range map[string]string{"store": "Store", "fold": "View", "snapshot": ""} {
		shown := usedInExamples(t, folder)
		if len(shown) == 0 {
			t.Errorf("%s has no examples", folder)
		}
		for path, f := range sourcesOf(t, folder) {
			if filepath.Dir(path) != folder {
				continue
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !fn.Name.IsExported() || fn.Recv != nil && receiver(fn.Recv.List[0].Type) != typ {
					continue
				}
				if fn.Name.Name == "Footprint" || fn.Name.Name == "SkippedCount" { // numbers
					continue
				}
				if !slices.Contains(shown, fn.Name.Name) {
					t.Errorf("%s: no example of package %s uses %s", path, folder, fn.Name.Name)
				}
			}
		}
	}
}

// usedInExamples returns the names of the functions, methods and fields that the examples of a package use.
func usedInExamples(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var used []string
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Example") {
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						used = append(used, s.Sel.Name)
					}
					return true
				})
			}
		}
	}
	return used
}
