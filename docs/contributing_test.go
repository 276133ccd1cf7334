package docs_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sections returns the sections of CONTRIBUTING.md by heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range strings.Split(read(t, "../CONTRIBUTING.md"), "\n## ")[1:] {
		heading, body, _ := strings.Cut(s, "\n")
		out[heading] = body
	}
	return out
}

// sectionsOfKind returns the sections whose heading begins with a word and a colon.
func sectionsOfKind(t *testing.T, kind string, want int) map[string]string {
	t.Helper()
	all := sections(t)
	for heading := range all {
		if !strings.HasPrefix(heading, kind+": ") {
			delete(all, heading)
		}
	}
	if len(all) != want {
		t.Fatalf("CONTRIBUTING.md has %d sections %q, want %d", len(all), kind, want)
	}
	return all
}

var (
	quoted    = regexp.MustCompile("`([^`\n]+)`")
	filePath  = regexp.MustCompile(`^[a-z][\w/-]*\.(go|md|txt)$|^README\.md$`)
	qualified = regexp.MustCompile(`^([A-Za-z]\w*)(\.(\w+))?$`)
	afterFile = regexp.MustCompile("^: `([^`\n]+)`(?:(?:,| and)\\s+`([^`\n]+)`)?")
)

// filesIn returns the distinct file paths in a text, in order.
func filesIn(text string) []string {
	var files []string
	for _, q := range quoted.FindAllStringSubmatch(text, -1) {
		if filePath.MatchString(q[1]) && strings.Contains(q[1], "/") && !slices.Contains(files, q[1]) {
			files = append(files, q[1])
		}
	}
	return files
}

// declarations returns the names that the files of a folder declare, each with its files. A function or type
// has the name F, and a method T.F.
func declarations(t *testing.T, folder string) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for path, f := range sourcesOf(t, folder) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				names[name] = append(names[name], path)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = append(names[s.Name.Name], path)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = append(names[n.Name], path)
						}
					}
				}
			}
		}
	}
	return names
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// Every file that CONTRIBUTING.md names exists, and declares the names that follow the file's name. A file
// of the section declares each method T.F that the section names without a file.
func TestContributingNames(t *testing.T) {
	byFolder := map[string]map[string][]string{}
	of := func(file string) map[string][]string {
		folder := filepath.Dir(file)
		if byFolder[folder] == nil {
			byFolder[folder] = declarations(t, folder)
		}
		return byFolder[folder]
	}
	checked := 0
	for heading, text := range sections(t) {
		files := filesIn(text)
		for _, file := range files {
			if _, err := os.Stat(filepath.Join("..", file)); err != nil {
				t.Errorf("%s: %v", heading, err)
			}
		}
		for _, at := range quoted.FindAllStringSubmatchIndex(text, -1) {
			file := text[at[2]:at[3]]
			names := afterFile.FindStringSubmatch(strings.Replace(text[at[1]:], ":\n   ", ":", 1))
			if !slices.Contains(files, file) || names == nil || !strings.HasSuffix(file, ".go") {
				continue
			}
			for _, name := range names[1:] {
				if name == "" || filePath.MatchString(name) {
					continue
				}
				if checked++; !slices.Contains(of(file)[name], file) {
					t.Errorf("%s: %s does not declare %s", heading, file, name)
				}
			}
		}
		for _, q := range quoted.FindAllStringSubmatch(text, -1) {
			name := qualified.FindStringSubmatch(q[1])
			if name == nil || name[3] == "" || filePath.MatchString(q[1]) || name[1] == "fold" {
				continue
			}
			checked++
			if !slices.ContainsFunc(files, func(file string) bool {
				return strings.HasSuffix(file, ".go") && len(of(file)[q[1]]) > 0
			}) {
				t.Errorf("%s: no file of the section has %s", heading, q[1])
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d names were found in CONTRIBUTING.md", checked)
	}
}

func TestWalks(t *testing.T) {
	for heading, text := range sectionsOfKind(t, "Walk", 4) {
		if files := filesIn(text); len(files) < 4 || len(files) > 10 {
			t.Errorf("%s goes through %d files: %q", heading, len(files), files)
		}
		if strings.Contains(heading, "an event") && len(filesIn(text)) > 8 {
			t.Errorf("%s goes through more than 8 files", heading)
		}
	}
	sectionsOfKind(t, "Recipe", 5)
}

// pinWords matches a word such as pin or unpinned in a name or a text.
var pinWords = regexp.MustCompile(`(?i)(^|[^a-z])(un)?pin(s|ned|ning)?([^a-z]|$)`)

var camelCase = regexp.MustCompile(`([a-z])([A-Z])`)

// A new patch type changes at most 12 product files. The test counts the files that mention pins. The
// recipe names these files. It also names the files that mention pins only because pins restrict other
// patches.
func TestPatchTypeRecipe(t *testing.T) {
	var have []string
	for _, folder := range []string{"patch", "fold", "snapshot", "store"} {
		for path, f := range sourcesOf(t, folder) {
			if mentionsPins(f) {
				have = append(have, path)
			}
		}
	}
	recipe, rest, ok := strings.Cut(sectionsOfKind(t, "Recipe", 5)["Recipe: a patch type"], "\nThen ")
	_, rule, found := strings.Cut(rest, "sets a rule")
	if !ok || !found {
		t.Fatal("the recipe is not as this test reads it")
	}
	takes, besides := filesIn(recipe), filesIn(rule)
	if len(takes) > 12 {
		t.Errorf("a patch type takes %d product files: %q", len(takes), takes)
	}
	slices.Sort(have)
	for _, file := range have {
		if !slices.Contains(takes, file) && !slices.Contains(besides, file) {
			t.Errorf("%s is about pins, but the recipe does not name it", file)
		}
	}
	for _, file := range append(takes, besides...) {
		core := !strings.HasPrefix(file, "internal/command/") && !strings.HasPrefix(file, "compaction/")
		if core && !slices.Contains(have, file) {
			t.Errorf("the recipe names %s, which is not about pins", file)
		}
	}
}

func mentionsPins(f *ast.File) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		text := ""
		switch n := n.(type) {
		case *ast.Ident:
			text = n.Name
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				text = n.Value
			}
		}
		found = found || pinWords.MatchString(camelCase.ReplaceAllString(text, "$1 $2"))
		return !found
	})
	return found
}
