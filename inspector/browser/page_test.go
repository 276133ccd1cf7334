package browser

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// pageOptions are options of [openPage]. The zero value means a light window of 1280 by 800 pixels with
// JavaScript.
type pageOptions struct {
	Width, Height int64 // size of the window, in CSS pixels; 0 means 1280 and 800
	Mobile        bool  // pages follow their viewport settings, as on a phone
	Dark          bool  // the browser prefers dark colours
	NoScript      bool  // JavaScript is off
}

const (
	defaultTimeout = 2 * time.Minute // time limit for a condition
	pollInterval   = 20 * time.Millisecond
)

func phone() pageOptions { return pageOptions{Width: 360, Height: 740, Mobile: true} }

// Page is a tab of Chromium that a test uses as a person would. If a page has a fault, the test fails. Faults
// are:
//
//   - an error or a warning on the console
//   - an uncaught exception
//   - a request that failed or went to another server
//   - a violation of the content security policy
//   - a dialog
//
// All tests share one browser, which can reach only this machine. Each Page has its own tab and profile, so
// tests may run in parallel. Without Chromium, a test is skipped. If the environment variable
// PATCHLOG_NEED_BROWSER is set, the test fails.
//
// Methods wait until their selector matches. If a method fails, it ends the test, so call it on the test's
// goroutine.
type Page struct {
	t       testing.TB
	ctx     context.Context // context of the tab
	base    *url.URL
	opts    pageOptions
	timeout time.Duration
	faults  *faults
}

// openPage opens an empty tab for pages of the server at base, which has the form of httptest.Server.URL. When
// the test ends, the tab is closed. The test fails for each fault that [Page.Expect] did not announce.
func openPage(t testing.TB, base string, opts pageOptions) *Page {
	t.Helper()
	home := testlog.Must(url.Parse(base))(t)
	p := &Page{t: t, base: home, opts: opts, timeout: defaultTimeout, faults: &faults{host: home.Host, requests: map[network.RequestID]string{}}}
	ctx, closeTab := chromedp.NewContext(browserContext(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.handle))
	p.ctx = ctx
	scheme := map[bool]string{false: "light", true: "dark"}[opts.Dark]
	err := cmp.Or(
		chromedp.Do(ctx), // binds the tab to a context without a deadline
		call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: cmp.Or(opts.Width, 1280), Height: cmp.Or(opts.Height, 800), DeviceScaleFactor: 1, Mobile: opts.Mobile}),
		call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
		call(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"}),
		call(p, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en_US"}),
		p.allowScripts(!opts.NoScript),
	)
	if err != nil {
		closeTab()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		settled := "new Promise(done => requestAnimationFrame(() => setTimeout(done)))" // resolves after all faults were reported
		if opts.NoScript {
			settled = "0"
		}
		if _, err := p.evaluate(settled); err != nil {
			t.Errorf("the page does not answer: %v", err)
		}
		closeTab()
		for _, fault := range p.faults.unexpected() {
			t.Error(fault)
		}
	})
	return p
}

func (p *Page) allowScripts(allow bool) error {
	return call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !allow})
}

// call sends a command to the tab and ignores its result.
func call[P, R any](p *Page, c cdp.Command[P, R], params P) error {
	ctx, cancel := context.WithTimeout(p.ctx, defaultTimeout)
	defer cancel()
	_, err := chromedp.Call(ctx, c, params)
	return err
}

// do runs actions in the tab. If an action fails, do ends the test.
func (p *Page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, defaultTimeout)
	defer cancel()
	testlog.NoError(p.t, chromedp.Do(ctx, actions...))
}

// evaluate returns the value of a script as JSON, or nil if it is undefined. It awaits promises.
func (p *Page) evaluate(script string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(p.ctx, defaultTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage](script, chromedp.EvalAwaitPromise))
}

// Go navigates to a URL, which may be relative to the server's, and waits until the page is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	to := testlog.Must(p.base.Parse(address))(p.t)
	if err := call(p, page.Navigate, page.NavigateParams{URL: to.String()}); err != nil {
		p.t.Fatalf("go to %s: %v", to, err)
	}
	p.WaitFor("document.readyState === 'complete' && location.href.startsWith('http')")
}

const (
	// envRequired is the environment variable that makes tests fail if Chromium is missing.
	envRequired = "PATCHLOG_NEED_BROWSER"
	// envChromium is the environment variable with the path of Chromium. Without it, Chromium is searched in
	// PATH.
	envChromium = "PATCHLOG_CHROMIUM"
)

// flags are additional arguments of Chromium. They restrict it to this machine.
var flags = map[string]any{
	"no-sandbox":                    true, // a sandbox is not available to root and in containers
	"disable-gpu":                   true,
	"disable-quic":                  true,
	"no-proxy-server":               true,
	"host-resolver-rules":           "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
	"disable-component-update":      true,
	"disable-site-isolation-trials": true, // reports events of frames with the events of their page
	"hide-scrollbars":               true,
	"remote-debugging-pipe":         true,
}

// chromium returns the path of Chromium. Without Chromium, it skips the test or, if a browser is required,
// fails it.
func chromium(t testing.TB) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	if name := os.Getenv(envChromium); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(envRequired) != "" {
		t.Fatalf("there is none of %q, and %s is set", names, envRequired)
	}
	t.Skipf("there is none of %q (apt-get install chromium, or name one in %s)", names, envChromium)
	return ""
}

// browser is the Chromium that all tests of the process share. The first test starts it.
var browser struct {
	sync.Mutex
	ctx  context.Context // context of the first tab, from which other tabs are opened
	stop func()
}

func browserContext(t testing.TB) context.Context {
	t.Helper()
	program := chromium(t)
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program))
	for name, value := range flags {
		options = append(options, chromedp.Flag(name, value))
	}
	quiet := func(string, ...any) {} // the driver would log events that it does not support
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator, chromedp.WithLogf(quiet), chromedp.WithErrorf(quiet))
	late := time.AfterFunc(defaultTimeout, end)
	defer late.Stop()
	if err := chromedp.Do(ctx); err != nil {
		end()
		free()
		t.Fatalf("%s does not start: %v", program, err)
	}
	browser.ctx, browser.stop = ctx, func() {
		closing, cancel := context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
		_ = chromedp.Cancel(closing) // a killed browser leaves files behind
		end()
		free()
	}
	return ctx
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

// faults are the faults of a page, in the order of the browser's reports.
type faults struct {
	host string // the host that requests may go to

	mu       sync.Mutex
	all      []string
	expected []string
	requests map[network.RequestID]string
}

// Expect makes the test accept faults that contain text, and makes it fail if there is none. Faults have these
// forms:
//
//	console error: words
//	exception: Error: words
//	log error: words, such as what a content security policy forbids
//	request: GET address: 404
//	foreign request: GET address
//	dialog: words
func (p *Page) Expect(text string) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.expected = append(p.faults.expected, text)
}

// unexpected returns the faults that the test did not expect, and the expected faults that did not occur.
func (f *faults) unexpected() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.all)
	for _, text := range f.expected {
		about := func(fault string) bool { return strings.Contains(fault, text) }
		if !slices.ContainsFunc(f.all, about) {
			out = append(out, "missing: "+text)
			continue
		}
		out = slices.DeleteFunc(out, about)
	}
	return out
}

// handle records the fault that an event of the tab reports, if any.
func (p *Page) handle(event any) {
	f := p.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	add := func(format string, args ...any) { f.all = append(f.all, fmt.Sprintf(format, args...)) }
	request := func(id network.RequestID, method, address string) {
		f.requests[id] = method + " " + address
		u, err := url.Parse(address)
		if err != nil || u.Host != f.host && !slices.Contains([]string{"data", "blob", "about"}, u.Scheme) {
			add("foreign request: %s %s", method, address)
		}
	}
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			args, _ := json.Marshal(e.Args) // the arguments were decoded from JSON
			add("console %s: %s", e.Type, args)
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		add("exception: %s", text)
	case *log.EventEntryAdded:
		failedRequest := e.Entry.Source == log.EntrySourceNetwork && strings.HasPrefix(e.Entry.Text, "Failed to load resource")
		if (e.Entry.Level == log.EntryLevelWarning || e.Entry.Level == log.EntryLevelError) && !failedRequest {
			add("log %s: %s (%s, %s)", e.Entry.Level, e.Entry.Text, e.Entry.Source, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		request(e.RequestID, e.Request.Method, e.Request.URL)
	case *network.EventWebSocketCreated:
		request(e.RequestID, "GET", e.URL)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			add("request: %s: %d", f.requests[e.RequestID], e.Response.Status)
		}
	case *network.EventLoadingFailed:
		if !e.Canceled || e.BlockedReason != "" { // leaving a page cancels its requests
			add("request: %s: %s %s", f.requests[e.RequestID], e.ErrorText, e.BlockedReason)
		}
	case *page.EventJavascriptDialogOpening:
		add("dialog: %s", e.Message)
		go func() { // the dialog blocks the tab until it is closed
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
}

// Click clicks on the first element that matches a selector, once the element is visible, enabled and not
// covered. If the click leads to another page, use [Page.Follow] to wait for the page.
func (p *Page) Click(selector string) {
	p.t.Helper()
	var at struct{ X, Y float64 }
	p.await(&at, `selector => {
		const e = document.querySelector(selector)
		if (!e) return "nothing matches " + selector
		if (e.disabled) return selector + " is disabled"
		e.scrollIntoView({block: "center", inline: "center", behavior: "instant"})
		const box = e.getClientRects()[0]
		if (!box || !box.width || !box.height) return selector + " is not shown"
		const X = box.x + box.width/2, Y = box.y + box.height/2
		const hit = document.elementFromPoint(X, Y)
		if (!e.contains(hit)) return selector + " is covered by " + hit?.cloneNode().outerHTML
		return {value: {X, Y}}
	}`, selector)
	p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at.X, at.Y), chromedp.MouseClickXY(at.X, at.Y))
}

// Follow calls act, which must lead to another page, and waits until that page is loaded.
func (p *Page) Follow(act func()) {
	p.t.Helper()
	var before float64
	p.Eval("performance.timeOrigin", &before)
	act()
	p.WaitFor(fmt.Sprintf("performance.timeOrigin !== %v && document.readyState === 'complete'", before))
}

// Type clicks on a field and replaces its value by a text.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Click(selector)
	p.Eval("document.activeElement.select()", nil)
	p.do(chromedp.KeyEvent(text))
}

var keys = map[string]string{
	"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "Home": kb.Home, "End": kb.End, "Enter": kb.Enter, "Tab": kb.Tab, " ": " ",
}

// Key presses keys in sequence. A name such as "Shift+Home" presses the key together with Shift.
func (p *Page) Key(names ...string) {
	p.t.Helper()
	for _, name := range names {
		key, shift := strings.CutPrefix(name, "Shift+")
		text := keys[key]
		if len(key) == 1 { // key is a character
			text = key
		}
		if text == "" {
			p.t.Fatalf("there is no key %q", name)
		}
		var held []chromedp.KeyOption
		if shift {
			held = append(held, chromedp.KeyModifiers(chromedp.ModifierShift))
		}
		p.do(chromedp.KeyEvent(text, held...))
	}
}

// Text returns the visible text of the first matching element, trimmed.
func (p *Page) Text(selector string) (text string) {
	p.t.Helper()
	p.await(&text, `selector => {
		const e = document.querySelector(selector)
		return e ? {value: e.innerText.trim()} : "nothing matches " + selector
	}`, selector)
	return text
}

// Texts returns the texts of all elements that match now, as [Page.Text] does.
func (p *Page) Texts(selector string) (texts []string) {
	p.t.Helper()
	p.await(&texts, `selector => ({value: Array.from(document.querySelectorAll(selector), e => e.innerText.trim())})`, selector)
	return texts
}

// Count returns the number of elements that match now.
func (p *Page) Count(selector string) int { p.t.Helper(); return len(p.Texts(selector)) }

// Eval evaluates JavaScript in the page, whatever the page's policy is. Unless into is nil, it decodes the
// value into it as encoding/json does. If the value is undefined, into does not change. Eval awaits promises.
func (p *Page) Eval(script string, into any) {
	p.t.Helper()
	value, err := p.evaluate(script)
	if err == nil && into != nil && len(value) > 0 {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		p.t.Fatalf("evaluate %.200s: %v", script, err)
	}
}

// WaitText waits until a matching element shows a text.
func (p *Page) WaitText(selector, text string) {
	p.t.Helper()
	p.await(nil, `(selector, text) => {
		const all = Array.from(document.querySelectorAll(selector), e => e.innerText)
		return all.some(t => t.includes(text)) ? {} : "no " + selector + " has " + JSON.stringify(text) + "; their texts: " + JSON.stringify(all)
	}`, selector, text)
}

// WaitFor waits until a JavaScript expression is true. An exception counts as false.
func (p *Page) WaitFor(condition string) {
	p.t.Helper()
	p.await(nil, `condition => {
		try { if (`+condition+`) return {} } catch {}
		return "it does not hold that " + condition
	}`, condition)
}

// await calls a JavaScript function until it returns an object, and decodes its value. If the function returns
// a string, the string says what is missing.
func (p *Page) await(into any, function string, args ...any) {
	p.t.Helper()
	list := testlog.Must(json.Marshal(args))(p.t)
	for deadline := time.Now().Add(p.timeout); ; time.Sleep(pollInterval) {
		answer, err := p.evaluate(fmt.Sprintf("(%s)(...%s)", function, list))
		var missing string
		var found struct{ Value json.RawMessage }
		var thrown *chromedp.ExceptionError
		switch {
		case errors.As(err, &thrown):
			p.t.Fatal(err)
		case err != nil: // the page is being replaced
			missing = err.Error()
		case json.Unmarshal(answer, &missing) != nil:
			if err = json.Unmarshal(answer, &found); err == nil && into != nil {
				err = json.Unmarshal(found.Value, into)
			}
			testlog.NoError(p.t, err)
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s (after %v)", missing, p.timeout)
		}
	}
}

//go:embed testdata/axe-core/axe.min.js
var axeScript string

// Axe fails the test for each axe-core rule that the page violates with serious or critical impact, and names
// the elements. It ignores the page's policy, and works without JavaScript.
func (p *Page) Axe() {
	p.t.Helper()
	if p.opts.NoScript { // axe needs timers, which do not run without JavaScript
		testlog.NoError(p.t, p.allowScripts(true))
		defer p.allowScripts(false)
	}
	var result struct {
		Passed     int
		Violations []string
	}
	p.Eval("if (!window.axe) {"+axeScript+"\n}", nil)
	p.Eval(`axe.run(document, {iframes: false, preload: false}).then(r => ({
		Passed: r.passes.length,
		Violations: r.violations.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.id + " (" + v.impact + "): " + v.help + v.nodes.map(n => "\n" + n.html + "\n  " + n.failureSummary).join(""))
	}))`, &result)
	if result.Passed == 0 {
		p.t.Error("axe has judged nothing of the page")
	}
	for _, v := range result.Violations {
		p.t.Errorf("axe: %s", v)
	}
}

// Overflow fails the test if the page is wider than the window, and therefore scrolls sideways. It names the
// innermost elements that are too wide.
func (p *Page) Overflow() {
	p.t.Helper()
	var out []string
	p.await(&out, `window => {
		const root = document.scrollingElement
		const width = Math.min(window || root.clientWidth, root.clientWidth)
		if (root.scrollWidth <= width) return {value: []}
		const wide = Array.from(document.querySelectorAll("body *")).filter(e => e.getBoundingClientRect().left + e.scrollWidth > width)
		const inner = wide.filter(e => !wide.some(other => other !== e && e.contains(other)))
		return {value: ["the page is " + root.scrollWidth + " pixels wide in a window of " + width, ...inner.map(e => e.cloneNode().outerHTML.slice(0, 200))].slice(0, 6)}
	}`, p.opts.Width)
	if len(out) > 0 {
		p.t.Error(strings.Join(out, "\n"))
	}
}

// Screenshot writes a picture of the window as PNG.
func (p *Page) Screenshot(path string) {
	p.t.Helper()
	picture := testlog.Must(chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}))(p.t)
	testlog.NoError(p.t, os.WriteFile(path, picture.Data, 0o644))
}
