package command

import (
	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
)

// compactFlags say when a session is compacted, and by whom.
type compactFlags struct {
	cfg        compaction.Config // without its summarizer
	run        compaction.Run
	summarizer string // "" means gemini if there is a key, else extractive
	model      string
	dryRun     bool
	evaluate   bool
	redacted   redaction
}

// declareSummarizer declares the flags that say by whom, and leaves all others at their defaults.
func (f *compactFlags) declareSummarizer(cmd *cobra.Command) {
	f.cfg = compaction.DefaultConfig()
	f.cfg.InvocationTokens = 0 // no invocation is running
	f.run.Force = true         // somebody asks for it
	f.cfg.EventRetentionSize = compaction.DefaultRetention
	f.cfg.Timeout = compaction.DefaultTimeout
	f.cfg.MaxSummaryTokens = compaction.DefaultMaxSummaryTokens
	fs := cmd.Flags()
	fs.StringVar(&f.summarizer, "summarizer", "", "who writes the summaries: `NAME` is gemini or extractive")
	f.redacted.declare(cmd)
	fs.StringVar(&f.model, "model", "", "the `MODEL` that gemini asks, "+gemini.DefaultModel+" unless given")
	cmd.RegisterFlagCompletionFunc("summarizer", cobra.FixedCompletions([]cobra.Completion{byGemini, extractive}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *compactFlags) declare(cmd *cobra.Command) {
	f.declareSummarizer(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be summarised next and why, and write nothing")
	fs.BoolVar(&f.evaluate, "evaluate", false, "replay the session, show what compaction would have kept and cost, and write nothing")
	fs.Var(number{&f.cfg.CompactionInterval, 0}, "interval", "summarise when `N` invocations are not summarised yet; 0 switches this off")
	fs.Var(number{&f.cfg.TokenThreshold, 0}, "token-threshold", "summarise when the prompt takes `N` tokens; 0 switches this off")
	fs.Var(number{&f.cfg.EventRetentionSize, 1}, "retain", "leave the last `N` events when the prompt takes too many tokens")
	fs.Var(number{&f.cfg.ClearAfter, 0}, "clear-after", "clear old results of tools when that saves `N` tokens; 0 switches this off")
	fs.Var(number{&f.cfg.MaxSummaryTokens, 1}, "max-summary-tokens", "refuse a summary of more than `N` tokens")
	fs.StringVar(&f.run.Focus, "focus", "", "what summaries should keep above all, in a few `WORDS`; for models")
}

// check finds what no flag alone has wrong.
func (f *compactFlags) check() error {
	switch {
	case f.dryRun && f.evaluate:
		return usagef("--dry-run and --evaluate do not go together: neither writes anything")
	case f.summarizer != "" && f.summarizer != byGemini && f.summarizer != extractive:
		return usagef("--summarizer: unknown name %q; one of %s, %s", f.summarizer, byGemini, extractive)
	case f.model != "" && f.summarizer == extractive:
		return usagef("--model is for --summarizer %s", byGemini)
	case gemini.Options{Model: f.model}.Validate() != nil:
		return usagef("--model: %q is no model's name", f.model)
	case f.cfg.TokenThreshold+f.cfg.CompactionInterval+f.cfg.ClearAfter == 0:
		return usagef("--interval, --token-threshold and --clear-after are 0: nothing would ever be done")
	}
	if err := f.cfg.Validate(); err != nil {
		return usagef("%v", err)
	}
	return nil
}
