package adk

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// configs are the configurations that sessions are compacted by.
type configs struct {
	own   compaction.Config
	byApp map[string]compaction.Config
}

// configs returns the options' configurations, with the model as their summarizer and the
// redactor where they have none.
func (o Options) configs() configs {
	return configs{o.Compaction, o.CompactionByApp}.each(func(cfg compaction.Config) compaction.Config {
		cfg = o.withModel(cfg)
		cfg.Redact = cmp.Or(cfg.Redact, o.Redact)
		return cfg
	})
}

func (o Options) withModel(cfg compaction.Config) compaction.Config {
	if o.Model == nil || cfg.Summarizer != nil {
		return cfg
	}
	cfg.Summarizer = Summarizer(o.Model)
	if cfg.Fallback == nil {
		cfg.Fallback = compaction.Extractive{}
	}
	return cfg
}

// validateConfigs reports whether the configurations make sense.
func (o Options) validateConfigs() error {
	if v := reflect.ValueOf(o.Model); v.Kind() == reflect.Pointer && v.IsNil() {
		return &patch.FieldError{Field: "Options.Model", Problem: fmt.Sprintf("it is a nil %T; leave it out to have none", o.Model)}
	}
	if err := validateConfig(o.Compaction); err != nil {
		return err
	}
	for app, cfg := range o.CompactionByApp {
		if err := validateConfig(cfg); err != nil {
			return fmt.Errorf("compaction of app %q: %w", app, err)
		}
	}
	return nil
}

func validateConfig(cfg compaction.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	for _, s := range []compaction.Summarizer{cfg.Summarizer, cfg.Fallback} {
		if s, ok := s.(summarizer); ok && s.llm == nil {
			return errNoModel
		}
	}
	return nil
}

// compacts reports whether any session is compacted.
func (o Options) compacts() bool {
	on := o.Compaction.Enabled
	for _, cfg := range o.CompactionByApp {
		on = on || cfg.Enabled
	}
	return on
}

// of returns what a session is compacted by.
func (c configs) of(key store.Key) compaction.Config {
	if cfg, ok := c.byApp[key.App]; ok {
		return cfg
	}
	return c.own
}

// each returns the configurations, changed.
func (c configs) each(change func(compaction.Config) compaction.Config) configs {
	out := configs{change(c.own), make(map[string]compaction.Config, len(c.byApp))}
	for app, cfg := range c.byApp {
		out.byApp[app] = change(cfg)
	}
	return out
}

func (c configs) compactor(log compaction.Log[store.Key], opts compaction.Options[store.Key]) (*compaction.Compactor[store.Key], error) {
	if len(c.byApp) > 0 {
		opts.Configs, opts.ConfigOf = c.byApp, func(key store.Key) string { return key.App }
	}
	return compaction.New(log, c.own, opts)
}

// on reports whether a session is compacted.
func (c *compacting) on(key store.Key) bool { return c != nil && c.configs.of(key).Enabled }

// newInRun returns what compacts inside runs: by tokens and by clearing, where that is
// set. It returns nil where all is left to the background.
func (c *compacting) newInRun(log compaction.Log[store.Key], opts compaction.Options[store.Key]) (*compaction.Compactor[store.Key], error) {
	if c.timeout < 0 {
		return nil, nil
	}
	any := false
	inRun := c.configs.each(func(cfg compaction.Config) compaction.Config {
		cfg.CompactionInterval = 0
		cfg.Enabled = cfg.Enabled && inRunFrom(cfg) > 0
		cfg.Timeout = withinRun(cfg.Timeout, c.timeout)
		any = any || cfg.Enabled
		return cfg
	})
	if !any {
		return nil, nil
	}
	return inRun.compactor(log, opts)
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

// withinRun is how long a call of a summarizer may take inside a run. One that takes too long
// should have failed before the run's time is up, so that it is not asked again at once.
func withinRun(timeout, patience time.Duration) time.Duration {
	most := patience - patience/10
	if timeout == 0 || timeout > most {
		return min(most, compaction.DefaultTimeout)
	}
	return timeout
}
