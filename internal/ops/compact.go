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

// Compact compacts the older part of a session, if a compaction is due.
type Compact struct {
	Config compaction.Config
	Run    compaction.Run
	Logger *slog.Logger // nil disables logging; Apply returns failures anyway
	OnPass func(Pass)   // if not nil, called after each pass
}

// Pass is a compaction pass with the record of its patch.
type Pass struct {
	Record patch.Record `json:"record,omitzero"`
	compaction.Written
}

// Compacted is the result of a compaction.
type Compacted struct {
	Passes  []Pass
	Stopped string // why compaction stopped early, or ""
}

// Apply compacts the session until nothing is due. If an error occurs, the passes before it stay logged, and
// Apply returns them with the error.
func (c Compact) Apply(ctx context.Context, s *store.Store, key store.Key, on fold.View) (Compacted, error) {
	var done Compacted
	var searchErr error // error while searching the log for a pass
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
				r, err := findPatchRecord(ctx, s, key, at.Written.PatchID, seq+1)
				if err != nil {
					searchErr = errors.Join(searchErr, err)
					return
				}
				seq = r.Seq
				pass := Pass{r, *at.Written}
				if done.Passes = append(done.Passes, pass); c.OnPass != nil {
					c.OnPass(pass)
				}
			case compaction.Declined:
				done.Stopped = "the summarizer declined to summarise these events"
			case compaction.Conflict:
				done.Stopped = "another patch or the response of a call was logged during the pass"
			}
		},
	})
	if err != nil {
		return done, err
	}
	_, err = compactor.Compact(ctx, key, c.Run)
	if refused := (*compaction.SummarizerError)(nil); errors.As(err, &refused) {
		err = fmt.Errorf("session %s: %w", key, err) // errors of the store already name the session
	}
	return done, errors.Join(err, searchErr)
}

// findPatchRecord returns the record of the patch with the given id. It searches the log from the record with seq
// from on.
func findPatchRecord(ctx context.Context, s *store.Store, key store.Key, id string, from uint64) (patch.Record, error) {
	for r, err := range s.RawEvents(ctx, key, from) {
		if err != nil || r.ID() == id {
			return r, err
		}
	}
	return patch.Record{}, fmt.Errorf("session %s: patch %q is not in the log", key, id)
}
