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

// ContextWindow says at which part of the model's context window a session is compacted.
type ContextWindow struct {
	// Share is the part of the window, from 0 to 1, from which on a prompt is compacted, in place of
	// the configuration's TokenThreshold. 0 means that TokenThreshold holds.
	Share float64

	// Tokens is the size of the window. 0 means what [Options.Model] says of itself by a method
	// ContextWindow() int, which ADK's models do not have.
	Tokens int
}

// threshold returns the number of tokens that the share comes to.
func (w ContextWindow) threshold(model any) (int, error) {
	bad := func(field, format string, args ...any) (int, error) {
		return 0, &patch.FieldError{Field: "Options.ContextWindow." + field, Problem: fmt.Sprintf(format, args...)}
	}
	said, _ := model.(interface{ ContextWindow() int })
	switch {
	case w.Share == 0 && w.Tokens == 0:
		return 0, nil
	case !(w.Share > 0 && w.Share <= 1):
		return bad("Share", "%v is not between 0 and 1", w.Share)
	case w.Tokens < 0:
		return bad("Tokens", "%d is below 0", w.Tokens)
	case w.Tokens > 0:
	case said != nil:
		w.Tokens = said.ContextWindow()
	}
	if w.Tokens <= 0 {
		return bad("Tokens", "the model does not say how large its window is; say it here")
	}
	return max(1, int(w.Share*float64(w.Tokens))), nil
}

// config returns the options' configuration with what the other options say. The error matches
// [patch.ErrInvalid].
func (o Options) config() (compaction.Config, error) {
	cfg := o.Compaction
	isNil := reflect.ValueOf(o.Model)
	switch threshold, err := o.ContextWindow.threshold(o.Model); {
	case isNil.Kind() == reflect.Pointer && isNil.IsNil():
		return cfg, &patch.FieldError{Field: "Options.Model", Problem: fmt.Sprintf("it is a nil %T; leave it out to have none", o.Model)}
	case !cfg.Enabled && max(cfg.CompactionInterval, cfg.TokenThreshold, cfg.InvocationTokens, cfg.ClearAfter, threshold) > 0:
		return cfg, &patch.FieldError{Field: "Options.Compaction.Enabled", Problem: "it is false, and a trigger is set; set it to true, or leave the triggers out"}
	case o.Model != nil && !cfg.Enabled:
		return cfg, &patch.FieldError{Field: "Options.Model", Problem: "it writes summaries, but compaction is off: set Compaction, as by compaction.DefaultConfig, or leave the model out"}
	case err != nil:
		return cfg, err
	case threshold > 0:
		cfg.TokenThreshold = threshold
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

// newInRun returns what compacts inside runs: by tokens and by clearing, where that is
// set. It returns nil where all is left to the background.
func (c *compacting) newInRun(log compaction.Log[store.Key], opts compaction.Options[store.Key]) (*compaction.Compactor[store.Key], error) {
	cfg := c.config
	if c.timeout < 0 || inRunFrom(cfg) == 0 {
		return nil, nil
	}
	cfg.CompactionInterval = 0
	return compaction.New(log, cfg, opts)
}

// inRunFrom is the size of the prompt from which on something may be done inside a run; 0 if
// nothing is.
func inRunFrom(cfg compaction.Config) (least int) {
	for _, n := range []int{cfg.TokenThreshold, cfg.InvocationTokens, cfg.ClearAfter} {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
