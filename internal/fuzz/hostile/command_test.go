package hostile

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/command"
	"github.com/patchlog-dev/patchlog/internal/fuzz/memory"
	"github.com/patchlog-dev/patchlog/store"
)

// readCommands are the commands that must not change the database file.
var readCommands = []string{"sessions", "stats", "log", "audit", "search", "loss", "export", "verify", "diff", "help"}

// skippedCommands are the commands that are not tested. The command serve does not end, and the others write files
// that an argument names.
var skippedCommands = []string{"serve", "man", "demo", "backup", "salvage", "completion"}

// FuzzCommand runs the command patchlog with any input and any arguments. The arguments are one per line.
func FuzzCommand(f *testing.F) {
	for _, line := range []string{
		"sessions", "log\nshop/ada/4711", "log\nshop/ada/4711\n--json", "stats\nshop/ada/4711\n--at\n2", "audit\nshop/ada/4711\n--from\n1", "export\nshop/ada/4711",
		"patch\nshop/ada/4711\n0\n1\n--dry-run", "pin\nshop/ada/4711\nd", "revert\nshop/ada/4711\n4", "rewind\nshop/ada/4711\ni",
		"import\na/b/c\n-", "import\na/b/c\n-\n--dry-run", "log\nshop/ada/4711\n--type\nreceipt", "fork\nshop/ada/4711\na/b/c", "delete\nshop/ada/4711\n--yes", "compact\nshop/ada/4711\n--dry-run", "erase\nshop/ada/4711\n1\n--yes", "stats\n--json", "verify", "vacuum", "search\nshop/ada/4711\nhello\n--all",
		"diff\nshop/ada/4711\n1", "loss\nshop/ada/4711", "import\n-", "help\npatch", "--db", "--\n--", "log\n%2F/%/\x00", "stats\n--json\n--json=maybe", "sessions\n-1", "stats\nshop/ada/4711\n--at\n99999999999999999999",
	} {
		f.Add(line, []byte(`{"id":"x"}`+"\n"))
	}
	whole := database(f)
	f.Fuzz(func(t *testing.T, line string, input []byte) {
		args := strings.Split(line, "\n")
		for _, arg := range args {
			// The arguments must name no file except the database.
			if strings.HasPrefix(arg, "/") || strings.Contains(arg, "..") || strings.Contains(arg, "=/") || strings.Contains(arg, "://") || slices.Contains(skippedCommands, arg) || len(line) > 2000 {
				return
			}
		}
		dir := t.TempDir()
		t.Chdir(dir)
		path := filepath.Join(dir, "log.db")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		env := func(name string) string {
			if name == "PATCHLOG_DB" {
				return path
			}
			return ""
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout/2)
		defer cancel()
		var out, errs bytes.Buffer
		code := -1
		runWithTimeout(t, func() {
			memory.Within(t, len(line)+len(input)+len(whole), func() {
				out.Reset()
				errs.Reset()
				code = command.Run(ctx, args, bytes.NewReader(input), &out, &errs, env, command.Options{Store: store.Options{NoSync: true, Logger: slog.New(slog.DiscardHandler)}})
			})
		})
		if code < 0 || code > 2 {
			t.Errorf("%q: exit code %d", args, code)
		}
		if code != 0 && errs.Len() == 0 && out.Len() == 0 {
			t.Errorf("%q: exit code %d, and not a word", args, code)
		}
		if ctx.Err() != nil {
			t.Errorf("%q: it does not end", args)
		}
		if slices.Contains(readCommands, args[0]) {
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
				t.Errorf("%q changed the database (%v)", args, err)
			}
		}
		s, err := store.Open(path, store.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		defer s.Close()
		for p, err := range s.Verify(t.Context(), store.VerifyOptions{}) {
			t.Errorf("%q: %v %v", args, p, err)
		}
	})
}

// FuzzInspector sends any request to two inspectors, one that only reads and one that allows writes.
func FuzzInspector(f *testing.F) {
	for _, c := range [][3]string{
		{"GET", "/", ""}, {"GET", "/sessions/shop/ada/4711", ""}, {"GET", "/s/shop/ada/4711?at=3", ""}, {"GET", "/?q=hello", ""}, {"HEAD", "/favicon.ico", ""},
		{"POST", "/s/shop/ada/4711/patch", "type=splice&start=0&count=1&base=0"}, {"GET", "/search?q=%zz", ""}, {"GET", "/%2e%2e/", ""}, {"PUT", "/\x00", "a=b"},
	} {
		f.Add(c[0], c[1], c[2], "127.0.0.1")
	}
	path := filepath.Join(f.TempDir(), "log.db")
	if err := os.WriteFile(path, database(f), 0o600); err != nil {
		f.Fatal(err)
	}
	s, err := store.Open(path, store.Options{ReadOnly: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	quiet := slog.New(slog.DiscardHandler)
	page, err := inspector.New(s, inspector.Options{Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("GET", links(f, page), "", "localhost")
	f.Fuzz(func(t *testing.T, method, target, form, host string) {
		r, err := http.NewRequest(method, "http://127.0.0.1/", strings.NewReader(form))
		if err != nil {
			return // a server would not accept the request
		}
		u, err := r.URL.Parse(target)
		if err != nil || u.Host != "127.0.0.1" {
			return
		}
		r.URL, r.Host, r.RemoteAddr = u, host, "127.0.0.1:1"
		r.RequestURI = u.RequestURI()
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+host)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // pages that follow a log do not end
		defer cancel()
		// Each request gets a new inspector. Other tests cover the cache of the inspector.
		own, err := inspector.New(s, inspector.Options{Logger: quiet, CacheBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		runWithTimeout(t, func() {
			memory.Within(t, len(target)+len(form), func() {
				w := httptest.NewRecorder()
				again := r.Clone(ctx)
				again.Body = io.NopCloser(strings.NewReader(form))
				own.ServeHTTP(w, again)
				if w.Code < 200 || w.Code > 599 || w.Code == http.StatusInternalServerError {
					t.Errorf("%s %q: status %d: %.300s", method, target, w.Code, w.Body)
				}
				if w.Code < 300 && method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions {
					t.Errorf("%s %q: status %d of an inspector that only reads", method, target, w.Code)
				}
			})
		})
	})
}

// links returns a link to a session on the first page.
func links(f *testing.F, page http.Handler) string {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
	page.ServeHTTP(w, r)
	for part := range strings.SplitSeq(w.Body.String(), `href="`) {
		if link, _, _ := strings.Cut(part, `"`); strings.Contains(link, "4711") {
			return link
		}
	}
	f.Fatalf("the first page links to no session:\n%s", w.Body)
	return ""
}
