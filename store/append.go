package store

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Committed is what a write put into the log.
type Committed struct {
	// Records are the records as they are logged, with seqs, ids and times, in the
	// order of the call; for a retry those that were there. Partial events are not
	// among them. They are set too if the error matches [ErrOutcomeUnknown], so that
	// the call can be repeated with the same ids.
	Records []patch.Record

	// View is the session's view after the write.
	View fold.View
}

// AppendOptions say what an append expects. The zero value expects nothing.
type AppendOptions struct {
	// IfSeq, if not nil, is the seq that the log's last record must have, 0 for an
	// empty log; else the error is a *[SeqError]. A call of which all is in the log
	// already, or that has nothing to log, expects nothing.
	IfSeq *uint64

	// Creation, if not empty, is the id of the session's creation; a session that was
	// deleted and created again gives [ErrNotFound].
	Creation string
}

// AppendEvents appends events to the end of the session's log, all of them in one
// durable commit or none. A missing id gets a UUID, a missing timestamp the time of the
// call; temp: keys are not logged, partial events neither; app: and user: keys go to
// the shared scopes in the same commit.
//
// Retrying is safe: an event whose id is in the log already, as an event with the same
// content, is skipped, and the record that is there is returned. This is looked at
// before anything else. Errors match [ErrNotFound], [ErrDuplicateID], [ErrConflict],
// [ErrTooLarge] or [ErrOutcomeUnknown]; nothing was written then, but for the last,
// where that is not known.
func (s *Store) AppendEvents(ctx context.Context, key Key, opts AppendOptions, events ...*patch.Event) (Committed, error) {
	a := appending{ifSeq: opts.IfSeq}
	for i, e := range events {
		switch {
		case e == nil:
			return Committed{}, fmt.Errorf("%w: event %d of the call is nil", ErrInvalid, i)
		case !e.Partial():
			a.events = append(a.events, patch.Record{Event: e})
		}
	}
	return s.commit(ctx, key, opts.Creation, a)
}

// appending is the plan to append events.
type appending struct {
	events []patch.Record
	ifSeq  *uint64
}

func (a appending) offers() []patch.Record { return a.events }

func (a appending) draft(d *draft) error {
	if err := d.match(); err != nil {
		return err
	}
	if last := d.view.Seq(); len(d.missing) > 0 && a.ifSeq != nil && *a.ifSeq != last {
		return &SeqError{Expected: *a.ifSeq, Last: last}
	}
	return d.addMissing()
}
