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

// Errors of a commit whose outcome was unknown, and that could be resolved.
var (
	errNotWritten = errors.New("the commit failed and wrote nothing")

	// errLaterView: the log has the records of the commit, and others have written since. The same records may have been
	// there before the call, from another process: the view that the commit would have given may be out of date.
	errLaterView = errors.New("the log has the records, and later ones")
)

// Errors that leave it unknown.
var (
	errGone  = errors.New("the session has been deleted since")         // with all that says what was written to it
	errBlank = errors.New("what is in its place has been erased since") // with what says who wrote it
)

// resolve finds out whether a batch took place whose commit failed, and sees to it first that it takes place no more. The
// error is nil if it did, and is durable: what a read alone shows may be lost in a failover, but the fence is a commit that
// comes after it. It is errLaterView if the log has the records, and others wrote since. Only appends need this: a delete, a
// change of shared values and a step of an erasure can be repeated by the caller.
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
// have it. The log has another token than the one that the batch names: a later commit may have written some of the ids,
// or all with other content, or have deleted the session with the batch.
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

// Confirm makes a commit that adds nothing: all that was read of the storage before survives a failover when it
// returns. A call that found its work done makes one before it says so.
func Confirm(ctx context.Context, b backend.Backend) error {
	_, err := b.Fence(ctx, "", "", backend.NewToken(), backend.NewToken())
	return err
}

// CauseOf returns why a commit failed, without the claim that its outcome is unknown.
func CauseOf(failure error) error {
	var unknown *backend.UnknownError
	if errors.As(failure, &unknown) {
		return unknown.Cause
	}
	return errors.New(failure.Error())
}
