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

// CompactOptions are options of [Service.Compact].
type CompactOptions struct {
	// Focus says what summaries should keep above all, in a few words, as
	// [compaction.Run.Focus] does.
	Focus string
}

// Compact compacts a session now, if a trigger fires, pass by pass until none does, and returns the passes that it
// wrote; the session then shows the new view. Unlike automatic compaction, it does not back off after failures. Its
// error is a *[compaction.SummarizerError], an error that matches [compaction.ErrVetoed], or the store's error; the
// passes written before the error are returned with it. It returns no passes and no error if there is nothing to do, if
// a summarizer declines, if an invocation of the session runs in another process, or if the session is being compacted
// already. The user's message of an invocation that runs in this process stays visible. The error matches
// [ErrCompactionOff] if compaction is off.
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

// LastCompaction returns this service's last attempt to compact a session, automatic or by [Service.Compact]. ok is
// false if there was no attempt, or if the service no longer remembers it: it remembers some thousands of sessions.
func (s *Service) LastCompaction(sess session.Session) (a compaction.Attempt[store.Key], ok bool) {
	handle, err := handleOf(sess)
	if err != nil || s.compacting == nil {
		return a, false
	}
	return s.compacting.last.Get(handle.key)
}
