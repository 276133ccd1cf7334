package compaction

import (
	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// summaryEvent returns the summary that replaces a group of the window.
func (p *pass[K]) summaryEvent(r *groupRequest) (*patch.Event, error) {
	g := r.group
	return patch.NewEvent(patch.Fields{
		ID:             uuid.NewString(),
		InvocationID:   uuid.NewString(),
		Author:         p.planner.summaryAuthor(g),
		Branch:         g.Branch,
		IsolationScope: g.Scope,
		Content:        summaries.Content(r.summary),
		Actions:        patch.Actions{Compaction: p.planner.compactionRecord(p.window, g, r.summary)},
		CustomMetadata: p.summaryMetadata(r),
	})
}

// summaryMetadata returns the custom metadata of a summary: its lineage, and the seq ranges of the records that its
// summarizer saw as context. Erasing one of these records also erases the summary.
func (p *pass[K]) summaryMetadata(r *groupRequest) map[string]any {
	lineage := p.summaryLineage(r.group)
	lineage.Model = r.model
	metadata := lineage.Metadata()
	var shown [][2]uint64
	for _, of := range r.overlap {
		if last := len(shown) - 1; last >= 0 && shown[last][1]+1 == of.seq {
			shown[last][1] = of.seq
		} else {
			shown = append(shown, [2]uint64{of.seq, of.seq})
		}
	}
	if len(shown) > 0 {
		ranges := make([]any, len(shown))
		for i, of := range shown {
			ranges[i] = []any{of[0], of[1]}
		}
		metadata[patch.OwnMetadata].(map[string]any)["shown"] = ranges
	}
	return metadata
}

// summaryAuthor returns the author of a group's summary. It is the author of the group's events, or "user" if they have
// several authors. For an agent that sees only the running turn, ADK searches backwards for the newest event of another
// author. If a summary of the agent's own events had another author, the search would stop at the summary, and the
// agent would not see the question.
func (s *planner) summaryAuthor(g Group) string {
	author := s.entries[g.Indices[0]].Event.Author()
	for _, i := range g.Indices {
		if a := s.entries[i].Event.Author(); a != author || a == "" {
			return "user"
		}
	}
	return author
}

// compactionRecord returns ADK's compaction record for a group's summary. The record has the earliest and latest times
// of the covered events. It excludes the visible events in that range that the summary does not cover.
func (s *planner) compactionRecord(w *Window, g Group, text string) *patch.EventCompaction {
	replaced := map[int]bool{}
	for _, span := range w.spans() {
		for i := span.Start; i < span.Start+span.Count; i++ {
			replaced[i] = true
		}
	}
	c := &patch.EventCompaction{CompactedContent: patch.Text("model", text)}
	var covered []*patch.Event
	for _, i := range g.Indices {
		covered = append(covered, s.view.At(i))
	}
	c.StartTimestamp, c.EndTimestamp = summaries.Times(covered)
	for i, e := range s.view.Events() {
		if replaced[i] {
			continue
		}
		if summaries.InRange(e, *c) || summaries.Supersedes(*c, e) {
			c.ExcludedEvents = append(c.ExcludedEvents, summaries.RefTo(e))
		}
	}
	return c
}

func (p *pass[K]) summaryLineage(g Group) Lineage {
	if p.window.Merge {
		var of []Lineage
		for _, e := range p.loggedEvents(g) {
			of = append(of, LineageOf(e))
		}
		return mergeLineages(of, p.c.cfg.limits.Summaries)
	}
	l := Lineage{Level: 1, Windows: 1, Passes: 1}
	for _, i := range g.Indices {
		of := p.loggedForm(i)
		l = l.Add(Lineage{Events: 1, Tokens: records.LoggedTokens(p.planner.entries[i].Event), From: of.seq, To: of.seq})
	}
	return l
}

// patches returns the patches that replace a window with summaries. The last span comes first, so no patch shifts the
// indices of the next. A summary takes the position of the last event that it covers. If it came after later events of
// its branch and scope, a model would take it for newer than these events.
func (w *Window) patches(summaries []*patch.Event) (out []*patch.PatchEvent) {
	spans := w.spans()
	for n := len(spans) - 1; n >= 0; n-- {
		s := spans[n]
		var inserted []*patch.Event
		for i, g := range w.Groups {
			if last := g.Indices[len(g.Indices)-1]; s.Start <= last && last < s.Start+s.Count {
				inserted = append(inserted, summaries[i])
			}
		}
		p := patch.NewSplice(s.Start, s.Count, inserted...)
		if len(inserted) == 1 {
			p = patch.NewSummarise(s.Start, s.Count, inserted[0])
		}
		out = append(out, p.WithAuthor(patch.CompactionAuthor).WithState(patch.Keep))
	}
	return out
}
