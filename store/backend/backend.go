// Package backend is the interface between a store and its storage engine. The engine does not interpret the stored
// data.
//
// A backend holds sessions and shared values. A session has a name, a meta record, a log of records with seqs 1, 2, 3
// …, and an index of the ids of its records. Names, ids and data are arbitrary bytes, compared byte by byte. A name has
// 1 to [MaxNameBytes] bytes; an id or a creation id has at most [MaxNameBytes].
//
// Other programs may write to a backend while it is open. So a commit states, by a [Token], the state on which it was
// planned. If the session has moved on, the backend refuses the commit, and the caller reads again.
package backend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// MaxNameBytes is the largest length of names and ids.
const MaxNameBytes = 32_000

// Errors of a backend. After any error but ErrUnknown, the call has changed nothing.
var (
	ErrNotFound = errors.New("no such session")
	ErrExists   = errors.New("session exists")
	ErrMoved    = errors.New("the log has moved on") // from the state that the caller names
	ErrClosed   = errors.New("closed")
	ErrLocked   = errors.New("file is locked")

	// ErrReadOnly: the backend was opened for reading.
	ErrReadOnly = errors.New("opened for reading only")

	// ErrTaken: the log has a record with an id of the batch. Lookup returns its seq.
	ErrTaken = errors.New("an id is taken")

	// ErrInvalid: a name or an id has a length that is not allowed, or the records of a batch do not follow each other.
	ErrInvalid = errors.New("invalid batch")

	// ErrUnknown: the outcome of the commit is unknown. Until Fence returns, the commit may still take place.
	ErrUnknown = errors.New("outcome unknown")

	// ErrDamaged: stored data is damaged.
	ErrDamaged = errors.New("damaged")

	// ErrNotDatabase: the file to open is not a patchlog database, damaged or not.
	ErrNotDatabase = errors.New("not a patchlog database")

	// ErrIndex: the session's index of ids is damaged. Its records can still be read.
	ErrIndex = errors.New("the index of ids is damaged")
)

// UnknownError is the error of a commit whose outcome is unknown. It matches [ErrUnknown].
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
// A method keeps no slice of its arguments, and the caller owns the slices that it returns.
// No method holds a transaction open after it has returned. A cancelled context ends a call
// before its commit point or not at all.
type Backend interface {
	// Fetch returns a session's head, the records after q.After, and shared values, all as of
	// one moment after the call began. It fails with ErrNotFound if the session does not
	// exist, and with ErrDamaged if the session is damaged or it is unclear where its log ends.
	Fetch(ctx context.Context, q Query) (Fetched, error)

	// Append adds the batch to the end of the session's log, atomically and durably, and sets the session's token to
	// batch.Next. It fails with ErrMoved if the last seq differs from batch.ExpectedLast or the token from
	// batch.ExpectedToken, and with ErrNotFound if the session does not exist or has another creation id. If
	// batch.Create is set, it fails with ErrExists if the session exists, and with ErrMoved if the session of
	// batch.While has another edition. If batch.RequireFreeIDs is set, it fails with ErrTaken if an id of the batch is
	// in the log, and with ErrIndex if the index is damaged. If a stored record is in the way, it fails with ErrDamaged
	// and overwrites nothing. An invalid batch fails with ErrInvalid before all other checks.
	//
	// With batch.Staged set, the commit renames the session of that name and of the batch's creation id. ExpectedLast
	// and ExpectedToken then describe the staged session. If that session does not exist or has moved on, the error is
	// ErrMoved.
	Append(ctx context.Context, session string, batch Batch) error

	// Replace replaces records of the log by others with the same seqs and ids, and appends records, atomically and
	// durably. It deletes the snapshot, updates the head's chain, increments its edition, and sets its token.
	//
	// make returns the replacement, given the session's head, without Meta. No other commit to the session comes
	// between that head and this commit. Commits to the session wait while make runs, so make must neither read nor
	// wait. It may be called again if its replacement was not committed. If make fails, Replace returns that error and
	// changes nothing. Replace fails with ErrMoved if a stored record, or the meta, is not the old one in the
	// replacement; and with ErrNotFound, ErrTaken and ErrInvalid as Append does. It may wait for the end of a copy or a
	// vacuum. Free space may hold the old records until it is reused or returned. A caller may repeat Replace after
	// ErrUnknown: if the first call was committed, the second fails with ErrMoved or ErrTaken.
	Replace(ctx context.Context, session, creation string, make func(Head) (Replacement, error)) error

	// Read returns the records with the given ascending seqs, up to the first seq without a
	// record and up to maxBytes, but at least one. It fails with ErrNotFound as Append does.
	Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]Record, error)

	// Lookup returns for each id the seq of the record that has the id, or 0. It fails with ErrNotFound as Append does,
	// and with ErrIndex if the index is damaged.
	Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error)

	// PutShared writes shared values atomically and durably. It fails with ErrMoved if a current value differs from the
	// Old value of its change. A call must not contain a name twice. A caller may repeat it after ErrUnknown. When a
	// call succeeds, values that were read before are durable too.
	PutShared(ctx context.Context, changes []SharedChange) error

	// List returns up to limit sessions whose names begin with prefix and are greater than
	// after, in name order, without their meta. A damaged session is included, with Err set.
	List(ctx context.Context, prefix, after string, limit int) ([]Listed, error)

	// Relatives returns up to limit sessions whose names are greater than after, in name order: the sessions that were
	// created with this Batch.Family. It also returns the session whose creation id is family if a relative named it in
	// Batch.While; otherwise it may return or omit that session. A damaged session is included, with Err set.
	Relatives(ctx context.Context, family, after string, limit int) ([]Listed, error)

	// Fence settles a commit whose outcome is unknown: after it returns, no batch with this creation id and with seen
	// as its ExpectedToken can be committed. took reports that no such batch was committed: the session's token was
	// seen, and is now next, or still seen if no batch can be in flight. Otherwise the session has moved on or is gone.
	// For a batch that creates the session, seen is 0; if took is true then, the creation id cannot be used again. For
	// a batch with Staged, session is the staged name. When Fence returns, everything that was read before is durable,
	// whatever took says.
	Fence(ctx context.Context, session, creation string, seen, next Token) (took bool, err error)

	// PutSnapshot stores the session's snapshot, in place of a snapshot of an earlier or the same seq. The snapshot
	// need not be durable when PutSnapshot returns. It fails with ErrNotFound as Append does, and with ErrMoved if the
	// session's edition differs from the snapshot's.
	PutSnapshot(ctx context.Context, session, creation string, s Snapshot) error

	// Delete removes the session, or fails with ErrNotFound as Append does. If seen is not nil, it fails with ErrMoved
	// if the session has moved on since that head. If seen has no Token, only another edition counts as moved on. When
	// Delete returns, a session of the same name can be created; the deleted records may take up space for a while.
	// Other calls wait no longer than for a write. A caller may repeat Delete after ErrUnknown, since it removes only
	// the given creation.
	Delete(ctx context.Context, session, creation string, seen *Head) error

	// Close removes the records of deleted sessions, and releases the backend's resources.
	// Every later call fails with ErrClosed.
	Close() error
}

// Leaser is a backend on a server, with leases for all programs that use the server. Its calls may take long, so a
// caller whose context ends does not wait for the commit that includes its batch.
type Leaser interface {
	// Lease acquires or extends the lease of this name for ttl. held is false if another owner holds an unexpired
	// lease. A ttl of 0 releases the lease. A negative ttl changes nothing, and held says whether owner could acquire
	// the lease. The clock is the backend's.
	Lease(ctx context.Context, name, owner string, ttl time.Duration) (held bool, err error)
}

// Query is the argument of Fetch.
type Query struct {
	// Session is the session's name. "" means no session: the shared values alone.
	Session string
	// Creation is the session's creation id as the caller knows it, or "". After is the last seq that the caller has
	// read.
	Creation string
	After    uint64
	// NoMeta leaves out the meta record.
	NoMeta bool
	// UpTo, if not 0, makes this a cold read of the log up to this seq. Creation and After are then ignored.
	UpTo uint64
	// Shared are prefixes of the names of shared values. Known, if not nil, holds for each prefix the version of the
	// values that the caller has, or 0.
	Shared []string
	Known  []Token
}

// FetchRecords and FetchBytes limit the records that a Fetch returns, except that a Fetch returns at least one record
// if there are any. ColdRecords and ColdBytes are the limits of a cold read.
const (
	FetchRecords = 512
	FetchBytes   = 1 << 20

	ColdRecords = 16 << 10
	ColdBytes   = 8 << 20
)

// Limits returns the limits of the records that a Fetch returns.
func (q Query) Limits() (records, bytes int) {
	if q.UpTo != 0 {
		return ColdRecords, ColdBytes
	}
	return FetchRecords, FetchBytes
}

// Seqs returns the seqs of the records that a Fetch returns, within the limits. last is the last seq of the log. kept
// is the snapshot of a cold read.
func (q Query) Seqs(last uint64, kept Snapshot) (seqs []uint64) {
	most, _ := q.Limits()
	add := func(from, to uint64) {
		for seq := from; seq <= to && len(seqs) < most; seq++ {
			seqs = append(seqs, seq)
		}
	}
	if q.UpTo == 0 {
		add(q.After+1, last)
		return seqs
	}
	for _, span := range kept.Spans {
		add(span.First, min(span.Last, kept.Seq))
	}
	add(kept.Seq+1, min(last, q.UpTo))
	return seqs
}

// HasKnown reports whether the caller has the values of the query's prefix with this index at this version.
func (q Query) HasKnown(prefix int, version Token) bool {
	return version != 0 && prefix < len(q.Known) && q.Known[prefix] == version
}

// Fetched is the result of Fetch.
type Fetched struct {
	// Head is the session's head. Its Meta is nil if the query has NoMeta or the session's creation id.
	Head
	// Records are the records after the query's After, in order and without a gap, limited by [FetchRecords] and
	// [FetchBytes]. There are none if the session has another creation id. A cold read, limited by [ColdRecords] and
	// [ColdBytes], returns the records that the snapshot refers to, and the records after the snapshot up to UpTo. Some
	// of these may be missing.
	Records []Record
	// Snapshot is the session's snapshot, for a cold read. Data is nil if there is none, or only one after UpTo.
	Snapshot Snapshot
	// Shared are the shared values of each prefix of the query, in name order. A damaged value is included, with Err
	// set. A prefix has none if the caller has the current version.
	Shared [][]Value
	// Versions are the versions of the query's prefixes that are scopes, 0 for a prefix without a version.
	Versions []Token
}

// SnapshotOf returns the snapshot of the session of this creation, with Data nil if there is none.
func SnapshotOf(ctx context.Context, b Backend, session, creation string) (Snapshot, error) {
	news, err := b.Fetch(ctx, Query{Session: session, UpTo: math.MaxUint64})
	switch {
	case err != nil:
		return Snapshot{}, err
	case news.Creation != creation:
		return Snapshot{}, ErrNotFound
	}
	return news.Snapshot, news.Snapshot.Err
}

// scopeEnd is the end of a scope in the name of a shared value.
const scopeEnd = "\x00\x01"

// Scope returns the scope of a shared value: its name up to and including the last bytes 0 and 1, or "" without these.
// Each scope except "" has a version, which changes with each commit that writes one of its values. No scope whose
// version a caller asks for is a prefix of another.
func Scope(name string) string {
	if i := strings.LastIndex(name, scopeEnd); i >= 0 {
		return name[:i+len(scopeEnd)]
	}
	return ""
}

// Scopes returns the scopes of shared values that have a version, each once.
func Scopes(values []Value) (scopes []string) {
	for _, v := range values {
		if scope := Scope(v.Name); scope != "" && !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// NewToken returns a random token.
func NewToken() Token {
	for {
		if t := Token(rand.Uint64()); t != 0 {
			return t
		}
	}
}

// HeadOf returns a session's head.
func HeadOf(ctx context.Context, b Backend, session string) (Head, error) {
	news, err := b.Fetch(ctx, Query{Session: session})
	return news.Head, err
}

// SharedOf returns the shared values whose names begin with prefix.
func SharedOf(ctx context.Context, b Backend, prefix string) ([]Value, error) {
	news, err := b.Fetch(ctx, Query{Shared: []string{prefix}})
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

// Token is a random number, never 0, that each commit to a session sets. A caller that knows the current token has seen all
// commits to the session.
type Token uint64

// Snapshot is an encoded view of a log up to a record.
type Snapshot struct {
	Seq     uint64 // of the record
	Chain   Chain  // of the log up to it
	Edition uint64 // of the log; set for PutSnapshot, not by Fetch
	Spans   []Span // the records that it refers to, in order; set for PutSnapshot, and optionally by Fetch
	Data    []byte
	Err     error // from Fetch: the snapshot is damaged, and Data is nil
}

// Span is the range of seqs from First to Last.
type Span struct{ First, Last uint64 }

// Spans returns the spans of seqs that ascend.
func Spans(seqs []uint64) (spans []Span) {
	for _, seq := range seqs {
		if n := len(spans); n > 0 && spans[n-1].Last+1 == seq {
			spans[n-1].Last = seq
			continue
		}
		spans = append(spans, Span{seq, seq})
	}
	return spans
}

// Head describes a session and the end of its log.
type Head struct {
	Creation string
	Meta     []byte
	Last     uint64 // the seq of the last record, 0 if there is none
	Token    Token
	Chain    Chain  // over the checksums of the records up to Last
	Counts   []byte // of the last commit that set them

	// Edition is incremented by each Replace, so that a reader can tell a replaced record
	// from a damaged one, or from the log of a server that took over.
	Edition uint64
}

// Moved reports whether a commit came between two heads of one creation. If the first head has no Token, only
// replacements of records count.
func (h Head) Moved(now Head) bool {
	if h.Token == 0 {
		return now.Edition != h.Edition
	}
	return now.Last != h.Last || now.Token != h.Token || now.Edition != h.Edition
}

// Batch is a commit to a session.
type Batch struct {
	Creation       string   // the session's creation id
	Create         bool     // the session is new, with Meta; ExpectedLast is 0 unless Staged is set
	Staged         string   // with Create only: the session to rename, see Append. Long imports and forks stage records in it
	Meta           []byte   // with Create only
	ExpectedLast   uint64   // the last seq that the caller knows
	ExpectedToken  Token    // the token that the caller knows; 0 for a new session
	Next           Token    // the session's token after the commit
	Chain          Chain    // the chain up to ExpectedLast; a backend may ignore it and compute the chain itself
	Records        []Record // with seqs ExpectedLast+1, ExpectedLast+2, …
	RequireFreeIDs bool     // refuse ids that the log has; unset if the caller has looked them up
	Counts         []byte   // stored with the head; nil keeps the current ones
	Shared         []Value  // written in the same commit

	// Family, with Create only, is the key by which [Backend.Relatives] finds the session: the creation id of the
	// session in which the first records of the family were logged. "" means none.
	Family string

	// While, with Create only, is the session from which the new one was copied. If it has another edition when the
	// batch is committed, Append fails with ErrMoved: a fork must not contain text that was erased from its origin
	// meanwhile.
	While *Unmoved
}

// CheckName returns [ErrInvalid] if the name or id is shorter than least or longer than [MaxNameBytes].
func CheckName(what, name string, least int) error {
	if len(name) < least || len(name) > MaxNameBytes {
		return fmt.Errorf("%w: %s of %d bytes; %d to %d are allowed", ErrInvalid, what, len(name), least, MaxNameBytes)
	}
	return nil
}

// Validate returns [ErrInvalid] if the batch is not valid for the session.
func (b Batch) Validate(session string) error {
	if err := cmp.Or(CheckName("a session name", session, 1), CheckName("a creation id", b.Creation, 0), CheckName("a family", b.Family, 0)); err != nil {
		return err
	}
	for i, r := range b.Records {
		if want := b.ExpectedLast + uint64(i) + 1; r.Seq != want {
			return fmt.Errorf("%w: record %d has seq %d, want %d", ErrInvalid, i, r.Seq, want)
		}
		for _, id := range r.IDs {
			if err := CheckName("an id", id, 0); err != nil {
				return err
			}
		}
	}
	for _, v := range b.Shared {
		if err := CheckName("a shared name", v.Name, 1); err != nil {
			return err
		}
	}
	return nil
}

// Unmoved is a session and the edition that the caller knows.
type Unmoved struct {
	Session, Creation string
	Edition           uint64
}

// Replacement is the change that a Replace makes.
type Replacement struct {
	Next          Token      // the session's token after the commit
	Records       []Replaced // whose seqs ascend
	OldMeta, Meta []byte     // the current meta and the new one; nil keeps it
	Appended      []Record   // with seqs Last+1, Last+2, … of the head, added in the same commit
	Counts        []byte     // stored with the head; nil keeps the current ones
}

// Batch returns the batch that adds the appended records to a log with the given head.
func (r Replacement) Batch(creation string, head Head) Batch {
	return Batch{Creation: creation, ExpectedLast: head.Last, ExpectedToken: head.Token, Next: r.Next,
		Records: r.Appended, RequireFreeIDs: true, Counts: r.Counts}
}

// Replaced is a record and its replacement.
type Replaced struct {
	Seq         uint64
	Old, Data   []byte
	OldSum, Sum uint32 // the checksums of the records, for the chain
}

// After returns the chain of the log after the replacements, without the appended records. head is the current head.
func (r Replacement) After(head Head) Chain {
	chain := head.Chain
	for _, x := range r.Records {
		chain = chain.Replace(head.Last-x.Seq, x.OldSum, x.Sum)
	}
	return chain
}

// Record is a record of a log as bytes.
type Record struct {
	Seq  uint64
	IDs  []string // all ids of the record; set for Append, not by Read
	Sum  uint32   // the record's checksum, for the chain, independent of compression; set for Append, not by Read
	Data []byte
	Err  error // from Read: the record is damaged, and Data is nil
}

// Value is a shared value.
type Value struct {
	Name string
	Data []byte
	Err  error // the value is damaged, and Data is nil
}

// SharedChange replaces a shared value.
type SharedChange struct {
	Old  *Value // as Fetch returned it; nil if there is none
	Name string
	Data []byte
}

// Is reports whether now is the value that the change replaces; nil means no value. Any two damaged values count as
// equal.
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
	Err error // the session, or the end of its log, is damaged
}

// Checker is a backend that can check its own structure.
type Checker interface {
	// Check reads everything stored and reports inconsistencies, with ErrDamaged. It does not decode records.
	Check(ctx context.Context) error
}

// Copier is a backend that can be copied while it is written to.
type Copier interface {
	// Copy copies the backend as of one moment after the call began, without snapshots. It calls use with the copy,
	// both as a backend opened for reading and as a file, and removes the copy when use returns. sum returns the
	// checksum that a record carries. If something is missing, or a log does not have its chain, Copy fails with
	// ErrDamaged and does not call use. Writers wait no longer than for a write, and no lock is held while use runs.
	Copy(ctx context.Context, sum func(record []byte) uint32, use func(copy Backend, file io.Reader) error) error
}

// Vacuum is a backend that can return unused space.
type Vacuum interface {
	// Vacuum returns unused space to the file system. An interrupted Vacuum loses nothing. On damage that would make
	// Copy fail, Vacuum fails with ErrDamaged and changes nothing.
	Vacuum(ctx context.Context, sum func(record []byte) uint32) error

	// Space returns the space that the backend takes up. It may miss part of a concurrent write.
	Space(ctx context.Context) (Space, error)
}

// Space is space in bytes.
type Space struct {
	File int64 `json:"file"` // the file's length
	Live int64 `json:"live"` // keys and values: names, records, ids, snapshots and shared values
	Free int64 `json:"free"` // free pages, which later writes use; the rest are inner pages and gaps
}
