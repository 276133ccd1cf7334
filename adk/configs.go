package adk

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// compactionConfig returns the compaction configuration. Some of its defaults come from the other options. The
// error matches [patch.ErrInvalid].
func (o Options) compactionConfig() (compaction.Config, error) {
	cfg := o.Compaction
	modelValue := reflect.ValueOf(o.Model)
	switch {
	case modelValue.Kind() == reflect.Pointer && modelValue.IsNil():
		return cfg, &patch.FieldError{Field: "Options.Model", Problem: fmt.Sprintf("the value is a nil %T; leave the field unset to use no model", o.Model)}
	case !cfg.Enabled && max(cfg.CompactionInterval, cfg.TokenThreshold, cfg.InvocationTokens, cfg.ClearAfter) > 0:
		return cfg, &patch.FieldError{Field: "Options.Compaction.Enabled", Problem: "compaction is off, but a trigger is set; set Enabled to true, or remove the triggers"}
	case o.Model != nil && !cfg.Enabled:
		return cfg, &patch.FieldError{Field: "Options.Model", Problem: "a model for summaries is set, but compaction is off; set Options.Compaction, for example to compaction.DefaultConfig(), or remove the model"}
	}
	if o.Model != nil && cfg.Summarizer == nil {
		cfg.Summarizer = Summarizer(o.Model)
	}
	cfg.Redact = cmp.Or(cfg.Redact, o.Redact)
	err := cfg.Validate()
	if s, ok := cfg.Summarizer.(summarizer); ok && s.llm == nil {
		err = &patch.FieldError{Field: "Config.Summarizer", Problem: "the model of the summarizer is nil; pass a model to adk.Summarizer"}
	}
	if field := (*patch.FieldError)(nil); errors.As(err, &field) {
		field.Field = "Options.Compaction." + strings.TrimPrefix(field.Field, "Config.")
	}
	return cfg, err
}

// newInRunCompactor returns the compactor that compacts during runs. This compactor has no interval trigger. It is nil
// if sessions are compacted only in the background.
func (c *autoCompaction) newInRunCompactor(log compaction.Log[store.Key], opts compaction.Options[store.Key]) (*compaction.Compactor[store.Key], error) {
	cfg := c.config
	if c.timeout < 0 || inRunThreshold(cfg) == 0 {
		return nil, nil
	}
	cfg.CompactionInterval = 0
	return compaction.New(log, cfg, opts)
}

// inRunThreshold returns the smallest number of prompt tokens that can start a compaction during a run. 0 means
// that no number does.
func inRunThreshold(cfg compaction.Config) (threshold int) {
	for _, n := range []int{cfg.TokenThreshold, cfg.InvocationTokens, cfg.ClearAfter} {
		if n > 0 && (threshold == 0 || n < threshold) {
			threshold = n
		}
	}
	return threshold
}
