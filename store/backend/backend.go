// Package backend is the port through which a store keeps its bytes: what a storage
// engine must do, and nothing about what the bytes mean.
//
// A backend holds sessions. A session has a name, a meta record that is written once,
// a log of records with seqs 1, 2, 3 …, and an index of the ids that its records take.
// Beside the sessions stand shared values, by name. Everything is bytes and strings
// of any content; order is byte order. Names have 1 to [MaxNameBytes] bytes, ids and
// creation ids 0 to so many.
//
// A backend is exclusive or shared. Others may write to a shared one, from this process or
// another, while it is open: what was read of a session is out of date then, and each
// commit says what it was planned on, by a [Token].
package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// MaxNameBytes is how long names and ids may be.
const MaxNameBytes = 32_000

// Errors of a backend. Every other error means that the call did nothing.
var (
	ErrNotFound = errors.New("no such session")
	ErrExists   = errors.New("session exists")
	ErrMoved    = errors.New("the log has moved on") // it is not as the caller says that it knows it
	ErrClosed   = errors.New("closed")
	ErrLocked   = errors.New("locked by another holder")

	// ErrReadOnly: the backend was opened for reading.
	ErrReadOnly = errors.New("opened for reading only")

	// ErrTaken: an id of the batch is in the log already. Lookup says where.
	ErrTaken = errors.New("an id is taken")

	// ErrUnknown: the commit failed in a way that leaves open whether it took place. If
	// the backend is exclusive, the next call that succeeds sees which it was. If it is
	// shared, the commit may still take place until Fence returns.
	ErrUnknown = errors.New("outcome unknown")

	// ErrDamaged: what is stored cannot be read.
	ErrDamaged = errors.New("damaged")

	// ErrNotDatabase: what is to be opened is not a patchlog database, damaged or not.
	ErrNotDatabase = errors.New("not a patchlog database")

	// ErrIndex: the session's index of ids is not what was written. The records have the
	// answer.
	ErrIndex = errors.New("the index of ids is damaged")
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
	// Exclusive reports whether nobody else writes to what the backend holds while it is
	// open. It is always the same.
	Exclusive() bool

	// Head returns the session's creation id, meta, last seq (0 if its log is empty) and
	// chain, or ErrNotFound. A session of which damage has left anything is never not
	// found: if too little is left the error is ErrDamaged, and if only the end of the log
	// is in doubt, Head.Damaged says so.
	Head(ctx context.Context, session string) (Head, error)

	// Since returns what whoever has seen a session up to a seq has not seen of it, and the
	// shared values whose names begin with one of the prefixes: all as of one moment after
	// the call began. It fails with ErrNotFound if the session is not there.
	Since(ctx context.Context, session string, seen Seen, prefixes ...string) (News, error)

	// Append adds the batch to the end of the session's log, all of it or nothing,
	// durably before it returns, and then batch.Next is the session's token. It fails with
	// ErrMoved if the last seq is not batch.After, or, in a shared backend, the token not
	// batch.Seen; and with ErrNotFound if the session is not there or was created under
	// another id; with batch.Create set, with ErrExists if the session is there, and with ErrMoved if that of
	// batch.While has moved on. A record
	// or an id that is stored is never put over: if one is in the way, a shared backend
	// fails with ErrTaken, and an exclusive one, whose caller has looked for the ids, with
	// ErrDamaged.
	//
	// A batch that creates a session may have records staged for it: After is then the
	// last seq that is staged under its creation id, else the error is ErrMoved. The
	// session is there with all of them and the batch's own, or not at all.
	Append(ctx context.Context, session string, batch Batch) error

	// Replace puts other records in the place of some that are in the session's log, of the
	// same seqs and ids, all of them or none, durably before it returns: nothing that is read
	// afterwards has what the old ones said, and a snapshot, which may say it, goes in the
	// same commit. The head's chain is then that of the log as it is, its edition is another
	// one, and r.Next the session's token. It fails with ErrMoved if the last seq is not
	// r.Last, in a shared backend the token not r.Seen, or if a record is not the one that
	// it is to replace; and with ErrNotFound as Append does, and as Append does if a record that r
	// appends is in the way. It may wait until a copy or a
	// vacuum that is under way has ended. Room that the old records took up may hold them
	// until it is used again, or given back.
	Replace(ctx context.Context, session string, r Replacement) error

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
	// with ErrNotFound as Append does, and with ErrIndex if the index is not what was
	// written; what it says all the same is returned too.
	Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error)

	// Shared returns the shared values whose names begin with prefix, in name order. One
	// that is damaged is among them, with Err.
	Shared(ctx context.Context, prefix string) ([]Value, error)

	// PutShared writes shared values, all of them or none, durably before it returns. It fails
	// with ErrMoved if one is not as the change says that it was. One call has no name twice.
	// After ErrUnknown, a call with the same changes waits until the first one is settled. In a
	// shared backend, what was read of the values before is durable too when a call succeeds.
	PutShared(ctx context.Context, changes []SharedChange) error

	// List returns up to limit sessions whose names begin with prefix and are above
	// after, in name order. One that is damaged is among them, with Err.
	List(ctx context.Context, prefix, after string, limit int) ([]Listed, error)

	// Fence settles a commit whose outcome is unknown. A batch for the session of this
	// creation that names seen and has not taken place when Fence returns never will. took
	// says that it has not: the session's token was seen, and is next now. Otherwise the
	// session has moved on or is gone, by this batch or another. seen is 0 for a batch that
	// was to create the session, staged or not; its creation id is of no use any more if
	// took is true. What was read of the session before is durable when Fence returns,
	// whether it took or not. In an exclusive backend nothing is left to settle, and Fence
	// does nothing.
	Fence(ctx context.Context, session, creation string, seen, next Token) (took bool, err error)

	// PutSnapshot stores a snapshot beside the session, in place of the one that is there,
	// unless the backend is shared and that is of a later seq. It need not be durable when
	// PutSnapshot returns. It fails with ErrNotFound as Append does, and with ErrMoved, and
	// stores nothing, if the session is of another edition than s.
	PutSnapshot(ctx context.Context, session, creation string, s Snapshot) error

	// Snapshot returns what PutSnapshot stored, an exclusive backend the data alone. Data is
	// nil if there is none. It fails with ErrNotFound as Append does.
	Snapshot(ctx context.Context, session, creation string) (Snapshot, error)

	// Delete removes the session and all it holds, or fails with ErrNotFound as Append
	// does. If seen is not nil it is the head that the decision to delete was made on: Delete
	// fails with ErrMoved, and removes nothing, if the last seq, the token or the edition is
	// another one. When it returns the session is gone, and one of the same name can be created;
	// what a large one held may take up room for a while. Others wait no longer than for a
	// write. After ErrUnknown it can be called again: it never takes another session's
	// creation.
	Delete(ctx context.Context, session, creation string, seen *Head) error

	// Lease reports whether owner holds the lease of this name from now on for as long as
	// ttl. It does not while another owner holds it, whose ttl has not passed; the holder
	// may take it again, to hold it longer. A ttl of 0 gives it up, and one below 0 changes
	// nothing: it asks whether owner could have it. Time is the backend's.
	Lease(ctx context.Context, name, owner string, ttl time.Duration) (held bool, err error)

	// Close frees what the backend holds, and waits until the room is free that deleted
	// sessions took up. Every later call fails with ErrClosed.
	Close() error
}

// Token is a number that each commit to a session in a shared backend draws at random. Who
// knows a session's token has seen all that was committed to it. It is never 0 in a shared
// backend, and always in an exclusive one.
type Token uint64

// Seen is what a caller has seen of a session.
type Seen struct {
	Creation string
	Last     uint64 // the seq of the last record seen
}

// Since returns at most so much of a log, and at least one record if there is one.
const (
	SinceRecords = 512
	SinceBytes   = 1 << 20
)

// News is what a caller has not seen of a session.
type News struct {
	// Head is the session's head. Its Meta is nil if Creation is the one that was seen.
	Head
	// Records are those after the seq that was seen, in order and without a gap: to the
	// end of the log, or as many as [SinceRecords] and [SinceBytes] say. There are none if
	// the creation is another one.
	Records []Record
	// Shared are the shared values that were asked for, as Backend.Shared has them: of each
	// prefix in turn.
	Shared [][]Value
}

// Snapshot is bytes that say what a log comes to, up to a record.
type Snapshot struct {
	Seq     uint64 // of the record
	Chain   Chain  // of the log up to it
	Edition uint64 // of the log; set for PutSnapshot, not by Snapshot
	Data    []byte
}

// Head is what a session is, and how far its log goes.
type Head struct {
	Creation string
	Meta     []byte
	Last     uint64
	Token    Token
	Chain    Chain // over the checksums of the records up to Last

	// Edition is a number that goes up with each Replace, so that what was read before is
	// told from what damage or a server that took over has done. An exclusive backend counts
	// from when it was opened.
	Edition uint64

	// Damaged is 0, or the first seq at which damage leaves in doubt whether the log goes
	// on. Last is then the furthest that it may go. The records before can be read, nothing
	// can be appended.
	Damaged uint64
}

// Moved reports whether the log has been written to between two heads of one creation.
func (h Head) Moved(now Head) bool {
	return now.Last != h.Last || now.Token != h.Token || now.Edition != h.Edition
}

// Err returns nil, or an error that matches [ErrDamaged] and says where damage leaves the
// log's end in doubt.
func (h Head) Err() error {
	if h.Damaged == 0 {
		return nil
	}
	return fmt.Errorf("%w: it is in doubt whether the log goes on at record %d", ErrDamaged, h.Damaged)
}

// Batch is what one commit does to a session.
type Batch struct {
	Creation string   // of the session as the caller knows it
	Create   bool     // the session is new, with Meta; After is 0 unless records are staged
	Meta     []byte   // with Create only
	After    uint64   // the last seq as the caller knows it
	Seen     Token    // the session's token as the caller knows it; 0 with Create
	Next     Token    // the session's token after the commit
	Chain    Chain    // of the log up to After, as the caller knows it; in a shared backend only
	Records  []Record // with seqs After+1, After+2, …
	Shared   []Value  // written in the same commit

	// While, with Create only, is another session on which the new one was planned: if it is
	// not as this says when the batch is committed, Append fails with ErrMoved.
	While *Unmoved
}

// Unmoved is a session as a caller knows it, to which nothing has been committed since.
type Unmoved struct {
	Session, Creation string
	Last              uint64 // the seq of the last record
	Token             Token  // 0 in an exclusive backend, where records may have been replaced since
}

// Replacement is what a Replace does to a session.
type Replacement struct {
	Creation string     // of the session as the caller knows it
	Last     uint64     // the last seq as the caller knows it
	Seen     Token      // the session's token as the caller knows it
	Next     Token      // the session's token after the commit
	Chain    Chain      // of the log as the caller knows it; in a shared backend only
	Records  []Replaced // whose seqs ascend
	Meta     []byte     // the session's meta from then on; nil leaves it
	Appended []Record   // with seqs Last+1, Last+2, …, added in the same commit
}

// Replaced is a record that another one takes the place of.
type Replaced struct {
	Seq         uint64
	Old, Data   []byte
	OldSum, Sum uint32 // the records' own checksums, for the chain
}

// After returns the chain of a log with the records replaced, and none appended yet, which had the
// given one.
func (r Replacement) After(chain Chain) Chain {
	for _, x := range r.Records {
		chain = chain.Replace(r.Last-x.Seq, x.OldSum, x.Sum)
	}
	return chain
}

// Record is a record of a log as bytes.
type Record struct {
	Seq  uint64
	IDs  []string // all ids that the record takes; set for Append, not by Read
	Sum  uint32   // the record's own checksum, for the chain, whatever form Data has; set for Append, not by Read
	Data []byte
	Err  error // from Read: not nil if the record is not what was written there; then there is no Data
}

// Value is a shared value.
type Value struct {
	Name string
	Data []byte
	Err  error // not nil if it is damaged; then there is no Data
}

// SharedChange is a shared value that takes the place of another one.
type SharedChange struct {
	Old  *Value // as Shared returned it; nil if there is none
	Name string
	Data []byte
}

// Is reports whether a value, nil if there is none, is the one that the change is to replace. A damaged
// one is as another: what it was is not known.
func (c SharedChange) Is(now *Value) bool {
	if c.Old == nil || now == nil {
		return c.Old == now
	}
	return (c.Old.Err != nil) == (now.Err != nil) && bytes.Equal(c.Old.Data, now.Data)
}

// Listed is a session in a listing.
type Listed struct {
	Session string
	Head
	Err error // not nil if damage keeps the session, or the end of its log, from being known
}

// Checker is a backend that can look its own structure over.
type Checker interface {
	// Check reads all there is and reports what does not fit together; nil means that
	// nothing was found. What the records say is not its matter.
	Check(ctx context.Context) error
}

// Copier is a backend that can be copied while it is written to.
type Copier interface {
	// Copy makes a copy of all that the backend holds as of one moment after the call began,
	// but for snapshots, and calls use with it: as a backend that is opened for reading, and
	// as a file of so many bytes. Both are gone when use returns. sum returns the checksum
	// that a record carries. It fails with ErrDamaged, and does not call use, if something is
	// missing, or if records are not those that were written; it need not look further into
	// them. Writers wait no longer than for a write, and nothing is held of the backend while
	// use runs.
	Copy(ctx context.Context, sum func(record []byte) uint32, use func(copy Backend, file io.Reader) error) error
}

// Vacuum is a backend that can give room back.
type Vacuum interface {
	// Vacuum gives the room back that nothing takes up any more. Whenever it is cut short,
	// nothing is lost. It fails with ErrDamaged, and changes nothing, where Copy would.
	Vacuum(ctx context.Context, sum func(record []byte) uint32) error

	// Space returns how much room the backend takes up. Others may write meanwhile, and be
	// counted in part.
	Space(ctx context.Context) (Space, error)
}

// Space is how much room a backend takes up, in bytes.
type Space struct {
	File int64 // the file's length
	Live int64 // keys and values of what is stored
	Free int64 // of the file: parts that hold nothing
}
