package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Compact summarises the older part of a session, if that is due.
type Compact struct {
	Config compaction.Config
	Run    compaction.Run
	Logger *slog.Logger // nil logs nothing: what goes wrong is an error
	Passed func(Pass)   // called after each pass, if not nil
}

// Pass is a pass of a compaction, with the record of its patch.
type Pass struct {
	Record patch.Record `json:"record,omitzero"`
	compaction.Written
}

// Compacted is what a compaction came to.
type Compacted struct {
	Passes  []Pass
	Stopped string // why it wrote no more, if the summarizer or the log said so
}

// Apply compacts the session until nothing is due. What passes before an error wrote stays, and is returned.
func (c Compact) Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (Compacted, error) {
	var done Compacted
	var lost error // of finding a pass in the log
	seq := on.Seq()
	logger := c.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	compactor, err := compaction.New(s, c.Config, compaction.Options[store.Key]{
		Logger: logger,
		Observe: func(ctx context.Context, at compaction.Attempt[store.Key]) {
			switch at.Outcome {
			case compaction.Wrote:
				r, err := recordOf(ctx, s, key, at.Written.PatchID, seq+1)
				if err != nil {
					lost = errors.Join(lost, err)
					return
				}
				seq = r.Seq
				pass := Pass{r, *at.Written}
				if done.Passes = append(done.Passes, pass); c.Passed != nil {
					c.Passed(pass)
				}
			case compaction.Declined:
				done.Stopped = "the summarizer declined: it found nothing to say of these events"
			case compaction.Conflict:
				done.Stopped = "another patch, or the answer to a call, was logged meanwhile"
			}
		},
	})
	if err != nil {
		return done, err
	}
	_, err = compactor.Compact(ctx, key, c.Run)
	if refused := (*compaction.SummarizerError)(nil); errors.As(err, &refused) {
		err = fmt.Errorf("session %s: %w", key, err) // the log's own errors say so
	}
	return done, errors.Join(err, lost)
}

// recordOf returns the record of a patch, of which the seq is not below from.
func recordOf(ctx context.Context, s *store.Store, key store.Key, id string, from uint64) (patch.Record, error) {
	for r, err := range s.RawEvents(ctx, key, from) {
		if err != nil || r.ID() == id {
			return r, err
		}
	}
	return patch.Record{}, fmt.Errorf("session %s: patch %q is not in the log", key, id)
}
