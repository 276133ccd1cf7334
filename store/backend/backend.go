// Package backend is the port through which a store keeps its bytes: what a storage
// engine must do, and nothing about what the bytes mean.
//
// A backend holds sessions. A session has a name, a meta record that is written once,
// a log of records with seqs 1, 2, 3 …, and an index of the ids that its records take.
// Beside the sessions stand shared values, by name. Everything is bytes and strings
// of any content; order is byte order. Names have 1 to [MaxNameBytes] bytes, ids and
// creation ids 0 to so many.
package backend

import (
	"context"
	"errors"
)

// MaxNameBytes is how long names and ids may be.
const MaxNameBytes = 32_000

// Errors of a backend. Every other error means that the call did nothing.
var (
	ErrNotFound = errors.New("no such session")
	ErrExists   = errors.New("session exists")
	ErrMoved    = errors.New("the log has moved on") // Batch.After is not the last seq
	ErrClosed   = errors.New("closed")
	ErrLocked   = errors.New("locked by another holder")

	// ErrReadOnly: the backend was opened for reading.
	ErrReadOnly = errors.New("opened for reading only")

	// ErrUnknown: the commit failed in a way that leaves open whether it took place.
	// The next call that succeeds sees which it was.
	ErrUnknown = errors.New("outcome unknown")

	// ErrDamaged: what is stored cannot be read.
	ErrDamaged = errors.New("damaged")
)

// UnknownError is a commit's failure that leaves open whether it took place. It matches
// [ErrUnknown].
type UnknownError struct {
	Cause error
}

func (e *UnknownError) Error() string { return "outcome unknown: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Cause }

// Is reports whether target is [ErrUnknown].
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Backend stores sessions. Its methods may be called from any number of goroutines.
//
// Slices given to a method are not kept, and slices returned are the caller's own: no
// transaction, page or buffer of the engine leaves it. No method calls back into the
// caller or holds a transaction open after it has returned. A cancelled context ends
// a call before its commit point or not at all.
type Backend interface {
	// Head returns the session's creation id, meta and last seq (0 if its log is
	// empty), or ErrNotFound.
	Head(ctx context.Context, session string) (Head, error)

	// Append adds the batch to the end of the session's log, all of it or nothing,
	// durably before it returns. It fails with ErrMoved if the last seq is not
	// batch.After, and with ErrNotFound if the session is not there or was created
	// under another id; with batch.Create set, with ErrExists if the session is there.
	//
	// A batch that creates a session may have records staged for it: After is then the
	// last seq that is staged under its creation id, else the error is ErrMoved. The
	// session is there with all of them and the batch's own, or not at all.
	Append(ctx context.Context, session string, batch Batch) error

	// Stage adds records to those staged for a session that is still to be created, under
	// the creation id that it will have. It is for more records than one commit should
	// have: each call is atomic, others write between calls, and nobody sees what is
	// staged. It fails with ErrMoved if the last seq that is staged is not after. What is
	// staged goes with Unstage, and when the backend is closed or the process ends. The
	// caller staging a session makes one call at a time, of these and of the Append.
	Stage(ctx context.Context, creation string, after uint64, records []Record) error

	// Unstage drops what is staged under a creation id. Where there is nothing, or it has
	// become a session, it does nothing. What is dropped may take up room for a while.
	Unstage(creation string)

	// Read returns the records from seq from on (0 and 1 both mean the first), in order
	// and without a gap, until the end of the log or until maxRecords or maxBytes is
	// reached, but at least one if there is one. Where damage has left a gap it returns
	// what comes before. It fails with ErrNotFound as Append does.
	Read(ctx context.Context, session, creation string, from uint64, maxRecords, maxBytes int) ([]Record, error)

	// Pick returns the records with the given seqs, which ascend, until maxBytes is
	// reached, but at least one if there is one. A seq without a record ends it. It fails
	// with ErrNotFound as Append does.
	Pick(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]Record, error)

	// Lookup returns for each id the seq of the record that takes it, or 0. It fails
	// with ErrNotFound as Append does.
	Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error)

	// Shared returns the shared values whose names begin with prefix, in name order.
	Shared(ctx context.Context, prefix string) ([]Value, error)

	// List returns up to limit sessions whose names begin with prefix and are above
	// after, in name order.
	List(ctx context.Context, prefix, after string, limit int) ([]Listed, error)

	// PutSnapshot stores bytes beside the session, in place of those that are there. They
	// need not be durable when it returns. It fails with ErrNotFound as Append does.
	PutSnapshot(ctx context.Context, session, creation string, data []byte) error

	// Snapshot returns what PutSnapshot stored, or nil. It fails with ErrNotFound as
	// Append does.
	Snapshot(ctx context.Context, session, creation string) ([]byte, error)

	// Delete removes the session and all it holds, or fails with ErrNotFound. When it
	// returns the session is gone, and one of the same name can be created; what a large
	// one held may take up room for a while. Others wait no longer than for a write.
	Delete(ctx context.Context, session string) error

	// Close frees what the backend holds, and waits until the room is free that deleted
	// sessions took up. Every later call fails with ErrClosed.
	Close() error
}

// Head is what a session is, and how far its log goes.
type Head struct {
	Creation string
	Meta     []byte
	Last     uint64
}

// Batch is what one commit does to a session.
type Batch struct {
	Creation string   // of the session as the caller knows it
	Create   bool     // the session is new, with Meta; After is 0 unless records are staged
	Meta     []byte   // with Create only
	After    uint64   // the last seq as the caller knows it
	Records  []Record // with seqs After+1, After+2, …
	Shared   []Value  // written in the same commit
}

// Record is a record of a log as bytes.
type Record struct {
	Seq  uint64
	IDs  []string // all ids that the record takes; set for Append, not by Read
	Data []byte
}

// Value is a shared value.
type Value struct {
	Name string
	Data []byte
}

// Listed is a session in a listing.
type Listed struct {
	Session string
	Head
}

// Checker is a backend that can look its own structure over.
type Checker interface {
	// Check reads all there is and reports what does not fit together; nil means that
	// nothing was found. What the records say is not its matter.
	Check(ctx context.Context) error
}
