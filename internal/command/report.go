package command

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) reportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report KEY",
		Short: "Write a session as one HTML file to share",
		Long: `The file shows what 'patchlog serve' shows: figures, the raw log with what each patch did, what the model
sees, what summaries stand for and lost, and the state. It needs no other file, no script and no network. Of a
long session it has the newest records, of a long text the beginning.

` + redactHelp,
		Example: examples("patchlog report shop/ada/4711 --redact -o session.html"),
	}
	opts := inspector.ReportOptions{MaxEvents: inspector.DefaultMaxEvents}
	fs := cmd.Flags()
	file := fs.StringP("output", "o", "-", "write to this `FILE`; - is standard output")
	fs.Var(number{&opts.MaxEvents, 1}, "max-events", "leave out what comes before the last `N` records")
	var redacted redaction
	redacted.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if *file == "" {
			return usagef("--output: a file's name is missing")
		}
		if opts.Redact, err = a.redactor(redacted); err != nil {
			return err
		}
		return a.report(cmd.Context(), args[0], *file, opts)
	}
	return cmd
}

func (a *app) report(ctx context.Context, keyText, file string, opts inspector.ReportOptions) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		if file == "-" {
			return inspector.Report(ctx, a.out, s, key, opts)
		}
		if err := writeFile(file, func(w io.Writer) error { return inspector.Report(ctx, w, s, key, opts) }); err != nil {
			return err
		}
		if a.json {
			return a.out.document(struct {
				Key  string `json:"key"`
				File string `json:"file"`
			}{key.String(), file})
		}
		return a.out.linef("%s: written to %s", key, file)
	})
}

// writeFile writes a file as a whole, or leaves what is there. What is no regular file, such as a
// device, is written to as it is.
func writeFile(path string, write func(io.Writer) error) (err error) {
	name, flags := path, os.O_WRONLY
	info, err := os.Stat(path)
	whole := err != nil || info.Mode().IsRegular()
	if whole {
		name = filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8]+".part")
		flags |= os.O_CREATE | os.O_EXCL
		defer func() {
			if err != nil {
				os.Remove(name)
			}
		}()
	}
	f, err := os.OpenFile(name, flags, 0o666)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(cmp.Or(write(w), w.Flush()), f.Close()); err != nil || !whole {
		return err
	}
	return os.Rename(name, path)
}
