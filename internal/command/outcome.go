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

// gone is the status of a session that was deleted while others were imported.
const gone migrate.Status = "gone"

var statuses = []migrate.Status{migrate.Created, migrate.Extended, migrate.Unchanged, migrate.Ahead, gone, migrate.Conflict, migrate.Failed}

// outcome is what became of a session by an import, or would.
type outcome struct {
	Key     string         `json:"key"`
	Status  migrate.Status `json:"status"`
	Added   int            `json:"added"`
	Present int            `json:"present"`
	Seq     uint64         `json:"seq"`
	Error   string         `json:"error,omitempty"`
	*adoption
	*agentFile
	Differences []migrate.Difference `json:"differences,omitempty"` // between ADK's session and this one

	notes []string // lines below the session's own
}

func outcomeOf(key store.Key, done store.Copied) outcome {
	o := outcome{Key: key.String(), Status: migrate.Unchanged, Added: done.Added, Present: done.Present, Seq: done.Seq}
	switch {
	case done.Created:
		o.Status = migrate.Created
	case done.Added > 0:
		o.Status = migrate.Extended
	case done.Seq > uint64(done.Present):
		o.Status = migrate.Ahead
	}
	return o
}

// report writes an outcome, with the error that kept the session from being imported. Of many sessions those that
// stay as they are and have no notes are only counted.
func (r *importing) report(o outcome, err error) error {
	r.counts[o.Status]++
	if err != nil {
		r.problems++
		o.Error = err.Error()
	}
	r.bar.end()
	if !r.json && err != nil {
		return r.problem(err)
	}
	switch would := ""; {
	case r.json:
		r.out.document(o)
	case o.Status == migrate.Created, o.Status == migrate.Extended:
		if *r.dryRun {
			would = "would be "
		}
		r.out.linef("%s: %s%s, %s added; the log ends at record %d", o.Key, would, o.Status, present.Counted(o.Added, "record"), o.Seq)
	case o.Status == migrate.Ahead:
		r.out.linef("%s: nothing to add; the copy has gone on by itself, to record %d", o.Key, o.Seq)
	case !r.many || len(o.notes) > 0:
		r.out.linef("%s: %s; the log ends at record %d", o.Key, o.Status, o.Seq)
	}
	if !r.json {
		for _, note := range o.notes {
			r.out.linef("  %s", present.Printable(note))
		}
	}
	return r.out.flush()
}

// problem writes on standard error what was left out.
func (r *importing) problem(err error) error {
	r.bar.end()
	if err := r.out.flush(); err != nil { // so that the lines stay in order
		return err
	}
	r.errs.problem(err.Error())
	return r.errs.flush()
}

// progress shows how many of all sessions are done.
func (r *importing) progressOf(done, all int) {
	r.bar.update(int64(done), int64(all), fmt.Sprintf("%d of %s", done, present.Counted(all, "session")))
}

// sum writes the totals of an import of many sessions.
func (r *importing) sum(shared store.CopiedShared, sharedErr error, source string, differences []migrate.Difference) error {
	type sharedDocument struct {
		Added     int      `json:"added"`
		Different []string `json:"different"`
		Error     string   `json:"error,omitempty"`
	}
	r.bar.end()
	doc := sharedDocument{Added: shared.Added, Different: append([]string{}, shared.Different...)}
	if sharedErr != nil {
		r.problems++
		doc.Error = sharedErr.Error()
	}
	if !r.adk.OverwriteShared {
		r.problems += len(shared.Different)
	}
	if r.json {
		r.out.document(struct {
			Sessions    map[migrate.Status]int `json:"sessions"`
			Shared      sharedDocument         `json:"shared"`
			DryRun      bool                   `json:"dryRun"`
			Source      string                 `json:"source,omitempty"`
			Differences []migrate.Difference   `json:"differences,omitempty"`
		}{r.counts, doc, *r.dryRun, source, differences})
	} else {
		if sharedErr != nil {
			r.problem(fmt.Errorf("shared values: %w", sharedErr))
		}
		for _, name := range shared.Different {
			if r.adk.OverwriteShared {
				r.out.linef("shared value %s: %s in place of another", name, map[bool]string{true: "would be written", false: "written"}[*r.dryRun])
			} else {
				r.problem(fmt.Errorf("shared value %s: it is there with another value, which stays", name))
			}
		}
		for _, d := range differences {
			r.out.linef("  %s", present.Printable(d.String()))
		}
		all, text := 0, ""
		for _, status := range statuses {
			if n := r.counts[status]; n > 0 {
				all += n
				text += fmt.Sprintf(", %d %s", n, status)
			}
		}
		text = present.Counted(all, "session") + text
		if shared.Added > 0 && !*r.dryRun {
			text += ", " + present.Counted(shared.Added, "shared value") + " added"
		}
		if *r.dryRun {
			text += "; nothing is written"
		}
		r.out.line(text)
	}
	if err := r.out.flush(); err != nil || r.problems == 0 {
		return err
	}
	return fmt.Errorf("not all is imported: %s", present.Counted(r.problems, "problem"))
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
func (a *app) bulk() store.Options {
	opts := a.options
	opts.CacheBytes, opts.MaxRecordBytes = -1, patch.MaxRecordBytes
	return opts
}

// openTarget opens the database to write. For a dry run it need not exist.
func (r *importing) openTarget(ctx context.Context) (*store.Store, error) {
	if !*r.dryRun {
		return r.openDatabase(ctx, r.db, Creating, r.bulk())
	}
	target, err := r.openDatabase(ctx, r.db, Reading, r.bulk())
	if errors.Is(err, ErrNoDatabase) {
		return store.OpenMemory(r.bulk())
	}
	return target, err
}
