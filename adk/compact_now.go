package adk

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// ErrCompactionOff is the error of [Service.Compact] if [Options.Compaction] does not enable compaction.
var ErrCompactionOff = errors.New("compaction is off; enable it in Options.Compaction")

// CompactOptions are the options of [Service.Compact].
type CompactOptions struct {
	// Focus describes in a few words what summaries should preserve above all. See [compaction.Run.Focus].
	Focus string
}

// Compact compacts a session now. It runs passes until no trigger fires, and returns the passes that it wrote.
// Afterwards, sess shows the new view. Unlike automatic compaction, Compact does not back off after failures.
//
// Compact returns no passes and no error in the following cases:
//
//   - No trigger fires.
//   - The summarizer declines.
//   - Another process runs an invocation of the session.
//   - The session is already being compacted.
//
// If an invocation of the session is running in this process, the user's message of the invocation stays visible.
//
// If Compact fails, it returns the passes that it wrote before the failure. The error is a
// *[compaction.SummarizerError], an error that matches [compaction.ErrVetoed], or an error of the store. If
// compaction is off, the error matches [ErrCompactionOff].
func (s *Service) Compact(ctx context.Context, sess session.Session, opts CompactOptions) ([]compaction.Written, error) {
	if s.autoCompaction == nil {
		return nil, fmt.Errorf("compact: %w", ErrCompactionOff)
	}
	handle, err := s.currentHandle(ctx, sess)
	if err != nil {
		return nil, fmt.Errorf("compact: %w", err)
	}
	written, err := s.autoCompaction.background.Compact(ctx, handle.key, compaction.Run{Force: true, Focus: opts.Focus})
	if len(written) > 0 {
		s.autoCompaction.showNewest(ctx, handle)
	}
	if err != nil {
		return written, fmt.Errorf("compact session %s: %w", handle.key, err)
	}
	return written, nil
}

// LastCompaction returns the service's last attempt to compact a session, whether automatic or by
// [Service.Compact]. ok is false if there was no attempt, or if the service has forgotten it. The service
// remembers the attempts of several thousand sessions and forgets the least recently used first.
func (s *Service) LastCompaction(sess session.Session) (a compaction.Attempt[store.Key], ok bool) {
	handle, err := handleOf(sess)
	if err != nil || s.autoCompaction == nil {
		return a, false
	}
	return s.autoCompaction.last.Get(handle.key)
}
