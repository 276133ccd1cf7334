// Package page opens pages in Chromium for tests, uses them as a person does, and fails a test
// whose page has a fault: an error or warning on the console, an uncaught exception, a request
// that failed or that left the test's server, a violation of its content security policy, a
// dialog.
//
// The tests of a process share one browser, which reaches this machine alone, and each page has a
// tab and a profile of its own; so tests may run in parallel. Where no Chromium is found a test
// is skipped, or fails if the environment variable PATCHLOG_NEED_BROWSER is set.
//
// A method that cannot do its work ends the test, so it is called on the test's own goroutine. It
// waits until a selector matches.
package page

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Options of [Open]. The zero value means a window of 1280 by 800 pixels, light, with JavaScript.
type Options struct {
	Width, Height int64 // of the window, in CSS pixels; 0 means 1280 and 800
	Mobile        bool  // lays pages out as a phone does: by what they say of their viewport
	Dark          bool  // prefers a dark colour scheme
	NoScript      bool  // turns JavaScript off
}

const (
	patience = 30 * time.Second // for a page to become what a test waits for
	pause    = 20 * time.Millisecond
)

// Phone returns the options of a small phone.
func Phone() Options { return Options{Width: 360, Height: 740, Mobile: true} }

// Page is a tab. Its methods are called by one goroutine at a time.
type Page struct {
	t        testing.TB
	ctx      context.Context // the tab's
	base     *url.URL
	opts     Options
	patience time.Duration
	faults   *faults
}

// Open opens an empty tab for pages of the server at base, as httptest.Server.URL has it. When the test ends
// the tab is closed, and the test fails for each fault that no call of [Page.Expect] was about.
func Open(t testing.TB, base string, opts Options) *Page {
	t.Helper()
	home, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, base: home, opts: opts, patience: patience, faults: &faults{host: home.Host, requests: map[network.RequestID]string{}}}
	ctx, closeTab := chromedp.NewContext(browserContext(t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.handle))
	p.ctx = ctx
	scheme := map[bool]string{false: "light", true: "dark"}[opts.Dark]
	err = cmp.Or(
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
		settled := "new Promise(done => requestAnimationFrame(() => setTimeout(done)))" // so that all faults are reported
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

// call sends a command to the tab, for its effect.
func call[P, R any](p *Page, c cdp.Command[P, R], params P) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, c, params)
	return err
}

// do runs actions in the tab, or ends the test.
func (p *Page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// evaluate returns the value of a script as JSON; nil if it is undefined. A promise is awaited.
func (p *Page) evaluate(script string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage](script, chromedp.EvalAwaitPromise))
}

// Go goes to an address, which may be relative to the server's, and waits until the page is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	to, err := p.base.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := call(p, page.Navigate, page.NavigateParams{URL: to.String()}); err != nil {
		p.t.Fatalf("go to %s: %v", to, err)
	}
	p.WaitFor("document.readyState === 'complete' && location.href.startsWith('http')")
}
