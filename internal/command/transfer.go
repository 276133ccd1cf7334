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

func (a *app) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import KEY FILE",
		Short: "Read a file into a session",
		Long: `FILE holds events and patches, one JSON object a line; - is standard input. Events may be
as ADK for Python stores them, rows of its table of events included. The session
is created if it is not there. Either the whole file is taken or nothing, and repeating an
import adds nothing. If the file has a patch in it, the log that is there must be a prefix
of the file. Values that sessions share (app: and user: keys) are not written.

The whole input is read, into memory, before the database is opened: others use it meanwhile.

With --from NAME, every operand is a FILE, the session file of a coding agent: pi,
claude-code or codex. Each becomes a session, whose key is made of --app (else NAME),
--user and the session's own id. Each line becomes an event that keeps it; what the agent
compacted or went back from is hidden by patches. A file that has grown adds what is new. A
last line that is still being written is left out. Of several files each is taken or not by
itself. patchlog export --lines gives the lines back.

--adopt-compactions makes summaries of the compaction records that ADK leaves in a log: each
takes the place of the events in its range, if these stand side by side, and the record goes.
Those that stay are listed with the reason.`,
		Example: examples(
			"patchlog import shop/ada/4711 session.jsonl",
			`patchlog import shop/ada/4711 session.jsonl --state '{"tenant":"t1"}'`,
			"patchlog import shop/ada/4711 adk-session.jsonl --adopt-compactions",
			"patchlog export shop/ada/4711 --db old.db | patchlog import shop/ada/4711 - --db new.db",
			"patchlog import --from claude-code ~/.claude/projects/*/*.jsonl",
		),
	}
	fs := cmd.Flags()
	var state stateFlag
	fs.Var(&state, "state", "the initial state, a `JSON` object; else that of the file's header")
	most := fs.Int64("max-bytes", store.DefaultImportBytes, "how many `bytes` the input may have")
	mostRecords := fs.Int("max-records", 0, "how many `records` the input may have (default as many as its bytes warrant in memory)")
	adopting := fs.Bool("adopt-compactions", false, "make summaries of the compaction records in the log")
	dryRun := declareDryRun(fs)
	from := sessionFiles{user: "user"}
	fs.Var(&from.format, "from", "the coding agent whose session files are read, by `NAME`: pi, claude-code or codex")
	fs.Var(&from.app, "app", "with --from: the `APP` of the sessions; else NAME")
	fs.Var(&from.user, "user", "with --from: the `USER` of the sessions (default user)")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case from.format == "":
			return operands(cmd, args)
		case len(args) == 0:
			return usagef("FILE is missing")
		}
		return nil
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if from.format != "" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return completeOperand(cmd, args, typed)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *most < 1 {
			return usagef("--max-bytes is %d, below 1", *most)
		}
		if *mostRecords < 1 && fs.Changed("max-records") {
			return usagef("--max-records is %d, below 1", *mostRecords)
		}
		switch {
		case from.format != "":
			if *mostRecords > 0 {
				return usagef("--max-records does not go with --from")
			}
			if *adopting {
				return usagef("--adopt-compactions is for logs of ADK; with --from, compactions are adopted")
			}
			from.state, from.most = state, *most
			return from.importAll(cmd.Context(), a, args)
		case from.app != "" || fs.Changed("user"):
			return usagef("--app and --user go with --from")
		}
		return a.importFile(cmd.Context(), args[0], args[1], store.ImportOptions{
			MaxBytes: *most, MaxRecords: *mostRecords, State: state.options(),
		}, *adopting, *dryRun)
	}
	return cmd
}

func (a *app) exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export KEY",
		Short: "Write a session as text",
		Long: `Every record is written with its seq, one JSON object a line, behind a header with the
initial state. Importing that elsewhere gives an equal session. With or without --json the
output is the same. On a terminal, characters that could drive it are written as escapes.

` + redactHelp + `
The header then says "redacted", also with --visible. Importing the file gives another log, of the
same shape.`,
		Example: examples(
			"patchlog export shop/ada/4711 > session.jsonl",
			"patchlog export shop/ada/4711 --visible > what-the-model-sees.jsonl",
			"patchlog export shop/ada/4711 --redact > to-share.jsonl",
		),
	}
	fs := cmd.Flags()
	lines := fs.Bool("lines", false, "the lines of the session file that import --from read")
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

func (a *app) importFile(ctx context.Context, keyText, name string, opts store.ImportOptions, adopting, dryRun bool) error {
	key, err := parseKey(keyText)
	if err != nil {
		return err
	}
	in, err := a.input(ctx, name)
	if err != nil {
		return err
	}
	defer in.close()
	bar := a.progress("import")
	r := &counting{r: in.r}
	opts.Name = in.name
	opts.Progress = func(lines int) { bar.update(r.n, in.size, present.Counted(lines, "line")) }
	text, err := store.ReadText(ctx, r, opts)
	bar.end()
	if err != nil {
		return err
	}
	var done store.Imported
	var adopted *adoption
	write := func(do func(*store.Store) error) error { return a.withStore(ctx, Creating, do) }
	if dryRun {
		write = func(do func(*store.Store) error) error { return a.onCopy(ctx, key, do) }
	}
	err = write(func(s *store.Store) (err error) { // only now: it locks the file
		done, err = s.ImportText(ctx, key, text)
		if err == nil && adopting {
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
	if dryRun {
		a.out.line("dry run; nothing is written")
	}
	if err := a.showImported(key, done); err != nil || adopted == nil {
		return err
	}
	return a.showAdoption(adopted)
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

func (a *app) showImported(key store.Key, done store.Imported) error {
	what := present.Counted(done.Added, "record") + " added"
	switch {
	case done.Added == 0 && done.Present > 0:
		what = "nothing to add, " + present.Counted(done.Present, "record") + " there already"
	case done.Present > 0:
		what += ", " + fmt.Sprintf("%d there already", done.Present)
	}
	created := ""
	if done.Created {
		created = "created, "
	}
	return a.out.linef("%s: %s%s; the log ends at record %d", key, created, what, done.View.Seq())
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
