package compaction

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// errDeclined: the summarizer had nothing to say. It is no failure, but nothing is
// written.
var errDeclined = errors.New("declined")

// answer returns the text of a summarizer's answer, or why it cannot be used.
func answer(r Response, maxTokens int) (string, error) {
	if r.Content == nil {
		return "", errDeclined
	}
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: %s", ErrRefusedAnswer, fmt.Sprintf(format, args...))
	}
	switch r.FinishReason {
	case "", genai.FinishReasonStop, genai.FinishReasonUnspecified:
	default:
		return refuse("it is not whole, the model stopped with %s", r.FinishReason)
	}
	var texts []string
	thoughts := false
	for _, p := range r.Content.Parts {
		switch {
		case p == nil:
		case p.FunctionCall != nil:
			return refuse("it calls the function %q", p.FunctionCall.Name)
		case p.Thought:
			thoughts = true
		case strings.TrimSpace(p.Text) != "":
			texts = append(texts, strings.TrimSpace(strings.ToValidUTF8(p.Text, "\uFFFD")))
		}
	}
	switch text := strings.Join(texts, "\n"); {
	case text == "" && thoughts:
		return refuse("it holds only thoughts")
	case text == "":
		return refuse("it is empty")
	case patch.EstimateTextTokens(text) > maxTokens:
		return refuse("it takes %d tokens, and may take %d", patch.EstimateTextTokens(text), maxTokens)
	default:
		return text, nil
	}
}

// written is a summary's text, and what it was made from.
type written struct {
	group Group
	text  string
	again []*patch.Event // shown, but not covered
}

// summaries makes the events that will stand in a window's place.
func (s *visible) summaries(w *Window, texts []written, cfg Config, newID func() string) ([]*patch.Event, error) {
	v := s.view
	events := make([]*patch.Event, len(texts))
	s.number()
	next := turnsFrom(v, w.Start+w.Count, func(int) bool { return true })
	last := turnsBefore(v, w)
	if len(next) == 0 && s.live != noInvocation {
		next = append(next, turn{genai.RoleModel, ""}) // the model goes on from here
	}
	// From the last, for the role of a summary depends on what follows it.
	for i := len(texts) - 1; i >= 0; i-- {
		t := texts[i]
		role := roleBetween(last, next, t.group.Branch)
		e, err := patch.NewEvent(patch.Fields{
			ID:             newID(),
			InvocationID:   newID(),
			Author:         "user",
			Branch:         t.group.Branch,
			IsolationScope: t.group.Scope,
			Content:        patch.Text(role, t.text),
			Actions:        patch.Actions{Compaction: compactionOf(v, t)},
			CustomMetadata: map[string]any{lineageKey: s.lineage(w, t.group, cfg).metadata()},
		})
		if err != nil {
			return nil, fmt.Errorf("summary: %w", err)
		}
		events[i] = e
		next = append([]turn{{role, t.group.Branch}}, next...)
	}
	return events, nil
}

// turn is what the role of a summary before it depends on.
type turn struct {
	role   string
	branch string
}

// turnsBefore returns the turns before a window's summaries, the last first.
func turnsBefore(v fold.View, w *Window) []turn {
	var turns []turn
	also := len(w.Also) - 1
	for i := w.Start - 1; i >= 0 && len(turns) < lookAhead; i-- {
		for also >= 0 && i < w.Also[also].Start {
			also--
		}
		goes := also >= 0 && i < w.Also[also].Start+w.Also[also].Count
		if e := v.At(i); e.HasContent() && !goes {
			turns = append(turns, turnOf(e))
		}
	}
	return turns
}

// turnOf says whose turn an event is. A function call is the model's, whatever its role.
func turnOf(e *patch.Event) turn {
	role := e.Role()
	if calls(e) {
		role = genai.RoleModel
	}
	return turn{role, e.Branch()}
}

// turnsFrom returns the turns from a visible event on, of those events that are shown.
func turnsFrom(v fold.View, i int, shown func(i int) bool) []turn {
	var turns []turn
	for i, e := range v.EventsFrom(i) {
		if len(turns) == lookAhead {
			break
		}
		if e.HasContent() && shown(i) {
			turns = append(turns, turnOf(e))
		}
	}
	return turns
}

// So many events after a window are looked at to find the one that an agent of a
// branch reads next.
const lookAhead = 64

// roleBetween returns the role that a summary has between the turns before it, the last
// first, and those after it. Two turns of the model in a row, or a function call after
// one, are refused by a model's API; two of the user are not.
func roleBetween(last, next []turn, branch string) string {
	for _, turns := range [][]turn{last, next} {
		if len(turns) > 0 && turns[0].role == genai.RoleModel {
			return genai.RoleUser
		}
		for _, t := range turns {
			if related(t.branch, branch) {
				if t.role == genai.RoleModel {
					return genai.RoleUser
				}
				break
			}
		}
	}
	return genai.RoleModel
}

// related reports whether an agent may read events of both branches: one is the other,
// above it, or none.
func related(a, b string) bool {
	return a == b || a == "" || b == "" || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}

// compactionOf says what a summary stands for, as ADK does: the least and the greatest
// time of what it covers and what was shown.
func compactionOf(v fold.View, t written) *patch.EventCompaction {
	c := &patch.EventCompaction{CompactedContent: patch.Text("model", t.text)}
	least, greatest := math.Inf(1), math.Inf(-1)
	see := func(e *patch.Event) {
		from := unixSeconds(e.Timestamp())
		to := from
		if of, ok := CompactionOf(e); ok {
			from, to = of.StartTimestamp, of.EndTimestamp
		}
		least, greatest = min(least, from), max(greatest, to)
	}
	for _, i := range t.group.Indices {
		see(v.At(i))
	}
	for _, e := range t.again {
		see(e)
	}
	c.StartTimestamp, c.EndTimestamp = least, greatest
	return c
}

// lineage says where the summary of a group comes from.
func (s *visible) lineage(w *Window, g Group, cfg Config) Lineage {
	if w.Merge {
		var of []Lineage
		for _, i := range g.Indices {
			of = append(of, LineageOf(s.entries[i].Event))
		}
		return merged(of, cfg.MaxSummaries)
	}
	l := Lineage{Level: 1, Windows: 1, Passes: 1, Events: len(g.Indices)}
	seen := map[int32]bool{}
	from := len(g.Indices)
	for from > 0 {
		number := s.invocation[g.Indices[from-1]]
		if !seen[number] && len(seen) == cfg.OverlapSize {
			break
		}
		seen[number] = true
		from--
	}
	for _, i := range g.Indices[from:] {
		l.Recent = addSeq(l.Recent, s.view.SeqOf(i))
	}
	return l
}

func (l Lineage) metadata() map[string]any {
	m := map[string]any{"level": l.Level, "windows": l.Windows, "passes": l.Passes, "events": l.Events}
	if len(l.Recent) > 0 {
		ranges := make([]any, len(l.Recent))
		for i, r := range l.Recent {
			ranges[i] = []any{r[0], r[1]}
		}
		m["recent"] = ranges
	}
	return m
}

// patches returns what puts summaries in a window's place, in the order in which they
// apply: from the end of the log, so that none shifts the next. It takes the first
// patch's id.
func (w *Window) patches(summaries []*patch.Event, id string, about map[string]any) ([]*patch.PatchEvent, error) {
	first := patch.NewSplice(w.Start, w.Count, summaries...)
	if len(summaries) == 1 {
		first = patch.NewSummarise(w.Start, w.Count, summaries[0])
	}
	first, err := first.WithID(id).WithAuthor(author).WithState(patch.Keep).WithCustomMetadata(map[string]any{lineageKey: about})
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	out := []*patch.PatchEvent{first}
	for i := len(w.Also) - 1; i >= 0; i-- {
		p := patch.NewSplice(w.Also[i].Start, w.Also[i].Count).WithAuthor(author).WithState(patch.Keep)
		if p, err = p.WithCustomMetadata(map[string]any{lineageKey: map[string]any{"partOf": id}}); err != nil {
			return nil, fmt.Errorf("patch: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// author is the author of compaction's patches.
const author = "compaction"
