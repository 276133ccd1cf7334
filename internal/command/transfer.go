package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export KEY",
		Short: "Write a session as text",
		Long: `Each line is a record as a JSON object with its seq, below a header with the initial state. An import of this
text gives an equal session. On a terminal, characters that could control it are escaped.

` + redactHelp + `
The header then says "redacted". An import of it gives a log of the same shape.`,
		Example: examples("patchlog export shop/ada/4711 > session.jsonl"),
	}
	fs := cmd.Flags()
	lines := fs.Bool("lines", false, "the lines of the coding agent's session file that was imported")
	visible := fs.Bool("visible", false, "the visible events alone, without header and seqs")
	var redacted redaction
	redacted.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		by, err := a.redactor(redacted)
		switch {
		case err != nil:
			return err
		case *lines && (*visible || by != nil):
			return usagef("--lines gives back whole files; neither --visible nor --redact goes with it")
		case *lines:
			return a.exportLines(cmd.Context(), args[0])
		}
		return a.export(cmd.Context(), args[0], store.ExportOptions{Visible: *visible, Redact: by})
	}
	return cmd
}

// importLines imports a file of events and patches.
func (r *importing) importLines(ctx context.Context, keyText string, in *input) error {
	a := r.app
	key, err := parseKey(keyText)
	if err != nil {
		return err
	}
	opts := store.ImportOptions{MaxBytes: r.most, MaxRecords: r.mostRecords, State: r.state.options()}
	bar := a.progress("import")
	read := &counting{r: in.r}
	opts.Name = in.name
	opts.Progress = func(lines int) { bar.update(read.n, in.size, present.Counted(lines, "line")) }
	text, err := store.ReadText(ctx, read, opts)
	bar.end()
	if err != nil {
		return err
	}
	var done store.Imported
	var adopted *adoption
	err = r.write(ctx, key, func(s *store.Store) (err error) { // only now: it locks the file
		done, err = s.ImportText(ctx, key, text)
		if err == nil && r.compactions == "adopt" {
			adopted, done.View, err = adopt(ctx, s, key, done.View)
		}
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.out.document(struct {
			imported
			*adoption
		}{importedAs(key, done), adopted})
	}
	if err := r.showImported(key, done); err != nil || adopted == nil {
		return err
	}
	return a.showAdoption(adopted)
}

// write calls do with the database, or, for a dry run, with a copy of the session.
func (r *importing) write(ctx context.Context, key store.Key, do func(*store.Store) error) error {
	if *r.dryRun {
		return r.onCopy(ctx, key, do)
	}
	return r.withStore(ctx, Creating, do)
}

// onCopy calls do with a database in memory that has a copy of the session, if there is one.
func (a *app) onCopy(ctx context.Context, key store.Key, do func(*store.Store) error) (err error) {
	scratch, err := store.OpenMemory(a.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	err = a.withStore(ctx, Reading, func(s *store.Store) error {
		_, err := scratch.CopyFrom(ctx, s, key, store.CopyOptions{})
		return err
	})
	if err != nil && !errors.Is(err, ErrNoDatabase) && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return do(scratch)
}

// imported is what became of a session by an import.
type imported struct {
	Key     string `json:"key"`
	Created bool   `json:"created"`
	Added   int    `json:"added"`
	Present int    `json:"present"`
	Seq     uint64 `json:"seq"`
}

func importedAs(key store.Key, done store.Imported) imported {
	return imported{key.String(), done.Created, done.Added, done.Present, done.View.Seq()}
}

func (r *importing) showImported(key store.Key, done store.Imported) error {
	what := present.Counted(done.Added, "record") + " added"
	switch {
	case done.Added == 0 && done.Present > 0:
		what = "nothing to add, " + present.Counted(done.Present, "record") + " there already"
	case done.Present > 0:
		what += ", " + fmt.Sprintf("%d there already", done.Present)
	}
	created, dry := "", ""
	if done.Created {
		created = "created, "
	}
	if *r.dryRun {
		dry = "dry run; nothing is written: "
	}
	return r.out.linef("%s%s: %s%s; the log ends at record %d", dry, key, created, what, done.View.Seq())
}

func (a *app) export(ctx context.Context, keyText string, opts store.ExportOptions) error {
	return a.writeOut(ctx, keyText, "record", func(out *countingLines, s *store.Store, key store.Key) error {
		return s.Export(ctx, key, out, opts)
	})
}

// writeOut writes a session as text, of which each line is one of what is counted.
func (a *app) writeOut(ctx context.Context, keyText, counts string, write func(*countingLines, *store.Store, store.Key) error) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		bar := a.quietProgress("export")
		defer bar.end()
		var w io.Writer = a.out.w
		if a.out.screen {
			w = &safeJSON{w: w}
		}
		out := &countingLines{w: w, after: func(lines int64) {
			bar.update(0, 0, present.Counted(lines, counts))
		}}
		return write(out, s, key)
	})
}
