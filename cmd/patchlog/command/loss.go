package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) lossCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "loss KEY",
		Short: "Show what summaries do not say of what they stand for",
		Long: `Of each visible summary, what it stands for, and which identifiers (ids, paths, addresses,
words with digits) of these events
  - are gone: they stand nowhere in the visible log,
  - are elsewhere: another visible event has them;
and which ones the summary has that no event has: it invented them. Numbers that it may have
reckoned, such as sums and counts, are listed by themselves.

With --patch it is the summaries that a patch or its group put in, as they stand now, or, if
they no longer do, as the log was after the patch. With --json each summary is a line
{"key","seq","index","id","level","events","invocations","tokensBefore","tokensAfter","held",
"gone","elsewhere","invented","numbers"}, where seq is of the record after which it is so.`,
		Example: examples(
			"patchlog loss shop/ada/4711",
			"patchlog loss shop/ada/4711 --patch p62",
			"patchlog loss shop/ada/4711 --json | jq -r '.gone[]'",
		),
	}
	patchID := cmd.Flags().String("patch", "", "only the summaries that the patch with this `ID` put in")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("patch") && *patchID == "" {
			return usagef("--patch: an id is missing")
		}
		return a.loss(cmd.Context(), args[0], *patchID)
	}
	return cmd
}

func (a *app) loss(ctx context.Context, keyText, patchID string) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		v, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		var only []string // ids of summaries
		if patchID != "" {
			if v, only, err = summariesBy(ctx, s, key, v, patchID); err != nil {
				return err
			}
		}
		parts, err := s.HistoryParts(ctx, key, v)
		if err != nil {
			return err
		}
		losses, err := compaction.Losses(v, parts)
		if err != nil {
			return err
		}
		if patchID != "" {
			losses = slices.DeleteFunc(losses, func(l compaction.Loss) bool { return !slices.Contains(only, l.Summary.ID()) })
		}
		if !a.json {
			which := "summaries"
			if len(losses) == 1 {
				which = "summary"
			}
			a.out.linef("%s: %d %s after record %d", key, len(losses), which, v.Seq())
		}
		for _, l := range losses {
			if err := a.showLoss(key, v, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// summariesBy returns the ids of the events that a patch and its group put in, and a view in
// which they are visible.
func summariesBy(ctx context.Context, s *store.Store, key store.Key, v fold.View, patchID string) (fold.View, []string, error) {
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

// lossDocument is a loss as JSON.
type lossDocument struct {
	Key          string   `json:"key"`
	Seq          uint64   `json:"seq"`
	Index        int      `json:"index"`
	ID           string   `json:"id"`
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

func (a *app) showLoss(key store.Key, v fold.View, l compaction.Loss) error {
	level, tokens := compaction.LineageOf(l.Summary).Level, l.Summary.EstimatedTokens()
	if a.json {
		names := func(all []string) []string { return append([]string{}, all...) }
		return a.out.document(lossDocument{key.String(), v.Seq(), l.Index, l.Summary.ID(), level, l.Events, l.Invocations,
			l.Tokens, tokens, l.Held, names(l.Gone), names(l.Elsewhere), names(l.Invented), names(l.Numbers)})
	}
	a.out.linef("")
	a.out.linef("index %d, level %d, id %s: stands for %s of %s, about %s → %s tokens", l.Index, level, printable(l.Summary.ID()),
		counted(l.Events, "event"), counted(l.Invocations, "invocation"), grouped(l.Tokens), grouped(tokens))
	a.out.linef("  %d of %s can be seen", l.Held-len(l.Gone), counted(l.Held, "identifier"))
	for _, row := range []struct {
		what  string
		names []string
	}{{"gone", l.Gone}, {"elsewhere", l.Elsewhere}, {"invented", l.Invented}, {"numbers that no event has", l.Numbers}} {
		if len(row.names) == 0 {
			continue
		}
		names := make([]string, len(row.names))
		for i, n := range row.names {
			names[i] = printable(n)
		}
		a.out.linef("  %s (%d): %s", row.what, len(names), strings.Join(names, ", "))
	}
	return nil
}
