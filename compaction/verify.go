package compaction

import (
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// verify returns the text of a summarizer's answer to a request, or why it cannot be used.
func verify(r Response, maxTokens int, against *source) (string, error) {
	text, err := answer(r, maxTokens)
	if err != nil {
		return "", err
	}
	return text, judge(against.compare(text))
}

// errDeclined: the summarizer had nothing to say. It is no failure, but nothing is
// written.
var errDeclined = errors.New("declined")

// errTooLong: the summarizer's answer is one, but for its length.
var errTooLong = fmt.Errorf("%w: it is too long", ErrRefusedAnswer)

// answer returns the text of a summarizer's answer, or why it cannot be used.
func answer(r Response, maxTokens int) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: %s", ErrRefusedAnswer, fmt.Sprintf(format, args...))
	}
	switch r.FinishReason {
	case "", FinishStop:
	default:
		return refuse("it is not whole, the model stopped with %s", r.FinishReason)
	}
	if r.Text == "" {
		return "", errDeclined
	}
	text := summaries.Clean(r.Text)
	if why := summaries.Unfit(text); why != "" {
		return refuse("%s", why)
	}
	if tokens := patch.EstimateTextTokens(text); tokens > maxTokens {
		return "", fmt.Errorf("%w: it takes %d tokens, and may take %d", errTooLong, tokens, maxTokens)
	}
	return text, nil
}
