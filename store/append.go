package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
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

	// Before is the view before the write. It is set with [UndoOptions.DryRun] only.
	Before fold.View
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

	// MaxResultTokens is how many tokens, as estimated, a function response may take in the
	// visible log. For an event with a longer one, the same commit puts a copy in its place that
	// has the beginning and the end of it, and a handle by which the whole can be read
	// ([recall.Shorten]): a patch by [recall.Author], which can be taken back. The log has the
	// event as it was given, and the state is what it is without. Events that are
	// in the log already are left as they are. 0 means any number; the least is [recall.MinResultTokens].
	MaxResultTokens int
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
// where that is not known. Calls that run at the same time share a commit, and its error.
func (s *Store) AppendEvents(ctx context.Context, key Key, opts AppendOptions, events ...*patch.Event) (Committed, error) {
	if n := opts.MaxResultTokens; n != 0 && n < recall.MinResultTokens {
		return Committed{}, &patch.FieldError{Field: "AppendOptions.MaxResultTokens", Problem: fmt.Sprintf("%d is below %d", n, recall.MinResultTokens)}
	}
	a := appending{opts: opts}
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
	opts   AppendOptions
}

func (a appending) offers() []patch.Record { return a.events }

func (a appending) draft(d *draft) error {
	if err := d.match(); err != nil {
		return err
	}
	if last := d.view.Seq(); len(d.missing) > 0 && a.opts.IfSeq != nil && *a.opts.IfSeq != last {
		return &SeqError{Expected: *a.opts.IfSeq, Last: last}
	}
	for _, i := range d.missing {
		if err := notErased(d.records[i]); err != nil {
			return err
		}
		if err := d.addUnjudged(i); err != nil {
			return err
		}
		if err := a.shorten(d, d.records[i]); err != nil {
			return err
		}
	}
	return nil
}

// shorten adds the patch that shows less of an event, the newest one, if results in it are long.
// What keeps it from that does not keep the event out of the log.
func (a appending) shorten(d *draft, r patch.Record) error {
	if a.opts.MaxResultTokens == 0 {
		return nil
	}
	short, err := recall.Shorten(r.Event, r.Seq, strconv.FormatUint(r.Seq, 10), d.store.opts.NewID, a.opts.MaxResultTokens)
	if err == nil && short != nil {
		p := patch.NewSplice(d.view.Len()-1, 1, short).WithState(patch.Keep).WithAuthor(recall.Author).WithBase(d.view.PatchSeq())
		err = d.addOwn(p)
	}
	switch {
	case errors.As(err, new(*fold.MissingRecordsError)):
		return err
	case err != nil && !errors.Is(err, fold.ErrUnknownPatch):
		d.store.opts.Logger.Warn("patchlog: a long result is shown whole", "session", d.handle.key.String(), "event", r.ID(), "error", err)
	}
	return nil
}
