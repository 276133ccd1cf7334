package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// findOut asks the backend whether a batch took place whose commit failed, and sees to it
// first that it takes place no more. The error is nil if it did, and is durable: what a read
// alone shows may be lost in a failover, but the fence is a commit that comes after it. It is errLaterView if
// the log has the records, and others wrote since.
func (s *Store) findOut(ctx context.Context, key Key, batch backend.Batch, failure error) error {
	name := key.name()
	if batch.Staged != "" {
		name = batch.Staged
	}
	took, err := s.backend.Fence(ctx, name, batch.Creation, batch.ExpectedToken, newToken())
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
	_, err := s.backend.Fence(ctx, "", "", newToken(), newToken())
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
	head, err := backend.HeadOf(ctx, s.backend, key.name())
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

// deleted finds out whether a session is gone whose deletion failed. It returns nil if it
// is. head is the session's as it was before, and seen what the deletion was conditional on.
func (s *Store) deleted(ctx context.Context, key Key, head backend.Head, seen *backend.Head, failure error) error {
	// It may take place yet, and harms no other creation: once more makes sure.
	err := s.backend.Delete(ctx, key.name(), head.Creation, seen)
	if errors.Is(err, backend.ErrNotFound) { // the first one took place, and is durable with the fence
		_, err = s.backend.Fence(ctx, key.name(), head.Creation, head.Token, newToken())
	}
	if err != nil && !errors.Is(err, backend.ErrMoved) {
		return stillUnknown(failure, err)
	}
	return err
}

// putShared writes shared values. Errors are the backend's.
//
// If it is not known whether that took place, it is done again: the second commit waits for the first one, which holds
// the rows, and does nothing if the values are no longer as they were. Then the values themselves tell.
func (s *Store) putShared(ctx context.Context, changes []backend.SharedChange) error {
	failure := s.backend.PutShared(ctx, changes)
	if !errors.Is(failure, backend.ErrUnknown) {
		return failure
	}
	err := s.backend.PutShared(ctx, changes)
	if err == nil {
		return nil
	}
	if errors.Is(err, backend.ErrMoved) {
		var landed bool
		if landed, err = s.sharedLanded(ctx, changes); err == nil && !landed {
			return backend.ErrMoved
		}
		if err == nil {
			err = s.confirm(ctx)
		}
	}
	if err != nil {
		return stillUnknown(failure, err)
	}
	s.opts.Logger.Warn("patchlog: a commit of shared values failed but took place", "error", failure)
	return nil
}

// errRewritten: of shared values that were written again nothing says what was written before.
var errRewritten = errors.New("the shared values have been written again since")

// sharedLanded reports whether changes of shared values, which are one commit, took place.
func (s *Store) sharedLanded(ctx context.Context, changes []backend.SharedChange) (bool, error) {
	written := 0
	for _, c := range changes {
		values, err := backend.SharedOf(ctx, s.backend, c.Name)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(values, func(v backend.Value) bool { return v.Name == c.Name })
		switch {
		case i < 0, c.Old != nil && bytes.Equal(values[i].Data, c.Old.Data): // as it was before
			return false, nil
		case bytes.Equal(values[i].Data, c.Data):
			written++
		}
	}
	if written < len(changes) {
		return false, errRewritten
	}
	return true, nil
}
