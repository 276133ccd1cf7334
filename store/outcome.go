package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// findOut asks the backend whether a batch took place whose commit failed, and sees to it
// first that it takes place no more. The error is nil if it did, and is durable: what a read
// alone shows may be lost in a failover, but the fence is a commit that comes after it.
func (s *Store) findOut(ctx context.Context, key Key, batch backend.Batch, failure error) error {
	landed, name := false, key.name()
	if batch.Staged != "" {
		name = batch.Staged
	}
	took, err := s.backend.Fence(ctx, name, batch.Creation, batch.Seen, newToken())
	if err == nil && !took {
		landed, err = s.landed(ctx, key, batch)
	}
	switch {
	case err != nil:
		return stillUnknown(failure, err)
	case !landed:
		return fmt.Errorf("the commit failed and wrote nothing: %w", causeOf(failure))
	}
	s.opts.Logger.Warn("patchlog: a commit failed but took place", "session", key.String(), "error", failure)
	return nil
}

// confirm makes a commit to a session, which adds nothing to it: all that was read of the
// storage before survives a failover when it returns. A call that found its work done makes
// one before it says so.
func (s *Store) confirm(ctx context.Context, key Key) error {
	_, err := s.commit(ctx, key, "", confirming{})
	return err
}

// confirming is the plan of [Store.confirm].
type confirming struct{}

func (confirming) offers() []patch.Record { return nil }

func (confirming) draft(d *draft) error {
	d.present = true
	return nil
}

// errGone: of a session that is gone nothing says what was written to it.
var errGone = errors.New("the session has been deleted since")

// errBlank: of a record that was erased nothing says who wrote it.
var errBlank = errors.New("what is in its place has been erased since")

// landed reports whether a batch is in the log, which no longer has the token that the batch names: a later
// commit may have written some of the ids, or all with other content, or have deleted the session with what had
// landed.
func (s *Store) landed(ctx context.Context, key Key, batch backend.Batch) (bool, error) {
	head, err := backend.HeadOf(ctx, s.backend, key.name())
	switch {
	case err == nil && head.Token == batch.Next:
		return true, nil
	case errors.Is(err, backend.ErrNotFound), err == nil && head.Creation != batch.Creation:
		return false, errGone
	case err != nil:
		return false, err
	case batch.Create: // nothing else makes a session of this creation
		return true, nil
	case len(batch.Records) == 0:
		return false, nil
	}
	there, err := s.backend.Read(ctx, key.name(), head.Creation, backend.Range(batch.Records[0].Seq, len(batch.Records)), math.MaxInt)
	for i, raw := range there {
		if bytes.Equal(raw.Data, batch.Records[i].Data) {
			continue
		}
		if r, err := decode(key, raw.Seq, raw); err != nil {
			return false, err
		} else if _, blank := records.Envelope(r).Erased(); blank {
			return false, errBlank
		}
		return false, nil
	}
	return err == nil && len(there) == len(batch.Records), err
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
			err = s.confirmShared(ctx)
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

// confirmShared is [Store.confirm] for what was read of shared values, by a commit to any session, or
// to a shared value if there is no session.
func (s *Store) confirmShared(ctx context.Context) error {
	for info, err := range s.List(ctx, ListOptions{}) {
		if err == nil {
			err = s.confirm(ctx, info.Key)
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound) { // else the next will do
			return err
		}
	}
	values, err := backend.SharedOf(ctx, s.backend, "")
	for _, v := range values {
		err = s.backend.PutShared(ctx, []backend.SharedChange{{Old: &v, Name: v.Name, Data: v.Data}})
		if !errors.Is(err, backend.ErrMoved) {
			break
		}
	}
	return fromBackend(Key{}, err)
}
