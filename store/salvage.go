package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/internal/salvage"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// Salvaged is the result of [Salvage].
type Salvaged struct {
	// Sessions are the sessions with recovered records, or with records that are known to be lost.
	Sessions []SalvagedSession `json:"sessions"`
	Records  int               `json:"records"` // number of recovered records in all sessions

	// Shared are the shared values. Names are as stored, with a slash between their parts. Written is the number of
	// written values.
	Shared struct {
		Written int      `json:"written"`
		Maybe   []string `json:"maybe"` // names of written values that may be outdated
		Lost    []string `json:"lost"`  // names that were found without a value
	} `json:"shared"`

	// LeftOut is the number of sessions that were omitted because of [SalvageOptions.LeaveOutDoubtful].
	LeftOut int `json:"leftOut"`

	// Deleted is the number of sessions that were found but not recovered, because they were deleted or never
	// completed. DeletedRecords is the number of their records.
	Deleted        int `json:"deleted"`
	DeletedRecords int `json:"deletedRecords"`

	Pages       uint64 `json:"pages"`       // number of pages that the file contains or has room for
	Metas       int    `json:"metas"`       // number of intact pages among the two that name the two newest commits: 0, 1 or 2
	BrokenPages int    `json:"brokenPages"` // number of pages in use that cannot be read as pages
	Unread      int64  `json:"unread"`      // number of bytes that the disk failed to read
}

// SalvagedSession is what [Salvage] recovered of one session.
type SalvagedSession struct {
	// Key is the session's key, or a new key if Nameless is set.
	Key Key `json:"key"`
	// Parts are the sessions that Salvage wrote the records to, in record order.
	Parts []SalvagedPart `json:"parts"`
	// Records is the number of records in all parts.
	Records int `json:"records"`
	// Lost contains the seqs of records that existed but were not found.
	Lost []patch.Span `json:"lost"`
	// ReceiptLost are the seqs of recovered blank records whose receipt is not in the same part. [Store.Verify]
	// reports these records.
	ReceiptLost []patch.Span `json:"receiptLost"`
	// EndUnknown reports that the last seq of the log is unknown.
	EndUnknown bool `json:"endUnknown"`

	// MaybeDeleted reports that the session may have been deleted.
	MaybeDeleted bool `json:"maybeDeleted"`
	// Nameless reports that the session's key is lost.
	Nameless bool `json:"nameless"`
	// Stateless reports that the initial state and the time of creation are lost.
	Stateless bool `json:"stateless"`
	// Whole reports that nothing of the session is lost or uncertain, and that all records are in one part with their
	// original seqs.
	Whole bool `json:"whole"`
}

// SalvagedPart is a session that [Salvage] wrote. It contains records of a log; Span has their seqs in the damaged
// file. A log is split at each gap, and before and after each doubtful record. If the file has different records
// with the same seq, and it is uncertain which record is right, each less likely record becomes a separate part.
type SalvagedPart struct {
	Key Key `json:"key"`
	patch.Span
	// Log reports that the part is the beginning of the log, with its seqs. In any other part, record 1 was record
	// From of the log, and patches are stored as text.
	Log bool `json:"log"`
	// Texts is the number of patches that are stored as text.
	Texts int `json:"texts"`
	// Doubtful reports that at least one record of the part may be wrong, because a checksum over these records
	// does not match.
	Doubtful bool `json:"doubtful"`
}

// SalvageOptions are options of [Salvage]. The zero value writes everything that is found.
type SalvageOptions struct {
	// LeaveOutDoubtful omits the sessions that may have been deleted.
	LeaveOutDoubtful bool

	// Progress, if not nil, is called after each session with the number of finished sessions and the number of all
	// sessions.
	Progress func(done, all int)
}

// Salvage recovers the sessions of a bbolt file in any condition and writes them to a store. It finds each record
// whose row header and checksum are intact, even if no page refers to the record. It only reads the file. While it
// runs, no program should write to the file. It needs about 40 bytes of memory for each copy of a record. It also
// needs memory for the view of one session, the longest record and all shared values.
//
// If all records of a session are found, Salvage creates the session with its key, initial state, time of creation
// and seqs. If a record is missing or doubtful, that session ends before this record, and is exact up to there. The
// records after a gap, and doubtful records, become other sessions with keys KEY~from-SEQ. In such a session,
// record 1 was record SEQ of the log, and events are unchanged. A patch refers to a view that is lost, so Salvage
// writes an event without effect in its place. The event has the patch's id, author and time. Its
// customMetadata.patchlog.salvaged has the patch's seq and text.
//
// Some keys have a suffix or a new name:
//   - KEY~maybe-deleted, if something in the file indicates that the session was deleted.
//   - KEY~without-state, if the initial state is lost.
//   - salvaged/unknown/session-NUMBER, if the key is lost.
//   - KEY~2, KEY~3 and so on, if the store already has a session with the key. Salvage does not change that
//     session.
//
// Salvage leaves out sessions that were certainly deleted. If the file does not show whether a session was deleted,
// the session keeps its key, and SalvagedSession.MaybeDeleted is set.
//
// Erased events stay erased, even if free pages still contain them, provided that Salvage finds their blanks or the
// receipt.
//
// Each new session is written completely or not at all. The shared values are written in one commit. Damage of the
// file is not an error; the result reports it. Salvage fails if it cannot write to the store, if ctx ends, or if an
// argument is nil. The result then reports the sessions written before the error.
func Salvage(ctx context.Context, from *io.SectionReader, to *Store, opts SalvageOptions) (Salvaged, error) {
	if from == nil || to == nil || from.Size() < 0 {
		return Salvaged{}, fmt.Errorf("%w: the file to salvage or the store is nil, or the file has a negative size", ErrInvalid)
	}
	scan, err := salvage.Scan(ctx, from, from.Size())
	if err != nil {
		return Salvaged{}, err
	}
	v := &salvager{File: scan, store: to}
	v.out = Salvaged{Pages: scan.Pages, Metas: scan.Metas, BrokenPages: scan.BrokenPages, Unread: scan.Unread}
	logs, err := v.Logs(ctx, func(name string) bool {
		key, err := keyOf(name)
		return err == nil && key.Validate() == nil && key.name() == name
	}, func(name string) bool { return strings.HasPrefix(name, write.StagedPrefix) })
	v.out.Deleted, v.out.DeletedRecords = v.Deleted, v.DeletedRecords
	if err != nil {
		return v.out, err
	}
	for i, log := range logs {
		if log.MaybeDeleted && opts.LeaveOutDoubtful {
			v.out.LeftOut++
		} else if err := v.write(ctx, log); err != nil {
			return v.out, err
		}
		if opts.Progress != nil {
			opts.Progress(i+1, len(logs))
		}
	}
	return v.out, v.writeShared(ctx)
}

// salvager is one run of Salvage.
type salvager struct {
	*salvage.File
	store *Store
	out   Salvaged
}

// unusedKey returns a key that the store does not have. It consists of the argument key, the suffix mark, and if
// necessary the lowest possible number.
func (v *salvager) unusedKey(ctx context.Context, key Key, mark string) (Key, error) {
	base := key.Session
	for n := 1; ; n++ {
		end := mark
		if n > 1 {
			end += fmt.Sprintf("~%d", n)
		}
		key.Session = strings.ToValidUTF8(base[:min(len(base), MaxKeyPartBytes-len(end))], "") + end
		_, err := backend.FetchHead(ctx, v.store.backend, key.name())
		switch {
		case errors.Is(err, backend.ErrNotFound):
			return key, nil
		case err != nil && !errors.Is(err, backend.ErrDamaged):
			return key, fromBackend(key, err)
		}
	}
}

func (v *salvager) writeShared(ctx context.Context) error {
	shared := &v.out.Shared
	found := v.Values
	names := map[string]bool{}
	var changes []backend.SharedChange
	for i := 0; i < len(found); {
		value, several := found[i], false
		for i++; i < len(found) && found[i].Name == value.Name; i++ {
			several = several || found[i].Rank == value.Rank && !found[i].Equal(value)
		}
		if !isSharedName(value.Name) {
			continue
		}
		form, err := v.ReadValue(value)
		if err != nil {
			continue
		}
		names[value.Name] = true
		shown := strings.ReplaceAll(value.Name, partEnd, "/")
		if several || value.Rank == bolt.Free {
			shared.Maybe = append(shared.Maybe, shown)
		}
		changes = append(changes, backend.SharedChange{Name: value.Name, Data: form})
	}
	for _, name := range v.ValueNames {
		if !names[name] {
			shared.Lost = append(shared.Lost, strings.ReplaceAll(name, partEnd, "/"))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	err := v.store.backend.PutShared(ctx, changes)
	if err == nil {
		shared.Written = len(changes)
	}
	return fromBackend(Key{}, err)
}

// isSharedName reports whether [sharedName] can return the name.
func isSharedName(name string) bool {
	parts := strings.Split(name, partEnd)
	scope := statekey.ScopeOf(parts[len(parts)-1])
	return parts[0] == "app" && len(parts) == 3 && scope == statekey.App ||
		parts[0] == "user" && len(parts) == 4 && scope == statekey.User
}
