package store

import (
	"context"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// View returns the session's newest view: what [Store.Get] finds, without the state that
// sessions share. It fails with [ErrNotFound] if there is no such session.
func (s *Store) View(ctx context.Context, key Key) (fold.View, error) {
	session, err := s.Get(ctx, key)
	return session.View, err
}

// ApplyOn is [Store.ApplyPatch] for authors that know views and patches but no store,
// such as package compaction: it logs patches that were made from the view on, all of
// them or none, and returns the view after them.
func (s *Store) ApplyOn(ctx context.Context, key Key, on fold.View, opts fold.CheckOptions, patches ...*patch.PatchEvent) (fold.View, error) {
	done, err := s.ApplyPatch(ctx, key, PatchOptions{On: on, AsOfNow: opts.AnyBase, AllowOrphans: opts.AllowOrphans, HideWaiting: opts.HideWaiting, Together: opts.Together}, patches...)
	return done.View, err
}
