// Package backend is the interface between a store and its storage engine. The engine does not interpret the stored
// data.
//
// A backend holds sessions and shared values. A session has a name, a meta record, a log of records, and an index of
// the ids of its records. The records of a log have the seqs 1, 2, 3 …. Names, ids and data are arbitrary bytes and
// are compared byte by byte. A name has 1 to [MaxNameBytes] bytes. An id or a creation id has at most [MaxNameBytes].
//
// Other programs may write to an open backend. A commit therefore includes a [Token], which identifies the state of
// the session that the commit was planned on. If the session's token has changed since, the backend refuses the
// commit, and the caller must read the session again.
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

// MaxNameBytes is the maximum length of names and ids.
const MaxNameBytes = 32_000

// Errors of a backend. A call that fails has changed nothing. Only a call that fails with ErrUnknown may have made its
// changes.
var (
	ErrNotFound = errors.New("no such session")
	ErrExists   = errors.New("session exists")
	ErrMoved    = errors.New("changed since it was read") // the session's last seq, token or edition is not the expected one
	ErrClosed   = errors.New("closed")
	ErrLocked   = errors.New("file is locked")

	// ErrReadOnly: the backend was opened for reading.
	ErrReadOnly = errors.New("opened for reading only")

	// ErrTaken: the log already has a record with an id of the batch. Lookup returns the record's seq.
	ErrTaken = errors.New("an id is taken")

	// ErrInvalid: a name or an id is too short or too long, or the seqs of a batch are not consecutive.
	ErrInvalid = errors.New("invalid batch")

	// ErrUnknown: it is unknown whether the commit succeeded. Until Fence returns, the commit may still be applied.
	ErrUnknown = errors.New("outcome unknown")

	// ErrDamaged: stored data is damaged.
	ErrDamaged = errors.New("damaged")

	// ErrNotDatabase: the file is not a patchlog database, or too damaged to be recognised as one.
	ErrNotDatabase = errors.New("not a patchlog database")

	// ErrIndex: the session's id index is damaged. Its records can still be read.
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

// Backend stores sessions. Its methods may be called concurrently.
//
// A method does not retain slices of its arguments. The caller owns the slices that a method returns. A method closes
// its transaction before it returns. Cancelling the context can end a call only before the commit point.
type Backend interface {
	// Fetch returns a session's head, the records after q.After, and shared values, all as of one moment after the
	// call began. If the session does not exist, Fetch fails with ErrNotFound. If the session is damaged or the end
	// of its log cannot be determined, Fetch fails with ErrDamaged.
	Fetch(ctx context.Context, q Query) (Fetched, error)

	// Append adds the batch to the end of the session's log, atomically and durably, and sets the session's token to
	// batch.Next. It fails
	//
	//   - with ErrInvalid if the batch is invalid; this check comes first;
	//   - with ErrNotFound if the session does not exist or has another creation id;
	//   - with ErrMoved if the session's last seq is not batch.ExpectedLast, or its token is not batch.ExpectedToken;
	//   - with ErrTaken if batch.RequireFreeIDs is set and the log has a record with an id of the batch, and with
	//     ErrIndex if it is set and the id index is damaged;
	//   - with ErrDamaged if a stored record already occupies the place of a new one; nothing is overwritten.
	//
	// If batch.Create is set, Append creates the session. It then fails with ErrExists if the session exists, and
	// with ErrMoved if the edition of the session in batch.ExpectedSource has changed.
	//
	// If batch.RenameFrom is set too, Append renames that staged session, which must have the batch's creation id.
	// ExpectedLast and ExpectedToken then describe the staged session. If the staged session does not exist or has
	// changed, Append fails with ErrMoved.
	Append(ctx context.Context, session string, batch Batch) error

	// Replace atomically and durably replaces records of the log, without changing their seqs and ids, and appends
	// records. It also deletes the snapshot, updates the chain in the head, increments the edition and sets the
	// token.
	//
	// Replace calls plan with the session's head, without Meta, and commits the replacement that plan returns. No other
	// commit to the session happens in between. Because commits to the session wait for plan, it must not read from the
	// backend or block. If a replacement was not committed, Replace may call plan again. If plan fails, Replace returns
	// its error and changes nothing.
	//
	// Replace fails with ErrMoved if a stored record differs from its Replaced.Old, or the meta record from OldMeta.
	// It fails with ErrNotFound, ErrTaken and ErrInvalid as Append does. It may wait until a Check, a Copy or a
	// Vacuum ends. The old records may remain in free space until that space is reused or returned to the file
	// system. A caller may repeat Replace after ErrUnknown: if the first call was committed, the second fails with
	// ErrMoved or ErrTaken.
	Replace(ctx context.Context, session, creation string, plan func(Head) (Replacement, error)) error

	// Read returns the records with the given seqs, which must ascend. It stops at the first seq without a record. It
	// also stops before the records would exceed maxBytes, but always returns the first record. It fails with
	// ErrNotFound as Append does.
	Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]Record, error)

	// Lookup returns, for each id, the seq of the record with the id, or 0. It fails with ErrNotFound as Append does,
	// and with ErrIndex if the id index is damaged.
	Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error)

	// PutShared writes shared values atomically and durably. If a current value differs from the Old value of its
	// change, PutShared fails with ErrMoved. The names of the changes must be distinct. A caller may repeat PutShared
	// after ErrUnknown. When PutShared succeeds, all values that were read before the call are durable too.
	PutShared(ctx context.Context, changes []SharedChange) error

	// List returns the sessions whose names begin with the argument prefix and are greater than the argument after, at
	// most limit sessions. The sessions are in name order and have no Meta. A damaged session is included, with Err
	// set.
	List(ctx context.Context, prefix, after string, limit int) ([]Listed, error)

	// Relatives returns the sessions that were created with this Batch.Family and whose names are greater than the
	// argument after, at most limit sessions. The sessions are in name order. The session whose creation id is the
	// argument family is included if a relative named it in Batch.ExpectedSource. Otherwise it may be missing. A
	// damaged session is included, with Err set.
	Relatives(ctx context.Context, family, after string, limit int) ([]Listed, error)

	// Fence resolves a commit whose outcome is unknown. After Fence returns, no batch with this creation id and with
	// the argument seen as its ExpectedToken can be committed.
	//
	// If the result fenced is true, no such batch was committed. Fence has then replaced the token seen by the token
	// next, unless an earlier call has done so. A backend that cannot have a batch in flight may keep the token seen.
	// If fenced is false, the batch or another commit has changed the session, or the session is gone.
	//
	// For a batch that creates a session, the argument seen is 0. If fenced is then true, the creation id cannot be
	// used again. For a batch with RenameFrom, the argument session is the name of the staged session.
	//
	// When Fence returns, with fenced true or false, everything that was read before the call is durable.
	Fence(ctx context.Context, session, creation string, seen, next Token) (fenced bool, err error)

	// PutSnapshot stores the session's snapshot and replaces a stored snapshot of the same or a lower seq. The snapshot
	// need not be durable when PutSnapshot returns. PutSnapshot fails with ErrNotFound as Append does, and with
	// ErrMoved if snapshot and session have different editions.
	PutSnapshot(ctx context.Context, session, creation string, s Snapshot) error

	// Delete removes the session. It fails with ErrNotFound as Append does. If the argument seen is not nil and the
	// session has changed since that head, Delete fails with ErrMoved. If that head has no Token, only another edition
	// counts as a change.
	//
	// After Delete returns, a session with the same name can be created. The deleted records may use space for a
	// while. Delete delays other calls no longer than a write does. A caller may repeat Delete after ErrUnknown,
	// since Delete removes only the session with the given creation id.
	Delete(ctx context.Context, session, creation string, seen *Head) error

	// Close removes the records of deleted sessions and releases the backend's resources. Every later call fails with
	// ErrClosed.
	Close() error
}

// Leaser is a backend on a server that all its clients share. It grants leases to the clients. Its calls may be slow.
// When a caller's context ends, the caller therefore stops waiting for the commit of its batch.
type Leaser interface {
	// Lease acquires or extends the lease with the given name for the duration ttl. The result held is false if another
	// owner has an unexpired lease. A ttl of 0 releases the lease. If ttl is negative, Lease changes nothing, and held
	// reports whether the owner could acquire the lease. The backend's clock decides when a lease expires.
	Lease(ctx context.Context, name, owner string, ttl time.Duration) (held bool, err error)
}

// Query is the argument of Fetch.
type Query struct {
	// Session is the session's name. If it is "", Fetch returns only shared values.
	Session string
	// Creation is the creation id of the session that the caller has read, or "". After is the seq of the last record
	// that the caller has read.
	Creation string
	After    uint64
	// NoMeta omits the meta record.
	NoMeta bool
	// UpTo, if not 0, makes this a cold read of the log up to this seq. A cold read ignores Creation and After.
	UpTo uint64
	// Shared are prefixes of names. Fetch returns the shared values whose names begin with them. KnownVersions, if not nil,
	// has for each prefix the version of the values that the caller has, or 0.
	Shared        []string
	KnownVersions []Token
}

// FetchRecords and FetchBytes limit the records that a Fetch returns. ColdRecords and ColdBytes limit the records
// that a cold read returns. The first record is returned whatever its size.
const (
	FetchRecords = 512
	FetchBytes   = 1 << 20

	ColdRecords = 16 << 10
	ColdBytes   = 8 << 20
)

// Limits returns the limits of the records that Fetch returns for this query.
func (q Query) Limits() (records, bytes int) {
	if q.UpTo != 0 {
		return ColdRecords, ColdBytes
	}
	return FetchRecords, FetchBytes
}

// Seqs returns the seqs of the records that Fetch returns for this query, before the limit in bytes is applied. The
// argument last is the last seq of the log. The argument snap is the snapshot that a cold read starts from.
func (q Query) Seqs(last uint64, snap Snapshot) (seqs []uint64) {
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
	for _, span := range snap.Spans {
		add(span.First, min(span.Last, snap.Seq))
	}
	add(snap.Seq+1, min(last, q.UpTo))
	return seqs
}

// HasKnown reports whether the caller has the shared values of the prefix with this index at this version.
func (q Query) HasKnown(prefix int, version Token) bool {
	return version != 0 && prefix < len(q.KnownVersions) && q.KnownVersions[prefix] == version
}

// Fetched is the result of Fetch.
type Fetched struct {
	// Head is the session's head. Meta is nil if the query has NoMeta set, or if its Creation is the session's
	// creation id.
	Head
	// Records are the records after the query's After, in order and without a gap, within [FetchRecords] and
	// [FetchBytes]. If the session's creation id is not the query's, Records is empty.
	//
	// For a cold read, Records are the records that the snapshot refers to, followed by the records after the
	// snapshot up to UpTo. The limits are [ColdRecords] and [ColdBytes]. A cold read may omit some of these records.
	Records []Record
	// Snapshot is the session's snapshot, for a cold read. Data is nil if the session has no snapshot at or before
	// UpTo.
	Snapshot Snapshot
	// Shared has, for each prefix of the query, the shared values in name order. If the caller has the current
	// version, the values are omitted. A damaged value is included, with Err set.
	Shared [][]Value
	// Versions has, for each prefix of the query, the version of that scope, or 0 if the prefix has no version.
	Versions []Token
}

// FetchSnapshot returns the snapshot of the session with this creation id. Data is nil if there is none.
func FetchSnapshot(ctx context.Context, b Backend, session, creation string) (Snapshot, error) {
	fetched, err := b.Fetch(ctx, Query{Session: session, UpTo: math.MaxUint64})
	switch {
	case err != nil:
		return Snapshot{}, err
	case fetched.Creation != creation:
		return Snapshot{}, ErrNotFound
	}
	return fetched.Snapshot, fetched.Snapshot.Err
}

// scopeEnd ends the scope in the name of a shared value.
const scopeEnd = "\x00\x01"

// Scope returns the scope of a shared value. The scope is the name up to and including the last two-byte sequence 0,
// 1, or "" if the name has no such sequence. Each scope except "" has a version, which changes with each commit that
// writes a value of the scope. Callers ask for the versions only of scopes that are not prefixes of each other.
func Scope(name string) string {
	if i := strings.LastIndex(name, scopeEnd); i >= 0 {
		return name[:i+len(scopeEnd)]
	}
	return ""
}

// Scopes returns the scopes of the values, except "", each once.
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

// FetchHead returns a session's head.
func FetchHead(ctx context.Context, b Backend, session string) (Head, error) {
	fetched, err := b.Fetch(ctx, Query{Session: session})
	return fetched.Head, err
}

// FetchShared returns the shared values whose names begin with the given prefix.
func FetchShared(ctx context.Context, b Backend, prefix string) ([]Value, error) {
	fetched, err := b.Fetch(ctx, Query{Shared: []string{prefix}})
	if err != nil {
		return nil, err
	}
	return fetched.Shared[0], nil
}

// Range returns n consecutive seqs, from the argument first on.
func Range(first uint64, n int) []uint64 {
	seqs := make([]uint64, n)
	for i := range seqs {
		seqs[i] = first + uint64(i)
	}
	return seqs
}

// Token is a random number other than 0. Each commit to a session sets a new token. A caller that has the current
// token has seen all commits to the session.
type Token uint64

// Snapshot is an encoded view of a log as of the record with seq Seq.
type Snapshot struct {
	Seq     uint64
	Chain   Chain  // the chain of the log up to Seq
	Edition uint64 // the edition of the log; set for PutSnapshot, not by Fetch
	Spans   []Span // the records that the snapshot refers to, in order; set for PutSnapshot, optionally by Fetch
	Data    []byte
	Err     error // from Fetch: the snapshot is damaged, and Data is nil
}

// Span is the seqs from First to Last, both included.
type Span struct{ First, Last uint64 }

// Spans returns the spans that contain the given seqs, which must ascend.
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
	Last     uint64 // seq of the last record; 0 if the log is empty
	Token    Token
	Chain    Chain  // computed over the checksums of the records up to Last
	Counts   []byte // set by the last commit that had Counts

	// Edition is incremented by each Replace. A reader whose cached edition differs must read the log again.
	Edition uint64
}

// Moved reports whether the session has changed between h and now, two heads with the same creation id. If h has no
// Token, only replaced records count as a change.
func (h Head) Moved(current Head) bool {
	if h.Token == 0 {
		return current.Edition != h.Edition
	}
	return current.Last != h.Last || current.Token != h.Token || current.Edition != h.Edition
}

// Batch is a commit to a session.
type Batch struct {
	Creation       string   // the session's creation id
	Create         bool     // create the session with Meta; ExpectedLast is 0 unless RenameFrom is set
	RenameFrom     string   // with Create only: the name of a staged session to rename. Long imports and forks first write their records to a staged session
	Meta           []byte   // with Create only
	ExpectedLast   uint64   // the last seq that the caller has seen
	ExpectedToken  Token    // the token that the caller has seen; 0 for a new session
	Next           Token    // the session's token after the commit
	Chain          Chain    // the chain up to ExpectedLast; a backend may ignore it and compute the chain
	Records        []Record // with seqs ExpectedLast+1, ExpectedLast+2, …
	RequireFreeIDs bool     // fail if the log has one of the ids; may be unset if the caller has looked the ids up
	Counts         []byte   // stored with the head; nil keeps the current counts
	Shared         []Value  // shared values to write in the same commit

	// Family, with Create only, is the key by which [Backend.Relatives] finds the session. It is the creation id of
	// the session in which the first records of the family were logged. "" means that the session has no family.
	Family string

	// ExpectedSource, with Create only, is the session that the new session was copied from, as the caller read it.
	// If its edition differs when the batch is committed, Append fails with ErrMoved. Otherwise a fork could contain
	// text that was erased from its origin during the copy.
	ExpectedSource *SessionEdition
}

// CheckName returns [ErrInvalid] if the length of the name or id is not in [least, MaxNameBytes].
func CheckName(what, name string, least int) error {
	if len(name) < least || len(name) > MaxNameBytes {
		return fmt.Errorf("%w: %s of %d bytes; %d to %d are allowed", ErrInvalid, what, len(name), least, MaxNameBytes)
	}
	return nil
}

// Validate returns [ErrInvalid] if the batch is invalid or the session name is too short or too long.
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

// SessionEdition is a session and its edition when the caller read it.
type SessionEdition struct {
	Session, Creation string
	Edition           uint64
}

// Replacement is the change that a Replace commits.
type Replacement struct {
	Next          Token      // the session's token after the commit
	Records       []Replaced // in ascending order of Seq
	OldMeta, Meta []byte     // the current and the new meta record; if Meta is nil, the meta record is not changed
	Appended      []Record   // records to append in the same commit; their seqs follow the head's Last
	Counts        []byte     // stored with the head; nil keeps the current counts
}

// Batch returns the batch that appends r.Appended to a log with the given head.
func (r Replacement) Batch(creation string, head Head) Batch {
	return Batch{Creation: creation, ExpectedLast: head.Last, ExpectedToken: head.Token, Next: r.Next,
		Records: r.Appended, RequireFreeIDs: true, Counts: r.Counts}
}

// Replaced is a record and its replacement.
type Replaced struct {
	Seq         uint64
	Old, Data   []byte
	OldSum, Sum uint32 // checksums of the two versions of the record, for the chain
}

// ReplacedChain returns the chain of the log after the replacements and before the appended records. The argument head
// is the current head.
func (r Replacement) ReplacedChain(head Head) Chain {
	chain := head.Chain
	for _, x := range r.Records {
		chain = chain.Replace(head.Last-x.Seq, x.OldSum, x.Sum)
	}
	return chain
}

// Record is an encoded record of a log.
type Record struct {
	Seq  uint64
	IDs  []string // all ids in the record; set for Append, not by Read
	Sum  uint32   // the record's checksum for the chain, computed before compression; set for Append, not by Read
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
	Old  *Value // the value that Fetch returned; nil if there was none
	Name string
	Data []byte
}

// Matches reports whether current equals the value that the change replaces. nil means that the value does not exist. Any two
// damaged values are equal.
func (c SharedChange) Matches(current *Value) bool {
	if c.Old == nil || current == nil {
		return c.Old == current
	}
	return (c.Old.Err != nil) == (current.Err != nil) && bytes.Equal(c.Old.Data, current.Data)
}

// Listed is a session in a listing.
type Listed struct {
	Session string
	Head
	Err error // the session, or the end of its log, is damaged
}

// Checker is a backend that can check its own structure.
type Checker interface {
	// Check reads all stored data, without decoding records, and reports inconsistencies as ErrDamaged. [errors.Join] joins
	// several of them.
	Check(ctx context.Context) error
}

// Copier is a backend that can be copied while other callers write to it.
type Copier interface {
	// Copy copies the backend, without snapshots, as of one moment after the call began. It then passes the copy
	// to the callback use, both as a read-only backend and as a file. When use returns, Copy removes the copy. The
	// callback sum returns the checksum stored in an encoded record. If data is missing, or the records of a log do not
	// match its chain, Copy fails with ErrDamaged and does not call use. Copy delays writers no longer than a write
	// does, and has no lock while use runs.
	Copy(ctx context.Context, sum func(record []byte) uint32, use func(copy Backend, file io.Reader) error) error
}

// Vacuumer is a backend that can return unused space to the file system.
type Vacuumer interface {
	// Vacuum returns unused space to the file system. If it is interrupted, no data is lost. If the backend has
	// damage that would make Copy fail, Vacuum fails with ErrDamaged and changes nothing.
	Vacuum(ctx context.Context, sum func(record []byte) uint32) error

	// Space returns the space that the backend uses. The result may include only part of a concurrent write.
	Space(ctx context.Context) (Space, error)
}

// Space is disk space in bytes.
type Space struct {
	File int64 `json:"file"` // the file's length
	Live int64 `json:"live"` // keys and values: names, records, ids, snapshots and shared values
	Free int64 `json:"free"` // free pages, which later writes reuse; the rest of File is inner pages and gaps
}
