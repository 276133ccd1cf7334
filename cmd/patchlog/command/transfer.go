package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

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

--adopt-compactions makes summaries of the compaction records that ADK leaves in a log: each
takes the place of the events in its range, if these stand side by side, and the record goes.
Those that stay are listed with the reason.`,
		Example: examples(
			"patchlog import shop/ada/4711 session.jsonl",
			`patchlog import shop/ada/4711 session.jsonl --state '{"tenant":"t1"}'`,
			"patchlog import shop/ada/4711 adk-session.jsonl --adopt-compactions",
			"patchlog export shop/ada/4711 --db old.db | patchlog import shop/ada/4711 - --db new.db",
		),
	}
	fs := cmd.Flags()
	var state stateFlag
	fs.Var(&state, "state", "the initial state, a `JSON` object; else that of the file's header")
	most := fs.Int64("max-bytes", store.DefaultImportBytes, "how many `bytes` the input may have")
	adopting := fs.Bool("adopt-compactions", false, "make summaries of the compaction records in the log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *most < 1 {
			return usagef("--max-bytes is %d, below 1", *most)
		}
		return a.importFile(cmd.Context(), args[0], args[1], state, *most, *adopting)
	}
	return cmd
}

func (a *app) exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export KEY",
		Short: "Write a session as text",
		Long: `Every record is written with its seq, one JSON object a line, behind a header with the
initial state. Importing that elsewhere gives an equal session. With or without --json the
output is the same. On a terminal, characters that could drive it are written as escapes.`,
		Example: examples(
			"patchlog export shop/ada/4711 > session.jsonl",
			"patchlog export shop/ada/4711 --visible > what-the-model-sees.jsonl",
		),
	}
	fs := cmd.Flags()
	visible := fs.Bool("visible", false, "the visible events alone, without header and seqs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.export(cmd.Context(), args[0], store.ExportOptions{Visible: *visible})
	}
	return cmd
}

func (a *app) importFile(ctx context.Context, keyText, name string, state stateFlag, most int64, adopting bool) error {
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
	text, err := store.ReadText(ctx, r, store.ImportOptions{
		Name:     in.name,
		MaxBytes: most,
		State:    state.options(),
		Progress: func(lines int) {
			bar.update(r.n, in.size, counted(lines, "line"))
		},
	})
	bar.end()
	if err != nil {
		return err
	}
	s, err := a.create(ctx) // only now: it locks the file
	if err != nil {
		return err
	}
	done, err := s.ImportText(ctx, key, text)
	var adopted *adoption
	if err == nil && adopting {
		adopted, done.View, err = adopt(ctx, s, key, done.View)
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	seq := done.View.Seq()
	if a.json {
		return a.out.document(struct {
			Key     string `json:"key"`
			Created bool   `json:"created"`
			Added   int    `json:"added"`
			Present int    `json:"present"`
			Seq     uint64 `json:"seq"`
			*adoption
		}{key.String(), done.Created, done.Added, done.Present, seq, adopted})
	}
	what := counted(done.Added, "record") + " added"
	switch {
	case done.Added == 0 && done.Present > 0:
		what = "nothing to add, " + counted(done.Present, "record") + " there already"
	case done.Present > 0:
		what += ", " + fmt.Sprintf("%d there already", done.Present)
	}
	created := ""
	if done.Created {
		created = "created, "
	}
	a.out.linef("%s: %s%s; the log ends at record %d", key, created, what, seq)
	if adopted == nil {
		return nil
	}
	return a.showAdoption(adopted)
}

func (a *app) export(ctx context.Context, keyText string, opts store.ExportOptions) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		bar := a.quietProgress("export")
		defer bar.end()
		var w io.Writer = a.out.w
		if a.out.screen {
			w = &safeJSON{w: w}
		}
		out := &countingLines{w: w, after: func(lines int64) {
			bar.update(0, 0, counted(lines, "record"))
		}}
		return s.Export(ctx, key, out, opts)
	})
}
