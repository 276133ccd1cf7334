package adk

import (
	"context"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/store"
)

// Revert takes a patch back, a summary of compaction's too, and with it all patches of its
// group, as [store.Store.Revert] does: what it hid shows again, and what it set
// holds again. The session stands at the view that this gives. The patch is
// named by its id, which is in [store.Committed] and in [Service.RawEvents]. A revert is a
// patch with an id of its own and can be reverted. After a refusal nothing was written;
// errors are as for [store.Store.Revert].
func (s *Service) Revert(ctx context.Context, sess session.Session, patchID string) (store.Committed, error) {
	return s.patching(ctx, sess, "revert", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		return s.store.Revert(ctx, key, store.BackOptions{On: on, Author: userAuthor}, patchID)
	})
}

// Rewind takes the session back to where it was before an invocation: its events and all
// that came since are hidden, with the state that they set; the audit log keeps them. All
// of it is one durable commit or none, and can be taken back in turn, patch by patch. The
// scopes that sessions share stay as they are. The session stands at the view that this
// gives. Errors are as for [store.Store.Rewind]; one matches [store.ErrConflict] if a
// patch was logged since the session looked.
func (s *Service) Rewind(ctx context.Context, sess session.Session, invocationID string) (store.Committed, error) {
	return s.patching(ctx, sess, "rewind", func(ctx context.Context, key store.Key, on fold.View) (store.Committed, error) {
		return s.store.Rewind(ctx, key, store.BackOptions{On: on, Author: userAuthor}, invocationID)
	})
}
