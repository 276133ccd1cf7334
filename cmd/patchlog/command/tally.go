package command

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// What became of a session that was to be copied or migrated.
const (
	statusCreated   = "created"
	statusExtended  = "extended"
	statusUnchanged = "unchanged"
	statusAhead     = "ahead"
	statusGone      = "gone"
	statusConflict  = "conflict"
	statusFailed    = "failed"
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

// sessionDocument says what became of a session.
type sessionDocument struct {
	Key     string `json:"key"`
	Status  string `json:"status"`
	Added   int    `json:"added"`
	Present int    `json:"present"`
	Seq     uint64 `json:"seq"`
	Error   string `json:"error,omitempty"`
}

// session says what became of a session: whole is its document, or has it. One that is as it
// was is only counted.
func (t *tally) session(key store.Key, doc sessionDocument, whole any, err error) error {
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
			return t.out.linef("%s: %s%s, %s added; the log ends at record %d", key, would, doc.Status, counted(doc.Added, "record"), doc.Seq)
		})
	case statusAhead:
		return t.line(func() error {
			return t.out.linef("%s: nothing to add; the copy has gone on by itself, to record %d", key, doc.Seq)
		})
	}
	return nil
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
	t.errs.line(t.errs.paint(red, "patchlog:"), " ", printable(err.Error()))
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

// sum says what the run came to: what was done to so many sessions, of a source that may be
// worth a word.
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
		text := counted(sessions, "session")
		for _, status := range statuses {
			if n := t.counts[status]; n > 0 {
				text += fmt.Sprintf(", %d %s", n, status)
			}
		}
		if shared.Added > 0 && !t.dryRun {
			text += ", " + counted(shared.Added, "shared value") + " added"
		}
		if t.dryRun {
			text += "; nothing is written"
		}
		if err := t.out.line(text); err != nil {
			return err
		}
	}
	if t.problems > 0 {
		return fmt.Errorf("not all is %s: %s", done, counted(t.problems, "problem"))
	}
	return nil
}
