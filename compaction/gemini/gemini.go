// Package gemini provides a summarizer that calls a Gemini model.
package gemini

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/oneline"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/patch"
)

// DefaultModel is the default of [Options.Model].
const DefaultModel = "gemini-3.8-flash"

// Limits on answers.
const (
	// thinkingTokens is the number of output tokens reserved for a model's thoughts, because some models always
	// think.
	thinkingTokens = 8192

	// modelTokensPerToken is the maximum number of model tokens in one estimated token. An estimated token is four
	// runes, and in some scripts each rune is a token of the model.
	modelTokensPerToken = 4

	// maxOutputTokens is the largest output limit that Gemini models accept.
	maxOutputTokens = 65536

	// maxAnswerBytes is the maximum number of bytes of an HTTP response that are read.
	maxAnswerBytes = 4 << 20

	// maxAPIErrorRunes is the maximum length of an error text from the API or the SDK.
	maxAPIErrorRunes = 500
)

// ErrNoAPIKey means that neither the options nor the environment contain a key for the Gemini API.
var ErrNoAPIKey = errors.New("no API key")

// Options are options of [New]. A field with the zero value selects its default.
type Options struct {
	// APIKey is the key for the Gemini API. The default is the environment variable GOOGLE_API_KEY, or GEMINI_API_KEY
	// if that is not set.
	APIKey string

	// Model is the name of the model. The default is [DefaultModel].
	Model string

	// ThinkingLevel limits how much the model thinks before it writes. For [DefaultModel], the default is low. Other
	// models use their own default. A model without thinking levels returns an error if ThinkingLevel is set.
	ThinkingLevel genai.ThinkingLevel

	// BaseURL is the address of the API, such as "https://proxy.example/gemini/". The default is the environment
	// variable GOOGLE_GEMINI_BASE_URL, or Google's address if that is not set.
	BaseURL string

	// HTTPClient sends the requests. [New] copies it. The default is a new client. Unless CheckRedirect is set,
	// redirects are not followed, because they would send the key to another server.
	HTTPClient *http.Client
}

// Validate checks the options. The error matches [patch.ErrInvalid] and names the invalid field. Validate does not
// check for a missing key; [New] does.
func (o Options) Validate() error {
	invalid := func(field, problem string, args ...any) error {
		return &patch.FieldError{Field: "gemini.Options." + field, Problem: fmt.Sprintf(problem, args...)}
	}
	switch {
	case strings.ContainsFunc(o.Model, notInModelName) || strings.Contains(o.Model, ".."):
		return invalid("Model", "%q is not a valid model name", o.Model)
	case o.BaseURL != "":
		u, err := url.Parse(o.BaseURL)
		if err != nil {
			return invalid("BaseURL", "%v", err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return invalid("BaseURL", "%q is not an http or https URL", u.Redacted())
		}
	}
	return nil
}

// notInModelName reports whether r is forbidden in the name of a model. Such a character could change the path or
// query of the URL.
func notInModelName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`?&#%\`, r)
}

// Summarizer is a [compaction.Summarizer] that calls a Gemini model. It is safe for concurrent use.
type Summarizer struct {
	client   *genai.Client
	apiKey   string
	model    string
	thinking genai.ThinkingLevel
}

var _ compaction.PricedSummarizer = (*Summarizer)(nil)

// Price implements [compaction.PricedSummarizer] for a model with the same prices as the agent's model.
func (g *Summarizer) Price() (read, written float64) { return price.Read, price.Written }

// New returns a summarizer. It always uses the Gemini API, even if the environment selects another backend. New sends
// no request and uses ctx only to create the client. If there is no key, the error matches [ErrNoAPIKey].
func New(ctx context.Context, opts Options) (*Summarizer, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	g := &Summarizer{
		apiKey:   strings.TrimSpace(cmp.Or(opts.APIKey, os.Getenv("GOOGLE_API_KEY"), os.Getenv("GEMINI_API_KEY"))),
		model:    cmp.Or(opts.Model, DefaultModel),
		thinking: opts.ThinkingLevel,
	}
	if g.apiKey == "" {
		return nil, fmt.Errorf("gemini: %w: set gemini.Options.APIKey, or GOOGLE_API_KEY or GEMINI_API_KEY in the environment", ErrNoAPIKey)
	}
	if g.thinking == "" && g.model == DefaultModel {
		g.thinking = genai.ThinkingLevelLow
	}
	client, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey:      g.apiKey,
		Backend:     genai.BackendGeminiAPI,
		HTTPClient:  clientFor(opts.HTTPClient),
		HTTPOptions: genai.HTTPOptions{BaseURL: opts.BaseURL, RetryOptions: retries},
	})
	if err != nil {
		return nil, g.wrapError("create a client", err)
	}
	g.client = client
	return g, nil
}

// retries configures the SDK's retries. If the connection breaks, or the status is 408, 429, 500, 502, 503 or 504,
// the SDK waits about one second before the first retry and about two seconds before the second.
var retries = &genai.HTTPRetryOptions{Attempts: genai.Ptr[int32](3)}

// Summarize sends req.Instructions to the model as its system instruction and req.Prompt as the only message, and
// returns the answer. The model gets no tools. The output limit leaves room for req.MaxTokens in any script, and for
// thinking. The compactor checks the length of the answer.
//
// If a request fails with a broken connection or with status 408, 429, 500, 502, 503 or 504, it is retried at most
// twice, with backoff. If the service asks for a wait of at most a minute, the retry waits at least that long.
//
// The error matches [compaction.ErrRefusedAnswer] if the service's answer is unusable:
//
//   - the prompt or the answer was blocked;
//   - the answer has no candidate, is empty, or is cut off;
//   - the answer is not the API's JSON.
//
// If the service reported an error, the error wraps a genai.APIError. If ctx ended, the error wraps ctx's error. The
// error text never contains the API key.
func (g *Summarizer) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	var resp compaction.Response
	answer, err := g.client.Models.GenerateContent(ctx, g.model, genai.Text(req.Prompt), g.generationConfig(req))
	switch {
	case err == nil:
		resp, err = g.response(answer)
	case ctx.Err() == nil && !errors.As(err, new(genai.APIError)) && !errors.As(err, new(*url.Error)):
		err = fmt.Errorf("%w: it is not the API's JSON: %w", compaction.ErrRefusedAnswer, err)
	}
	if err != nil {
		return resp, g.wrapError("summarise", err)
	}
	return resp, nil
}

// transport reads the body of each HTTP response completely, or up to maxAnswerBytes. If the connection breaks during
// the response, transport returns the error, and the SDK retries the request.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if wait := requestedWait(resp, body); wait > 0 {
		select {
		case <-time.After(wait):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	return resp, nil
}

// maxWait is the longest wait requested by the service that the client honours. A longer request is ignored, and the
// SDK's backoff applies.
const maxWait = time.Minute

// requestedWait returns how long the service asks the client to wait before the next request. The service sends the
// header Retry-After, in seconds or as a date, or a RetryInfo in the body.
func requestedWait(resp *http.Response, body []byte) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	var wait time.Duration
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(after, 64); err == nil {
		wait = time.Duration(seconds * float64(time.Second))
	} else if at, err := http.ParseTime(after); err == nil {
		wait = time.Until(at)
	}
	var status struct {
		Error struct {
			Details []struct{ RetryDelay string }
		}
	}
	if json.Unmarshal(body, &status) == nil {
		for _, d := range status.Error.Details {
			if delay, err := time.ParseDuration(d.RetryDelay); err == nil {
				wait = max(wait, delay)
			}
		}
	}
	if wait > maxWait {
		return 0
	}
	return wait
}

// clientFor returns a copy of client, or a new client if client is nil. The result uses [transport]. It follows no
// redirects unless client.CheckRedirect is set.
func clientFor(client *http.Client) *http.Client {
	copied := http.Client{}
	if client != nil {
		copied = *client
	}
	if copied.CheckRedirect == nil {
		copied.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	if copied.Transport == nil {
		copied.Transport = http.DefaultTransport
	}
	copied.Transport = transport{copied.Transport}
	return &copied
}

// response converts an API response. If the answer is unusable, the error gives the reason.
func (g *Summarizer) response(answer *genai.GenerateContentResponse) (resp compaction.Response, err error) {
	resp, _ = Response(cmp.Or(answer.ModelVersion, g.model), nil, "", answer.UsageMetadata) // the usage is reported even if the answer is unusable
	if feedback := answer.PromptFeedback; feedback != nil && feedback.BlockReason != "" && feedback.BlockReason != genai.BlockedReasonUnspecified {
		return resp, refusedAnswer("the prompt was blocked: %s %s", feedback.BlockReason, feedback.BlockReasonMessage)
	}
	if len(answer.Candidates) == 0 || answer.Candidates[0] == nil {
		return resp, refusedAnswer("it has no candidate")
	}
	candidate := answer.Candidates[0]
	switch reason := candidate.FinishReason; reason {
	case genai.FinishReasonStop, genai.FinishReasonUnspecified, "":
	default:
		return resp, refusedAnswer("the model stopped with %s %s", reason, candidate.FinishMessage)
	}
	if candidate.Content == nil || len(candidate.Content.Parts) == 0 {
		return resp, refusedAnswer("the candidate is empty")
	}
	return Response(cmp.Or(answer.ModelVersion, g.model), candidate.Content, candidate.FinishReason, answer.UsageMetadata)
}

// generationConfig sets no sampling parameters such as the temperature. Newer models ignore these parameters, and
// Google has announced that later models will refuse them.
func (g *Summarizer) generationConfig(req compaction.Request) *genai.GenerateContentConfig {
	config := &genai.GenerateContentConfig{MaxOutputTokens: outputTokens(req.MaxTokens)}
	if req.Instructions != "" {
		config.SystemInstruction = genai.NewContentFromText(req.Instructions, genai.RoleUser)
	}
	if g.thinking != "" {
		config.ThinkingConfig = &genai.ThinkingConfig{ThinkingLevel: g.thinking}
	}
	return config
}

// outputTokens returns the output limit, in tokens of the model, for an answer of the given number of estimated
// tokens.
func outputTokens(estimated int) int32 {
	room := (maxOutputTokens - thinkingTokens) / modelTokensPerToken
	return int32(thinkingTokens + modelTokensPerToken*min(max(estimated, 0), room))
}

func refusedAnswer(format string, args ...any) error {
	return fmt.Errorf("%w: %s", compaction.ErrRefusedAnswer, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// apiError is an error with a text on one line of limited length. The text does not contain the API key, although
// services and the SDK sometimes repeat the key in their errors.
type apiError struct {
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

func (g *Summarizer) wrapError(action string, err error) error {
	text := strings.ReplaceAll(err.Error(), g.apiKey, "[API key]")
	return &apiError{
		text: fmt.Sprintf("gemini: %s with %s: %s", action, g.model, oneline.Truncate(oneline.Escape(text), maxAPIErrorRunes)),
		err:  err,
	}
}
