package compaction

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/compaction/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Parts longer than so many runes are cut in a prompt.
const maxPartRunes = 4_000

// Summaries of fewer tokens than so many, together, may be merged into one of three
// quarters of that, since little can be left out of them.
const tinyTokens = 256

// What takes fewer tokens than so many is not shown to a summarizer: its answer would
// hardly be shorter. The summary says it word for word, and goes with its neighbours when
// summaries are merged.
const briefTokens = 32

// Of what takes fewer tokens than so many, a summary that turned out too long is not used,
// and the summary says it word for word.
const shortTokens = 128

// A summary should take this part of what it stands for, but for facts that need more
// room, and need not take fewer than so many tokens. One that is a little longer is not
// refused yet: up to [maxAnswer], facts may.
const (
	aimOfEvents    = 0.12
	aimOfSummaries = 0.4
	leastAim       = 48
)

// request makes what the summarizer is asked for a group of a window. again are the raw
// events that it is shown again.
func (s *visible) request(w *Window, g Group, again []*patch.Event, cfg Config) (Request, error) {
	v := s.view
	r := Request{Events: s.events(g), Merge: w.Merge, MaxTokens: maxAnswer(v, w, g, cfg), Focus: s.focus}
	if !w.Merge {
		r.Before = append(summariesBefore(v, g), again...)
	}
	return r, r.ask(cfg)
}

// events are what the summary of a group stands for.
func (s *visible) events(g Group) []*patch.Event {
	events := make([]*patch.Event, len(g.Indices))
	for n, i := range g.Indices {
		events[n] = s.shown(i).event
	}
	return events
}

// NewRequest makes what a summarizer is asked for events outside any session, as a
// [Compactor] would ask it by the configuration: raw events, shown in their order. The error
// matches [patch.ErrInvalid] if there are none, or is that of [Config.Validate].
func NewRequest(cfg Config, events ...*patch.Event) (Request, error) {
	if err := cfg.Validate(); err != nil {
		return Request{}, err
	}
	if i := slices.Index(events, nil); i >= 0 || len(events) == 0 {
		return Request{}, fmt.Errorf("%w: there are no events to summarise, or one of them is nil", patch.ErrInvalid)
	}
	cfg = cfg.withDefaults()
	covered := tokensOf(events)
	r := Request{Events: slices.Clone(events), MaxTokens: min(max(covered/2, leastAim), cfg.MaxSummaryTokens)}
	return r, r.ask(cfg)
}

// ask says in the request how long the answer should be, has it redacted, and makes the prompt.
func (r *Request) ask(cfg Config) (err error) {
	covered := tokensOf(r.Events)
	if r.Events, err = cfg.Redact.Events(r.Events); err == nil {
		r.Before, err = cfg.Redact.Events(r.Before)
	}
	if err != nil {
		return fmt.Errorf("redact what is to be summarised: %w", err)
	}
	r.Focus = cfg.Redact.Text(r.Focus)
	share := aimOfEvents
	if r.Merge {
		share = aimOfSummaries
	}
	aim := min(int(share*float64(covered)), cfg.MaxSummaryTokens*2/3)
	r.AimTokens = min(r.MaxTokens, max(leastAim, aim))
	// One pass, for the transcript may hold anything.
	r.Prompt = inFocus(r.Focus, strings.NewReplacer(
		History, history(*r, cfg.MaxInputTokens), Words, strconv.Itoa(max(1, r.AimTokens*3/4)),
	).Replace(cfg.PromptTemplate))
	return nil
}

func tokensOf(events []*patch.Event) int {
	n := 0
	for _, e := range events {
		n += e.EstimatedTokens()
	}
	return n
}

// maxAnswer is how long the summary of a group may be.
func maxAnswer(v fold.View, w *Window, g Group, cfg Config) int {
	covered := tokensAt(v, g.Indices)
	if w.Merge {
		return min(longestMerged(covered), cfg.MaxSummaryTokens)
	}
	// A branch that said little gets room from what the window saves on the others, lest
	// it keep them all waiting.
	least := min(leastAim, w.Tokens/(4*len(w.Groups)))
	return min(max(covered/2, least), cfg.MaxSummaryTokens)
}

// longestMerged is how long a summary of summaries may be that take so many tokens.
func longestMerged(tokens int) int {
	switch {
	case tokens < briefTokens:
		return tokens
	case tokens < tinyTokens:
		return tokens * 3 / 4
	}
	return tokens / 2
}

// wordForWord returns a text that says all that the events of a request do. Names and ids
// may be longer than what was said: that is cut then.
func wordForWord(r Request) string {
	if !r.Merge {
		return strings.TrimSpace(fitting(r.Events, 2*shortTokens*patch.RunesPerToken))
	}
	var texts []string
	for _, e := range r.Events {
		for _, p := range e.Content().Parts() {
			if p.Kind == patch.PartText {
				texts = append(texts, p.Text)
			}
		}
	}
	return strings.Join(texts, "\n")
}

func tokensAt(v fold.View, indices []int) int {
	n := 0
	for _, i := range indices {
		n += v.At(i).EstimatedTokens()
	}
	return n
}

// summariesBefore returns the visible summaries of a group's branch before its events.
func summariesBefore(v fold.View, g Group) []*patch.Event {
	var out []*patch.Event
	for i, e := range v.Events() {
		if i >= g.Indices[0] {
			break
		}
		if v.Entry(i).Summary && groupOf(e) == g.key() {
			out = append(out, e)
		}
	}
	return out
}

func history(r Request, maxTokens int) string {
	limit := runesOf(maxTokens)
	var b strings.Builder
	if len(r.Before) > 0 {
		fmt.Fprintf(&b, "[For context, summarised already]\n%s[To summarise]\n", fitting(r.Before, limit/4))
	}
	b.WriteString(fitting(r.Events, limit))
	return b.String()
}

// runesOf is how many runes so many tokens have, or the most that there is.
func runesOf(tokens int) int {
	return min(tokens, math.MaxInt/patch.RunesPerToken) * patch.RunesPerToken
}

// fitting is a transcript of at most so many runes: long arguments and results are cut
// first, then texts too, so that something of each event is shown as long as there is
// room; then the middle of the whole, up to the end of a line, lest what stands in a line
// passes for a turn.
func fitting(events []*patch.Event, limit int) string {
	text := ""
	for most := maxPartRunes; most >= 100; most /= 2 {
		if text = transcript.Short(events, most, 0); utf8.RuneCountInString(text) <= limit {
			return text
		}
	}
	for most := maxPartRunes; most >= 10; most /= 2 {
		if text = transcript.Short(events, min(most, 100), most); utf8.RuneCountInString(text) <= limit {
			return text
		}
	}
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text
	}
	runes := []rune(text)
	half := limit / 2
	rest := string(runes[n-half:])
	if runes[n-half-1] != '\n' {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return fmt.Sprintf("%s\n[… %d characters of the transcript are left out …]\n%s", string(runes[:half]), n-half-utf8.RuneCountInString(rest), rest)
}
