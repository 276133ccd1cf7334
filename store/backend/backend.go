// Package backend is the port through which a store keeps its bytes: what a storage
// engine must do, and nothing about what the bytes mean.
//
// A backend holds sessions. A session has a name, a meta record, a log of records with
// seqs 1, 2, 3 …, and an index of the ids that its records take. Beside the sessions stand
// shared values, by name. Everything is bytes and strings of any content; order is byte
// order. Names have 1 to [MaxNameBytes] bytes, ids and creation ids at most that many.
//
// Other programs may write to a backend while it is open. A caller therefore says with
// each commit what it planned it on, by a [Token], and looks again if that is refused.
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

	// ErrUnknown: the commit failed in a way that leaves open whether it took place. It may
	// still take place until Fence returns.
	ErrUnknown = errors.New("outcome unknown")

	// ErrDamaged: what is stored cannot be read.
	ErrDamaged = errors.New("damaged")

	// ErrNotDatabase: the file to open is not a patchlog database, damaged or not.
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
	// Look returns a session's head, the records that the caller does not know, and shared
	// values, all as of one moment after the call began. It fails with ErrNotFound if the
	// session is not there. A session of which damage has left anything is never not found:
	// if too little is left the error is ErrDamaged, and if only the end of the log is in
	// doubt, Head.Damaged says so.
	Look(ctx context.Context, q Query) (News, error)

	// Append adds the batch to the end of the session's log, all of it or nothing,
	// durably before it returns, and then batch.Next is the session's token. It fails with
	// ErrMoved if the last seq is not batch.After or the token not batch.Seen; with
	// ErrNotFound if the session is not there or was created under another id; with
	// batch.Create set, with ErrExists if the session is there, and with ErrMoved if the
	// session of batch.While has moved on. It fails with ErrTaken if an id of the batch is in
	// the log, and with ErrIndex if that cannot be told, unless batch.IDsFree says that the
	// caller knows. A record that is stored is never overwritten: the error is ErrDamaged.
	//
	// With batch.Staged set, a session of that name and of the batch's creation takes the new
	// name, with its records: the new session is there with all of them and the batch's own,
	// or not at all. After and Seen are the staged session's; if it is not there, or not as
	// they say, the error is ErrMoved.
	Append(ctx context.Context, session string, batch Batch) error

	// Replace puts other records in the place of some that are in the session's log, of the
	// same seqs and ids, all of them or none, durably before it returns: nothing that is read
	// afterwards has what the old ones said, and a snapshot, which may say it, goes in the
	// same commit. The head's chain is then that of the log as it is, its edition is another
	// one, and r.Next the session's token. It fails with ErrMoved if the last seq is not
	// r.Last, the token not r.Seen, or if a record is not the one that it is to replace; and
	// with ErrNotFound and ErrTaken as Append does. It may wait until a copy or a vacuum that
	// is under way has ended. Room that the old records took up may hold them until it is
	// used again, or given back.
	Replace(ctx context.Context, session string, r Replacement) error

	// Read returns the records with the given seqs, which ascend, until maxBytes is
	// reached, but at least one if there is one. A seq without a record ends it. It fails
	// with ErrNotFound as Append does.
	Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]Record, error)

	// Lookup returns for each id the seq of the record that takes it, or 0. It fails
	// with ErrNotFound as Append does, and with ErrIndex if the index is not what was
	// written; what it says all the same is returned too.
	Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error)

	// PutShared writes shared values, all of them or none, durably before it returns. It fails
	// with ErrMoved if one is not as the change says that it was. One call has no name twice.
	// After ErrUnknown, a call with the same changes waits until the first one is settled. What
	// was read of the values before is durable too when a call succeeds.
	PutShared(ctx context.Context, changes []SharedChange) error

	// List returns up to limit sessions whose names begin with prefix and are above
	// after, in name order. One that is damaged is among them, with Err.
	List(ctx context.Context, prefix, after string, limit int) ([]Listed, error)

	// Fence settles a commit whose outcome is unknown. A batch for the session of this
	// creation that names seen and has not taken place when Fence returns never will. took
	// says that it has not: the session's token was seen. It is next from then on, or seen
	// still if no batch can be under way any more. If took is false, the session has moved on
	// or is gone, by this batch or another. seen is 0 for a batch that was to create the
	// session; if took is true then, its creation id is of no use any more. For a batch with
	// Staged, session is that name. If took is true, what was read of the session before is
	// durable when Fence returns.
	Fence(ctx context.Context, session, creation string, seen, next Token) (took bool, err error)

	// PutSnapshot stores a snapshot beside the session, in place of the one that is there,
	// unless that is of a later seq. It need not be durable when PutSnapshot returns. It
	// fails with ErrNotFound as Append does, and with ErrMoved, and stores nothing, if the
	// session is of another edition than s.
	PutSnapshot(ctx context.Context, session, creation string, s Snapshot) error

	// Snapshot returns what PutSnapshot stored. Data is nil if there is none. It fails with
	// ErrNotFound as Append does.
	Snapshot(ctx context.Context, session, creation string) (Snapshot, error)

	// Delete removes the session and all it holds, or fails with ErrNotFound as Append
	// does. If seen is not nil it is the head that the decision to delete was made on: Delete
	// fails with ErrMoved, and removes nothing, if the last seq, the token or the edition is
	// another one. When it returns the session is gone, and one of the same name can be created;
	// what a large one held may take up room for a while. Other calls wait no longer than for
	// a write. After ErrUnknown it can be called again: it never takes another session's
	// creation.
	Delete(ctx context.Context, session, creation string, seen *Head) error

	// Close frees what the backend holds, and waits until the room is free that deleted
	// sessions took up. Every later call fails with ErrClosed.
	Close() error
}

// Leaser is a backend on a server, which keeps leases for all programs that use it. Its calls may take long: a
// caller whose context has ended does not wait for a commit that it shares.
type Leaser interface {
	// Lease reports whether owner holds the lease of this name from now on for as long as
	// ttl. It does not while another owner holds it, whose ttl has not passed; the holder
	// may take it again, to hold it longer. A ttl of 0 gives it up, and one below 0 changes
	// nothing: it asks whether owner could have it. Time is the backend's.
	Lease(ctx context.Context, name, owner string, ttl time.Duration) (held bool, err error)
}

// Query says what a Look is about.
type Query struct {
	// Session is the session's name. "" means no session: the shared values alone.
	Session string
	// Creation is the session's creation id as the caller knows it, and After the last seq
	// that it has seen. "" means that the caller knows nothing of the session.
	Creation string
	After    uint64
	// Shared are prefixes of the names of shared values.
	Shared []string
}

// LookRecords and LookBytes limit the records that a Look returns: at least one if there is one.
const (
	LookRecords = 512
	LookBytes   = 1 << 20
)

// News is what a Look returns.
type News struct {
	// Head is the session's head. Its Meta is nil if the query's creation is the session's.
	Head
	// Records are those behind the query's After, in order and without a gap: to the end of
	// the log, or as many as [LookRecords] and [LookBytes] say. There are none if the
	// creation is another one.
	Records []Record
	// Shared are the shared values of each prefix of the query in turn, in name order. One
	// that is damaged is among them, with Err.
	Shared [][]Value
}

// HeadOf returns a session's head.
func HeadOf(ctx context.Context, b Backend, session string) (Head, error) {
	news, err := b.Look(ctx, Query{Session: session})
	return news.Head, err
}

// SharedOf returns the shared values whose names begin with prefix.
func SharedOf(ctx context.Context, b Backend, prefix string) ([]Value, error) {
	news, err := b.Look(ctx, Query{Shared: []string{prefix}})
	if err != nil {
		return nil, err
	}
	return news.Shared[0], nil
}

// Range returns n seqs from first on.
func Range(first uint64, n int) []uint64 {
	seqs := make([]uint64, n)
	for i := range seqs {
		seqs[i] = first + uint64(i)
	}
	return seqs
}

// Token is a number that each commit to a session draws at random, never 0. A caller that
// knows a session's token has seen all that was committed to it.
type Token uint64

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
	Last     uint64 // the seq of the last record, 0 if there is none
	Token    Token
	Chain    Chain  // over the checksums of the records up to Last
	Counts   []byte // what the last commit that gave any said that the log comes to

	// Edition is a number that goes up with each Replace, so that what was read before is
	// told from what damage or a server that took over has done.
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
	Create   bool     // the session is new, with Meta; After is 0 unless Staged is set
	Staged   string   // with Create only: a session that becomes the new one; see Append
	Meta     []byte   // with Create only
	After    uint64   // the last seq as the caller knows it
	Seen     Token    // the session's token as the caller knows it; 0 for a new session
	Next     Token    // the session's token after the commit
	Chain    Chain    // of the log up to After, as the caller knows it
	Records  []Record // with seqs After+1, After+2, …
	IDsFree  bool     // the caller knows that no record of the log takes an id of these
	Counts   []byte   // stored with the head; nil leaves what is there
	Shared   []Value  // written in the same commit

	// While, with Create only, is another session on which the new one was planned: if it is
	// not as this says when the batch is committed, Append fails with ErrMoved.
	While *Unmoved
}

// Unmoved is a session as a caller knows it, to which nothing has been committed since.
type Unmoved struct {
	Session, Creation string
	Last              uint64 // the seq of the last record
	Token             Token
}

// Replacement is what a Replace does to a session.
type Replacement struct {
	Creation string     // of the session as the caller knows it
	Last     uint64     // the last seq as the caller knows it
	Seen     Token      // the session's token as the caller knows it
	Next     Token      // the session's token after the commit
	Chain    Chain      // of the log as the caller knows it
	Records  []Replaced // whose seqs ascend
	Meta     []byte     // the session's meta from then on; nil leaves it
	Appended []Record   // with seqs Last+1, Last+2, …, added in the same commit
	Counts   []byte     // stored with the head; nil leaves what is there
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
	Old  *Value // as Look returned it; nil if there is none
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
