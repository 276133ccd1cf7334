package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tree is a workspace with this repository's modules and a copy of ADK's module. In the copy, session.InMemoryService
// returns the service that a hook creates.
type tree struct {
	folder   string // folder of the workspace
	packages []string
	progress io.Writer
}

const (
	adkModule = "google.golang.org/adk/v2"
	ourModule = "github.com/patchlog-dev/patchlog"
)

// newTree copies a module's source into folder. It adds a test file with the hook to each package whose tests may
// call InMemoryService.
func newTree(ctx context.Context, source, folder string, progress io.Writer) (*tree, error) {
	t := &tree{folder: folder, progress: progress}
	if err := copyTree(source, t.module()); err != nil {
		return nil, err
	}
	file := filepath.Join(t.module(), "session", "service.go")
	text, err := os.ReadFile(file)
	if err == nil {
		text, err = addHook(text)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if err := t.workspace(ctx); err != nil {
		return nil, err
	}
	return t, t.hook(ctx)
}

func (t *tree) module() string { return filepath.Join(t.folder, "adk") }

// copyTree copies a directory tree. The copies are writable, even if the originals are in the module cache.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case entry.IsDir() && entry.Name() == ".git":
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case !entry.Type().IsRegular():
			return nil
		default:
			return copyFile(path, target)
		}
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

const (
	theirFunction = "func InMemoryService() Service {"
	ourFunction   = `
// Substitute, if not nil, creates the service that InMemoryService returns.
var Substitute func() Service

// InMemoryService returns an implementation of the session service.
func InMemoryService() Service {
	if Substitute != nil {
		return Substitute()
	}
	return inMemory()
}

func inMemory() Service {`
)

// addHook adds the hook to the source of ADK's package session.
func addHook(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(theirFunction)); n != 1 {
		return nil, fmt.Errorf("%q occurs %d times, want 1: ADK has changed, so the hook needs another place", theirFunction, n)
	}
	return bytes.Replace(text, []byte(theirFunction), []byte(ourFunction), 1), nil
}

// workspace creates a Go workspace with the copy of ADK's module and with this repository's modules.
func (t *tree) workspace(ctx context.Context) error {
	out, err := goCommand(ctx, ".", "list", "-m", "-f", "{{with .Replace}}{{.Dir}}{{else}}{{if .Main}}{{.Dir}}{{end}}{{end}}", ourModule, ourModule+"/adk")
	if err != nil {
		return err
	}
	// go work init selects the newest Go version that any of the modules requires.
	_, err = t.goCommand(ctx, t.folder, append([]string{"work", "init", t.module()}, strings.Fields(string(out))...)...)
	return err
}

type goPackage struct {
	ImportPath, Name, Dir              string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

// hook adds a test file to each package whose tests may call InMemoryService. The file installs patchlog's service.
func (t *tree) hook(ctx context.Context) error {
	out, err := t.goCommand(ctx, t.module(), "list", "-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return err
	}
	all := map[string]*goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		all[p.ImportPath] = &p
	}
	callers := callers{all: all, known: map[string]bool{}}
	for path, p := range all {
		asks, err := callers.testsCall(p)
		if err != nil {
			return err
		}
		if !asks {
			continue
		}
		file := fmt.Sprintf(hookFile, p.Name, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(filepath.Join(p.Dir, "zz_patchlog_test.go"), []byte(file), 0o644); err != nil {
			return err
		}
		t.packages = append(t.packages, path)
	}
	slices.Sort(t.packages)
	return nil
}

const hookFile = `package %s_test

import (
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/upstream/standin"
)

func init() { standin.Install(&session.Substitute, %q) }
`

// callers finds the packages that call InMemoryService.
type callers struct {
	all   map[string]*goPackage
	known map[string]bool // whether a package calls InMemoryService, directly or through its imports
}

// testsCall reports whether a package has tests that may call InMemoryService, directly or through imports.
func (a callers) testsCall(p *goPackage) (bool, error) {
	files := append(slices.Clone(p.TestGoFiles), p.XTestGoFiles...)
	if len(files) == 0 {
		return false, nil
	}
	asks, err := containsCall(p.Dir, files)
	for _, path := range slices.Concat([]string{p.ImportPath}, p.TestImports, p.XTestImports) {
		if asks || err != nil {
			break
		}
		asks, err = a.calls(path)
	}
	return asks, err
}

func (a callers) calls(path string) (bool, error) {
	asks, known := a.known[path]
	p := a.all[path]
	if known || p == nil {
		return asks, nil
	}
	asks, err := containsCall(p.Dir, p.GoFiles)
	for _, path := range p.Imports {
		if asks || err != nil {
			break
		}
		asks, err = a.calls(path)
	}
	a.known[path] = asks
	return asks, err
}

// containsCall reports whether one of the given files calls session.InMemoryService.
func containsCall(folder string, files []string) (bool, error) {
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || bytes.Contains(text, []byte("session.InMemoryService(")) {
			return err == nil, err
		}
	}
	return false, nil
}

func goCommand(ctx context.Context, folder string, args ...string) ([]byte, error) {
	return commandOutput(exec.CommandContext(ctx, "go", args...), folder)
}

// goCommand is like the function goCommand, but uses the tree's workspace.
func (t *tree) goCommand(ctx context.Context, folder string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Env = t.env()
	return commandOutput(c, folder)
}

func (t *tree) env() []string {
	return append(os.Environ(), "GOWORK="+filepath.Join(t.folder, "go.work"))
}

func commandOutput(c *exec.Cmd, folder string) ([]byte, error) {
	c.Dir = folder
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(c.Args[:min(3, len(c.Args))], " "), err, stderr.Bytes())
	}
	return out.Bytes(), nil
}
