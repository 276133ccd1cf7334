package compaction

import (
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// Lineage describes the origin of a summary. patchlog writes it to customMetadata["patchlog"] of its summaries.
type Lineage struct {
	// Level is 1 for a summary of raw events. Merging four summaries of one level gives a summary of the next level.
	Level int `json:"level"`

	// Windows is the number of summaries of raw events that were merged into this summary, or 1 without a merge.
	Windows int `json:"windows"`

	// Passes is the largest number of summarisations that any fact in the summary has passed through.
	Passes int `json:"passes"`

	// Events is the number of raw events that the summary covers.
	Events int `json:"events"`

	// Tokens is the size of these events when they were logged, or 0 if unknown.
	Tokens int `json:"tokens,omitzero"`

	// From and To are the seqs of the first and last record with covered events in this log, or 0 if unknown. Other
	// summaries may cover events between From and To.
	From uint64 `json:"from,omitzero"`
	To   uint64 `json:"to,omitzero"`

	// Model is the name of the model that wrote the summary ([Response.Model]).
	Model string `json:"model,omitempty"`
}

// LineageOf returns the lineage of a summary. If the summary has none, for example because a user wrote it, LineageOf
// returns the lineage of one window of raw events.
func LineageOf(summary *patch.Event) Lineage {
	if l, ok := ParseLineage(summary); ok {
		return l
	}
	return Lineage{Level: 1, Windows: 1, Passes: 1}
}

// ParseLineage returns the lineage in a summary's custom metadata, and whether there is a valid one.
func ParseLineage(summary *patch.Event) (l Lineage, ok bool) {
	if summary == nil {
		return l, false
	}
	text, _ := summary.Field("customMetadata")
	return l, summaries.DecodeOwnMetadata(text, &l) && l.Level > 0 && l.Windows > 0 && l.Passes > 0
}

// Metadata returns the lineage as custom metadata of a summary.
func (l Lineage) Metadata() map[string]any {
	own := map[string]any{"level": l.Level, "windows": l.Windows, "passes": l.Passes, "events": l.Events}
	if l.Tokens > 0 {
		own["tokens"] = l.Tokens
	}
	if l.From > 0 {
		own["from"], own["to"] = l.From, l.To
	}
	if l.Model != "" {
		own["model"] = l.Model
	}
	return map[string]any{patch.OwnMetadata: own}
}

// Add returns the lineage of a summary that covers the events of both lineages. The result has the level of l.
func (l Lineage) Add(other Lineage) Lineage {
	l.Windows += other.Windows
	l.Events += other.Events
	l.Tokens += other.Tokens
	l.Passes = max(l.Passes, other.Passes+1)
	if other.From > 0 && (l.From == 0 || other.From < l.From) {
		l.From = other.From
	}
	l.To = max(l.To, other.To)
	return l
}

// levelOf returns the level of a summary that merges the given number of windows. k summaries of a level give one
// summary of the next level.
func levelOf(windows, k int) int {
	level := 1
	for ; windows >= k; windows /= k {
		level++
	}
	return level
}

// mergeLineages returns the lineage of a summary that merges summaries with the given lineages.
func mergeLineages(of []Lineage, k int) Lineage {
	var l Lineage
	for _, o := range of {
		l = l.Add(o)
	}
	l.Level = levelOf(l.Windows, k)
	return l
}
