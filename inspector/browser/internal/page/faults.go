package page

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// faults are the faults of a page, in the order in which the browser reports them.
type faults struct {
	host string // that requests may go to

	mu       sync.Mutex
	all      []string
	expected []string
	requests map[network.RequestID]string
}

// Expect makes the test accept faults that contain a text, such as the status of a request, and fail without one.
// Faults read
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

// unexpected returns the faults that no call of Expect was about, and the calls whose faults are missing.
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

// handle records what an event of the tab says about faults.
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
			args, _ := json.Marshal(e.Args) // they came as JSON
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
		if !e.Canceled || e.BlockedReason != "" { // a page that is left cancels its requests
			add("request: %s: %s %s", f.requests[e.RequestID], e.ErrorText, e.BlockedReason)
		}
	case *page.EventJavascriptDialogOpening:
		add("dialog: %s", e.Message)
		go func() { // the tab is blocked until it is closed
			_, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
}
