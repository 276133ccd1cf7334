package gemini

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genai"
)

func TestRetryInfo(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "1ns": 1, "45.8s": 45_800 * time.Millisecond} {
		d, ok := retryInfo(genai.APIError{Details: []map[string]any{{"x": "1s"}, {"retryDelay": text}}})
		if d != want || !ok {
			t.Errorf("%s is a delay of %v, %v", text, d, ok)
		}
	}
	for _, value := range []any{"-1s", "soon", 5, nil} {
		if d, ok := retryInfo(genai.APIError{Details: []map[string]any{{"retryDelay": value}}}); ok {
			t.Errorf("%v is a delay of %v", value, d)
		}
	}
	if d, ok := retryInfo(errors.New("no answer")); ok {
		t.Errorf("another error says %v", d)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"0": 0, "10": 10 * time.Second, "120": 2 * time.Minute,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if d, ok := retryAfter(header, now); d != want || !ok {
			t.Errorf("%q is a delay of %v, %v, want %v", header, d, ok, want)
		}
	}
	for _, header := range []string{"", "-1", "1.5", "soon", "99999999999"} {
		if d, ok := retryAfter(header, now); ok {
			t.Errorf("%q is a delay of %v", header, d)
		}
	}
}

// A client's own rule for redirects stays; one without follows none.
func TestWatchedClient(t *testing.T) {
	mine := errors.New("mine")
	own := watched(&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return mine }})
	if err := own.CheckRedirect(nil, nil); !errors.Is(err, mine) {
		t.Errorf("the client's own rule became one that says %v", err)
	}
	for _, c := range []*http.Client{nil, {}} {
		if err := watched(c).CheckRedirect(nil, nil); !errors.Is(err, http.ErrUseLastResponse) {
			t.Errorf("redirects: %v", err)
		}
	}
}

// The pause doubles with each attempt up to a bound; its second half is left to chance.
func TestPauseAfterAttempts(t *testing.T) {
	g := &Summarizer{delay: time.Second}
	for attempt := 1; attempt <= 12; attempt++ {
		whole := min(time.Second<<(attempt-1), maxRetryDelay)
		for range 20 {
			if d := g.pauseAfter(attempt, exchange{}, errors.New("no answer")); d < whole/2 || d > whole {
				t.Errorf("after attempt %d the pause is %v, want from %v to %v", attempt, d, whole/2, whole)
			}
		}
	}
	if d := g.pauseAfter(1, exchange{retryAfter: "7"}, errors.New("no answer")); d != 7*time.Second {
		t.Errorf("asked for 7 s, the pause is %v", d)
	}
}
