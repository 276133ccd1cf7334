package gemini_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
)

const (
	geminiKey    = "AIza-secret-4711"
	geminiPrompt = "Summarise this:\nuser: order 4711\n"
)

// Bodies as the API writes them.
const (
	geminiGood = `{"candidates":[{"content":{"role":"model","parts":[{"text":"Order 4711 was changed."}]},"finishReason":"STOP","index":0}],
		"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":6,"thoughtsTokenCount":30,"totalTokenCount":48},"modelVersion":"gemini-3.8-flash-001"}`
	geminiQuota    = `{"error":{"code":429,"message":"Quota exceeded.","status":"RESOURCE_EXHAUSTED"}}`
	geminiDown     = `{"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}`
	geminiBadKey   = `{"error":{"code":400,"message":"API key ` + geminiKey + ` not valid.","status":"INVALID_ARGUMENT"}}`
	geminiCut      = `{"candidates":[{"content":{"role":"model","parts":[{"text":"Order 47"}]},"finishReason":"MAX_TOKENS"}]}`
	geminiUnsafe   = `{"candidates":[{"finishReason":"SAFETY","index":0}],"modelVersion":"gemini-3.8-flash-001"}`
	geminiBlocked  = `{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"modelVersion":"gemini-3.8-flash-001"}`
	geminiNoReason = `{"candidates":[{"content":{"role":"model","parts":[{"text":"Order 4711 was changed."}]},"finishReason":"FINISH_REASON_UNSPECIFIED"}]}`
)

// geminiReply is one answer of the test's server.
type geminiReply struct {
	status     int
	body       string
	retryAfter string
	slow       bool // does not answer until the client has gone
	broken     bool // closes the connection: at once, or if there is a body, half-way in it
}

// geminiServer answers call after call with the replies, and with the last one from then
// on. It checks every request.
func geminiServer(t *testing.T, replies ...geminiReply) (url string, calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1))
		checkGeminiRequest(t, r)
		reply := replies[min(n, len(replies))-1]
		switch {
		case reply.slow:
			<-r.Context().Done()
			return
		case reply.broken:
			if reply.body != "" {
				w.Header().Set("Content-Length", fmt.Sprint(len(reply.body)))
				_, _ = io.WriteString(w, reply.body[:len(reply.body)/2])
			}
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		if reply.retryAfter != "" {
			w.Header().Set("Retry-After", reply.retryAfter)
		}
		if reply.status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(reply.status)
		_, _ = io.WriteString(w, reply.body)
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

func checkGeminiRequest(t *testing.T, r *http.Request) {
	t.Helper()
	if r.Method != http.MethodPost || r.URL.Path != "/v1beta/models/gemini-3.8-flash:generateContent" || r.URL.RawQuery != "" {
		t.Errorf("%s %s", r.Method, r.URL)
	}
	if got := r.Header.Get("X-Goog-Api-Key"); got != geminiKey {
		t.Errorf("the key sent is %q", got)
	}
	var body struct {
		Contents         []*genai.Content
		GenerationConfig map[string]any
		Tools            any
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		t.Errorf("request: %v", err)
		return
	}
	if len(body.Contents) != 1 || body.Contents[0].Role != "user" || len(body.Contents[0].Parts) != 1 || body.Contents[0].Parts[0].Text != geminiPrompt {
		t.Errorf("contents are %+v", body.Contents)
	}
	if body.Tools != nil {
		t.Errorf("there are tools: %v", body.Tools)
	}
	want := `map[maxOutputTokens:8592 thinkingConfig:map[thinkingLevel:LOW]]`
	if got := fmt.Sprint(body.GenerationConfig); got != want {
		t.Errorf("generationConfig is %s, want %s", got, want)
	}
}

func geminiRequest() compaction.Request {
	return compaction.Request{Prompt: geminiPrompt, MaxTokens: 100}
}

func newGemini(t *testing.T, opts gemini.Options) *gemini.Summarizer {
	t.Helper()
	opts.APIKey = geminiKey
	g, err := gemini.New(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// What comes back over HTTP, and how many requests it takes.
func TestGemini(t *testing.T) {
	good := geminiReply{status: 200, body: geminiGood}
	quota := geminiReply{status: 429, body: geminiQuota}
	down := geminiReply{status: 500, body: geminiDown}
	refused := compaction.ErrRefusedAnswer
	for _, tt := range []struct {
		name    string
		replies []geminiReply
		timeout time.Duration // a minute if 0
		calls   int32
		is      error  // what the error matches
		code    int    // of the genai.APIError in it
		text    string // in the error
	}{
		{name: "answers", replies: []geminiReply{good}, calls: 1},
		{name: "answers without a reason to stop", replies: []geminiReply{{status: 200, body: geminiNoReason}}, calls: 1},

		{name: "refuses the request", replies: []geminiReply{{status: 400, body: geminiBadKey}, good}, calls: 1, code: 400, text: "API key [API key] not valid"},
		{name: "refuses the key", replies: []geminiReply{{status: 401, body: `no`}, good}, calls: 1, code: 401},
		{name: "forbids", replies: []geminiReply{{status: 403, body: `{}`}, good}, calls: 1, code: 403},
		{name: "does not know the model", replies: []geminiReply{{status: 404}, good}, calls: 1, code: 404},
		{name: "sends elsewhere", replies: []geminiReply{{status: 307}, good}, calls: 1, code: 307},

		{name: "has no quota, once", replies: []geminiReply{quota, good}, calls: 2},
		{name: "has no quota, for ever", replies: []geminiReply{quota}, calls: 3, code: 429, text: "after 3 attempts"},
		{name: "asks to wait no time", replies: []geminiReply{{status: 429, body: geminiQuota, retryAfter: "0"}, good}, calls: 2},
		{name: "asks to wait too long", replies: []geminiReply{{status: 429, body: geminiQuota, retryAfter: "3600"}, good}, calls: 1, code: 429, text: "wait 1h0m0s, longer"},
		{name: "times out itself, once", replies: []geminiReply{{status: 408}, good}, calls: 2},
		{name: "is down, once", replies: []geminiReply{down, good}, calls: 2},
		{name: "is down, for ever", replies: []geminiReply{down}, calls: 3, code: 500, text: "after 3 attempts"},
		{name: "is behind a bad gateway, once", replies: []geminiReply{{status: 502, body: "<html>"}, good}, calls: 2},
		{name: "is unavailable, with no code in the body", replies: []geminiReply{{status: 503, body: `{"error":{"message":"busy"}}`}, good}, calls: 2},
		{name: "is behind a slow gateway, then refuses", replies: []geminiReply{{status: 504}, {status: 400, body: geminiBadKey}}, calls: 2, code: 400},
		{name: "is not built for it", replies: []geminiReply{{status: 501}, good}, calls: 1, code: 501},

		{name: "hangs up, once", replies: []geminiReply{{broken: true}, good}, calls: 2},
		{name: "hangs up in mid-answer, once", replies: []geminiReply{{broken: true, body: geminiGood}, good}, calls: 2},
		{name: "hangs up, for ever", replies: []geminiReply{{broken: true}}, calls: 3, is: io.EOF, text: "after 3 attempts"},
		{name: "is slow", replies: []geminiReply{{slow: true}}, timeout: 50 * time.Millisecond, calls: 1, is: context.DeadlineExceeded},

		{name: "blocks the prompt", replies: []geminiReply{{status: 200, body: geminiBlocked}, good}, calls: 1, is: refused, text: "PROHIBITED_CONTENT"},
		{name: "blocks the answer", replies: []geminiReply{{status: 200, body: geminiUnsafe}, good}, calls: 1, is: refused, text: "SAFETY"},
		{name: "is cut off", replies: []geminiReply{{status: 200, body: geminiCut}, good}, calls: 1, is: refused, text: "MAX_TOKENS"},
		{name: "has no candidates", replies: []geminiReply{{status: 200, body: `{"candidates":[]}`}, good}, calls: 1, is: refused, text: "no candidate"},
		{name: "has an empty candidate", replies: []geminiReply{{status: 200, body: `{"candidates":[{"finishReason":"STOP"}]}`}, good}, calls: 1, is: refused, text: "empty"},
		{name: "sends nothing", replies: []geminiReply{{status: 200}, good}, calls: 1, is: refused, text: "no candidate"},
		{name: "sends broken JSON", replies: []geminiReply{{status: 200, body: geminiGood[:40]}, good}, calls: 1, is: refused, text: "JSON"},
		{name: "sends other JSON", replies: []geminiReply{{status: 200, body: `["` + geminiKey + `"]`}, good}, calls: 1, is: refused, text: "JSON"},
		{name: "sends JSON of another shape", replies: []geminiReply{{status: 200, body: `{"candidates":[{"content":{"parts":"` + strings.Repeat("x", 5000) + `"}}]}`}, good}, calls: 1, is: refused, text: "JSON"},
		{name: "sends no end of text", replies: []geminiReply{{status: 200, body: strings.Repeat(" ", 16<<20) + geminiGood}, good}, calls: 1, is: refused, text: "longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, calls := geminiServer(t, tt.replies...)
			g := newGemini(t, gemini.Options{BaseURL: url, InitialDelay: time.Millisecond})
			timeout := tt.timeout
			if timeout == 0 {
				timeout = time.Minute
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			resp, err := g.Summarize(ctx, geminiRequest())
			if got := calls.Load(); got != tt.calls {
				t.Errorf("%d calls, want %d", got, tt.calls)
			}
			if tt.is == nil && tt.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if got := resp.Text; got != "Order 4711 was changed." {
					t.Errorf("it says %q", got)
				}
				return
			}
			if err == nil {
				t.Fatalf("there is no error, but %+v", resp)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("the error does not match %v: %v", tt.is, err)
			}
			if tt.is != compaction.ErrRefusedAnswer && errors.Is(err, compaction.ErrRefusedAnswer) {
				t.Errorf("nothing was answered, but: %v", err)
			}
			var api genai.APIError
			if errors.As(err, &api); api.Code != tt.code {
				t.Errorf("the API's code is %d, want %d: %v", api.Code, tt.code, err)
			}
			text := err.Error()
			if !strings.Contains(text, tt.text) {
				t.Errorf("the error does not say %q: %v", tt.text, err)
			}
			if strings.Contains(text, geminiKey) || len(text) > 1000 || strings.Contains(text, "\n") {
				t.Errorf("the error holds the key, or more than one line of it: %v", err)
			}
		})
	}
}

func TestGeminiResponse(t *testing.T) {
	url, _ := geminiServer(t, geminiReply{status: 200, body: geminiGood})
	resp, err := newGemini(t, gemini.Options{BaseURL: url + "/"}).Summarize(context.Background(), geminiRequest())
	if err != nil {
		t.Fatal(err)
	}
	if resp.Model != "gemini-3.8-flash-001" || resp.FinishReason != compaction.FinishStop ||
		resp.Usage != (compaction.Tokens{Prompt: 12, Answer: 36}) {
		t.Errorf("the response is %+v", resp)
	}

	url, _ = geminiServer(t, geminiReply{status: 200, body: geminiNoReason})
	resp, err = newGemini(t, gemini.Options{BaseURL: url}).Summarize(context.Background(), geminiRequest())
	if err != nil {
		t.Fatal(err)
	}
	if resp.Model != gemini.DefaultModel || resp.FinishReason != "" || resp.Usage != (compaction.Tokens{}) {
		t.Errorf("the response is %+v", resp)
	}
}

// geminiScript is a transport that answers without a network, so that time can be made
// to pass at will.
type geminiScript struct {
	replies []geminiReply
	at      []time.Duration // when the calls came
	start   time.Time
}

func (s *geminiScript) RoundTrip(req *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.start))
	reply := s.replies[min(len(s.at), len(s.replies))-1]
	if reply.slow {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	header := make(http.Header)
	if reply.retryAfter != "" {
		header.Set("Retry-After", reply.retryAfter)
	}
	return &http.Response{StatusCode: reply.status, Header: header, Body: io.NopCloser(strings.NewReader(reply.body)), Request: req}, nil
}

// When the calls are made.
func TestGeminiPauses(t *testing.T) {
	good := geminiReply{status: 200, body: geminiGood}
	down := geminiReply{status: 503}
	after := func(header string) geminiReply { return geminiReply{status: 503, retryAfter: header} }
	info := func(delay string) geminiReply {
		return geminiReply{status: 429, body: `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.Help"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"` + delay + `"}]}}`}
	}
	// The bubble's clock starts at midnight of 2000-01-01.
	date := func(d time.Duration) string {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat)
	}
	type span [2]time.Duration
	const s = time.Second
	exactly := func(d time.Duration) span { return span{d, d} }
	for _, tt := range []struct {
		name    string
		replies []geminiReply
		timeout time.Duration // none if 0
		pauses  []span        // between the calls
		ends    time.Duration // when the call returns, if in error
		is      error
	}{
		{name: "doubles", replies: []geminiReply{down, down, down, good}, pauses: []span{{s / 2, s}, {s, 2 * s}, {2 * s, 4 * s}}},
		{name: "takes seconds from the header", replies: []geminiReply{after("7"), good}, pauses: []span{exactly(7 * s)}},
		{name: "takes a date from the header", replies: []geminiReply{after(date(9 * s)), good}, pauses: []span{exactly(9 * s)}},
		{name: "takes a past date as now", replies: []geminiReply{after(date(-9 * s)), good}, pauses: []span{exactly(0)}},
		{name: "ignores another header", replies: []geminiReply{after("soon"), after("-1"), after("1.5"), good}, pauses: []span{{s / 2, s}, {s, 2 * s}, {2 * s, 4 * s}}},
		{name: "ignores a header without end", replies: []geminiReply{after("99999999999"), good}, pauses: []span{{s / 2, s}}},
		{name: "takes no time from the details", replies: []geminiReply{info("0s"), good}, pauses: []span{exactly(0)}},
		{name: "takes the details of the error", replies: []geminiReply{info("45.5s"), good}, pauses: []span{exactly(45*s + s/2)}},
		{name: "ignores other details", replies: []geminiReply{info("soon"), info("-1s"), good}, pauses: []span{{s / 2, s}, {s, 2 * s}}},
		{name: "does not wait for longer than the deadline", replies: []geminiReply{after("10"), good}, timeout: 10 * s, pauses: nil, ends: 0},
		{name: "waits up to the deadline", replies: []geminiReply{after("9"), good}, timeout: 10 * s, pauses: []span{exactly(9 * s)}},
		{name: "does not back off for longer than the deadline", replies: []geminiReply{down, good}, timeout: s / 2, ends: 0},
		{name: "does not wait for a day", replies: []geminiReply{after("86400"), good}, ends: 0},
		{name: "ends in mid-answer", replies: []geminiReply{after("4"), {slow: true}}, timeout: 10 * s, pauses: []span{exactly(4 * s)}, ends: 10 * s, is: context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := &geminiScript{replies: tt.replies, start: time.Now()}
				g := newGemini(t, gemini.Options{HTTPClient: &http.Client{Transport: script}, MaxAttempts: 4})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if tt.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				_, err := g.Summarize(ctx, geminiRequest())
				if len(script.at) != len(tt.pauses)+1 {
					t.Fatalf("calls at %v, want %d pauses (%v)", script.at, len(tt.pauses), err)
				}
				for i, want := range tt.pauses {
					if got := script.at[i+1] - script.at[i]; got < want[0] || got > want[1] {
						t.Errorf("pause %d is %v, want %v", i+1, got, want)
					}
				}
				if succeeds := len(script.at) == len(tt.replies) && tt.is == nil; succeeds {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if got := time.Since(script.start); err == nil || got != tt.ends {
					t.Errorf("it ends after %v with %v, want an error after %v", got, err, tt.ends)
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("the error does not match %v: %v", tt.is, err)
				}
			})
		})
	}
}

// A context that ends during a pause ends the pause.
func TestGeminiCancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := &geminiScript{replies: []geminiReply{{status: 503, retryAfter: "30"}}, start: time.Now()}
		g := newGemini(t, gemini.Options{HTTPClient: &http.Client{Transport: script}})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(3*time.Second, cancel)
		_, err := g.Summarize(ctx, geminiRequest())
		var api genai.APIError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &api) || time.Since(script.start) != 3*time.Second {
			t.Errorf("it ends after %v with %v", time.Since(script.start), err)
		}
	})
}

func TestGeminiOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts gemini.Options
		text string
	}{
		{"defaults", gemini.Options{}, ""},
		{"all set", gemini.Options{APIKey: "k", Model: "tunedModels/my-model_1.5", MaxAttempts: 1, InitialDelay: 1, BaseURL: "http://localhost:1/a/"}, ""},
		{"model with a query", gemini.Options{Model: "m?alt=x"}, "Model"},
		{"model with another path", gemini.Options{Model: "../m"}, "Model"},
		{"attempts", gemini.Options{MaxAttempts: -1}, "MaxAttempts"},
		{"delay", gemini.Options{InitialDelay: -1}, "InitialDelay"},
		{"no URL", gemini.Options{BaseURL: "http://%"}, "BaseURL"},
		{"relative URL", gemini.Options{BaseURL: "localhost"}, "BaseURL"},
		{"URL of another kind", gemini.Options{BaseURL: "ftp://localhost"}, "BaseURL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.opts.Validate()
			if tt.text == "" && err != nil || tt.text != "" && (err == nil || !strings.Contains(err.Error(), "gemini.Options."+tt.text)) {
				t.Errorf("the error is %v, want one about %q", err, tt.text)
			}
			tt.opts.APIKey = geminiKey
			if _, newErr := gemini.New(context.Background(), tt.opts); (newErr == nil) != (err == nil) {
				t.Errorf("NewGemini says %v, Validate says %v", newErr, err)
			}
		})
	}
}

func TestGeminiKeyFromEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name, google, gemini, opts, want string
	}{
		{name: "none"},
		{name: "first", google: geminiKey, want: geminiKey},
		{name: "second", gemini: geminiKey + "\n", want: geminiKey},
		{name: "both", google: geminiKey, gemini: "other", want: geminiKey},
		{name: "options", google: "other", gemini: "other", opts: geminiKey, want: geminiKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOOGLE_API_KEY", tt.google)
			t.Setenv("GEMINI_API_KEY", tt.gemini)
			t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true") // is not for us
			url, calls := geminiServer(t, geminiReply{status: 200, body: geminiGood})
			g, err := gemini.New(context.Background(), gemini.Options{APIKey: tt.opts, BaseURL: url})
			if tt.want == "" {
				if !errors.Is(err, gemini.ErrNoAPIKey) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Summarize(context.Background(), geminiRequest()); err != nil || calls.Load() != 1 {
				t.Errorf("%d calls: %v", calls.Load(), err)
			}
		})
	}
}

// A client that is handed in is used, and left as it is.
func TestGeminiHTTPClient(t *testing.T) {
	script := &geminiScript{replies: []geminiReply{{status: 200, body: geminiGood}}}
	client := &http.Client{Transport: script}
	g := newGemini(t, gemini.Options{HTTPClient: client, Model: "gemini-2.5-flash"})
	for range 2 {
		if _, err := g.Summarize(context.Background(), geminiRequest()); err != nil {
			t.Fatal(err)
		}
	}
	if len(script.at) != 2 || client.Transport != http.RoundTripper(script) || client.CheckRedirect != nil {
		t.Errorf("%d calls; the client is %+v", len(script.at), client)
	}
}

// The real service, if asked for: it needs a key, a network and a little money.
func TestGeminiService(t *testing.T) {
	if os.Getenv("PATCHLOG_TEST_GEMINI") == "" || os.Getenv("GOOGLE_API_KEY") == "" {
		t.Skip("PATCHLOG_TEST_GEMINI and GOOGLE_API_KEY are not both set")
	}
	g, err := gemini.New(context.Background(), gemini.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	resp, err := g.Summarize(ctx, compaction.Request{
		Prompt:    "Summarise in one sentence, keep names and numbers:\nuser: I am Ada Lovelace, please cancel order 4711.\nagent: Done.\n",
		MaxTokens: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Contains(resp.Text, "4711")
	if !said || resp.Usage == (compaction.Tokens{}) || resp.FinishReason != compaction.FinishStop {
		t.Errorf("the response is %+v", resp)
	}
}

func ExampleNew() {
	model, err := gemini.New(context.Background(), gemini.Options{
		Model:       "gemini-3.8-flash",
		MaxAttempts: 5,
	})
	if errors.Is(err, gemini.ErrNoAPIKey) {
		fmt.Println("no key: summarise offline instead")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	var _ compaction.Summarizer = model
}
