package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) salvageCommand() *cobra.Command {
	cmd := command(`salvage OLD NEW
Copy the intact records of a damaged file to a new one

OLD may be truncated or damaged. All its pages are read, and each record with a valid checksum is written to NEW, which
must not exist. OLD is not changed. Meanwhile, no program should write to OLD.

If records of a session are missing, the session ends before the gap. The records after the gap become the session
KEY~from-SEQ, where patches are events without effect (customMetadata.patchlog.salvaged). The session KEY~maybe-deleted may
have been deleted. KEY~without-state lost its initial state, and salvaged/unknown/session-NUMBER lost its key. If the file
does not tell whether a session was deleted, the session keeps its key and is reported. --leave-out-doubtful leaves out
these sessions and KEY~maybe-deleted.

If something is lost or in doubt, the exit code is 1. With --json each session is a line {"key", "parts", "records",
"lost", "receiptLost", "endUnknown", "maybeDeleted", "nameless", "stateless", "whole"}, and the last line has the totals.

$ patchlog salvage patchlog.db salvaged.db`)
	sure := cmd.Flags().Bool("leave-out-doubtful", false, "leave out sessions that may have been deleted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.salvage(cmd.Context(), args[0], args[1], *sure)
	}
	return cmd
}

func (a *app) salvage(ctx context.Context, from, to string, sure bool) (err error) {
	if url, _ := database.PostgresURL(to); url != "" {
		return usagef("NEW must be a file; 'patchlog import' copies its sessions to another database")
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%q exists; salvage writes a new file", to)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q is not a file", from)
	}
	s, err := a.openDatabase(ctx, to, database.Creating, a.bulk())
	if err != nil {
		return err
	}
	bar := a.progress("salvage")
	found, err := store.Salvage(ctx, io.NewSectionReader(file, 0, info.Size()), s, store.SalvageOptions{LeaveOutDoubtful: sure, Progress: func(done, total int) { bar.Count(done, total, "session") }})
	bar.End()
	err = errors.Join(err, s.Close())
	if err != nil || len(found.Sessions) == 0 && found.Shared.Written == 0 {
		if removeErr := os.Remove(to); removeErr != nil {
			return errors.Join(err, fmt.Errorf("the incomplete file %q was not removed: %w", to, removeErr))
		}
	}
	if err != nil {
		return fmt.Errorf("salvage failed, and the incomplete file %q was removed: %w", to, err)
	}
	return a.salvaged(found)
}

// salvaged reports what was salvaged and what was lost.
func (a *app) salvaged(found store.Salvaged) error {
	amiss := len(found.Shared.Maybe) + len(found.Shared.Lost)
	for _, s := range found.Sessions {
		if !s.Whole {
			amiss++
		}
		if a.json {
			a.out.Document(s)
		} else {
			a.salvagedLines(s)
		}
	}
	if err := a.salvagedTotal(found); err != nil {
		return err
	}
	if len(found.Sessions) == 0 && found.Shared.Written == 0 {
		return errors.New("nothing could be salvaged")
	}
	if amiss > 0 {
		return fmt.Errorf("incomplete: losses or doubts in %d of the sessions and shared values", amiss)
	}
	return nil
}

func (a *app) salvagedLines(s store.SalvagedSession) {
	text := fmt.Sprintf("%s: %s", s.Key, present.Counted(s.Records, "record"))
	if s.Whole {
		a.out.Line(text)
		return
	}
	doubts := notes{
		{s.Nameless, "its key is lost"}, {s.Stateless, "its initial state is lost"}, {s.MaybeDeleted, "it may have been deleted"},
		{s.EndUnknown, "how far its log went is lost"}, {len(s.Lost) > 0, "lost: " + spansText(s.Lost)},
		{len(s.ReceiptLost) > 0, "erased, and the receipt is lost: " + spansText(s.ReceiptLost)},
	}
	a.out.Line(strings.Join(append([]string{text}, doubts.texts()...), ", "))
	for _, p := range s.Parts {
		line := fmt.Sprintf("  %s: empty", p.Key)
		if p.To >= p.From {
			line = fmt.Sprintf("  %s: %s", p.Key, spansText([]patch.Span{p.Span}))
		}
		if p.Texts > 0 {
			line += fmt.Sprintf(", %s kept as text", present.Counted(p.Texts, "record"))
		}
		if p.Doubtful {
			line += ", of which one is not the one that was written, or none"
		}
		a.out.Line(line)
	}
}

// notes is a list of texts, each with the condition under which the text is shown.
type notes []struct {
	is   bool
	text string
}

// texts returns the texts whose conditions are true.
func (n notes) texts() (texts []string) {
	for _, note := range n {
		if note.is {
			texts = append(texts, note.text)
		}
	}
	return texts
}

// shownSpans limits the number of spans in a line.
const shownSpans = 20

func spansText(lost []patch.Span) string {
	var texts []string
	for _, l := range lost[:min(len(lost), shownSpans)] {
		text := fmt.Sprint(l.From)
		if l.To > l.From {
			text = fmt.Sprintf("%d-%d", l.From, l.To)
		}
		texts = append(texts, text)
	}
	if more := len(lost) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more stretches", more))
	}
	return strings.Join(texts, ", ")
}

func (a *app) salvagedTotal(f store.Salvaged) error {
	if a.json {
		return a.out.Document(struct {
			store.Salvaged
			Sessions int `json:"sessions"`
		}{f, len(f.Sessions)})
	}
	a.out.Linef("%s, %s, %s", present.Counted(len(f.Sessions), "session"), present.Counted(f.Records, "record"), present.Counted(f.Shared.Written, "shared value"))
	for _, name := range f.Shared.Maybe {
		a.out.Linef("shared value %s: it may be outdated", present.Printable(name))
	}
	for _, name := range f.Shared.Lost {
		a.out.Linef("shared value %s: it is lost", present.Printable(name))
	}
	a.out.Lines(notes{
		{f.LeftOut > 0, fmt.Sprintf("left out: %s that may have been deleted", present.Counted(f.LeftOut, "session"))},
		{f.Deleted > 0, fmt.Sprintf("left out: %s that had been deleted or never finished, with %s", present.Counted(f.Deleted, "session"), present.Counted(f.DeletedRecords, "record"))},
		{f.Metas < 2, fmt.Sprintf("of the two pages that name the newest commit %d are whole", f.Metas)},
		{f.BrokenPages > 0, fmt.Sprintf("%s of %d not in form", present.Counted(f.BrokenPages, "page"), f.Pages)},
		{f.Unread > 0, fmt.Sprintf("%s that the disk did not give", present.Counted(f.Unread, "byte"))},
	}.texts())
	return a.out.Flush()
}
