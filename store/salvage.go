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

// Salvaged says what a salvage has found and written.
type Salvaged struct {
	// Sessions are those with records that were written, or are known to be lost.
	Sessions []SalvagedSession `json:"sessions"`
	Records  int               `json:"records"` // written, of all sessions

	// Shared are the shared values. Names are as stored, with a slash between their parts.
	Shared struct {
		Written int      `json:"written"`
		Maybe   []string `json:"maybe"` // of those, values that may be outdated
		Lost    []string `json:"lost"`  // only the name was found
	} `json:"shared"`

	// LeftOut is how many sessions were left out by [SalvageOptions.LeaveOutDoubtful].
	LeftOut int `json:"leftOut"`

	// Deleted is how many deleted or unfinished sessions were found, and DeletedRecords how many records of them. They were
	// omitted.
	Deleted        int `json:"deleted"`
	DeletedRecords int `json:"deletedRecords"`

	Pages       uint64 `json:"pages"`       // that the file has, or could have
	Metas       int    `json:"metas"`       // how many of the two pages that name the newest commit are whole
	BrokenPages int    `json:"brokenPages"` // that should be in use and are not in form
	Unread      int64  `json:"unread"`      // bytes that the disk did not give
}

// SalvagedSession describes what was salvaged of a session.
type SalvagedSession struct {
	// Key is the session's own, or made up if it is Nameless.
	Key Key `json:"key"`
	// Parts are the sessions that were written, in the order of their records.
	Parts []SalvagedPart `json:"parts"`
	// Records is how many records the parts have.
	Records int `json:"records"`
	// Lost are the records that are known to have existed and were not found.
	Lost []patch.Span `json:"lost"`
	// EndUnknown says that the length of the log is unknown.
	EndUnknown bool `json:"endUnknown"`

	// MaybeDeleted says that the session may have been deleted.
	MaybeDeleted bool `json:"maybeDeleted"`
	// Nameless says that the session's key is lost.
	Nameless bool `json:"nameless"`
	// Stateless says that its initial state and its time of creation are lost.
	Stateless bool `json:"stateless"`
	// Whole says that the session is complete and unchanged.
	Whole bool `json:"whole"`
}

// SalvagedPart is a session that was written.
type SalvagedPart struct {
	Key Key `json:"key"`
	patch.Span
	// Log says that the part is the beginning of the log. Otherwise it follows a gap: its first record was record From, and its
	// patches are kept as text.
	Log bool `json:"log"`
	// Texts is how many patches were kept as text.
	Texts int `json:"texts"`
	// Doubtful says that a checksum over these records contradicts at least one of them.
	Doubtful bool `json:"doubtful"`
}

// SalvageOptions say how to salvage. The zero value writes all that is found.
type SalvageOptions struct {
	// LeaveOutDoubtful omits sessions that may have been deleted.
	LeaveOutDoubtful bool

	// Progress, if not nil, is called after each session with how many of all are done.
	Progress func(done, all int)
}

// Salvage writes the rows of a bbolt file of any state into a store: every record whose
// row header and own checksum are intact, whatever became of the pages that lead to it. The file is only
// read, and no program should write to it meanwhile. Memory is taken for
// what is found, about 40 bytes for each copy of a record, for a session's view, for the longest record, and for all
// shared values, which are written in one commit.
//
// A session whose records are all there is created as it was: its key, initial state, time
// of creation, and records with their seqs. Where records are missing, it ends before the
// first of them; the log up to there is exact. What follows a gap becomes a session of its
// own, KEY~from-SEQ, whose record 1 was record SEQ. Its events are as they were. A patch
// refers to a view that is lost, so it is kept as an event that does nothing:
// with the patch's id, author and time, and in customMetadata.patchlog.salvaged its seq and
// text. Other sessions are marked in the same way: KEY~maybe-deleted, if something says that
// the session had been deleted; KEY~without-state, if its initial state is lost;
// salvaged/unknown/session-NUMBER, if its key is. What is known to have been deleted is left
// out. Where nothing tells, the session has its own key, and SalvagedSession.MaybeDeleted is set. A session that is in the store already stays as it is: what is salvaged gets the
// next free one of KEY~2, KEY~3 and so on.
//
// What was erased stays erased, also where the file has it still in pages that are free: if the
// blank of it is found, or the receipt.
//
// An error means that the salvage has ended: nothing can be written, the context has ended,
// or there is no file. What the file holds or lacks is no error, and said in the result. Each
// session is there as a whole or not at all.
func Salvage(ctx context.Context, from *io.SectionReader, to *Store, opts SalvageOptions) (Salvaged, error) {
	if from == nil || to == nil || from.Size() < 0 {
		return Salvaged{}, fmt.Errorf("%w: the file to salvage is nil, or shorter than nothing, or the store is nil", ErrInvalid)
	}
	scan, err := salvage.Scan(ctx, from, from.Size())
	if err != nil {
		return Salvaged{}, err
	}
	v := &salvaging{File: scan, store: to}
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
		if log.Doubt && opts.LeaveOutDoubtful {
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

// salvaging is a run of Salvage.
type salvaging struct {
	*salvage.File
	store *Store
	out   Salvaged
}

// free returns the key, or the next one that is not taken.
func (v *salvaging) free(ctx context.Context, key Key, mark string) (Key, error) {
	base := key.Session
	for n := 1; ; n++ {
		end := mark
		if n > 1 {
			end += fmt.Sprintf("~%d", n)
		}
		key.Session = strings.ToValidUTF8(base[:min(len(base), MaxKeyPartBytes-len(end))], "") + end
		_, err := backend.HeadOf(ctx, v.store.backend, key.name())
		switch {
		case errors.Is(err, backend.ErrNotFound):
			return key, nil
		case err != nil && !errors.Is(err, backend.ErrDamaged):
			return key, fromBackend(key, err)
		}
	}
}

// writeShared writes the shared values that were found.
func (v *salvaging) writeShared(ctx context.Context) error {
	shared := &v.out.Shared
	found := v.Values
	names := map[string]bool{}
	var changes []backend.SharedChange
	for i := 0; i < len(found); {
		value, several := found[i], false
		for i++; i < len(found) && found[i].Name == value.Name; i++ {
			several = several || found[i].Rank == value.Rank && !found[i].Same(value)
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

// isSharedName reports whether a name is one that [sharedName] makes.
func isSharedName(name string) bool {
	parts := strings.Split(name, partEnd)
	scope := statekey.ScopeOf(parts[len(parts)-1])
	return parts[0] == "app" && len(parts) == 3 && scope == statekey.App ||
		parts[0] == "user" && len(parts) == 4 && scope == statekey.User
}
