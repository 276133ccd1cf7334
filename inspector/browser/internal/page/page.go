// Package page opens pages in Chromium for tests, uses them as a person does, and fails a test
// whose page has a fault: an error or warning on the console, an uncaught exception, a request
// that failed or that left the test's server, a violation of its content security policy, a
// dialog.
//
// The tests of a process share one browser, which reaches this machine alone, and each page has a
// tab and a profile of its own; so tests may run in parallel. Where no Chromium is found a test
// is skipped, or fails if the environment variable PATCHLOG_NEED_BROWSER is set.
//
// A method that cannot do what it is for ends the test, so it is called on the test's own
// goroutine. What a selector has to match is waited for.
package page

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Options of [Open]. The zero value means the defaults: a window of 1280 by 800 pixels, light,
// with JavaScript.
type Options struct {
	// Width and Height are the size of the window, in CSS pixels. 0 means 1280 and 800.
	Width, Height int64

	// Mobile lays pages out as a phone does: by what they say of their viewport.
	Mobile bool

	// Dark makes the reader one who prefers a dark colour scheme, else a light one.
	Dark bool

	// NoScript turns the page's JavaScript off.
	NoScript bool

	// Patience is how long a page may take to become what a test waits for. 0 means 30 seconds.
	Patience time.Duration
}

const patience = 30 * time.Second

// Phone returns the options of a small phone.
func Phone() Options { return Options{Width: 360, Height: 740, Mobile: true} }

// Page is a tab. Its methods are called by one goroutine at a time.
type Page struct {
	t      testing.TB
	ctx    context.Context // the tab's
	base   *url.URL
	opts   Options
	faults *faults
}

// Open opens an empty tab for pages of the server at base, as httptest.Server.URL has it. The
// times and words of the browser are those of UTC and en-US. When the test ends the tab is
// closed, and the test fails for each fault but those that [Page.Expect] was told of.
func Open(t testing.TB, base string, opts Options) *Page {
	t.Helper()
	home, err := url.Parse(base)
	if err != nil || home.Host == "" {
		t.Fatalf("%q is not the address of a server", base)
	}
	if opts.Width == 0 {
		opts.Width = 1280
	}
	if opts.Height == 0 {
		opts.Height = 800
	}
	if opts.Patience == 0 {
		opts.Patience = patience
	}
	p := &Page{t: t, base: home, opts: opts, faults: newFaults(home.Host)}
	ctx, closeTab := chromedp.NewContext(shared(t).ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.hear))
	p.ctx = ctx
	if err := p.prepare(); err != nil {
		closeTab()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.settle()
		closeTab()
		for _, fault := range p.faults.unexpected() {
			t.Error(fault)
		}
	})
	return p
}

// prepare makes the tab what the options say.
func (p *Page) prepare() error {
	scheme := "light"
	if p.opts.Dark {
		scheme = "dark"
	}
	return first(
		func() error { return chromedp.Do(p.ctx) }, // binds the tab to a context without a deadline
		command(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: p.opts.Width, Height: p.opts.Height, DeviceScaleFactor: 1, Mobile: p.opts.Mobile}),
		command(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		command(p.ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
		command(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"}),
		command(p.ctx, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: "en_US"}),
		command(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: p.opts.NoScript}),
		command(p.ctx, runtime.AddBinding, runtime.AddBindingParams{Name: policyBinding, ExecutionContextName: policyWorld}),
		command(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: policyScript, WorldName: policyWorld}),
	)
}

// command returns a function that sends a command to the tab.
func command[P, R any](ctx context.Context, c cdp.Command[P, R], params P) func() error {
	return func() error {
		_, err := chromedp.Call(ctx, c, params)
		return err
	}
}

// first runs steps up to the first that fails, and returns its error.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Go goes to an address, which may be relative to the server's, and waits until the page is
// loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	to, err := p.base.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := p.answerable()
	defer stop()
	done, err := chromedp.Call(ctx, page.Navigate, page.NavigateParams{URL: to.String()})
	if err != nil {
		p.t.Fatalf("go to %s: %v", to, err)
	}
	if done.ErrorText != "" {
		p.t.Fatalf("go to %s: %s", to, done.ErrorText)
	}
	p.WaitFor("document.readyState === 'complete'")
}

// answerable returns a context in which the tab has to answer.
func (p *Page) answerable() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, max(patience, p.opts.Patience))
}

// settle waits until what the page has begun to tell is heard.
func (p *Page) settle() {
	ctx, stop := p.answerable()
	defer stop()
	script := "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
	if p.opts.NoScript {
		script = "0"
	}
	if _, err := evaluate(ctx, script); err != nil {
		p.t.Errorf("the page does not answer: %v", err)
	}
}
