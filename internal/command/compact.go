package command

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := command(`compact KEY
Summarise the older part of a session, if that is due

Compaction is due if --interval invocations are not summarised yet, or if the prompt has --token-threshold tokens.
First, old tool results are cleared if that saves --clear-after tokens. Then passes replace the oldest events by
summaries until compaction is no longer due or no pass is possible. A pass reads at most about 50,000 tokens, and no
call without its result. The log keeps every event, and the state stays.

This command makes each pass that is due, even if the pass costs more than it saves. A service (packages compaction and
adk) makes a pass only if its savings justify its cost.

If GOOGLE_API_KEY or GEMINI_API_KEY is set, Gemini writes the summaries. Otherwise sentences are selected offline. If the
summarizer fails, the command fails, and earlier passes stay. With --redact, the summarizer reads placeholders in place of
secrets. --dry-run shows the next pass, and whether a service would make it now. With --json each pass is a line.

$ patchlog compact shop/ada/4711 --dry-run
$ patchlog compact shop/ada/4711 --interval 0 --token-threshold 20000`)
	var f compactFlags
	f.declare(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if err := f.check(); err != nil {
			return err
		}
		f.cfg.Redact, err = a.redactor(f.redacted)
		return err
	}
	cmd.RunE = a.onSession(&f.dryRun, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		before, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		op := ops.Compact{Config: f.cfg, Run: f.run}
		decision, err := compaction.Plan(before, f.cfg, f.run)
		if err != nil {
			return err
		}
		name, err := a.useSummarizer(ctx, &f)
		if f.dryRun {
			return a.showPlan(key, before, decision, f) // a dry run calls no summarizer, so a missing API key is not an error
		}
		if err != nil {
			return err
		}
		op.Config = f.cfg
		var shown error
		op.OnPass = func(p ops.Pass) { shown = errors.Join(shown, a.showPass(key, name, p)) }
		done, err := op.Apply(ctx, s, key, before)
		if err = errors.Join(err, shown); err != nil || a.json {
			return err
		}
		after, err := s.View(ctx, key)
		if err != nil {
			return err
		}
		if err := a.showCompacted(key, name, before, after, decision, done); err != nil || len(done.Passes) == 0 || done.Stopped != "" || f.cfg.TokenThreshold == 0 {
			return err
		}
		return a.showRemainder(after, f)
	})
	return cmd
}

// showPlan reports which window would be summarised next, and whether a service with the same settings would summarise
// it now.
func (a *app) showPlan(key store.Key, v fold.View, d compaction.Decision, f compactFlags) error {
	f.run.Force = false
	unforced, err := compaction.Plan(v, f.cfg, f.run)
	if err != nil {
		return err
	}
	if a.json {
		type service struct {
			Due    bool   `json:"due"`
			Reason string `json:"reason"`
		}
		return a.out.Document(struct {
			Key store.Key `json:"key"`
			compaction.Decision
			Service service `json:"service"`
		}{key, d, service{unforced.Window != nil, unforced.Reason}})
	}
	a.out.Linef("%s: %s", key, d.Reason)
	if err := a.out.Rows(present.PlanRows(d)); err != nil || d.Window == nil {
		return err
	}
	a.out.Line(present.UnforcedText(d, unforced))
	return a.out.Line(present.NextPassesText(d))
}

// showPass writes a line about a finished pass and flushes the output, because the next pass may take long.
func (a *app) showPass(key store.Key, summarizer string, p ops.Pass) error {
	err := a.receipt(struct {
		Key        store.Key `json:"key"`
		Summarizer string    `json:"summarizer"`
		ops.Pass
	}{key, summarizer, p}, "%s", present.PassText(p.Record, p.Written))
	return errors.Join(err, a.out.Flush())
}

// showRemainder reports why the passes ended, if the prompt still reaches the token threshold.
func (a *app) showRemainder(after fold.View, f compactFlags) error {
	next, err := compaction.Plan(after, f.cfg, f.run)
	if err != nil || next.PromptTokens < f.cfg.TokenThreshold {
		return err
	}
	return a.out.Linef("no further pass: %s; the last %s, the newest turn, pinned events and open calls stay (--retain, --retain-invocations)",
		strings.TrimPrefix(next.Reason, "nothing to do: "), present.Counted(f.cfg.EventRetentionSize, "event"))
}

// showCompacted writes a summary of the passes, or the reason why there were none.
func (a *app) showCompacted(key store.Key, summarizer string, before, after fold.View, d compaction.Decision, done ops.Compacted) error {
	switch {
	case len(done.Passes) == 0 && done.Stopped != "":
		return a.out.Linef("%s: nothing was written: %s", key, done.Stopped)
	case len(done.Passes) == 0:
		return a.out.Linef("%s: %s", key, d.Reason)
	case done.Stopped != "":
		a.out.Linef("stopped: %s", done.Stopped)
	}
	tokens, _ := compaction.PromptTokens(after)
	return a.out.Linef("%s: compacted by %s; %d → %s, prompt about %s → %s tokens; the log ends at record %d", key, summarizer,
		before.Len(), present.Counted(after.Len(), "visible event"), present.Grouped(d.PromptTokens), present.Grouped(tokens), after.Seq())
}

// compactFlags contains the values of the compaction flags. The command serve has some of these flags too.
type compactFlags struct {
	cfg        compaction.Config // has no summarizer until useSummarizer sets it
	run        compaction.Run
	summarizer string // "" selects gemini if there is an API key, and otherwise extractive
	model      string
	dryRun     bool
	redacted   redaction
}

// declareSummarizer declares the flags of the summarizer. All other fields have their defaults.
func (f *compactFlags) declareSummarizer(cmd *cobra.Command) {
	f.cfg = compaction.DefaultConfig()
	f.cfg.InvocationTokens = 0 // no invocation is running
	f.run.Force = true         // the user asked for a compaction, so compact whatever it costs
	f.cfg.EventRetentionSize = compaction.DefaultRetention
	fs := cmd.Flags()
	choose(cmd, &f.summarizer, "summarizer", "who writes the summaries", byGemini, extractive)
	f.redacted.declare(cmd)
	fs.StringVar(&f.model, "model", "", "the `MODEL` of gemini (default "+gemini.DefaultModel+")")
}

func (f *compactFlags) declare(cmd *cobra.Command) {
	f.declareSummarizer(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be summarised next and why, and write nothing")
	numberVar(fs, &f.cfg.CompactionInterval, 0, "interval", "summarise when `N` invocations are not summarised yet; 0 switches this off")
	numberVar(fs, &f.cfg.TokenThreshold, 0, "token-threshold", "summarise when the prompt has `N` tokens; 0 switches this off")
	numberVar(fs, &f.cfg.EventRetentionSize, 1, "retain", "keep the last `N` events with content when the prompt has too many tokens")
	numberVar(fs, &f.cfg.RetainInvocations, 0, "retain-invocations", "keep the newest `N` invocations, up to 8,000 tokens of them")
	numberVar(fs, &f.cfg.ClearAfter, 0, "clear-after", "clear old results of tools when that saves `N` tokens; 0 switches this off")
	fs.StringVar(&f.run.Focus, "focus", "", "what summaries should keep above all, in a few `WORDS`; only a model reads them")
}

// check returns an error if the flags cannot be combined.
func (f *compactFlags) check() error {
	switch {
	case f.model != "" && f.summarizer == extractive:
		return usagef("--model is for --summarizer %s", byGemini)
	case gemini.Options{Model: f.model}.Validate() != nil:
		return usagef("--model: %q is not the name of a model", f.model)
	case f.cfg.TokenThreshold+f.cfg.CompactionInterval+f.cfg.ClearAfter == 0:
		return usagef("--interval, --token-threshold and --clear-after are 0: nothing would ever be done")
	}
	if err := f.cfg.Validate(); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// Values of --summarizer
const (
	byGemini   = "gemini"
	extractive = "extractive"
)

// useSummarizer sets the summarizer of f.cfg, and returns its name.
func (a *app) useSummarizer(ctx context.Context, f *compactFlags) (string, error) {
	key := cmp.Or(a.env("GOOGLE_API_KEY"), a.env("GEMINI_API_KEY"))
	name := f.summarizer
	switch {
	case name != "":
	case key != "" || f.model != "":
		name = byGemini
	default:
		name = extractive
	}
	if name == extractive {
		f.cfg.Summarizer = a.extractive
		return name, nil
	}
	if key == "" {
		return "", errors.New("gemini needs an API key in the environment variable GOOGLE_API_KEY or GEMINI_API_KEY; --summarizer extractive needs none")
	}
	g, err := gemini.New(ctx, gemini.Options{
		APIKey: key, Model: f.model, BaseURL: a.env("GOOGLE_GEMINI_BASE_URL"),
	})
	if err != nil {
		return "", err
	}
	f.cfg.Summarizer = g
	return name, nil
}
