package adk

import (
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/store"
)

// Plugin returns a plugin for runner.PluginConfig. It informs the service when a run begins and when it ends, even if
// the run fails. The service uses this for [Options.Runs] and for compaction.
//
// Without the plugin, the final response of an agent starts automatic compaction. Compaction then treats the newest
// invocation as running until the next invocation begins. With the plugin, an invocation can be compacted as soon as
// it has ended, and the service also learns that a run has failed.
//
// The plugin does not change events. It does nothing if compaction is off and Options.Runs is [ConcurrentRuns]. If
// processes share a database, the end of a run waits until the run's lease is released. Closing the plugin does not
// close the service.
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
				s.autoCompaction.notify(key)
			}
		}
	}
	p, _ := plugin.New(cfg) // cfg is valid, so New does not fail
	return p
}

// keyOf returns the key of a session. ok is false if this service did not return the session.
func (s *Service) keyOf(sess session.Session) (store.Key, bool) {
	handle, ok := sess.(*Session)
	if !ok || handle == nil || handle.returned.decoder != s.decoder {
		return store.Key{}, false
	}
	return handle.key, true
}
