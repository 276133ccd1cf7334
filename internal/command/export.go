package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
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

// exportLines writes the lines of the session file that a session was read from.
func (a *app) exportLines(ctx context.Context, keyText string) error {
	return a.writeOut(ctx, keyText, "line", func(out *countingLines, s *store.Store, key store.Key) error {
		err := sessionfile.WriteLines(out, s.RawEvents(ctx, key, 1))
		if err == nil && out.n == 0 {
			err = fmt.Errorf("session %s was not read from a session file", key)
		}
		return err
	})
}
