package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact KEY",
		Short: "Summarise the older part of a session, if that is due",
		Long: `Compaction is due when --interval invocations are not summarised, or when the prompt has --token-threshold
tokens. Old results of tools are cleared first, where that saves --clear-after tokens. Then summaries replace
the oldest events, pass by pass, until nothing is due. The log keeps every event, and the state stays.

Gemini writes the summaries if GOOGLE_API_KEY or GEMINI_API_KEY is set; else sentences are picked offline. If
the summarizer fails, so does the command; the passes before it stay. With --redact the summarizer is given
placeholders in place of secrets.

--dry-run shows the next pass. --evaluate replays the log with several policies, the given one among them, and
shows how many of the identifiers that later calls needed were visible or found by one search, and what the
prompts would have cost (docs/COMPACTION.md). With --json each pass, or each policy, is a line.`,
		Example: examples("patchlog compact shop/ada/4711 --interval 0 --token-threshold 20000 --retain 30"),
	}
	var f compactFlags
	f.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := f.check(); err != nil {
			return err
		}
		if f.cfg.Redact, err = a.redactor(f.redacted); err != nil {
			return err
		}
		return a.compact(cmd.Context(), args[0], f)
	}
	return cmd
}

func (a *app) compact(ctx context.Context, keyText string, f compactFlags) error {
	return a.withSession(ctx, keyText, writingUnless(f.dryRun || f.evaluate), func(s *store.Store, key store.Key) error {
		before, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		if f.evaluate {
			if f.summarizer != "" {
				if _, err := a.useSummarizer(ctx, &f); err != nil {
					return err
				}
			}
			return a.showReport(ctx, s, key, f.cfg)
		}
		op := ops.Compact{Config: f.cfg, Run: f.run, NewID: a.options.NewID}
		decision, err := op.Preview(before)
		if err != nil {
			return err
		}
		if f.dryRun {
			return a.showPlan(key, decision)
		}
		name, err := a.useSummarizer(ctx, &f)
		if err != nil {
			return err
		}
		op.Config = f.cfg
		var shown error
		op.Passed = func(p ops.Pass) { shown = errors.Join(shown, a.showPass(key, name, p)) }
		done, err := op.Apply(ctx, s, key, before)
		if err = errors.Join(err, shown); err != nil || a.json {
			return err
		}
		after, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		return a.showCompacted(key, name, before, after, decision, done)
	})
}

// passDocument is a pass as JSON.
type passDocument struct {
	Key        string `json:"key"`
	Seq        uint64 `json:"seq"`
	ID         string `json:"id"` // of the patch
	Summarizer string `json:"summarizer"`
	Start      int    `json:"start"`
	Count      int    `json:"count"`
	compaction.Written
	Milliseconds int64 `json:"durationMs"`
}

// showPass writes a line about a pass as soon as it is done: a model takes its time.
func (a *app) showPass(key store.Key, summarizer string, p ops.Pass) (err error) {
	if a.json {
		err = a.out.document(passDocument{key.String(), p.Record.Seq, p.PatchID, summarizer, p.Record.Patch.Start(), p.Record.Patch.Count(), p.Written, p.Took.Milliseconds()})
	} else {
		err = a.out.line(present.PassText(p.Record, p.Written))
	}
	return errors.Join(err, a.out.flush())
}

// showCompacted says what the passes come to, or why there was none.
func (a *app) showCompacted(key store.Key, summarizer string, before, after fold.View, d compaction.Decision, done ops.Compacted) error {
	switch {
	case len(done.Passes) == 0 && done.Stopped != "":
		return a.out.linef("%s: nothing was written: %s", key, done.Stopped)
	case len(done.Passes) == 0:
		return a.out.linef("%s: %s", key, d.Reason)
	case done.Stopped != "":
		a.out.linef("stopped: %s", done.Stopped)
	}
	tokens, _ := compaction.PromptTokens(after)
	return a.out.linef("%s: compacted by %s; %d → %s, prompt about %s → %s tokens; the log ends at record %d", key, summarizer,
		before.Len(), present.Counted(after.Len(), "visible event"), present.Grouped(d.PromptTokens), present.Grouped(tokens), after.Seq())
}
