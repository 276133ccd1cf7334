package present

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// LossDocument is what a summary does not say of what it stands for, as 'patchlog loss --json'
// writes it. The names are as of [compaction.Loss].
type LossDocument struct {
	Key          string   `json:"key"`
	Seq          uint64   `json:"seq"` // of the record after which it is so
	Index        int      `json:"index"`
	ID           string   `json:"id"` // of the summary
	Level        int      `json:"level"`
	Events       int      `json:"events"`
	Invocations  int      `json:"invocations"`
	TokensBefore int      `json:"tokensBefore"`
	TokensAfter  int      `json:"tokensAfter"`
	Held         int      `json:"held"`
	Gone         []string `json:"gone"`
	Elsewhere    []string `json:"elsewhere"`
	Invented     []string `json:"invented"`
	Numbers      []string `json:"numbers"`
}

// LossOf returns a loss of a session's view as a document.
func LossOf(key store.Key, v fold.View, l compaction.Loss) LossDocument {
	names := func(all []string) []string { return append([]string{}, all...) } // never null
	return LossDocument{key.String(), v.Seq(), l.Index, l.Summary.ID(), compaction.LineageOf(l.Summary).Level, l.Events, l.Invocations,
		l.Tokens, l.Summary.EstimatedTokens(), l.Held, names(l.Gone), names(l.Elsewhere), names(l.Invented), names(l.Numbers)}
}

// Lines returns what 'patchlog loss' writes of a summary: a line that says what it stands for,
// then lines that belong to it and begin with two blanks.
func (d LossDocument) Lines() []string {
	lines := []string{
		fmt.Sprintf("index %d, level %d, id %s: stands for %s of %s, about %s → %s tokens", d.Index, d.Level, Printable(d.ID),
			Counted(d.Events, "event"), Counted(d.Invocations, "invocation"), Grouped(d.TokensBefore), Grouped(d.TokensAfter)),
		fmt.Sprintf("  %d of %s can be seen", d.Held-len(d.Gone), Counted(d.Held, "identifier")),
	}
	for _, row := range []struct {
		what  string
		names []string
	}{{"gone", d.Gone}, {"elsewhere", d.Elsewhere}, {"invented", d.Invented}, {"numbers that no event has", d.Numbers}} {
		if len(row.names) == 0 {
			continue
		}
		names := make([]string, len(row.names))
		for i, n := range row.names {
			names[i] = Printable(n)
		}
		lines = append(lines, fmt.Sprintf("  %s (%d): %s", row.what, len(names), strings.Join(names, ", ")))
	}
	return lines
}

// LossesOf returns what the visible summaries of a session lose, in the order of the log, and
// the view in which they are visible. With a patch's id it is the summaries that this patch or
// its group put in, and the view is as [SummariesBy] finds it. It reads what the summaries stand
// for, and fails as the store's reads do.
func LossesOf(ctx context.Context, s *store.Store, key store.Key, patchID string) (fold.View, []LossDocument, error) {
	v, err := s.View(ctx, key)
	if err != nil {
		return fold.View{}, nil, err
	}
	var only []string // ids of summaries
	if patchID != "" {
		if v, only, err = SummariesBy(ctx, s, key, v, patchID); err != nil {
			return fold.View{}, nil, err
		}
	}
	parts, err := s.HistoryParts(ctx, key, v)
	if err != nil {
		return fold.View{}, nil, err
	}
	losses, err := compaction.Losses(v, parts)
	if err != nil {
		return fold.View{}, nil, err
	}
	var docs []LossDocument
	for _, l := range losses {
		if patchID == "" || slices.Contains(only, l.Summary.ID()) {
			docs = append(docs, LossOf(key, v, l))
		}
	}
	return v, docs, nil
}

// SummariesBy returns the ids of the events that a patch and its group put in, and a view in
// which they are visible: v, or, if they no longer all are, the one after the last patch of the
// group. It reads the whole log. It fails as the store's reads do, and if the session has no such
// patch, or the patch put in nothing.
func SummariesBy(ctx context.Context, s *store.Store, key store.Key, v fold.View, patchID string) (fold.View, []string, error) {
	var all []*patch.PatchEvent
	var seqs []uint64
	group, found := "", -1
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return v, nil, err
		}
		if r.Patch == nil {
			continue
		}
		if r.ID() == patchID {
			group, found = r.Patch.Group(), len(all)
		}
		all, seqs = append(all, r.Patch), append(seqs, r.Seq)
	}
	if found < 0 {
		return v, nil, fmt.Errorf("session %s: there is no patch %q", key, patchID)
	}
	var ids []string
	last := uint64(0)
	for i, p := range all {
		if i == found || group != "" && p.Group() == group {
			for _, e := range p.NewEvents() {
				ids = append(ids, e.ID())
			}
			last = seqs[i]
		}
	}
	if len(ids) == 0 {
		return v, nil, fmt.Errorf("session %s: patch %q put in no summary", key, patchID)
	}
	for _, id := range ids {
		if _, visible := v.Find(id); !visible {
			then, err := s.ViewAt(ctx, key, last)
			return then, ids, err
		}
	}
	return v, ids, nil
}
