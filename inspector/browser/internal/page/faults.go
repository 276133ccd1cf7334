package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Violations of a page's policy are heard in a world beside the page's own, where the policy does not
// forbid to listen.
const (
	policyWorld   = "faults"
	policyBinding = "tellViolation"
	policyScript  = `addEventListener("securitypolicyviolation", e => tellViolation(JSON.stringify(
		{Directive: e.effectiveDirective, Blocked: e.blockedURI, Page: e.documentURI, Line: e.lineNumber, Sample: e.sample})), true)`
)

// faults are what was wrong with a page, in the order it was heard.
type faults struct {
	home string // the host that requests may go to

	mu       sync.Mutex
	all      []string
	expected []*regexp.Regexp
	requests map[network.RequestID]string
}

func newFaults(home string) *faults {
	return &faults{home: home, requests: map[network.RequestID]string{}}
}

// Expect waits for a fault that a regular expression matches. Faults that it matches do not fail
// the test, before this call or after it. Faults begin in these ways:
//
//	console error: words
//	exception: Error: words
//	log error: words (source, address)
//	request: GET address: 404
//	request: GET address: net::ERR_CONNECTION_REFUSED
//	foreign request: GET address
//	policy: directive does not allow what, on address:line
//	dialog: words
func (p *Page) Expect(pattern string) {
	p.t.Helper()
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		p.t.Fatal(err)
	}
	p.faults.expect(wanted)
	for deadline := time.Now().Add(p.opts.Patience); !slices.ContainsFunc(p.faults.list(), wanted.MatchString); time.Sleep(pause) {
		if time.Now().After(deadline) {
			p.t.Fatalf("no fault matches %q; there are %q", pattern, p.faults.list())
		}
	}
}

func (f *faults) expect(pattern *regexp.Regexp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expected = append(f.expected, pattern)
}

func (f *faults) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// unexpected returns the faults that no call of Expect was about.
func (f *faults) unexpected() []string {
	all := f.list()
	return slices.DeleteFunc(all, func(fault string) bool {
		return slices.ContainsFunc(f.expected, func(e *regexp.Regexp) bool { return e.MatchString(fault) })
	})
}

func (f *faults) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

// hear takes what the tab tells.
func (p *Page) hear(event any) {
	f := p.faults
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		switch e.Type {
		case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
			f.add("console %s: %s", e.Type, words(e.Args))
		}
	case *runtime.EventExceptionThrown:
		f.add("exception: %s", exceptionText(e.ExceptionDetails))
	case *log.EventEntryAdded:
		f.logged(e.Entry)
	case *network.EventRequestWillBeSent:
		f.requested(e.RequestID, e.Request.Method, e.Request.URL)
	case *network.EventWebSocketCreated:
		f.requested(e.RequestID, "GET", e.URL)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			f.failed(e.RequestID, fmt.Sprint(e.Response.Status))
		}
	case *network.EventLoadingFailed:
		if !e.Canceled || e.BlockedReason != "" { // a page that is left cancels its requests
			f.failed(e.RequestID, strings.TrimSpace(e.ErrorText+" "+string(e.BlockedReason)))
		}
	case *runtime.EventBindingCalled:
		if e.Name == policyBinding {
			f.violated(e.Payload)
		}
	case *page.EventJavascriptDialogOpening:
		f.add("dialog: %s", e.Message)
		go func() { // the tab answers nothing else before
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
}

func (f *faults) logged(e *log.Entry) {
	if e.Level != log.EntryLevelWarning && e.Level != log.EntryLevelError {
		return
	}
	if e.Source == log.EntrySourceNetwork && strings.HasPrefix(e.Text, "Failed to load resource") {
		return // heard as a request that failed
	}
	f.add("log %s: %s (%s, %s)", e.Level, e.Text, e.Source, e.URL)
}

func (f *faults) requested(id network.RequestID, method, address string) {
	f.mu.Lock()
	f.requests[id] = method + " " + address
	f.mu.Unlock()
	u, err := url.Parse(address)
	if err == nil && (u.Host == f.home || u.Scheme == "data" || u.Scheme == "blob" || u.Scheme == "about") {
		return
	}
	f.add("foreign request: %s %s", method, address)
}

func (f *faults) failed(id network.RequestID, why string) {
	f.mu.Lock()
	request := f.requests[id]
	f.mu.Unlock()
	f.add("request: %s: %s", request, why)
}

func (f *faults) violated(payload string) {
	var v struct {
		Directive, Blocked, Page, Sample string
		Line                             int
	}
	if err := json.Unmarshal([]byte(payload), &v); err != nil {
		f.add("policy: %s", payload)
		return
	}
	f.add("policy: %s does not allow %s, on %s:%d %s", v.Directive, v.Blocked, v.Page, v.Line, v.Sample)
}

// words returns the arguments of a console's method as it shows them.
func words(args []*runtime.RemoteObject) string {
	var out []string
	for _, a := range args {
		var text string
		switch {
		case json.Unmarshal(a.Value, &text) == nil:
			out = append(out, text)
		case len(a.Value) > 0:
			out = append(out, string(a.Value))
		default:
			out = append(out, a.Description)
		}
	}
	return strings.Join(out, " ")
}

func exceptionText(e *runtime.ExceptionDetails) string {
	if e.Exception != nil && e.Exception.Description != "" {
		return e.Exception.Description
	}
	if e.Exception != nil {
		return e.Text + " " + words([]*runtime.RemoteObject{e.Exception})
	}
	return e.Text
}

// thrown is what a script that a test evaluates has thrown.
type thrown struct{ text string }

func (e *thrown) Error() string { return e.text }

// evaluate returns what a script comes to, as JSON; nil if that is undefined. A promise is
// awaited.
func evaluate(ctx context.Context, script string) ([]byte, error) {
	yes := true
	r, err := chromedp.Call(ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: script, ReturnByValue: &yes, AwaitPromise: &yes})
	if err != nil {
		return nil, err
	}
	if r.ExceptionDetails != nil {
		return nil, &thrown{exceptionText(r.ExceptionDetails)}
	}
	return r.Result.Value, nil
}
