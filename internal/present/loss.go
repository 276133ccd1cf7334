package present

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// LossDocument is what a summary does not say of what it stands for, as 'patchlog loss --json'
// writes it. The names are as of [compaction.Loss], those first that are worth most.
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
	return LossDocument{key.String(), v.Seq(), l.Index, l.Summary.ID(), compaction.LineageOf(l.Summary).Level, l.Events, l.Invocations,
		l.Tokens, l.Summary.EstimatedTokens(), l.Held, ranked(l.Gone), ranked(l.Elsewhere), ranked(l.Invented), ranked(l.Numbers)}
}

// LossList is the names of one sort that a summary loses, or invents.
type LossList struct {
	What  string // gone, elsewhere, invented, or "numbers that no event has"
	Names []string
}

// Lists returns the lists that have names.
func (d LossDocument) Lists() []LossList {
	all := []LossList{{"gone", d.Gone}, {"elsewhere", d.Elsewhere}, {"invented", d.Invented}, {"numbers that no event has", d.Numbers}}
	return slices.DeleteFunc(all, func(l LossList) bool { return len(l.Names) == 0 })
}

// Head says what the summary stands for, and how much of it can be seen.
func (d LossDocument) Head() []string {
	return []string{
		fmt.Sprintf("index %d, level %d, id %s: stands for %s of %s, about %s → %s tokens", d.Index, d.Level, Printable(d.ID),
			Counted(d.Events, "event"), Counted(d.Invocations, "invocation"), Grouped(d.TokensBefore), Grouped(d.TokensAfter)),
		fmt.Sprintf("  %d of %s can be seen", d.Held-len(d.Gone), Counted(d.Held, "identifier")),
	}
}

// Lines returns what 'patchlog loss' writes of a summary: its head, then a line for each list.
func (d LossDocument) Lines() []string {
	lines := d.Head()
	for _, l := range d.Lists() {
		names := make([]string, len(l.Names))
		for i, n := range l.Names {
			names[i] = Printable(n)
		}
		lines = append(lines, fmt.Sprintf("  %s (%d): %s", l.What, len(names), strings.Join(names, ", ")))
	}
	return lines
}

// ranked returns names, those first that are worth most: addresses and paths, then what has letters, digits and signs
// in it, as an order's number has, then numbers, then words.
func ranked(names []string) []string {
	rank := func(name string) int {
		letters, digits, signs := false, 0, false
		for _, r := range name {
			switch {
			case unicode.IsDigit(r):
				digits++
			case unicode.IsLetter(r):
				letters = true
			default:
				signs = true
			}
		}
		switch {
		case strings.Contains(name, "@"):
			return 0
		case strings.Contains(name, "/"):
			return 1
		case letters && signs && digits > 1, letters && digits > 3:
			return 2
		case digits > 3:
			return 3
		}
		return 4
	}
	out := append([]string{}, names...) // never null
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
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
		return v, nil, fmt.Errorf("session %s: %w: there is no patch %q", key, store.ErrNotFound, patchID)
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
		return v, nil, fmt.Errorf("session %s: %w: patch %q put in no summary", key, patch.ErrInvalid, patchID)
	}
	for _, id := range ids {
		if _, visible := v.Find(id); !visible {
			then, err := s.ViewAt(ctx, key, last)
			return then, ids, err
		}
	}
	return v, ids, nil
}
