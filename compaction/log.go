package compaction

import (
	"context"
	"iter"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Log is what a [Compactor] works on: sessions by key. A *store.Store is one, with
// store.Key as K.
type Log[K comparable] interface {
	// View returns the session's newest view.
	View(ctx context.Context, key K) (fold.View, error)

	// ViewAt returns the session's view as it stood after the record with the given seq.
	ViewAt(ctx context.Context, key K, seq uint64) (fold.View, error)

	// RawEvents yields the records of the session's log from fromSeq on.
	RawEvents(ctx context.Context, key K, fromSeq uint64) iter.Seq2[patch.Record, error]

	// ApplyOn logs patches that were made from the view on, all of them or none, and
	// returns the view after them. The error matches [fold.ErrConflict] if another patch
	// was logged since.
	ApplyOn(ctx context.Context, key K, on fold.View, opts fold.CheckOptions, patches ...*patch.PatchEvent) (fold.View, error)
}

// bound is a log's one session.
type bound struct {
	raw    func(ctx context.Context, fromSeq uint64) iter.Seq2[patch.Record, error]
	viewAt func(ctx context.Context, seq uint64) (fold.View, error)
}
