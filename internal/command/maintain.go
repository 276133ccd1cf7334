package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/syncdir"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

func (a *app) backupCommand() *cobra.Command {
	cmd := command(`backup FILE
Save the database to a file

FILE is a database for --db. It must not exist, and appears only when the copy is complete and verified. A damaged database
is not copied. While another program has the database open, only that program can save it (Store.Backup in Go); a plain
copy of the file is unusable.

$ patchlog backup /backups/patchlog.db`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return a.backup(cmd.Context(), s, args[0]) })
	}
	return cmd
}

func (a *app) vacuumCommand() *cobra.Command {
	cmd := command(`vacuum
Free the space of deleted and erased records

The database is written to a new file beside the old one, which needs as much space again, and then replaces it. If that
is interrupted, the old file stays. 'patchlog stats' shows how many bytes are free.

$ patchlog vacuum`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withStore(cmd.Context(), Writing, func(s *store.Store) error { return a.vacuum(cmd.Context(), s) })
	}
	return cmd
}

func (a *app) backup(ctx context.Context, s *store.Store, path string) (err error) {
	if there, err := os.Stat(path); err == nil && there.IsDir() {
		return fmt.Errorf("%q is a directory; name a file in it", path)
	} else if err == nil {
		return errThere(path)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*") // for its owner alone
	if err != nil {
		return syncdir.Named(err, path)
	}
	defer func() {
		err = syncdir.Named(err, path)
		closeErr := draft.Close()
		if removeErr := os.Remove(draft.Name()); !errors.Is(removeErr, fs.ErrNotExist) { // it has its name
			err = errors.Join(err, removeErr)
		}
		if !errors.Is(closeErr, os.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
	}()
	if err := s.Backup(ctx, draft); err != nil {
		return err
	}
	info, err := draft.Stat()
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	sessions, err := sessionsIn(ctx, draft.Name(), a.options)
	if err != nil {
		return err
	}
	if err := publish(draft.Name(), path); err != nil {
		return err
	}
	return a.receipt(struct {
		File     string `json:"file"`
		Sessions int    `json:"sessions"`
		Bytes    int64  `json:"bytes"`
	}{path, sessions, info.Size()}, "%s: %s, %s bytes", path, present.Counted(sessions, "session"), present.Grouped(info.Size()))
}

// sessionsIn opens a file for reading and counts its sessions.
func sessionsIn(ctx context.Context, path string, opts store.Options) (n int, err error) {
	opts.ReadOnly = true
	s, err := store.Open(path, opts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return countSessions(ctx, s)
}

func countSessions(ctx context.Context, s *store.Store) (n int, err error) {
	for _, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func errThere(path string) error {
	return fmt.Errorf("%q is there; a backup replaces nothing", path)
}

// publish gives a file its name, and makes that durable.
func publish(draft, path string) error {
	switch err := os.Link(draft, path); {
	case errors.Is(err, fs.ErrExist):
		return errThere(path)
	case err != nil: // not every file system has hard links; a rename would replace
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return errThere(path)
		}
		if err := os.Rename(draft, path); err != nil {
			return err
		}
	}
	return syncdir.Sync(filepath.Dir(path))
}

// space shows how much room the database takes up.
func (a *app) space(ctx context.Context, s *store.Store) error {
	space, err := s.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	if err != nil {
		return err
	}
	if a.json {
		return a.out.document(space)
	}
	return a.out.rows([]present.Row{
		{Name: "file", Text: present.Grouped(space.File) + " bytes"},
		{Name: "  live", Text: present.Grouped(space.Live) + " bytes"},
		{Name: "  free", Text: present.Grouped(space.Free) + " bytes"},
	})
}

func (a *app) vacuum(ctx context.Context, s *store.Store) error {
	before, err := s.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	if err != nil {
		return err
	}
	after, err := s.Vacuum(ctx, store.VacuumOptions{})
	if err != nil {
		return err
	}
	return a.receipt(struct {
		Before backend.Space `json:"before"`
		After  backend.Space `json:"after"`
	}{before, after}, "%s: %s bytes, before %s", a.db, present.Grouped(after.File), present.Grouped(before.File))
}

func (a *app) verifyCommand() *cobra.Command {
	cmd := command(`verify [KEY]
Check the database, or one session, for damage

It checks the checksums, seqs and ids of all records, and compares snapshots with the log; without KEY, also the file's
structure. The exit code is 1 if there are problems. With --json each problem is a line {"key", "seq", "problem"}, and the
last line is {"sessions", "problems"}.

$ patchlog verify`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verify := func(s *store.Store, key store.Key) error {
			return a.verify(cmd.Context(), s, store.VerifyOptions{Key: key})
		}
		if len(args) > 0 {
			return a.withSession(cmd.Context(), args[0], Reading, verify)
		}
		return a.withStore(cmd.Context(), Reading, func(s *store.Store) error { return verify(s, store.Key{}) })
	}
	return cmd
}

func (a *app) verify(ctx context.Context, s *store.Store, opts store.VerifyOptions) error {
	sessions, problems := int64(0), int64(0)
	if opts.Key != (store.Key{}) {
		sessions = 1 // of one session no progress is told
	}
	bar := a.quietProgress("verify")
	defer bar.end()
	opts.Progress = func(key store.Key) {
		sessions++
		bar.update(sessions, 0, fmt.Sprintf("%d sessions", sessions))
	}
	for p, err := range s.Verify(ctx, opts) {
		if err != nil {
			return err
		}
		problems++
		if err := a.problem(p); err != nil {
			return err
		}
	}
	bar.end()
	var err error
	switch {
	case a.json:
		err = a.out.document(struct {
			Sessions int64 `json:"sessions"`
			Problems int64 `json:"problems"`
		}{sessions, problems})
	case problems == 0 && opts.Key != (store.Key{}):
		err = a.out.linef("%s: nothing is wrong", opts.Key)
	case problems == 0:
		err = a.out.linef("%s: nothing is wrong", present.Counted(sessions, "session"))
	}
	if err == nil && problems > 0 {
		err = fmt.Errorf("%s found", present.Counted(problems, "problem"))
	}
	return err
}

func (a *app) problem(p store.Problem) error {
	if !a.json {
		return a.out.line(present.Printable(p.String()))
	}
	return a.out.document(struct {
		Key     store.Key `json:"key"`
		Seq     uint64    `json:"seq,omitzero"`
		Problem error     `json:"problem,omitzero"`
	}{p.Key, p.Seq, p.Err})
}

func (a *app) salvageCommand() *cobra.Command {
	cmd := command(`salvage OLD NEW
Copy the intact records of a damaged file to a new one

OLD may be truncated or scrambled: all its pages are read, and each record with a valid checksum is written to NEW, which
must not exist. OLD is not changed; no program should write to it meanwhile.

A session with a gap ends before it. The records behind the gap become the session KEY~from-SEQ, where patches are events
without effect (customMetadata.patchlog.salvaged). KEY~maybe-deleted may have been deleted, KEY~without-state lost its
initial state, and salvaged/unknown/session-NUMBER its key. A session about which nothing tells whether it was deleted
keeps its key and is reported. --leave-out-doubtful skips both.

The exit code is 1 if something is lost or in doubt. With --json each session is a line {"key", "parts", "records",
"lost", "endUnknown", "maybeDeleted", "nameless", "stateless", "whole"}, and the last line has the totals.

$ patchlog salvage patchlog.db salvaged.db`)
	sure := cmd.Flags().Bool("leave-out-doubtful", false, "leave out sessions that may have been deleted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.salvage(cmd.Context(), args[0], args[1], *sure)
	}
	return cmd
}

func (a *app) salvage(ctx context.Context, from, to string, sure bool) (err error) {
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
	s, err := a.openDatabase(ctx, to, Creating, a.bulk())
	if err != nil {
		return err
	}
	bar := a.progress("salvage")
	found, err := store.Salvage(ctx, io.NewSectionReader(file, 0, info.Size()), s, store.SalvageOptions{LeaveOutDoubtful: sure, Progress: bar.sessions})
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

// salvaged says what became of the sessions of a file, and of the rest.
func (a *app) salvaged(found store.Salvaged) error {
	amiss := len(found.Shared.Maybe) + len(found.Shared.Lost)
	for _, s := range found.Sessions {
		if !s.Whole {
			amiss++
		}
		if a.json {
			a.out.document(s)
		} else {
			a.salvagedLines(s)
		}
	}
	if err := a.salvagedTotal(found); err != nil {
		return err
	}
	if len(found.Sessions) == 0 && found.Shared.Written == 0 {
		return errors.New("nothing was found that could be salvaged")
	}
	if amiss > 0 {
		return fmt.Errorf("not all is as it was: of %s some is lost or in doubt", present.Counted(amiss, "session or shared value"))
	}
	return nil
}

func (a *app) salvagedLines(s store.SalvagedSession) {
	text := fmt.Sprintf("%s: %s", s.Key, present.Counted(s.Records, "record"))
	if s.Whole {
		a.out.line(text)
		return
	}
	for _, doubt := range []struct {
		is   bool
		text string
	}{
		{s.Nameless, "its key is lost"}, {s.Stateless, "its initial state is lost"}, {s.MaybeDeleted, "it may have been deleted"},
		{s.EndUnknown, "how far its log went is lost"}, {len(s.Lost) > 0, "lost: " + spansText(s.Lost)},
	} {
		if doubt.is {
			text += ", " + doubt.text
		}
	}
	a.out.line(text)
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
		a.out.line(line)
	}
}

// shownSpans is how many stretches of records are named in a line.
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
		return a.out.document(struct {
			store.Salvaged
			Sessions int `json:"sessions"`
		}{f, len(f.Sessions)})
	}
	a.out.linef("%s, %s, %s", present.Counted(len(f.Sessions), "session"), present.Counted(f.Records, "record"), present.Counted(f.Shared.Written, "shared value"))
	for _, name := range f.Shared.Maybe {
		a.out.linef("shared value %s: it may be outdated", present.Printable(name))
	}
	for _, name := range f.Shared.Lost {
		a.out.linef("shared value %s: it is lost", present.Printable(name))
	}
	if f.LeftOut > 0 {
		a.out.linef("left out: %s that may have been deleted", present.Counted(f.LeftOut, "session"))
	}
	if f.Deleted > 0 {
		a.out.linef("left out: %s that had been deleted or never finished, with %s", present.Counted(f.Deleted, "session"), present.Counted(f.DeletedRecords, "record"))
	}
	if f.Metas < 2 {
		a.out.linef("of the two pages that name the newest commit %d are whole", f.Metas)
	}
	if f.BrokenPages > 0 {
		a.out.linef("%s of %d not in form", present.Counted(f.BrokenPages, "page"), f.Pages)
	}
	if f.Unread > 0 {
		a.out.linef("%s that the disk did not give", present.Counted(f.Unread, "byte"))
	}
	return a.out.flush()
}
