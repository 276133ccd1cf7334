package adk

import (
	"context"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// Hooks are called when sessions are compacted, each if it is not nil. They may be called from several
// goroutines at once, while a run waits, and should return soon after ctx is done, which is after
// five minutes, or when nine tenths of the run's patience are over. A call that does not, or that panics, is a
// failure of compaction. They get the log's events, which do not change; [SessionEvent] converts one to
// ADK's form.
type Hooks struct {
	// Prepare is asked before events are summarised, and returns what must be kept of them, or "": it
	// stands in the summary word for word, as far as it takes no more than half of its room. An error is
	// a veto.
	Prepare func(ctx context.Context, p compaction.PrepareRequest[store.Key]) (keep string, err error)

	// BeforeSummarise is shown what compaction is about to log. An error is a veto: nothing is written, the
	// session stays as it is and is left alone until it has grown, as after a failure of the summarizer;
	// the attempt's outcome is [compaction.Vetoed] and its error matches [compaction.ErrVetoed] and the one
	// returned. It never reaches a run.
	BeforeSummarise func(ctx context.Context, d compaction.ApproveRequest[store.Key]) error

	// OnCompaction is called with each attempt to compact a session when it has ended, one that failed
	// too. It should return soon.
	OnCompaction func(compaction.Attempt[store.Key])
}
