package adk

import (
	"context"
	"fmt"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// Revert takes a patch back, a summary of compaction's too, with the patches that belong
// to the same window ([compaction.TakeBack]): what it hid shows again, and what it set
// holds again. The session stands at the view that this gives. The patch is
// named by its id, which is in [store.Committed] and in [Service.RawEvents]. A revert is a
// patch with an id of its own and can be reverted. After a refusal nothing was written;
// errors are as for [store.Store.Revert].
func (s *Service) Revert(ctx context.Context, sess session.Session, patchID string) (done store.Committed, err error) {
	handle, err := handleOf(sess)
	if err != nil {
		return done, fmt.Errorf("revert: %w", err)
	}
	ctx, op := s.telemetry.start(ctx, opPatch, handle.key)
	defer func() { op.end(ctx, err) }()
	reverts, err := compaction.TakeBack(s.store.RawEvents(ctx, handle.key, 1), patchID)
	if err == nil {
		done, err = s.store.ApplyPatch(ctx, handle.key, store.PatchOptions{On: handle.View()}, reverts...)
	}
	if err != nil {
		return done, fmt.Errorf("revert: %w", err)
	}
	handle.advance(done.View)
	op.logged(ctx, done.Records)
	return done, nil
}

// Rewind takes the session back to where it was before an invocation: its events and all
// that came since are hidden, with the state that they set; the audit log keeps them. All
// of it is one durable commit or none, and can be taken back in turn, patch by patch. The
// scopes that sessions share stay as they are. The session stands at the view that this
// gives. Errors are as for [store.Store.Rewind]; one matches [store.ErrConflict] if a
// patch was logged since the session looked.
func (s *Service) Rewind(ctx context.Context, sess session.Session, invocationID string) (done store.Committed, err error) {
	handle, err := handleOf(sess)
	if err != nil {
		return done, fmt.Errorf("rewind: %w", err)
	}
	ctx, op := s.telemetry.start(ctx, opPatch, handle.key)
	defer func() { op.end(ctx, err) }()
	done, err = s.store.Rewind(ctx, handle.key, store.RewindOptions{On: handle.View(), Author: userAuthor}, invocationID)
	if err != nil {
		return done, fmt.Errorf("rewind: %w", err)
	}
	handle.advance(done.View)
	op.logged(ctx, done.Records)
	return done, nil
}
