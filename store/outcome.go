package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// findOut asks the backend whether a batch took place whose commit failed, and sees to it
// first that it takes place no more. Only appends need it: a delete, a change of shared values and a step of an erasing can
// be repeated by the caller. The error is nil if it did, and is durable: what a read
// alone shows may be lost in a failover, but the fence is a commit that comes after it. It is errLaterView if
// the log has the records, and others wrote since.
func (s *Store) findOut(ctx context.Context, key Key, batch backend.Batch, failure error) error {
	name := key.name()
	if batch.Staged != "" {
		name = batch.Staged
	}
	took, err := s.backend.Fence(ctx, name, batch.Creation, batch.ExpectedToken, backend.NewToken())
	switch {
	case err != nil:
	case took:
		err = errNotWritten
	default:
		err = s.landed(ctx, key, batch)
	}
	switch err {
	case nil, errLaterView:
		s.opts.Logger.Warn("patchlog: a commit failed but took place", "session", key.String(), "error", failure)
		return err
	case errNotWritten:
		return fmt.Errorf("%w: %w", err, causeOf(failure))
	}
	return stillUnknown(failure, err)
}

var errNotWritten = errors.New("the commit failed and wrote nothing")

// errLaterView: the records of a commit are in the log, and others have written since. The same records may
// have been there before the call, from another process: the view that the commit would have given may be out of date.
var errLaterView = errors.New("the log has the records, and later ones")

// confirm makes a commit that adds nothing: all that was read of the storage before survives a failover when it
// returns. A call that found its work done makes one before it says so.
func (s *Store) confirm(ctx context.Context) error {
	_, err := s.backend.Fence(ctx, "", "", backend.NewToken(), backend.NewToken())
	return fromBackend(Key{}, err)
}

// errGone: of a session that is gone nothing says what was written to it.
var errGone = errors.New("the session has been deleted since")

// errBlank: of a record that was erased nothing says who wrote it.
var errBlank = errors.New("what is in its place has been erased since")

// landed returns nil if the log has a batch, errLaterView if others wrote since, and errNotWritten if the log does not
// have it. The log has another token than the one that the batch names: a later commit may have written some of the ids,
// or all with other content, or have deleted the session with the batch.
func (s *Store) landed(ctx context.Context, key Key, batch backend.Batch) error {
	head, err := s.bareHead(ctx, key)
	switch {
	case err == nil && head.Token == batch.Next:
		return nil
	case errors.Is(err, backend.ErrNotFound), err == nil && head.Creation != batch.Creation:
		return errGone
	case err != nil:
		return err
	case batch.Create: // nothing else makes a session of this creation
		return nil
	case len(batch.Records) == 0:
		return errNotWritten
	}
	there, err := s.backend.Read(ctx, key.name(), head.Creation, backend.Range(batch.Records[0].Seq, len(batch.Records)), math.MaxInt)
	for i, raw := range there {
		if bytes.Equal(raw.Data, batch.Records[i].Data) {
			continue
		}
		if r, err := decode(key, raw.Seq, raw); err != nil {
			return err
		} else if _, blank := records.Envelope(r).ErasedBy(); blank {
			return errBlank
		}
		return errNotWritten
	}
	switch {
	case err != nil:
		return err
	case len(there) < len(batch.Records):
		return errNotWritten
	}
	return errLaterView
}

// stillUnknown is the error of a commit whose outcome could not be found out.
func stillUnknown(failure, err error) error {
	return &backend.UnknownError{Cause: fmt.Errorf("%w; and asking failed: %w", causeOf(failure), err)}
}

// causeOf returns why a commit failed, without the claim that its outcome is unknown.
func causeOf(failure error) error {
	var unknown *backend.UnknownError
	if errors.As(failure, &unknown) {
		return unknown.Cause
	}
	return errors.New(failure.Error())
}
