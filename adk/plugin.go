package adk

import (
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/store"
)

// Plugin returns a plugin for runner.PluginConfig that tells the service when a run begins and ends, in success or
// failure, for [Options.Runs] and compaction. Without the plugin, automatic compaction takes an agent's final response
// as the end of a turn, and counts the newest invocation as running until the next invocation begins. With the plugin,
// the invocation that has just ended can be compacted too, and the service notices failed runs.
//
// The plugin changes no event. It does nothing if compaction is off and Options.Runs is [ConcurrentRuns]. If processes
// share a storage, the end of a run waits until the run's lease is released. Closing the plugin does not close the
// service.
func (s *Service) Plugin() *plugin.Plugin {
	cfg := plugin.Config{Name: "patchlog"}
	if s.runs != nil {
		cfg.BeforeRunCallback = func(ctx agent.InvocationContext) (*genai.Content, error) {
			if key, ok := s.keyOf(ctx.Session()); ok {
				s.runs.watch(key, ctx.InvocationID())
			}
			return nil, nil
		}
		cfg.AfterRunCallback = func(ctx agent.InvocationContext) {
			if key, ok := s.keyOf(ctx.Session()); ok {
				s.runs.end(ctx, key, ctx.InvocationID(), false)
				s.compacting.notify(key)
			}
		}
	}
	p, _ := plugin.New(cfg) // it has no reason to fail
	return p
}

// keyOf returns the key of a session, if it is one of the service's.
func (s *Service) keyOf(sess session.Session) (store.Key, bool) {
	handle, ok := sess.(*Session)
	if !ok || handle == nil || handle.given.decoder != s.decoder {
		return store.Key{}, false
	}
	return handle.key, true
}
