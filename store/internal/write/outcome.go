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

	// errLaterRecords: the log has the records of the commit and later records by other writers. The view that was
	// planned for the commit may be out of date, because another process may have logged the same records before.
	errLaterRecords = errors.New("the log has the records and later records")
)

// Errors after which the outcome is still unknown.
var (
	errSessionDeleted = errors.New("the session was deleted after the commit")          // the records that could show the outcome are gone
	errRecordErased   = errors.New("the record at its seq was erased after the commit") // the text that could prove who wrote the record is gone
)

// resolve finds out whether a failed commit took effect. It first sets a fence, so that the commit cannot take effect
// later. It returns
//
//   - nil if the commit took effect and is durable;
//   - errLaterRecords if, in addition, other writers have committed since;
//   - an error that matches errNotWritten if the commit did not take effect;
//   - an error that matches [backend.ErrUnknown] otherwise.
//
// A failover can lose records that were only read, but not records before the fence, because the fence is a commit.
// Only appends use resolve. Deletions, changes of shared values and steps of an erasure are simply repeated by their
// callers.
func (s *Session) resolve(ctx context.Context, b backend.Batch, failure error) error {
	name := s.Name
	if b.RenameFrom != "" {
		name = b.RenameFrom
	}
	fenced, err := s.Backend.Fence(ctx, name, b.Creation, b.ExpectedToken, backend.NewToken())
	switch {
	case err != nil:
	case fenced:
		err = errNotWritten
	default:
		err = s.checkCommitted(ctx, b)
	}
	switch err {
	case nil, errLaterRecords:
		s.Logger.Warn("patchlog: a commit returned an error but was committed", "session", s.Label, "error", failure)
		return err
	case errNotWritten:
		return fmt.Errorf("%w: %w", err, Cause(failure))
	}
	return &backend.UnknownError{Cause: fmt.Errorf("%w; reading the log to find the outcome failed: %w", Cause(failure), err)}
}

// checkCommitted checks whether the log has a batch. It returns nil if so, errLaterRecords if other writers have committed
// since, and errNotWritten if the log does not have the batch. A later commit may have taken some of the ids, taken
// all of them with other content, or deleted the session.
func (s *Session) checkCommitted(ctx context.Context, b backend.Batch) error {
	found, err := s.Backend.Fetch(ctx, backend.Query{Session: s.Name, NoMeta: true})
	switch head := found.Head; {
	case err == nil && head.Token == b.Next:
		return nil
	case errors.Is(err, backend.ErrNotFound), err == nil && head.Creation != b.Creation:
		return errSessionDeleted
	case err != nil:
		return err
	case b.Create: // only this batch creates a session with this creation id
		return nil
	case len(b.Records) == 0:
		return errNotWritten
	}
	logged, err := s.Backend.Read(ctx, s.Name, b.Creation, backend.Range(b.Records[0].Seq, len(b.Records)), math.MaxInt)
	for i, raw := range logged {
		if bytes.Equal(raw.Data, b.Records[i].Data) {
			continue
		}
		if raw.Err != nil {
			return raw.Err
		}
		if r, err := patch.DecodeRecord(raw.Data); err != nil {
			return err
		} else if _, blank := records.Envelope(r).ErasedBy(); blank {
			return errRecordErased
		}
		return errNotWritten
	}
	switch {
	case err != nil:
		return err
	case len(logged) < len(b.Records):
		return errNotWritten
	}
	return errLaterRecords
}

// Confirm makes an empty commit. When it returns, everything that was read before survives a failover. A call that
// finds its work already done must call Confirm before it reports success.
func Confirm(ctx context.Context, b backend.Backend) error {
	_, err := b.Fence(ctx, "", "", backend.NewToken(), backend.NewToken())
	return err
}

// Cause returns the cause of a failed commit without the [backend.UnknownError] around it.
func Cause(failure error) error {
	var unknown *backend.UnknownError
	if errors.As(failure, &unknown) {
		return unknown.Cause
	}
	return errors.New(failure.Error())
}
