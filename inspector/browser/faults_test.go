package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// serve serves a page with a content security policy until the test ends.
func serve(t *testing.T, policy, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page</title>`+
			`<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"></head><body><main><h1>Page</h1>`+body+`</main></body></html>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// trial is a testing.TB that may fail.
type trial struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (t *trial) Helper()                           {}
func (t *trial) Error(args ...any)                 { t.Errorf("%s", fmt.Sprint(args...)) }
func (t *trial) Fatal(args ...any)                 { t.Errorf("%s", fmt.Sprint(args...)); runtime.Goexit() }
func (t *trial) Fatalf(format string, args ...any) { t.Errorf(format, args...); runtime.Goexit() }
func (t *trial) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *trial) Skipf(format string, args ...any) {
	t.Errorf("skip: "+format, args...)
	runtime.Goexit()
}
func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// runTrial runs a test that may fail, and returns its failures.
func runTrial(t *testing.T, test func(t testing.TB)) []string {
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
	return tried.failures
}

// Each kind of fault fails a test. A page without faults fails no test.
func TestFaults(t *testing.T) {
	t.Parallel()
	axe, overflow := (*Page).Axe, (*Page).Overflow
	for name, c := range map[string]struct {
		policy, body string
		opts         pageOptions
		act          func(*Page)
		want         []string
	}{
		"none":        {body: `<p>Words</p><script>console.log("fine")</script>`, opts: phone(), act: func(p *Page) { p.Axe(); p.Overflow() }},
		"error":       {body: `<script>console.error("broken", 7)</script>`, want: []string{`console error: [`}},
		"exception":   {body: `<script>undefinedFunction()</script>`, want: []string{"exception: Uncaught ReferenceError: undefinedFunction"}},
		"rejection":   {body: `<script>Promise.reject(new Error("late"))</script>`, want: []string{"Error: late"}},
		"dialog":      {body: `<script>alert("hello")</script>`, want: []string{"dialog: hello"}},
		"missing":     {body: `<img alt="" src="nowhere.png">`, want: []string{"/nowhere.png: 404"}},
		"expected":    {body: `<img alt="" src="nowhere.png">`, act: func(p *Page) { p.Expect("404") }},
		"unmet":       {act: func(p *Page) { p.Expect("404") }, want: []string{"missing: 404"}},
		"foreign":     {body: `<img alt="" src="http://elsewhere.example/">`, want: []string{"foreign request: GET http://elsewhere.example/", "net::ERR_NAME_NOT_RESOLVED"}},
		"policy":      {policy: "script-src 'self'", body: `<script>console.error("run")</script>`, want: []string{"log error: Executing inline script violates"}},
		"no script":   {policy: "style-src 'self'", body: `<p style="color: red">Red</p>`, opts: pageOptions{NoScript: true}, want: []string{"log error: Applying inline style violates"}},
		"axe":         {policy: "script-src 'none'", body: `<button class="mute"></button>`, act: axe, want: []string{"axe: button-name (critical)"}},
		"axe, still":  {body: `<button class="mute"></button>`, opts: pageOptions{NoScript: true}, act: axe, want: []string{"axe: button-name (critical)"}},
		"axe, dark":   {body: `<style>@media (prefers-color-scheme: dark) { p { color: #444; background: #333 } }</style><p>Words</p>`, opts: pageOptions{Dark: true}, act: axe, want: []string{"axe: color-contrast"}},
		"overflow":    {body: `<pre id="wide">` + strings.Repeat("word ", 60) + `</pre>`, opts: phone(), act: overflow, want: []string{`<pre id="wide">`}},
		"no element":  {body: `<p>One</p>`, act: func(p *Page) { p.Text("#x") }, want: []string{"nothing matches #x"}},
		"no text":     {body: `<p>One</p>`, act: func(p *Page) { p.WaitText("p", "Two") }, want: []string{`no p has "Two"; their texts: ["One"]`}},
		"disabled":    {body: `<button disabled>Off</button>`, act: func(p *Page) { p.Click("button") }, want: []string{"button is disabled"}},
		"covered":     {body: `<a href="/">Under</a><div style="position: fixed; inset: 0"></div>`, act: func(p *Page) { p.Click("a") }, want: []string{"a is covered by <div"}},
		"not opened":  {act: func(p *Page) { p.Follow(func() {}) }, want: []string{"it does not hold that performance.timeOrigin"}},
		"no such key": {act: func(p *Page) { p.Key("Nokey") }, want: []string{`there is no key "Nokey"`}},
		"thrown":      {act: func(p *Page) { p.Eval("none.x", nil) }, want: []string{"ReferenceError: none is not defined"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := serve(t, c.policy, c.body)
			got := runTrial(t, func(t testing.TB) {
				p := openPage(t, base, c.opts)
				p.Go("/")
				p.timeout = time.Millisecond
				if c.act != nil {
					c.act(p)
				}
			})
			for n, want := range c.want {
				if n >= len(got) || !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, want) }) {
					t.Errorf("no failure has %q; there are %q", want, got)
				}
			}
			if len(got) > len(c.want) {
				t.Errorf("it fails with %q, want %q", got, c.want)
			}
		})
	}
}

// Without Chromium, a test is skipped or, if Chromium is required, fails.
func TestNoChromium(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range []string{"", filepath.Join(t.TempDir(), "none")} {
		t.Setenv(envChromium, name)
		for required, want := range map[string]string{"": "skip: there is none of", "1": "and PATCHLOG_NEED_BROWSER is set"} {
			t.Setenv(envRequired, required)
			if got := runTrial(t, func(t testing.TB) { chromium(t) }); len(got) != 1 || !strings.Contains(got[0], want) {
				t.Errorf("%q, required %q: %q", name, required, got)
			}
		}
	}
}
