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
)

// Bounds on what is told of identifiers that a summary has and the events have not.
const (
	maxNames     = 32 // that a patch, an error or a prompt names
	maxNameRunes = 120
)

// inventionError says that an answer had identifiers that stand nowhere in what its summary
// was to stand for, nor in what the summarizer was shown, and had others again when it was
// told so. It matches [ErrRefusedAnswer].
type inventionError struct {
	Count int      // of the identifiers
	Names []string // of the first of them, long ones cut
}

func (e *inventionError) Error() string {
	text := fmt.Sprintf("%v: of what it says word for word, %d stand nowhere in what it is about: %s", ErrRefusedAnswer, e.Count, quoted(e.Names))
	if more := e.Count - len(e.Names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Is reports whether target is [ErrRefusedAnswer].
func (e *inventionError) Is(target error) bool { return target == ErrRefusedAnswer }

// source is what a request's summary is held against.
type source struct {
	about func() *identifiers.Index // the events
	shown func() *identifiers.Index // the prompt
}

func newSource(req Request) *source {
	return &source{
		about: sync.OnceValue(func() *identifiers.Index { return identifiers.NewIndex(identifiers.Text(req.Events...)) }),
		shown: sync.OnceValue(func() *identifiers.Index { return identifiers.NewIndex(req.Prompt) }),
	}
}

// prepare reads the events while a summarizer is at work on them.
func (s *source) prepare() {
	go func() {
		defer func() { _ = recover() }() // who asks for it has the panic too
		s.about()
	}()
}

// compare holds a text against what it is about. What the summarizer was shown besides, such
// as earlier summaries, it may cite.
func (s *source) compare(text string) identifiers.Comparison {
	c := identifiers.Compare(identifiers.NewIndex(text), s.about())
	if len(c.Invented) > 0 {
		c.Invented = slices.DeleteFunc(c.Invented, s.shown().Has)
	}
	return c
}

// judge returns an inventionError if there are invented identifiers.
func judge(c identifiers.Comparison) error {
	if len(c.Invented) == 0 {
		return nil
	}
	return &inventionError{Count: len(c.Invented), Names: named(c.Invented)}
}

// corrected is the request after an answer that was refused for what it invented.
func (r Request) corrected(refused error) Request {
	if of := (*inventionError)(nil); errors.As(refused, &of) {
		r.Invented = of.Names
	}
	r.Prompt = strings.TrimRight(r.Prompt, "\n") + `

You have answered this before, and what you wrote had these, which stand nowhere in the
lines: ` + quoted(r.Invented) + `. Write the summary again, as asked above. Leave
them out, or write what stands in the lines in their place.
`
	return r
}

// own is a copy of the request that a summarizer may change.
func (r Request) own() Request {
	r.Events, r.Before, r.Invented = slices.Clone(r.Events), slices.Clone(r.Before), slices.Clone(r.Invented)
	return r
}

func quoted(names []string) string {
	var all []string
	for _, n := range names {
		all = append(all, strconv.Quote(n))
	}
	return strings.Join(all, ", ")
}

// named returns the first names, long ones cut.
func named(names []string) (to []string) {
	for _, n := range names[:min(len(names), maxNames)] {
		if utf8.RuneCountInString(n) > maxNameRunes {
			n = string([]rune(n)[:maxNameRunes]) + "…"
		}
		to = append(to, n)
	}
	return to
}

// invented returns how many identifiers an error is about.
func invented(err error) int {
	if of := (*inventionError)(nil); errors.As(err, &of) {
		return of.Count
	}
	return 0
}
