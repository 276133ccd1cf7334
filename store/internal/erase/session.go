package erase

import (
	"context"
	"iter"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Ancestor is a session that logged the first records of another one, up to a seq.
type Ancestor struct {
	Creation string
	Seq      uint64
}

// Session is a session's head, and what its meta says.
type Session struct {
	Name    string
	Head    backend.Head
	Initial map[string]patch.Value
	Lineage []Ancestor // the oldest first
	Err     error      // if not nil, the session is damaged, and there is only its name
}

// everything is the seq of a session's own entry in its lineage.
const everything = ^uint64(0)

// Common returns how many first records two sessions have in common, and whether they are related: related sessions began
// with one initial state.
func Common(a, b Session) (n uint64, related bool) {
	of := map[string]uint64{a.Head.Creation: everything}
	for _, x := range a.Lineage {
		of[x.Creation] = x.Seq
	}
	for _, x := range append(b.Lineage[:len(b.Lineage):len(b.Lineage)], Ancestor{b.Head.Creation, everything}) {
		if seq, there := of[x.Creation]; there {
			n, related = max(n, min(seq, x.Seq)), true
		}
	}
	return n, related
}

// Descend returns the lineage of a session that is made of the first records of another one, up to a seq.
func Descend(creation string, lineage []Ancestor, seq uint64) []Ancestor {
	return append(Cut(lineage, seq), Ancestor{creation, seq})
}

// Cut returns the lineage of the first records, up to a seq.
func Cut(lineage []Ancestor, seq uint64) (cut []Ancestor) {
	for _, x := range lineage {
		cut = append(cut, Ancestor{x.Creation, min(x.Seq, seq)})
	}
	return cut
}

// Family returns the creation id by which all relatives of a session are found: that of the first of the lineage.
func Family(creation string, lineage []Ancestor) string {
	if len(lineage) > 0 {
		return lineage[0].Creation
	}
	return creation
}

// Log is a store in which sessions are erased.
type Log struct {
	*write.Config
	Store
}

// Store is what erasing asks of a store besides its backend. Names are those of the backend. A session that does not exist, or
// was created again, is an error that IsGone reports; one that is damaged matches [patch.ErrCorrupt].
type Store interface {
	Session(ctx context.Context, name string) (Session, error)
	IsGone(err error) bool

	// Relatives yields the sessions of a family, those that are damaged too.
	Relatives(ctx context.Context, family string) iter.Seq2[Session, error]

	// Read calls each with all records of a session's log, in order, and returns the view of them. The error matches
	// [ErrEdition] if records were erased meanwhile.
	Read(ctx context.Context, s Session, each func(patch.Record, backend.Record)) (fold.View, error)

	// Pick returns records, and as they are stored.
	Pick(ctx context.Context, name, creation string, seqs []uint64) ([]patch.Record, []backend.Record, error)

	// Replace is [backend.Backend.Replace], with its errors. The session's views are read anew afterwards.
	Replace(ctx context.Context, name, creation string, make func(backend.Head) (backend.Replacement, error)) error

	// Named gives an error of the backend the store's name and the session's.
	Named(name string, err error) error

	// ResumeUser does what [Options.User] does, for a call that has ended there.
	ResumeUser(ctx context.Context, name string, opts Options) error

	// Meta returns a session's meta record with other values of the initial state.
	Meta(s Session) ([]byte, error)
}

// lookup is [backend.Backend.Lookup].
func (l Log) lookup(ctx context.Context, name, creation string, ids ...string) ([]uint64, error) {
	seqs, err := l.Backend.Lookup(ctx, name, creation, ids)
	return seqs, l.Named(name, err)
}

// confirm makes all that was read durable.
func (l Log) confirm(ctx context.Context) error { return l.Named("", write.Confirm(ctx, l.Backend)) }

// ErrEdition: records were erased, or receipts logged, since the session was read.
var ErrEdition = write.ErrOtherLog
