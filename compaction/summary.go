package compaction

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

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
	text := record.Clean(r.Text)
	if why := record.Unfit(text); why != "" {
		return refuse("%s", why)
	}
	if tokens := patch.EstimateTextTokens(text); tokens > maxTokens {
		return "", fmt.Errorf("%w: it takes %d tokens, and may take %d", errTooLong, tokens, maxTokens)
	}
	return text, nil
}

// summaryText is a summary's text, and what it was made from.
type summaryText struct {
	group Group
	text  string
	again []logged // shown, but not covered
}

// summaries makes the events that will stand in a window's place.
func (s *visible) summaries(w *Window, texts []summaryText, cfg Config, newID func() string) ([]*patch.Event, error) {
	v := s.view
	events := make([]*patch.Event, len(texts))
	gone := map[int]bool{}
	for _, span := range append(slices.Clone(w.Also), w.Span) {
		for i := span.Start; i < span.Start+span.Count; i++ {
			gone[i] = true
		}
	}
	for i, t := range texts {
		e, err := patch.NewEvent(patch.Fields{
			ID:             newID(),
			InvocationID:   newID(),
			Author:         s.author(t.group),
			Branch:         t.group.Branch,
			IsolationScope: t.group.Scope,
			Content:        record.Content(t.text),
			Actions:        patch.Actions{Compaction: compactionOf(v, t, gone)},
			CustomMetadata: s.metadata(w, t, cfg),
		})
		if err != nil {
			return nil, fmt.Errorf("summary: %w", err)
		}
		events[i] = e
	}
	return events, nil
}

// metadata is what a summary says of where it comes from: its lineage, and the records that its summarizer was shown
// besides those that it stands for. An erasure of one of these erases the summary.
func (s *visible) metadata(w *Window, t summaryText, cfg Config) map[string]any {
	metadata := s.lineage(w, t.group, cfg).Metadata()
	if len(t.again) > 0 {
		var shown recent
		for _, of := range t.again {
			shown.Seqs = addSeq(shown.Seqs, of.seq)
		}
		metadata[record.OwnKey].(map[string]any)["shown"] = shown.metadata()["seqs"]
	}
	return metadata
}

// author returns who says a group's summary: who said all that it stands for, or else the
// user. For an agent that is shown the turn that runs alone, ADK goes back to the newest
// event of somebody else: were a summary of what the agent itself has done since to pass
// for such, the agent would no longer see what it was asked.
func (s *visible) author(g Group) string {
	author := s.entries[g.Indices[0]].Event.Author()
	for _, i := range g.Indices {
		if a := s.entries[i].Event.Author(); a != author || a == "" {
			return "user"
		}
	}
	return author
}

// compactionOf says what a summary stands for, as ADK does: the least and the greatest time
// of what it covers, and which visible events in between it does not stand for. gone are
// the events that go along with those.
func compactionOf(v fold.View, t summaryText, gone map[int]bool) *patch.EventCompaction {
	c := &patch.EventCompaction{CompactedContent: patch.Text("model", t.text)}
	least, greatest := math.Inf(1), math.Inf(-1)
	see := func(e *patch.Event) {
		from := record.UnixSeconds(e.Timestamp())
		to := from
		if of, ok := record.Of(e); ok {
			from, to = of.StartTimestamp, of.EndTimestamp
		}
		least, greatest = min(least, from), max(greatest, to)
	}
	for _, i := range t.group.Indices {
		see(v.At(i))
	}
	c.StartTimestamp, c.EndTimestamp = least, greatest
	for i, e := range v.Events() {
		if gone[i] {
			continue
		}
		if record.InRange(e, *c) || record.Supersedes(*c, e) {
			c.ExcludedEvents = append(c.ExcludedEvents, record.RefTo(e))
		}
	}
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
	l := Lineage{Level: 1, Windows: 1, Passes: 1}
	for _, i := range g.Indices {
		of := s.shown(i)
		l = l.Over(Lineage{Events: 1, Tokens: records.LoggedTokens(s.entries[i].Event), From: of.seq, To: of.seq})
	}
	return l
}

// recent are the raw events of a group that are of its last n invocations.
func (s *visible) recent(g Group, n int) recent {
	var invocations []int32 // of each event
	for _, i := range g.Indices {
		invocations = append(invocations, s.invocation[i])
	}
	from := lastOf(invocations, n)
	var events []recentEvent
	for _, i := range g.Indices[from:] {
		of := s.shown(i)
		events = append(events, recentEvent{of.seq, of.event.ID()})
	}
	return recentOf(events)
}

// patches returns what puts summaries in a window's place, in the order in which they
// apply: from the end of the log, so that none shifts the next. It takes the first
// patch's id. A summary stands where the last event stood that it stands for: behind what
// followed that in its branch and scope it would pass for news.
func (w *Window) patches(summaries []*patch.Event, id string, about map[string]any) ([]*patch.PatchEvent, error) {
	at := func(s Span) []*patch.Event {
		var standing []*patch.Event
		for i, g := range w.Groups {
			if last := g.Indices[len(g.Indices)-1]; s.Start <= last && last < s.Start+s.Count {
				standing = append(standing, summaries[i])
			}
		}
		return standing
	}
	group := "" // the patches are one: none is taken back without the others
	if len(w.Also) > 0 {
		group = id
	}
	put := func(s Span, metadata map[string]any) (*patch.PatchEvent, error) {
		standing := at(s)
		p := patch.NewSplice(s.Start, s.Count, standing...)
		if len(standing) == 1 {
			p = patch.NewSummarise(s.Start, s.Count, standing[0])
		}
		p = p.WithAuthor(record.Author).WithState(patch.Keep).WithGroup(group)
		if metadata == nil {
			return p, nil
		}
		p, err := p.WithCustomMetadata(map[string]any{record.OwnKey: metadata})
		if err != nil {
			return nil, fmt.Errorf("patch: %w", err)
		}
		return p, nil
	}
	first, err := put(w.Span, about)
	if err != nil {
		return nil, err
	}
	out := []*patch.PatchEvent{first.WithID(id)}
	for i := len(w.Also) - 1; i >= 0; i-- {
		p, err := put(w.Also[i], nil)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
