package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
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
		for _, id := range f.run.Pinned {
			if _, ok := before.Find(id); !ok {
				return fmt.Errorf("session %s: --pin: no visible event has the id %q", key, id)
			}
		}
		if f.evaluate {
			if f.summarizer != "" {
				if _, err := a.useSummarizer(ctx, &f); err != nil {
					return err
				}
			}
			return a.showReport(ctx, s, key, f.cfg)
		}
		decision, err := compaction.Plan(before, f.cfg, f.run)
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
		c := compacting{app: a, store: s, key: key, summarizer: name, seq: before.Seq()}
		if err := c.run(ctx, f); err != nil {
			return err
		}
		if a.json {
			return nil
		}
		return c.showEnd(ctx, before, decision)
	})
}

// compacting is a session that is being compacted.
type compacting struct {
	app        *app
	store      *store.Store
	key        store.Key
	summarizer string

	seq     uint64 // the log is looked through up to here
	passes  int
	stopped string // why no more was written, if the summarizer or the log said so
	err     error  // of showing a pass
}

func (c *compacting) run(ctx context.Context, f compactFlags) error {
	compactor, err := compaction.New(c.store, f.cfg, compaction.Options[store.Key]{
		Observe: c.observe,
		Logger:  slog.New(slog.DiscardHandler), // what goes wrong is this command's error
		NewID:   c.app.options.NewID,
	})
	if err != nil {
		return err
	}
	_, err = compactor.Compact(ctx, c.key, f.run)
	var refused *compaction.SummarizerError
	if errors.As(err, &refused) {
		err = fmt.Errorf("session %s: %w", c.key, err) // the log's own errors say so
	}
	return errors.Join(err, c.err)
}

func (c *compacting) observe(ctx context.Context, at compaction.Attempt[store.Key]) {
	switch at.Outcome {
	case compaction.Wrote:
		c.passes++
		if err := c.show(ctx, *at.Written); c.err == nil {
			c.err = err
		}
	case compaction.Declined:
		c.stopped = c.summarizer + " declined to summarise"
	case compaction.Conflict:
		c.stopped = "another patch was logged meanwhile"
	}
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

// show writes a line about a pass as soon as it is done: a model takes its time.
func (c *compacting) show(ctx context.Context, w compaction.Written) error {
	r, err := c.find(ctx, w.PatchID)
	if err != nil {
		return err
	}
	out := c.app.out
	if c.app.json {
		err = out.document(passDocument{c.key.String(), r.Seq, w.PatchID, c.summarizer, r.Patch.Start(), r.Patch.Count(), w, w.Took.Milliseconds()})
	} else {
		err = out.line(present.PassText(r, w))
	}
	return errors.Join(err, out.flush())
}

// showEnd says what the passes come to, or why there was none.
func (c *compacting) showEnd(ctx context.Context, before fold.View, d compaction.Decision) error {
	out := c.app.out
	switch {
	case c.passes == 0 && c.stopped != "":
		return out.linef("%s: nothing was written: %s", c.key, c.stopped)
	case c.passes == 0:
		return out.linef("%s: %s", c.key, d.Reason)
	}
	after, err := c.store.View(ctx, c.key)
	if err != nil {
		return err
	}
	if c.stopped != "" {
		out.linef("stopped: %s", c.stopped)
	}
	tokens, _ := compaction.PromptTokens(after)
	return out.linef("%s: compacted by %s; %d → %s, prompt about %s → %s tokens; the log ends at record %d", c.key, c.summarizer,
		before.Len(), present.Counted(after.Len(), "visible event"), present.Grouped(d.PromptTokens), present.Grouped(tokens), after.Seq())
}

// find returns the record of a patch that has just been logged.
func (c *compacting) find(ctx context.Context, id string) (patch.Record, error) {
	for r, err := range c.store.RawEvents(ctx, c.key, c.seq+1) {
		if err != nil {
			return patch.Record{}, err
		}
		c.seq = r.Seq
		if r.ID() == id {
			return r, nil
		}
	}
	return patch.Record{}, fmt.Errorf("session %s: patch %q is not in the log", c.key, id)
}
