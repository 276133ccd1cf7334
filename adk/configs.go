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

// config returns the compaction configuration, with defaults from the other options. The error matches
// [patch.ErrInvalid].
func (o Options) config() (compaction.Config, error) {
	cfg := o.Compaction
	isNil := reflect.ValueOf(o.Model)
	switch {
	case isNil.Kind() == reflect.Pointer && isNil.IsNil():
		return cfg, &patch.FieldError{Field: "Options.Model", Problem: fmt.Sprintf("it is a nil %T; leave it out to have none", o.Model)}
	case !cfg.Enabled && max(cfg.CompactionInterval, cfg.TokenThreshold, cfg.InvocationTokens, cfg.ClearAfter) > 0:
		return cfg, &patch.FieldError{Field: "Options.Compaction.Enabled", Problem: "it is false, and a trigger is set; set it to true, or leave the triggers out"}
	case o.Model != nil && !cfg.Enabled:
		return cfg, &patch.FieldError{Field: "Options.Model", Problem: "it writes summaries, but compaction is off: set Compaction, as by compaction.DefaultConfig, or leave the model out"}
	}
	if o.Model != nil && cfg.Summarizer == nil {
		cfg.Summarizer = Summarizer(o.Model)
	}
	cfg.Redact = cmp.Or(cfg.Redact, o.Redact)
	err := cfg.Validate()
	if s, ok := cfg.Summarizer.(summarizer); ok && s.llm == nil {
		err = &patch.FieldError{Field: "Config.Summarizer", Problem: "its model is nil"}
	}
	if field := (*patch.FieldError)(nil); errors.As(err, &field) {
		field.Field = "Options.Compaction." + strings.TrimPrefix(field.Field, "Config.")
	}
	return cfg, err
}

// newInRun returns the compactor that compacts during runs. This compactor has no interval trigger. newInRun returns
// nil if sessions are compacted only in the background.
func (c *compacting) newInRun(log compaction.Log[store.Key], opts compaction.Options[store.Key]) (*compaction.Compactor[store.Key], error) {
	cfg := c.config
	if c.timeout < 0 || inRunFrom(cfg) == 0 {
		return nil, nil
	}
	cfg.CompactionInterval = 0
	return compaction.New(log, cfg, opts)
}

// inRunFrom returns the smallest number of prompt tokens at which a compaction can start during a run. 0 means never.
func inRunFrom(cfg compaction.Config) (least int) {
	for _, n := range []int{cfg.TokenThreshold, cfg.InvocationTokens, cfg.ClearAfter} {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
