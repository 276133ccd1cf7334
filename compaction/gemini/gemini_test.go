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
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

const (
	geminiKey    = "AIza-secret-4711"
	geminiPrompt = "Summarise this:\nuser: order 4711\n"
)

// Response bodies of the Gemini API.
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

// geminiReply is one reply of geminiScript.
type geminiReply struct {
	status int
	body   string
	slow   bool   // the reply comes only after the client has given up
	broken bool   // the connection is closed at once, or in the middle of the body
	after  string // value of the Retry-After header
}

// geminiScript is an HTTP transport that answers each request with the next of its replies, and then repeats the last
// reply. It uses no network, so tests can run in a synctest bubble.
type geminiScript struct {
	t       *testing.T // if not nil, each request is checked
	replies []geminiReply
	at      []time.Duration // times of the requests
	start   time.Time
}

func (s *geminiScript) RoundTrip(req *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.start))
	if s.t != nil {
		checkGeminiRequest(s.t, req)
	}
	reply := s.replies[min(len(s.at), len(s.replies))-1]
	body := io.Reader(strings.NewReader(reply.body))
	switch {
	case reply.slow:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case reply.broken && reply.body == "":
		return nil, io.EOF
	case reply.broken:
		body = io.MultiReader(strings.NewReader(reply.body[:len(reply.body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	header := make(http.Header)
	if reply.after != "" {
		header.Set("Retry-After", reply.after)
	}
	if reply.status/100 == 3 {
		header.Set("Location", "/elsewhere")
	}
	return &http.Response{StatusCode: reply.status, Header: header, Body: io.NopCloser(body), Request: req}, nil
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
		Contents          []*genai.Content
		SystemInstruction *genai.Content
		GenerationConfig  map[string]any
		Tools             any
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		t.Errorf("request: %v", err)
		return
	}
	if len(body.Contents) != 1 || body.Contents[0].Role != "user" || len(body.Contents[0].Parts) != 1 || body.Contents[0].Parts[0].Text != geminiPrompt {
		t.Errorf("contents are %+v", body.Contents)
	}
	if body.SystemInstruction == nil || len(body.SystemInstruction.Parts) != 1 || body.SystemInstruction.Parts[0].Text != "by these rules" {
		t.Errorf("the system instruction is %+v", body.SystemInstruction)
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
	return compaction.Request{Instructions: "by these rules", Prompt: geminiPrompt, MaxTokens: 100}
}

func newGemini(t *testing.T, opts gemini.Options) *gemini.Summarizer {
	t.Helper()
	opts.APIKey = geminiKey
	g := testlog.Must(gemini.New(context.Background(), opts))(t)
	return g
}

func TestGemini(t *testing.T) {
	good := geminiReply{status: 200, body: geminiGood}
	quota := geminiReply{status: 429, body: geminiQuota}
	down := geminiReply{status: 500, body: geminiDown}
	refused := compaction.ErrRefusedAnswer
	for _, tt := range []struct {
		name    string
		replies []geminiReply
		timeout time.Duration // 0 means one minute
		calls   int
		is      error  // error to match
		code    int    // code of the wrapped genai.APIError
		text    string // part of the error text
	}{
		{name: "answers", replies: []geminiReply{good}, calls: 1},
		{name: "answers without a reason to stop", replies: []geminiReply{{status: 200, body: geminiNoReason}}, calls: 1},

		{name: "refuses the request", replies: []geminiReply{{status: 400, body: geminiBadKey}, good}, calls: 1, code: 400, text: "API key [API key] not valid"},
		{name: "refuses the key", replies: []geminiReply{{status: 401, body: `no`}, good}, calls: 1, code: 401},
		{name: "forbids", replies: []geminiReply{{status: 403, body: `{}`}, good}, calls: 1, code: 403},
		{name: "does not know the model", replies: []geminiReply{{status: 404}, good}, calls: 1, code: 404},
		{name: "sends elsewhere", replies: []geminiReply{{status: 307}, good}, calls: 1, code: 307},

		{name: "has no quota, once", replies: []geminiReply{quota, good}, calls: 2},
		{name: "has no quota, for ever", replies: []geminiReply{quota}, calls: 3, code: 429},
		{name: "times out itself, once", replies: []geminiReply{{status: 408}, good}, calls: 2},
		{name: "is down, once", replies: []geminiReply{down, good}, calls: 2},
		{name: "is down, for ever", replies: []geminiReply{down}, calls: 3, code: 500},
		{name: "is behind a bad gateway, once", replies: []geminiReply{{status: 502, body: "<html>"}, good}, calls: 2},
		{name: "is unavailable, with no code in the body", replies: []geminiReply{{status: 503, body: `{"error":{"message":"busy"}}`}, good}, calls: 2},
		{name: "is behind a slow gateway, then refuses", replies: []geminiReply{{status: 504}, {status: 400, body: geminiBadKey}}, calls: 2, code: 400},
		{name: "is not built for it", replies: []geminiReply{{status: 501}, good}, calls: 1, code: 501},

		{name: "hangs up, once", replies: []geminiReply{{broken: true}, good}, calls: 2},
		{name: "hangs up in mid-answer, once", replies: []geminiReply{{broken: true, body: geminiGood}, good}, calls: 2},
		{name: "hangs up, for ever", replies: []geminiReply{{broken: true}}, calls: 3, is: io.EOF},
		{name: "is slow", replies: []geminiReply{{slow: true}}, timeout: time.Second, calls: 1, is: context.DeadlineExceeded},
		{name: "is down until time is up", replies: []geminiReply{down}, timeout: time.Second / 2, calls: 1, is: context.DeadlineExceeded},

		{name: "blocks the prompt", replies: []geminiReply{{status: 200, body: geminiBlocked}, good}, calls: 1, is: refused, text: "PROHIBITED_CONTENT"},
		{name: "blocks the answer", replies: []geminiReply{{status: 200, body: geminiUnsafe}, good}, calls: 1, is: refused, text: "SAFETY"},
		{name: "is cut off", replies: []geminiReply{{status: 200, body: geminiCut}, good}, calls: 1, is: refused, text: "MAX_TOKENS"},
		{name: "has no candidates", replies: []geminiReply{{status: 200, body: `{"candidates":[]}`}, good}, calls: 1, is: refused, text: "no candidate"},
		{name: "has an empty candidate", replies: []geminiReply{{status: 200, body: `{"candidates":[{"finishReason":"STOP"}]}`}, good}, calls: 1, is: refused, text: "empty"},
		{name: "sends nothing", replies: []geminiReply{{status: 200}, good}, calls: 1, is: refused, text: "no candidate"},
		{name: "sends broken JSON", replies: []geminiReply{{status: 200, body: geminiGood[:40]}, good}, calls: 1, is: refused, text: "JSON"},
		{name: "sends other JSON", replies: []geminiReply{{status: 200, body: `["` + geminiKey + `"]`}, good}, calls: 1, is: refused, text: "JSON"},
		{name: "sends JSON of another shape", replies: []geminiReply{{status: 200, body: `{"candidates":[{"content":{"parts":"` + strings.Repeat("x", 5000) + `"}}]}`}, good}, calls: 1, is: refused, text: "JSON"},
		{name: "sends no end of text", replies: []geminiReply{{status: 200, body: strings.Repeat(" ", 4<<20) + geminiGood}, good}, calls: 1, is: refused, text: "JSON"},
	} {
		run := func(t *testing.T) {
			script := &geminiScript{t: t, replies: tt.replies, start: time.Now()}
			g := newGemini(t, gemini.Options{HTTPClient: &http.Client{Transport: script}})
			timeout := tt.timeout
			if timeout == 0 {
				timeout = time.Minute
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			resp, err := g.Summarize(ctx, geminiRequest())
			if got := len(script.at); got != tt.calls {
				t.Errorf("%d calls, want %d", got, tt.calls)
			}
			for i, at := range script.at[1:] { // the client backs off, with up to a second of jitter
				if pause := at - script.at[i]; pause < time.Second<<i || pause > time.Second<<i+time.Second {
					t.Errorf("pause %d is %v", i, pause)
				}
			}
			if tt.is == nil && tt.code == 0 {
				testlog.NoError(t, err)
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
		}
		t.Run(tt.name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

func TestGeminiResponse(t *testing.T) {
	for body, want := range map[string]compaction.Response{
		geminiGood:     {Text: "Order 4711 was changed.", Model: "gemini-3.8-flash-001", FinishReason: compaction.FinishStop, Usage: compaction.Tokens{Prompt: 12, Answer: 36}},
		geminiNoReason: {Text: "Order 4711 was changed.", Model: gemini.DefaultModel},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			checkGeminiRequest(t, r)
			_, _ = io.WriteString(w, body)
		}))
		defer server.Close()
		got, err := newGemini(t, gemini.Options{BaseURL: server.URL + "/"}).Summarize(context.Background(), geminiRequest())
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func TestGeminiOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts gemini.Options
		text string
	}{
		{"defaults", gemini.Options{}, ""},
		{"all set", gemini.Options{APIKey: "k", Model: "tunedModels/my-model_1.5", BaseURL: "http://localhost:1/a/"}, ""},
		{"model with a query", gemini.Options{Model: "m?alt=x"}, "Model"},
		{"model with another path", gemini.Options{Model: "../m"}, "Model"},
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
			t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true") // New must ignore this variable
			script := &geminiScript{t: t, replies: []geminiReply{{status: 200, body: geminiGood}}}
			g, err := gemini.New(context.Background(), gemini.Options{APIKey: tt.opts, HTTPClient: &http.Client{Transport: script}})
			if tt.want == "" {
				if !errors.Is(err, gemini.ErrNoAPIKey) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			testlog.NoError(t, err)
			if _, err := g.Summarize(context.Background(), geminiRequest()); err != nil || len(script.at) != 1 {
				t.Errorf("%d calls: %v", len(script.at), err)
			}
		})
	}
}

// New uses the given HTTP client and its redirect policy, and does not modify the client.
func TestGeminiHTTPClient(t *testing.T) {
	script := &geminiScript{replies: []geminiReply{{status: 200, body: geminiGood}}}
	client := &http.Client{Transport: script}
	g := newGemini(t, gemini.Options{HTTPClient: client, Model: "gemini-2.5-flash"})
	for range 2 {
		testlog.Must(g.Summarize(context.Background(), geminiRequest()))(t)
	}
	if len(script.at) != 2 || client.Transport != http.RoundTripper(script) || client.CheckRedirect != nil {
		t.Errorf("%d calls; the client is %+v", len(script.at), client)
	}
	synctest.Test(t, func(t *testing.T) {
		moved := &http.Client{
			Transport:     &geminiScript{replies: []geminiReply{{status: 307}}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("mine") },
		}
		if _, err := newGemini(t, gemini.Options{HTTPClient: moved}).Summarize(t.Context(), geminiRequest()); err == nil || !strings.Contains(err.Error(), "mine") {
			t.Errorf("a redirect: %v", err)
		}
	})
}

// TestGeminiService calls the real service. It needs an API key and a network connection, and costs a little money.
func TestGeminiService(t *testing.T) {
	if os.Getenv("PATCHLOG_TEST_GEMINI") == "" || os.Getenv("GOOGLE_API_KEY") == "" {
		t.Skip("PATCHLOG_TEST_GEMINI and GOOGLE_API_KEY are not both set")
	}
	g := testlog.Must(gemini.New(context.Background(), gemini.Options{}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	resp, err := g.Summarize(ctx, compaction.Request{
		Prompt:    "Summarise in one sentence, keep names and numbers:\nuser: I am Ada Lovelace, please cancel order 4711.\nagent: Done.\n",
		MaxTokens: 100,
	})
	testlog.NoError(t, err)
	said := strings.Contains(resp.Text, "4711")
	if !said || resp.Usage == (compaction.Tokens{}) || resp.FinishReason != compaction.FinishStop {
		t.Errorf("the response is %+v", resp)
	}
}

func ExampleNew() {
	model, err := gemini.New(context.Background(), gemini.Options{Model: "gemini-3.8-flash"})
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

func TestResponse(t *testing.T) {
	usage := &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 5, CandidatesTokenCount: 3, ThoughtsTokenCount: 2}
	of := func(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: "model", Parts: parts} }
	thought := &genai.Part{Text: "hm", Thought: true}
	call := &genai.Part{FunctionCall: &genai.FunctionCall{Name: "delete_all"}}
	for name, c := range map[string]struct {
		content *genai.Content
		reason  genai.FinishReason
		text    string
		finish  compaction.FinishReason
		err     string
	}{
		"nothing":                     {nil, "", "", "", ""},
		"a text":                      {of(&genai.Part{Text: " told\n"}), genai.FinishReasonStop, "told", compaction.FinishStop, ""},
		"no reason":                   {of(&genai.Part{Text: "told"}), genai.FinishReasonUnspecified, "told", "", ""},
		"texts between other parts":   {of(nil, thought, &genai.Part{Text: "a\nb "}, &genai.Part{Text: " \n"}, &genai.Part{InlineData: &genai.Blob{}}, &genai.Part{Text: "c"}), "", "a\nb\nc", "", ""},
		"a text that was cut off":     {of(&genai.Part{Text: "to"}), genai.FinishReasonMaxTokens, "to", "MAX_TOKENS", ""},
		"thoughts that were cut off":  {of(thought), genai.FinishReasonMaxTokens, "", "MAX_TOKENS", "MAX_TOKENS"},
		"only thoughts":               {of(thought), genai.FinishReasonStop, "", compaction.FinishStop, "thoughts"},
		"a call beside a text":        {of(&genai.Part{Text: "told"}, call), "", "", "", `"delete_all"`},
		"a call that is a thought":    {of(&genai.Part{Thought: true, FunctionCall: call.FunctionCall}), "", "", "", `"delete_all"`},
		"nil parts":                   {of(nil, nil), "", "", "", "empty"},
		"a function response alone":   {of(genai.NewPartFromFunctionResponse("tool", map[string]any{"a": 1})), "", "", "", "empty"},
		"no part":                     {of(), "", "", "", "empty"},
		"data, and text that is none": {of(&genai.Part{InlineData: &genai.Blob{}}, &genai.Part{Text: " \t"}), "", "", "", "empty"},
	} {
		got, err := gemini.Response("m", c.content, c.reason, usage)
		want := compaction.Response{Text: c.text, Model: "m", FinishReason: c.finish, Usage: compaction.Tokens{Prompt: 5, Answer: 5}}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if c.err == "" && err != nil || c.err != "" && (!errors.Is(err, compaction.ErrRefusedAnswer) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
	if got, err := gemini.Response("m", of(&genai.Part{Text: "told"}), "", nil); err != nil || got.Usage != (compaction.Tokens{}) {
		t.Errorf("without usage: %+v, %v", got, err)
	}
}

// If the service asks for a wait of at most a minute, the next request waits at least that long.
func TestGeminiWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply geminiReply
		least time.Duration
		most  time.Duration
	}{
		{"in seconds", geminiReply{status: 429, after: "7"}, 8 * time.Second, 9 * time.Second},
		{"in the body", geminiReply{status: 429, body: `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"12.5s"}]}}`}, 13 * time.Second, 15 * time.Second},
		{"unavailable", geminiReply{status: 503, after: "3"}, 4 * time.Second, 5 * time.Second},
		{"too long to wait", geminiReply{status: 429, after: "3600"}, time.Second, 2 * time.Second},
		{"nonsense", geminiReply{status: 429, after: "soon"}, time.Second, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := &geminiScript{t: t, replies: []geminiReply{c.reply, {status: 200, body: geminiGood}}, start: time.Now()}
				g := newGemini(t, gemini.Options{HTTPClient: &http.Client{Transport: script}})
				testlog.Must(g.Summarize(context.Background(), geminiRequest()))(t)
				if pause := script.at[1] - script.at[0]; pause < c.least || pause > c.most {
					t.Errorf("the pause is %v", pause)
				}
			})
		})
	}
}

// The token usage of an answer is reported even if the answer was cut off or blocked.
func TestGeminiUsageOfRefused(t *testing.T) {
	body := `{"candidates":[{"content":{"role":"model","parts":[{"text":"Order"}]},"finishReason":"MAX_TOKENS"}],"usageMetadata":{"promptTokenCount":700,"candidatesTokenCount":80}}`
	for _, body := range []string{body, strings.Replace(body, "MAX_TOKENS", "SAFETY", 1), `{"usageMetadata":{"promptTokenCount":700,"candidatesTokenCount":80}}`} {
		g := newGemini(t, gemini.Options{HTTPClient: &http.Client{Transport: &geminiScript{t: t, replies: []geminiReply{{status: 200, body: body}}, start: time.Now()}}})
		resp, err := g.Summarize(context.Background(), geminiRequest())
		if !errors.Is(err, compaction.ErrRefusedAnswer) || resp.Usage != (compaction.Tokens{Prompt: 700, Answer: 80}) || resp.Text != "" {
			t.Errorf("%+v, %v", resp, err)
		}
	}
}
