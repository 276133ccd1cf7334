// Package gemini has a Gemini model write the summaries of compaction.
package gemini

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/oneline"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/patch"
)

// Defaults of [Options].
const (
	DefaultModel        = "gemini-3.8-flash"
	DefaultAttempts     = 3
	DefaultInitialDelay = time.Second
)

// Sizes of what a model may write.
const (
	// thinkingTokens is room for what a model thinks before it writes. It counts
	// against the limit on its output, and models of today cannot all be told not to.
	thinkingTokens = 8192

	// modelTokensPerToken is how many tokens of a model one estimated token can be: an
	// estimated one is four runes, and in some scripts each of them is a token.
	modelTokensPerToken = 4

	// maxOutputTokens is the most that Gemini models take as a limit.
	maxOutputTokens = 65536

	// maxAPIErrorRunes is how much of an error from outside is shown.
	maxAPIErrorRunes = 500
)

// ErrNoAPIKey: there is no key for the Gemini API, in the options or the environment.
var ErrNoAPIKey = errors.New("no API key")

// Options are the options of [New]. A zero field means its default.
type Options struct {
	// APIKey is the key for the Gemini API. The default is what the environment says in
	// GOOGLE_API_KEY, or else in GEMINI_API_KEY.
	APIKey string

	// Model names the model; the default is [DefaultModel].
	Model string

	// ThinkingLevel is how much the model thinks before it writes. The default is low
	// for the default model, and for every other the model's own: not all models know
	// levels, and one that does not answers with an error.
	ThinkingLevel genai.ThinkingLevel

	// MaxAttempts is how often a request is sent at most, the first time included; the
	// default is [DefaultAttempts].
	MaxAttempts int

	// InitialDelay is about how long to wait before the second attempt, if the service
	// does not say. It doubles with each further one, up to half a minute. The default
	// is [DefaultInitialDelay].
	InitialDelay time.Duration

	// BaseURL is where the API is, for proxies and tests, such as
	// "https://proxy.example/gemini/". The default is genai's: GOOGLE_GEMINI_BASE_URL of
	// the environment if set, else Google's own.
	BaseURL string

	// HTTPClient sends the requests; the default is a client of its own. It is copied.
	// Unless it has a policy of its own, redirects are not followed: they would take
	// the key to another place.
	HTTPClient *http.Client
}

// Validate reports what is wrong with the options, and names the field at fault. The
// error matches [patch.ErrInvalid]. A missing key is for [New] to report.
func (o Options) Validate() error {
	bad := func(field, problem string, args ...any) error {
		return &patch.FieldError{Field: "gemini.Options." + field, Problem: fmt.Sprintf(problem, args...)}
	}
	switch {
	case strings.ContainsFunc(o.Model, notInModelName) || strings.Contains(o.Model, ".."):
		return bad("Model", "%q is no model's name", o.Model)
	case o.MaxAttempts < 0:
		return bad("MaxAttempts", "%d is below 0", o.MaxAttempts)
	case o.InitialDelay < 0:
		return bad("InitialDelay", "%v is below 0", o.InitialDelay)
	case o.BaseURL != "":
		u, err := url.Parse(o.BaseURL)
		if err != nil {
			return bad("BaseURL", "%v", err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return bad("BaseURL", "%q is not an http or https URL", u.Redacted())
		}
	}
	return nil
}

// notInModelName keeps a name from becoming another path or a query.
func notInModelName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`?&#%\`, r)
}

// Summarizer is a [compaction.Summarizer] that asks a Gemini model. It is safe for concurrent use.
type Summarizer struct {
	client   *genai.Client
	apiKey   string
	model    string
	thinking genai.ThinkingLevel
	attempts int
	delay    time.Duration
}

var _ compaction.Priced = (*Summarizer)(nil)

// Price says that a token costs the summarizer what it costs the agent.
func (g *Summarizer) Price() (read, written float64) { return price.Read, price.Written }

// New returns a summarizer that asks a Gemini model through the Gemini API,
// whatever the environment says about other backends. It sends nothing yet; ctx is for
// making the client alone. The error matches [ErrNoAPIKey] if there is no key.
func New(ctx context.Context, opts Options) (*Summarizer, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	g := &Summarizer{
		apiKey:   strings.TrimSpace(cmp.Or(opts.APIKey, os.Getenv("GOOGLE_API_KEY"), os.Getenv("GEMINI_API_KEY"))),
		model:    cmp.Or(opts.Model, DefaultModel),
		thinking: opts.ThinkingLevel,
		attempts: cmp.Or(opts.MaxAttempts, DefaultAttempts),
		delay:    cmp.Or(opts.InitialDelay, DefaultInitialDelay),
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
		HTTPClient:  watched(opts.HTTPClient),
		HTTPOptions: genai.HTTPOptions{BaseURL: opts.BaseURL, RetryOptions: once},
	})
	if err != nil {
		return nil, g.fail("make a client", err)
	}
	g.client = client
	return g, nil
}

// once switches off the SDK's retries, which ignore Retry-After.
var once = &genai.HTTPRetryOptions{Attempts: genai.Ptr[int32](1)}

// Summarize sends req.Prompt to the model as the one message, with no tools, and returns
// what it wrote. Room is left for req.MaxTokens in any script, and for thinking; how long
// the answer is after all is for the compactor to judge.
//
// A request that fails for a passing reason (a connection that breaks, the statuses 408,
// 429, 500, 502, 503 and 504) is sent again, as [Options] say, after a pause with
// jitter, or after as long as the service asks for with Retry-After or RetryInfo. If that
// is longer than ctx has left, or than a minute, the call ends at once and says so.
//
// The error matches [compaction.ErrRefusedAnswer] if the service answered and the answer is of no
// use: the prompt or the answer blocked, no candidate, nothing in it, cut off, or not the
// API's JSON. It wraps a genai.APIError if the service reported an error, and ctx's error
// if ctx ended. Its text never holds the API key.
func (g *Summarizer) Summarize(ctx context.Context, req compaction.Request) (compaction.Response, error) {
	var resp compaction.Response
	answer, err := g.generate(ctx, req)
	if err == nil {
		resp, err = g.response(answer)
	}
	if err != nil {
		return resp, g.fail("summarise", err)
	}
	return resp, nil
}

// response returns what the model wrote, or why that is of no use.
func (g *Summarizer) response(answer *genai.GenerateContentResponse) (resp compaction.Response, err error) {
	if feedback := answer.PromptFeedback; feedback != nil && feedback.BlockReason != "" && feedback.BlockReason != genai.BlockedReasonUnspecified {
		return resp, refused("the prompt was blocked: %s %s", feedback.BlockReason, feedback.BlockReasonMessage)
	}
	if len(answer.Candidates) == 0 || answer.Candidates[0] == nil {
		return resp, refused("there is no candidate in it")
	}
	candidate := answer.Candidates[0]
	switch reason := candidate.FinishReason; reason {
	case genai.FinishReasonStop, genai.FinishReasonUnspecified, "":
	default:
		return resp, refused("the model stopped with %s %s", reason, candidate.FinishMessage)
	}
	if candidate.Content == nil || len(candidate.Content.Parts) == 0 {
		return resp, refused("the candidate is empty")
	}
	return Response(cmp.Or(answer.ModelVersion, g.model), candidate.Content, candidate.FinishReason, answer.UsageMetadata)
}

// generationConfig sets no temperature and the like: newer models ignore them, and are
// announced to refuse them.
func (g *Summarizer) generationConfig(req compaction.Request) *genai.GenerateContentConfig {
	config := &genai.GenerateContentConfig{MaxOutputTokens: outputTokens(req.MaxTokens)}
	if g.thinking != "" {
		config.ThinkingConfig = &genai.ThinkingConfig{ThinkingLevel: g.thinking}
	}
	return config
}

// outputTokens is the limit on a model's output for an answer of so many estimated
// tokens.
func outputTokens(estimated int) int32 {
	room := (maxOutputTokens - thinkingTokens) / modelTokensPerToken
	return int32(thinkingTokens + modelTokensPerToken*min(max(estimated, 0), room))
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", compaction.ErrRefusedAnswer, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// apiError is an error with a text of its own: on one line, not too long, and without
// the key, which a service may repeat and the SDK shows at times.
type apiError struct {
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

func (g *Summarizer) fail(doing string, err error) error {
	text := strings.ReplaceAll(err.Error(), g.apiKey, "[API key]")
	return &apiError{
		text: fmt.Sprintf("gemini: %s with %s: %s", doing, g.model, oneline.Cut(oneline.Escape(text), maxAPIErrorRunes)),
		err:  err,
	}
}
