package compaction

import (
	"fmt"
	"runtime/debug"

	"github.com/patchlog-dev/patchlog/patch"
)

// settings are a configuration, and the calls of its summarizers.
type settings struct {
	cfg      Config
	first    asked // the configuration's Summarizer
	fallback asked
}

// asked is a summarizer and its calls.
type asked struct {
	Summarizer
	pending
}

func newSettings(cfg Config) *settings {
	cfg = cfg.withDefaults()
	return &settings{cfg: cfg, first: asked{Summarizer: cfg.Summarizer}, fallback: asked{Summarizer: cfg.Fallback}}
}

// settings returns those of the named configurations.
func (o Options[K]) settings() (map[string]*settings, error) {
	if (o.ConfigOf == nil) != (len(o.Configs) == 0) {
		return nil, &patch.FieldError{Field: "Options.ConfigOf", Problem: fmt.Sprintf("it must be set with Configs, of which there are %d", len(o.Configs))}
	}
	named := map[string]*settings{}
	for name, cfg := range o.Configs {
		if err := cfg.Validate(); err != nil {
			return nil, fmt.Errorf("configuration %q: %w", name, err)
		}
		named[name] = newSettings(cfg)
	}
	return named, nil
}

// settingsOf returns those that a session is compacted by.
func (c *Compactor[K]) settingsOf(key K) (s *settings, err error) {
	if c.opts.ConfigOf == nil {
		return c.own, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{ErrPanic, p, debug.Stack()}
		}
	}()
	if s, ok := c.named[c.opts.ConfigOf(key)]; ok {
		return s, nil
	}
	return c.own, nil
}
