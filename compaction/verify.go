package compaction

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// errDeclined means that the summarizer declined. Nothing is written, and the attempt does not count as failed.
var errDeclined = errors.New("declined")

// errTooLong means that the summarizer's answer is valid except for its length.
var errTooLong = fmt.Errorf("%w: it is too long", ErrRefusedAnswer)

// checkAnswer returns the text of a summarizer's answer, or the reason why the answer is refused.
func checkAnswer(r Response, maxTokens int) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: %s", ErrRefusedAnswer, fmt.Sprintf(format, args...))
	}
	switch r.FinishReason {
	case "", FinishStop:
	default:
		return refuse("it is incomplete: the model stopped with %s", r.FinishReason)
	}
	if r.Text == "" {
		return "", errDeclined
	}
	text := summaries.Clean(r.Text)
	if why := summaries.ProblemOf(text); why != "" {
		return refuse("%s", why)
	}
	if tokens := patch.EstimateTextTokens(text); tokens > maxTokens {
		return "", fmt.Errorf("%w: it has %d tokens; the maximum is %d", errTooLong, tokens, maxTokens)
	}
	return text, nil
}

// maxInvented is the maximum number of identifiers that an accepted answer may contain and its source does not. One
// or two such identifiers are more often unusual spellings than inventions, so they are only reported.
const maxInvented = 2

// Limits on the list of identifiers that a summarizer invented, in an error text and in a prompt.
const (
	maxListedNames = 32
	maxNameRunes   = 120
)

// inventionError means that an answer contains identifiers that occur neither in the events nor in the prompt. It
// matches [ErrRefusedAnswer].
type inventionError struct {
	Count int      // number of invented identifiers
	Names []string // the first invented identifiers, cut if they are long
}

func (e *inventionError) Error() string {
	text := fmt.Sprintf("%v: %d of its identifiers occur neither in the events nor in the prompt: %s", ErrRefusedAnswer, e.Count, quoteNames(e.Names))
	if more := e.Count - len(e.Names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Is reports whether target is [ErrRefusedAnswer].
func (e *inventionError) Is(target error) bool { return target == ErrRefusedAnswer }

// source has the identifiers that a summary may contain.
type source struct {
	events func() *identifiers.Index // identifiers of the events
	prompt func() *identifiers.Index // identifiers of the prompt
}

func newSource(req Request) *source {
	return &source{
		events: sync.OnceValue(func() *identifiers.Index {
			return identifiers.NewIndex(summaries.Clean(identifiers.Text(slices.Concat(req.Events, req.Raw)...)))
		}),
		prompt: sync.OnceValue(func() *identifiers.Index { return identifiers.NewIndex(req.Prompt) }),
	}
}

// compare compares a text with the events. Identifiers that occur in the prompt, for example in an earlier summary, do
// not count as invented.
func (s *source) compare(text string) identifiers.Comparison {
	c := identifiers.Compare(identifiers.NewIndex(text), s.events())
	if len(c.Invented) > 0 {
		c.Invented = slices.DeleteFunc(c.Invented, s.prompt().Has)
	}
	return c
}

// withCorrection returns the request to send after an answer with invented identifiers.
func (r Request) withCorrection(refused error) Request {
	if of := (*inventionError)(nil); errors.As(refused, &of) {
		r.Invented = of.Names
	}
	r.Prompt = strings.TrimRight(r.Prompt, "\n") + `

You have answered this before, and what you wrote had these, which stand nowhere in the
lines: ` + quoteNames(r.Invented) + `. Write the summary again, as asked above. Leave
them out, or write what stands in the lines in their place.
`
	return r
}

// clone returns a copy of the request that a summarizer may change.
func (r Request) clone() Request {
	r.Events, r.Before, r.Invented = slices.Clone(r.Events), slices.Clone(r.Before), slices.Clone(r.Invented)
	r.Raw, r.OtherSummaries = slices.Clone(r.Raw), slices.Clone(r.OtherSummaries)
	return r
}

func quoteNames(names []string) string {
	var all []string
	for _, n := range names {
		all = append(all, strconv.Quote(n))
	}
	return strings.Join(all, ", ")
}

// truncateNames returns the first of names, and cuts long names.
func truncateNames(names []string) (to []string) {
	for _, n := range names[:min(len(names), maxListedNames)] {
		if utf8.RuneCountInString(n) > maxNameRunes {
			n = string([]rune(n)[:maxNameRunes]) + "…"
		}
		to = append(to, n)
	}
	return to
}

// countInvented returns the number of invented identifiers that an error reports.
func countInvented(err error) int {
	if of := (*inventionError)(nil); errors.As(err, &of) {
		return of.Count
	}
	return 0
}
