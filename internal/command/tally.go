package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// What became of a session that was to be copied or migrated.
const (
	statusCreated   = string(migrate.Created)
	statusExtended  = string(migrate.Extended)
	statusUnchanged = string(migrate.Unchanged)
	statusAhead     = string(migrate.Ahead)
	statusGone      = "gone"
	statusConflict  = string(migrate.Conflict)
	statusFailed    = string(migrate.Failed)
)

var statuses = []string{statusCreated, statusExtended, statusUnchanged, statusAhead, statusGone, statusConflict, statusFailed}

// tally is what a run over many sessions says of each, and of all.
type tally struct {
	*app
	dryRun    bool
	bar       *progress
	counts    map[string]int // sessions by status
	problems  int
	sharedErr error // what kept shared values from being written, if it is no end of the run
}

func newTally(a *app, dryRun bool) *tally {
	return &tally{app: a, dryRun: dryRun, counts: map[string]int{}}
}

// sameFile reports whether two names are of one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// bulk returns the options of a database of which each session is used once.
func (t *tally) bulk() store.Options {
	opts := t.options
	opts.CacheBytes = -1
	opts.MaxRecordBytes = patch.MaxRecordBytes
	return opts
}

// openTarget opens the database to write. One that only would be written need not be there.
func (t *tally) openTarget(ctx context.Context, name string) (*store.Store, error) {
	if !t.dryRun {
		return t.openDatabase(ctx, name, Creating, t.bulk())
	}
	target, err := t.openDatabase(ctx, name, Reading, t.bulk())
	if errors.Is(err, ErrNoDatabase) {
		return store.OpenMemory(t.bulk())
	}
	return target, err
}

// at shows how many of all sessions are done.
func (t *tally) at(done, all int) {
	t.bar.update(int64(done), int64(all), fmt.Sprintf("%d of %s", done, present.Counted(all, "session")))
}

// sessionDocument says what became of a session.
type sessionDocument struct {
	Key     string `json:"key"`
	Status  string `json:"status"`
	Added   int    `json:"added"`
	Present int    `json:"present"`
	Seq     uint64 `json:"seq"`
	Error   string `json:"error,omitempty"`
}

func newSessionDocument(key store.Key, status string, added, present int, seq uint64, err error) sessionDocument {
	doc := sessionDocument{key.String(), status, added, present, seq, ""}
	if err != nil {
		doc.Error = err.Error()
	}
	return doc
}

// session says what became of a session: whole is its document, or has it. One that is as it
// was is only counted.
func (t *tally) session(doc sessionDocument, whole any, err error) error {
	t.counts[doc.Status]++
	if err != nil {
		t.problems++
	}
	if t.json {
		return t.line(func() error { return t.out.document(whole) })
	}
	if err != nil {
		return t.problem(err)
	}
	would := ""
	if t.dryRun {
		would = "would be "
	}
	switch doc.Status {
	case statusCreated, statusExtended:
		return t.line(func() error {
			return t.out.linef("%s: %s%s, %s added; the log ends at record %d", doc.Key, would, doc.Status, present.Counted(doc.Added, "record"), doc.Seq)
		})
	case statusAhead:
		return t.line(func() error {
			return t.out.linef("%s: nothing to add; the copy has gone on by itself, to record %d", doc.Key, doc.Seq)
		})
	}
	return nil
}

// noShared says what kept shared values from being written.
func (t *tally) noShared(err error) error {
	t.problems++
	t.sharedErr = err
	return t.problem(fmt.Errorf("shared values: %w", err))
}

// different says which shared values stay as they are, though the source has others.
func (t *tally) different(names []string) error {
	for _, name := range names {
		t.problems++
		if err := t.problem(fmt.Errorf("shared value %s: it is there with another value, which stays", name)); err != nil {
			return err
		}
	}
	return nil
}

// sourceDocument says what a source is, and what is to be said of it beside its sessions.
type sourceDocument struct {
	Source      string               `json:"source"`
	Differences []migrate.Difference `json:"differences"`
}

// problem says on standard error what was left out.
func (t *tally) problem(err error) error {
	t.bar.end()
	if t.json {
		return nil // it is in the documents
	}
	t.errs.problem(err.Error())
	return t.errs.flush()
}

// line writes where a bar may stand.
func (t *tally) line(write func() error) error {
	t.bar.end()
	err := write()
	if err == nil && t.out.screen {
		err = t.out.flush()
	}
	return err
}

// sum writes the totals of the run: the sessions by status, the shared values, and the source if it
// has differences.
func (t *tally) sum(sessions int, shared store.CopiedShared, done string, of *sourceDocument) error {
	if t.json {
		type sharedDocument struct {
			Added     int      `json:"added"`
			Different []string `json:"different"`
			Error     string   `json:"error,omitempty"`
		}
		doc := sharedDocument{Added: shared.Added, Different: append([]string{}, shared.Different...)}
		if t.sharedErr != nil {
			doc.Error = t.sharedErr.Error()
		}
		err := t.out.document(struct {
			Sessions map[string]int `json:"sessions"`
			Shared   sharedDocument `json:"shared"`
			DryRun   bool           `json:"dryRun"`
			*sourceDocument
		}{t.counts, doc, t.dryRun, of})
		if err != nil {
			return err
		}
	} else {
		text := present.Counted(sessions, "session")
		for _, status := range statuses {
			if n := t.counts[status]; n > 0 {
				text += fmt.Sprintf(", %d %s", n, status)
			}
		}
		if shared.Added > 0 && !t.dryRun {
			text += ", " + present.Counted(shared.Added, "shared value") + " added"
		}
		if t.dryRun {
			text += "; nothing is written"
		}
		if err := t.out.line(text); err != nil {
			return err
		}
	}
	if t.problems > 0 {
		return fmt.Errorf("not all is %s: %s", done, present.Counted(t.problems, "problem"))
	}
	return nil
}
