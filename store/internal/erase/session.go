package erase

import (
	"context"
	"iter"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Ancestor is a session that logged the first records of another session, up to Seq.
type Ancestor struct {
	Creation string
	Seq      uint64
}

// Session is a session's head and decoded meta record.
type Session struct {
	Name    string
	Head    backend.Head
	Initial map[string]patch.Value
	Lineage []Ancestor // oldest ancestor first
	Err     error      // if not nil, the session is damaged, and only Name is set
}

// allRecords is the Seq of a session as its own ancestor.
const allRecords = ^uint64(0)

// CommonRecords returns the number of first records that two sessions share. The result related reports whether both
// sessions have a common ancestor, and so began with the same initial state.
func CommonRecords(a, b Session) (n uint64, related bool) {
	of := map[string]uint64{a.Head.Creation: allRecords}
	for _, x := range a.Lineage {
		of[x.Creation] = x.Seq
	}
	for _, x := range append(b.Lineage[:len(b.Lineage):len(b.Lineage)], Ancestor{b.Head.Creation, allRecords}) {
		if seq, found := of[x.Creation]; found {
			n, related = max(n, min(seq, x.Seq)), true
		}
	}
	return n, related
}

// ExtendLineage returns the lineage of a session that was copied from another session, up to seq.
func ExtendLineage(creation string, lineage []Ancestor, seq uint64) []Ancestor {
	return append(LimitLineage(lineage, seq), Ancestor{creation, seq})
}

// LimitLineage returns a lineage limited to the records up to seq.
func LimitLineage(lineage []Ancestor, seq uint64) (cut []Ancestor) {
	for _, x := range lineage {
		cut = append(cut, Ancestor{x.Creation, min(x.Seq, seq)})
	}
	return cut
}

// Family returns the key of a session's relatives. The key is the creation id of the oldest session in the lineage.
func Family(creation string, lineage []Ancestor) string {
	if len(lineage) > 0 {
		return lineage[0].Creation
	}
	return creation
}

// Log gives erasures access to a store.
type Log struct {
	*write.Config
	Store
}

// Store contains the operations that an erasure needs and that a backend does not have. Session names are those of the
// backend. If a session is damaged, the error matches [patch.ErrCorrupt]. IsNotFound reports whether an error means
// that the session does not exist or was created again.
type Store interface {
	Session(ctx context.Context, name string) (Session, error)
	IsNotFound(err error) bool

	// Relatives yields the sessions of a family, including damaged ones.
	Relatives(ctx context.Context, family string) iter.Seq2[Session, error]

	// ReadLog reads a session's log and returns the view. It passes every record to the callback each, in order. If
	// records are erased meanwhile, the error matches [ErrLogChanged].
	ReadLog(ctx context.Context, s Session, each func(patch.Record, backend.Record)) (fold.View, error)

	// ReadRecords returns records, both decoded and in their stored form.
	ReadRecords(ctx context.Context, name, creation string, seqs []uint64) ([]patch.Record, []backend.Record, error)

	// Replace is [backend.Backend.Replace], with the same errors. It also drops the session's cached view, so
	// that the next reader reads the session from the storage.
	Replace(ctx context.Context, name, creation string, make func(backend.Head) (backend.Replacement, error)) error

	// WrapError adds the names of the store and the session to an error of the backend.
	WrapError(name string, err error) error

	// ResumeUser does the work of [Options.User] for a call that was interrupted.
	ResumeUser(ctx context.Context, name string, opts Options) error

	// EncodeMeta returns the encoded meta record of a session, with the initial state in s.
	EncodeMeta(s Session) ([]byte, error)
}

func (l Log) lookup(ctx context.Context, name, creation string, ids ...string) ([]uint64, error) {
	seqs, err := l.Backend.Lookup(ctx, name, creation, ids)
	return seqs, l.WrapError(name, err)
}

// confirm makes everything that was read durable.
func (l Log) confirm(ctx context.Context) error {
	return l.WrapError("", write.Confirm(ctx, l.Backend))
}

// ErrLogChanged: since the session was read, records were erased or receipts were logged.
var ErrLogChanged = write.ErrLogChanged
