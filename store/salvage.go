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

// Salvaged reports what [Salvage] found and wrote.
type Salvaged struct {
	// Sessions are the sessions with recovered records, or with records that are known to be lost.
	Sessions []SalvagedSession `json:"sessions"`
	Records  int               `json:"records"` // recovered, in all sessions

	// Shared are the shared values. Names are as stored, with a slash between their parts.
	Shared struct {
		Written int      `json:"written"`
		Maybe   []string `json:"maybe"` // written values that may be outdated
		Lost    []string `json:"lost"`  // names found without a value
	} `json:"shared"`

	// LeftOut is how many sessions were left out by [SalvageOptions.LeaveOutDoubtful].
	LeftOut int `json:"leftOut"`

	// Deleted and DeletedRecords count the deleted or unfinished sessions that were found and omitted, and their records.
	Deleted        int `json:"deleted"`
	DeletedRecords int `json:"deletedRecords"`

	Pages       uint64 `json:"pages"`       // that the file has, or has room for
	Metas       int    `json:"metas"`       // how many of the two pages that name the newest commit are whole
	BrokenPages int    `json:"brokenPages"` // pages in use that cannot be read as pages
	Unread      int64  `json:"unread"`      // bytes that the disk failed to read
}

// SalvagedSession reports what [Salvage] recovered of one session.
type SalvagedSession struct {
	// Key is the session's key, or a new one if the session is Nameless.
	Key Key `json:"key"`
	// Parts are the sessions that the records were written to, in the order of the records.
	Parts []SalvagedPart `json:"parts"`
	// Records is the number of records in all parts.
	Records int `json:"records"`
	// Lost are the seqs of records that existed and were not found.
	Lost []patch.Span `json:"lost"`
	// ReceiptLost are the seqs of blank records that were found, and whose receipt is not in the same part. Verify
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
	// Whole reports that the session is complete and unchanged.
	Whole bool `json:"whole"`
}

// SalvagedPart is a session that [Salvage] wrote: a stretch of a log.
type SalvagedPart struct {
	Key Key `json:"key"`
	patch.Span
	// Log reports that the part is the beginning of the log. Any other part follows a gap: its first record was record From of
	// the log, and its patches are kept as text.
	Log bool `json:"log"`
	// Texts is the number of patches kept as text.
	Texts int `json:"texts"`
	// Doubtful reports that at least one of these records may be wrong: a checksum over them does not match.
	Doubtful bool `json:"doubtful"`
}

// SalvageOptions are options of [Salvage]. The zero value writes everything that is found.
type SalvageOptions struct {
	// LeaveOutDoubtful omits the sessions that may have been deleted.
	LeaveOutDoubtful bool

	// Progress, if not nil, is called after each session with the number of sessions done and the number of all
	// sessions.
	Progress func(done, all int)
}

// Salvage recovers the sessions of a bbolt file in any state and writes them to a store. It finds each record whose row
// header and checksum are intact, even if no page leads to it. It only reads the file; no program should write to the
// file meanwhile. It needs about 40 bytes of memory for each copy of a record, and memory for one session's view, the
// longest record and all shared values. The shared values are written in one commit.
//
// A session with all its records is created with its key, initial state, time of creation and seqs. If records are
// missing, the session ends before the first gap; until there its log is exact. The records after a gap become another
// session, KEY~from-SEQ, whose record 1 was record SEQ. Its events are unchanged. A patch after a gap refers to a view
// that is lost, so it becomes an event without effect. The event has the patch's id, author and time, and its seq and
// text in customMetadata.patchlog.salvaged.
//
// These sessions have a mark in their key: KEY~maybe-deleted if something in the file says that the session was
// deleted, KEY~without-state if its initial state is lost, and salvaged/unknown/session-NUMBER if its key is lost.
// Sessions that were certainly deleted are omitted. If the file does not tell whether a session was deleted, the
// session has its own key, and SalvagedSession.MaybeDeleted is set. A session that the store has already is not
// changed: the salvaged session gets the first free key of KEY~2, KEY~3 and so on.
//
// Erased events stay erased, even if free pages still hold them, provided that their blanks or the receipt are found.
//
// Each session is written completely or not at all. Damage of the file is no error: the result reports it. Salvage fails if it
// cannot write, if the context ends, or if there is no file.
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

// salvaging is one run of Salvage.
type salvaging struct {
	*salvage.File
	store *Store
	out   Salvaged
}

// free returns the key with a mark, or with the first number after it that gives a free key.
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
