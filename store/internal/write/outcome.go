package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Results of resolve for a commit whose outcome was unknown.
var (
	errNotWritten = errors.New("the commit failed and wrote nothing")

	// errLaterView: the log has the records of the commit, and later ones by other writers. Another process may have
	// logged the same records before this call, so the view planned for the commit may be out of date.
	errLaterView = errors.New("the log has the records, and later ones")
)

// Errors that leave the outcome unknown.
var (
	errGone  = errors.New("the session has been deleted since")         // and so have the records that could show the outcome
	errBlank = errors.New("what is in its place has been erased since") // and so has the proof of who wrote it
)

// resolve finds out whether a failed commit of a batch took place. It first sets a fence, after which the commit can no
// longer take place. The error is nil if the commit took place and is durable: a failover may lose what a read has
// shown, but not what precedes the fence, which is a commit. The error is errLaterView if others wrote since. Only
// appends need resolve: the caller can repeat a delete, a change of shared values or a step of an erasure.
func (s *Session) resolve(ctx context.Context, b backend.Batch, failure error) error {
	name := s.Name
	if b.Staged != "" {
		name = b.Staged
	}
	took, err := s.Backend.Fence(ctx, name, b.Creation, b.ExpectedToken, backend.NewToken())
	switch {
	case err != nil:
	case took:
		err = errNotWritten
	default:
		err = s.landed(ctx, b)
	}
	switch err {
	case nil, errLaterView:
		s.Logger.Warn("patchlog: a commit failed but took place", "session", s.Label, "error", failure)
		return err
	case errNotWritten:
		return fmt.Errorf("%w: %w", err, CauseOf(failure))
	}
	return &backend.UnknownError{Cause: fmt.Errorf("%w; and asking failed: %w", CauseOf(failure), err)}
}

// landed returns nil if the log has a batch, errLaterView if others wrote since, and errNotWritten if the log does not
// have it. It is called when the log's token differs from the batch's: a later commit may have written some of the ids,
// or all of them with other content, or have deleted the session with the batch.
func (s *Session) landed(ctx context.Context, b backend.Batch) error {
	found, err := s.Backend.Fetch(ctx, backend.Query{Session: s.Name, NoMeta: true})
	switch head := found.Head; {
	case err == nil && head.Token == b.Next:
		return nil
	case errors.Is(err, backend.ErrNotFound), err == nil && head.Creation != b.Creation:
		return errGone
	case err != nil:
		return err
	case b.Create: // nothing else makes a session of this creation
		return nil
	case len(b.Records) == 0:
		return errNotWritten
	}
	there, err := s.Backend.Read(ctx, s.Name, b.Creation, backend.Range(b.Records[0].Seq, len(b.Records)), math.MaxInt)
	for i, raw := range there {
		if bytes.Equal(raw.Data, b.Records[i].Data) {
			continue
		}
		if raw.Err != nil {
			return raw.Err
		}
		if r, err := patch.DecodeRecord(raw.Data); err != nil {
			return err
		} else if _, blank := records.Envelope(r).ErasedBy(); blank {
			return errBlank
		}
		return errNotWritten
	}
	switch {
	case err != nil:
		return err
	case len(there) < len(b.Records):
		return errNotWritten
	}
	return errLaterView
}

// Confirm makes a commit that adds nothing: when it returns, everything that was read before survives a failover. A
// call that finds its work already done calls it before it reports success.
func Confirm(ctx context.Context, b backend.Backend) error {
	_, err := b.Fence(ctx, "", "", backend.NewToken(), backend.NewToken())
	return err
}

// CauseOf returns the cause of a failed commit without the unknown-outcome error around it.
func CauseOf(failure error) error {
	var unknown *backend.UnknownError
	if errors.As(failure, &unknown) {
		return unknown.Cause
	}
	return errors.New(failure.Error())
}
