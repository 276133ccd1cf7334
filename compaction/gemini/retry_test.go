package gemini

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

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
