package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) salvageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "salvage OLD NEW",
		Short: "Write what a damaged file still holds into a new one",
		Long: `Every record of OLD whose checksum holds is written into NEW, which must not exist. All pages are read, so OLD
may be truncated or scrambled. OLD is only read; no program should write to it meanwhile.

A session with a gap ends before it; the records behind the gap become the session KEY~from-SEQ, in which
patches are events without effect (customMetadata.patchlog.salvaged). KEY~maybe-deleted may have been deleted,
KEY~without-state lost its initial state, salvaged/unknown/session-NUMBER its key.

The exit code is 1 if something is lost or in doubt. With --json each session is a line {"key","records",
"parts","lost","endUnknown","maybeDeleted","nameless","stateless"}, and the last line the totals.`,
		Example: examples("patchlog salvage patchlog.db salvaged.db"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.salvage(cmd.Context(), args[0], args[1]) }
	return cmd
}

func (a *app) salvage(ctx context.Context, from, to string) (err error) {
	if _, _, isURL, _ := splitURL(to); isURL {
		return usagef("NEW is a file; 'patchlog import' brings its sessions elsewhere")
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%q is there already; what is salvaged goes into a new file", to)
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
	opts := a.options
	opts.CacheBytes, opts.MaxRecordBytes = -1, patch.MaxRecordBytes
	s, err := a.openDatabase(ctx, to, Creating, opts)
	if err != nil {
		return err
	}
	bar := a.progress("salvage")
	found, err := s.SalvageFrom(ctx, file, info.Size(), store.SalvageOptions{Progress: func(done, all int) {
		bar.update(int64(done), int64(all), fmt.Sprintf("%d of %s", done, present.Counted(all, "session")))
	}})
	bar.end()
	err = errors.Join(err, s.Close())
	if err != nil || len(found.Sessions) == 0 && found.Shared.Written == 0 {
		if removeErr := os.Remove(to); removeErr != nil {
			return errors.Join(err, fmt.Errorf("%q is not a whole salvage: %w", to, removeErr))
		}
	}
	if err != nil {
		return fmt.Errorf("salvage failed, and the incomplete file %q was removed: %w", to, err)
	}
	return a.salvaged(found)
}

type salvagedPartDocument struct {
	Key      string `json:"key"`
	From     uint64 `json:"from"`
	To       uint64 `json:"to"`
	Log      bool   `json:"log"`
	Texts    int    `json:"texts,omitempty"`
	Doubtful bool   `json:"doubtful,omitempty"`
}

type salvagedDocument struct {
	Key          string                 `json:"key"`
	Records      int                    `json:"records"`
	Parts        []salvagedPartDocument `json:"parts"`
	Lost         [][2]uint64            `json:"lost"`
	EndUnknown   bool                   `json:"endUnknown,omitempty"`
	MaybeDeleted bool                   `json:"maybeDeleted,omitempty"`
	Nameless     bool                   `json:"nameless,omitempty"`
	Stateless    bool                   `json:"stateless,omitempty"`
}

type salvagedShared struct {
	Written int      `json:"written"`
	Maybe   []string `json:"maybe"`
	Lost    []string `json:"lost"`
}

type salvagedTotal struct {
	Sessions       int            `json:"sessions"`
	Records        int            `json:"records"`
	Deleted        int            `json:"deleted"`
	DeletedRecords int            `json:"deletedRecords"`
	Shared         salvagedShared `json:"shared"`
	Pages          uint64         `json:"pages"`
	Metas          int            `json:"metas"`
	BrokenPages    int            `json:"brokenPages"`
	Unread         int64          `json:"unread"`
}

// salvaged says what became of the sessions of a file, and of the rest.
func (a *app) salvaged(found store.Salvaged) error {
	amiss := 0
	for _, session := range found.Sessions {
		if !session.Whole() {
			amiss++
		}
		var err error
		if a.json {
			err = a.out.document(newSalvagedDocument(session))
		} else {
			err = a.salvagedSession(session)
		}
		if err != nil {
			return err
		}
	}
	total := salvagedTotal{
		len(found.Sessions), found.Records, found.Deleted, found.DeletedRecords,
		salvagedShared{found.Shared.Written, append([]string{}, found.Shared.Maybe...), append([]string{}, found.Shared.Lost...)},
		found.Pages, found.Metas, found.BrokenPages, found.Unread,
	}
	var err error
	if a.json {
		err = a.out.document(total)
	} else {
		err = a.salvagedTotal(total, found.Broken)
	}
	if err != nil {
		return err
	}
	if len(found.Sessions) == 0 && found.Shared.Written == 0 {
		return errors.New("nothing was found that could be salvaged")
	}
	if amiss += len(found.Shared.Maybe) + len(found.Shared.Lost); amiss > 0 {
		return fmt.Errorf("not all is as it was: of %s some is lost or in doubt", present.Counted(amiss, "session or shared value"))
	}
	return nil
}

func newSalvagedDocument(s store.SalvagedSession) salvagedDocument {
	doc := salvagedDocument{
		Key: s.Key.String(), Records: s.Records, Parts: []salvagedPartDocument{}, Lost: [][2]uint64{},
		EndUnknown: s.EndUnknown, MaybeDeleted: s.MaybeDeleted, Nameless: s.Nameless, Stateless: s.Stateless,
	}
	for _, p := range s.Parts {
		doc.Parts = append(doc.Parts, salvagedPartDocument{p.Key.String(), p.From, p.To, p.Log, p.Texts, p.Doubtful})
	}
	for _, l := range s.Lost {
		doc.Lost = append(doc.Lost, [2]uint64{l.From, l.To})
	}
	return doc
}

func (a *app) salvagedSession(s store.SalvagedSession) error {
	text := fmt.Sprintf("%s: %s", s.Key, present.Counted(s.Records, "record"))
	if s.Whole() {
		return a.out.line(text)
	}
	for _, is := range []struct {
		so   bool
		text string
	}{
		{s.Nameless, "its key is lost"},
		{s.Stateless, "its initial state is lost"},
		{s.MaybeDeleted, "it may have been deleted"},
		{s.EndUnknown, "how far its log went is lost"},
	} {
		if is.so {
			text += ", " + is.text
		}
	}
	if len(s.Lost) > 0 {
		text += ", lost: " + spans(s.Lost)
	}
	if err := a.out.line(text); err != nil {
		return err
	}
	for _, p := range s.Parts {
		line := fmt.Sprintf("  %s: empty", p.Key)
		if p.To >= p.From {
			line = fmt.Sprintf("  %s: %s", p.Key, p.Span)
		}
		if p.Texts > 0 {
			line += fmt.Sprintf(", %s kept as text", present.Counted(p.Texts, "record"))
		}
		if p.Doubtful {
			line += ", of which one is not the one that was written, or none"
		}
		if err := a.out.line(line); err != nil {
			return err
		}
	}
	return nil
}

// shownSpans is how many stretches of records, or pages, are named in a line.
const shownSpans = 20

func spans(lost []store.Span) string {
	var texts []string
	for i, l := range lost {
		if i == shownSpans {
			texts = append(texts, fmt.Sprintf("and %d more stretches", len(lost)-i))
			break
		}
		texts = append(texts, l.String())
	}
	return strings.Join(texts, ", ")
}

func (a *app) salvagedTotal(t salvagedTotal, broken []uint64) error {
	lines := []string{fmt.Sprintf("%s, %s, %s", present.Counted(t.Sessions, "session"), present.Counted(t.Records, "record"), present.Counted(t.Shared.Written, "shared value"))}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, name := range t.Shared.Maybe {
		add("shared value %s: it may be outdated", name)
	}
	for _, name := range t.Shared.Lost {
		add("shared value %s: it is lost", name)
	}
	if t.Deleted > 0 {
		add("left out: %s that had been deleted or never finished, with %s", present.Counted(t.Deleted, "session"), present.Counted(t.DeletedRecords, "record"))
	}
	if t.Metas < 2 {
		add("of the two pages that name the newest commit %d are whole", t.Metas)
	}
	if t.BrokenPages > 0 {
		var numbers []string
		for i, id := range broken {
			if i == shownSpans {
				numbers = append(numbers, "and more")
				break
			}
			numbers = append(numbers, fmt.Sprint(id))
		}
		add("%s of %d not in form: %s", present.Counted(t.BrokenPages, "page"), t.Pages, strings.Join(numbers, ", "))
	}
	if t.Unread > 0 {
		add("%s that the disk did not give", present.Counted(t.Unread, "byte"))
	}
	for _, line := range lines {
		if err := a.out.line(present.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}
