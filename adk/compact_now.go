package adk

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// ErrCompactionOff: the options do not switch compaction on.
var ErrCompactionOff = errors.New("compaction is off")

// CompactOptions say how a session is compacted that somebody asks for.
type CompactOptions struct {
	// Focus says what summaries should keep above all, in a few words, as
	// [compaction.Run.Focus] does.
	Focus string
}

// Compact compacts a session now, if a trigger fires, pass by pass until none does, and
// returns what was written; the session then shows it. It waits, and does not back off after
// failures: what goes wrong is its error, a *[compaction.SummarizerError], one that matches
// [compaction.ErrVetoed], or the store's. What earlier passes have written is returned in any
// case. It gives nothing and no error where there is nothing to do, where a summarizer
// declines, and where the session is another's business: an invocation of it runs in
// another process, or it is being compacted. An invocation that runs in this one keeps what it
// was asked. The error matches [ErrCompactionOff] where compaction is off.
func (s *Service) Compact(ctx context.Context, sess session.Session, opts CompactOptions) ([]compaction.Written, error) {
	if s.compacting == nil {
		return nil, fmt.Errorf("compact: %w", ErrCompactionOff)
	}
	handle, err := s.current(ctx, sess)
	if err != nil {
		return nil, fmt.Errorf("compact: %w", err)
	}
	written, err := s.compacting.background.Compact(ctx, handle.key, compaction.Run{Force: true, Focus: opts.Focus})
	if len(written) > 0 {
		s.compacting.show(ctx, handle)
	}
	if err != nil {
		return written, fmt.Errorf("compact session %s: %w", handle.key, err)
	}
	return written, nil
}

// LastCompaction returns how the last attempt to compact a session ended that this service
// has made, whoever asked for it; its Err says what went wrong. ok is false if there was none, or
// if it was so long ago that it is forgotten: some thousands of sessions are remembered.
func (s *Service) LastCompaction(sess session.Session) (a compaction.Attempt[store.Key], ok bool) {
	handle, err := handleOf(sess)
	if err != nil || s.compacting == nil {
		return a, false
	}
	return s.compacting.last.Get(handle.key)
}
