package gemini

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/compaction"
)

const (
	// maxRetryDelay is where the growth of pauses ends.
	maxRetryDelay = 30 * time.Second

	// maxRetryAfter is the longest pause that a service can ask for. Longer ones are
	// daily quotas: no call waits for those.
	maxRetryAfter = time.Minute

	// maxAnswerBytes is how much of an answer is read.
	maxAnswerBytes = 16 << 20
)

// generate asks until there is an answer, a lasting error, or no attempt left.
func (g *Summarizer) generate(ctx context.Context, req compaction.Request) (*genai.GenerateContentResponse, error) {
	for attempt := 1; ; attempt++ {
		var seen exchange
		answer, err := g.client.Models.GenerateContent(
			context.WithValue(ctx, exchangeKey{}, &seen), g.model, genai.Text(req.Prompt), g.generationConfig(req))
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w (attempt %d: %w)", ctx.Err(), attempt, err)
		}
		if seen.status/100 == 2 {
			return nil, fmt.Errorf("%w: it is not the API's JSON: %w", compaction.ErrRefusedAnswer, err)
		}
		if !seen.passing() {
			return nil, err
		}
		if attempt >= g.attempts {
			return nil, fmt.Errorf("%w (after %d attempts)", err, attempt)
		}
		if err := pause(ctx, g.pauseAfter(attempt, seen, err), err); err != nil {
			return nil, err
		}
	}
}

// pauseAfter is how long to wait after a failed attempt: what the service asks for, or
// else the delay, doubled with each attempt, of which the second half is left to chance.
func (g *Summarizer) pauseAfter(attempt int, seen exchange, err error) time.Duration {
	if d, ok := retryAfter(seen.retryAfter, time.Now()); ok {
		return d
	}
	if d, ok := retryInfo(err); ok {
		return d
	}
	d := g.delay
	for i := 1; i < attempt && d < maxRetryDelay; i++ {
		d *= 2
	}
	d = min(d, maxRetryDelay)
	return d/2 + rand.N(d/2+1)
}

// pause waits, unless that is known to be in vain. cause is why there is a wait.
func pause(ctx context.Context, d time.Duration, cause error) error {
	if deadline, ok := ctx.Deadline(); ok && d >= time.Until(deadline) {
		return fmt.Errorf("%w (a retry would have to wait %v, longer than there is time)", cause, d.Round(time.Millisecond))
	}
	if d > maxRetryAfter {
		return fmt.Errorf("%w (a retry would have to wait %v, longer than the %v that is waited)", cause, d, maxRetryAfter)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (while waiting after %w)", ctx.Err(), cause)
	}
}

// retryAfter reads the header of that name: seconds, or an HTTP date.
func retryAfter(header string, now time.Time) (time.Duration, bool) {
	if header == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(date.Sub(now), 0), true
	}
	return 0, false
}

// retryInfo reads what the Gemini API says in place of the header, among the details of
// its error: {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45.8s"}.
func retryInfo(err error) (time.Duration, bool) {
	var api genai.APIError
	if !errors.As(err, &api) {
		return 0, false
	}
	for _, detail := range api.Details {
		if text, ok := detail["retryDelay"].(string); ok {
			if d, err := time.ParseDuration(text); err == nil && d >= 0 {
				return d, true
			}
		}
	}
	return 0, false
}

// exchange records one request and its answer on the wire. The SDK's error has no headers, and
// takes its code from the body.
type exchange struct {
	sent       bool
	status     int // 0: no whole answer came
	retryAfter string
	tooLarge   bool
}

type exchangeKey struct{}

// passing reports whether the failure may be over next time.
func (x exchange) passing() bool {
	switch x.status {
	case 0:
		return x.sent && !x.tooLarge
	case http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// wire is a transport that notes the exchange in the request's context. It reads the
// body to its end, so that a connection that breaks in the middle of an answer is seen
// as one, and not as an answer of bad JSON.
type wire struct{ base http.RoundTripper }

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	seen, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		seen = new(exchange)
	}
	*seen = exchange{sent: true}
	resp, err := w.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxAnswerBytes {
		seen.tooLarge = true
		return nil, fmt.Errorf("%w: it is longer than %d bytes", compaction.ErrRefusedAnswer, maxAnswerBytes)
	}
	seen.status, seen.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// watched returns a copy of the client, or of a new one, whose transport is a wire.
func watched(client *http.Client) *http.Client {
	own := http.Client{}
	if client != nil {
		own = *client
	}
	if own.CheckRedirect == nil {
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	if own.Transport == nil {
		own.Transport = http.DefaultTransport
	}
	own.Transport = wire{own.Transport}
	return &own
}
