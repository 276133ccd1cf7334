package page

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// serve serves pages, by their paths, to the end of the test. A policy that begins with report is not
// enforced.
func serve(t *testing.T, policy string, pages map[string]string) string {
	t.Helper()
	require(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, there := pages[r.URL.Path]
		if !there {
			http.NotFound(w, r)
			return
		}
		if rules, only := strings.CutPrefix(policy, "report "); only {
			w.Header().Set("Content-Security-Policy-Report-Only", rules)
		} else if policy != "" {
			w.Header().Set("Content-Security-Policy", policy)
		}
		if kind := mime.TypeByExtension(path.Ext(r.URL.Path)); kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// document is a page that nothing is wrong with.
func document(body string) string {
	return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page</title>` +
		`<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"></head>` +
		`<body><main><h1>Page</h1>` + body + `</main></body></html>`
}

// A trial is a test that may fail.
type trial struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	skipped  string
	cleanups []func()
}

func (t *trial) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, text)
}

func (t *trial) Helper()                           {}
func (t *trial) Error(args ...any)                 { t.note(fmt.Sprint(args...)) }
func (t *trial) Errorf(format string, args ...any) { t.note(fmt.Sprintf(format, args...)) }
func (t *trial) Fatal(args ...any)                 { t.note(fmt.Sprint(args...)); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) {
	t.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (t *trial) Skip(args ...any) { t.skipped = fmt.Sprint(args...); runtime.Goexit() }
func (t *trial) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// try runs a test that may fail and returns how it failed.
func try(t *testing.T, test func(t testing.TB)) *trial {
	t.Helper()
	tried := &trial{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(tried.cleanups) {
				f()
			}
		}()
		test(tried)
	}()
	<-done
	return tried
}

// mustFail checks that a test fails once for each of some texts, and for nothing else.
func mustFail(t *testing.T, test func(t testing.TB), texts ...string) {
	t.Helper()
	got := try(t, test).failures
	for _, text := range texts {
		i := slices.IndexFunc(got, func(f string) bool { return strings.Contains(f, text) })
		if i < 0 {
			t.Fatalf("no failure has %q; there are %q", text, got)
		}
		got = slices.Delete(got, i, i+1)
	}
	if len(got) > 0 {
		t.Errorf("it fails for %q too", got)
	}
}

const strict = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'"

// A page without a fault passes all that there is, under a policy that forbids inline scripts.
func TestFaultless(t *testing.T) {
	t.Parallel()
	base := serve(t, strict, map[string]string{"/": document(`<p>Words</p><script src="x.js"></script>`), "/x.js": `console.log("fine"); fetch("/")`})
	for name, opts := range map[string]Options{"desktop": {}, "phone": Phone(), "dark": {Dark: true}, "no script": {NoScript: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Open(t, base, opts)
			p.Go("/")
			p.WaitText("p", "Words")
			p.Overflow()
			p.Axe()
		})
	}
}

// Each page is laid out as its options say, and knows nothing of the others.
func TestOptions(t *testing.T) {
	t.Parallel()
	base := serve(t, "", map[string]string{"/": document(`<noscript>plain</noscript>`)})
	const query = `({Width: innerWidth, Height: innerHeight, Dark: matchMedia("(prefers-color-scheme: dark)").matches,
		Zone: new Date(0).getTimezoneOffset(), Locale: new Intl.NumberFormat().resolvedOptions().locale, Kept: localStorage.kept || ""})`
	type seen struct {
		Width, Height, Zone int
		Dark                bool
		Locale, Kept        string
	}
	for opts, want := range map[Options]seen{
		{}:                         {Width: 1280, Height: 800, Locale: "en-US"},
		{Width: 700, Height: 500}:  {Width: 700, Height: 500, Locale: "en-US"},
		Phone():                    {Width: 360, Height: 740, Locale: "en-US"},
		{Dark: true}:               {Width: 1280, Height: 800, Dark: true, Locale: "en-US"},
		{NoScript: true, Width: 9}: {Width: 9, Height: 800, Locale: "en-US"},
	} {
		p := Open(t, base, opts)
		p.Go("/")
		var got seen
		p.Eval(query, &got)
		if got != want {
			t.Errorf("%+v: %+v, want %+v", opts, got, want)
		}
		if shown := p.Text("body"); strings.Contains(shown, "plain") != opts.NoScript {
			t.Errorf("%+v: it shows %q", opts, shown)
		}
		p.Eval("localStorage.kept = 'kept'", nil)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	base := serve(t, "", nil)
	mustFail(t, func(t testing.TB) { Open(t, "nowhere", Options{}) }, `"nowhere" is not the address of a server`)
	mustFail(t, func(t testing.TB) {
		p := Open(t, base, Options{})
		p.Go("http://127.0.0.1:9/")
	}, "go to http://127.0.0.1:9/: net::ERR_", "foreign request: GET http://127.0.0.1:9/", "request: GET http://127.0.0.1:9/: net::ERR_")
}
