package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

func (a *app) exportCommand() *cobra.Command {
	cmd := command(`export KEY
Write a session as JSON lines

The first line is a header with the initial state. Each other line is a record with its seq. Importing the lines gives an
equal session. On a terminal, control characters are escaped.

` + redactHelp + `
The header then has the field "redacted". Importing the lines gives a log of the same shape.

$ patchlog export shop/ada/4711 > session.jsonl`)
	fs := cmd.Flags()
	lines := fs.Bool("lines", false, "write the lines of the imported session file of a coding agent")
	visible := fs.Bool("visible", false, "write only the visible events, without header and seqs")
	html := fs.Bool("html", false, "write an HTML page with the visible events and the whole log")
	var redacted redaction
	redacted.declare(cmd)
	cmd.MarkFlagsMutuallyExclusive("lines", "visible", "html")
	cmd.MarkFlagsMutuallyExclusive("lines", "redact") // --lines writes the lines of the original file, which cannot be redacted
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		by, err := a.redactor(redacted)
		if err != nil {
			return err
		}
		if *html {
			return inspector.WriteHTML(ctx, s, key, a.out.Raw(), by)
		}
		counts := "record"
		if *lines {
			counts = "line"
		}
		bar := a.quietProgress("export")
		defer bar.End()
		out := bar.CountLines(a.out.JSON(), counts)
		if !*lines {
			return s.Export(ctx, key, out, store.ExportOptions{Visible: *visible, Redact: by})
		}
		err = migrate.WriteLines(out, s.RawEvents(ctx, key, 1))
		if err == nil && out.Lines == 0 {
			err = fmt.Errorf("session %s was not read from a session file", key)
		}
		return err
	})
	return cmd
}
