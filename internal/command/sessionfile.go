package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

// sessionFiles says which sessions the session files of coding agents become.
type sessionFiles struct {
	app, user filled
	seen      map[store.Key]string // the file of each session
}

// importAgents imports session files of coding agents, each by itself. If some cannot be imported, the
// others still are. Those in opened are open already.
func (r *importing) importAgents(ctx context.Context, files []string, opened ...*importSource) error {
	r.files.seen = map[store.Key]string{}
	failed := 0
	for i, name := range files {
		var err error
		if i < len(opened) {
			err = r.importAgent(ctx, opened[i])
		} else if src, openErr := r.open(ctx, name); openErr != nil {
			err = openErr
		} else {
			if err = r.checkFlags(src.format); err == nil {
				err = r.importAgent(ctx, src)
			}
			src.close()
		}
		var usage *usageError
		switch {
		case err == nil:
		case len(files) == 1 || ctx.Err() != nil || errors.Is(err, errOutput) || errors.As(err, &usage):
			return err
		default:
			failed++
			if err := r.out.flush(); err != nil { // so that what is said stays in order
				return err
			}
			if err := r.errs.problem(err.Error()); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s not imported", failed, present.Counted(len(files), "file"))
	}
	return nil
}

// errOutput says that what was done cannot be told.
var errOutput = errors.New("output")

func (r *importing) importAgent(ctx context.Context, src *importSource) error {
	f := &r.files
	if sessionfile.Format(src.format).Validate() != nil {
		return fmt.Errorf("%s is no session file of a coding agent; other sources are imported one at a time", src.name)
	}
	read, err := r.readAgent(ctx, src)
	if err != nil {
		return err
	}
	if other, ok := f.seen[read.key]; ok {
		return fmt.Errorf("%s: session %s is that of %s already", read.name, read.key, other)
	}
	f.seen[read.key] = read.name
	var done store.Imported
	err = r.write(ctx, read.key, func(s *store.Store) (err error) { // only now: it locks the file
		if err = read.fits(ctx, s); err == nil {
			done, err = s.ImportText(ctx, read.key, read.text)
		}
		return err
	})
	if errors.Is(err, store.ErrConflict) {
		err = fmt.Errorf("%w; --app or --user give the file another key", err)
	}
	if err != nil {
		return err
	}
	if err := read.show(r, done); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// sessionFile is a file that has been read.
type sessionFile struct {
	name   string
	key    store.Key
	text   *store.Text
	first  string // the id of its first record
	report sessionfile.Report
}

func (r *importing) readAgent(ctx context.Context, src *importSource) (*sessionFile, error) {
	f, in, format := &r.files, src.input, sessionfile.Format(src.format)
	bar := r.progress("import")
	defer bar.end()
	count := &counting{r: io.LimitReader(in.r, r.most+1)}
	d := sessionfile.NewDecoder(count, format, in.name)
	read := &sessionFile{name: in.name}
	var text bytes.Buffer
	e := patch.NewEncoder(&text)
	for {
		rec, err := d.Next()
		if count.n > r.most {
			return nil, fmt.Errorf("%s: %w: the input goes on beyond %d bytes; the limit can be set higher", in.name, store.ErrTooLarge, r.most)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if read.first == "" {
			read.first = rec.ID()
		}
		if err := e.Record(rec); err != nil {
			return nil, err
		}
		bar.update(count.n, in.size, present.Counted(d.Report().Lines, "line"))
	}
	read.report = d.Report()
	read.key = store.Key{App: string(f.app), User: string(f.user), Session: d.SessionID()}
	if read.key.App == "" {
		read.key.App = string(format)
	}
	if read.key.Session == "" {
		if src.name == "-" {
			return nil, fmt.Errorf("%s does not tell its session's id; give the file by its name", in.name)
		}
		read.key.Session = strings.TrimSuffix(filepath.Base(src.name), ".jsonl")
	}
	if err := read.key.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", in.name, err)
	}
	var err error
	read.text, err = store.ReadText(ctx, &text, store.ImportOptions{
		Name: "what was read of " + in.name, MaxBytes: int64(text.Len()) + 1, State: r.state.options(),
	})
	return read, err
}

// fits reports whether the session that is there, if one is, was read from the same file.
func (f *sessionFile) fits(ctx context.Context, s *store.Store) error {
	for rec, err := range s.RawEvents(ctx, f.key, 1) {
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return err
		case rec.ID() != f.first:
			return fmt.Errorf("%s: %w: session %s is there, and does not begin as the file does", f.name, store.ErrConflict, f.key)
		}
		return nil
	}
	return nil
}

func (f *sessionFile) show(a *importing, done store.Imported) error {
	r := f.report
	if a.json {
		return a.out.document(struct {
			imported
			File        string `json:"file"`
			Lines       int    `json:"lines"`
			Rewinds     int    `json:"rewinds"`
			Compactions int    `json:"compactions"`
			Left        int    `json:"compactionsLeft"`
			Copies      int    `json:"copies"`
			Unreadable  int    `json:"unreadable"`
			Unfinished  int    `json:"unfinishedBytes"`
		}{importedAs(f.key, done), f.name, r.Lines, r.Rewinds, r.Compactions, r.Left, r.Copies, r.Unreadable, r.Unfinished})
	}
	if err := a.showImported(f.key, done); err != nil {
		return err
	}
	for _, said := range []struct {
		n    int
		what string
	}{
		{r.Rewinds, present.Counted(r.Rewinds, "rewind") + ": what was left behind is hidden"},
		{r.Compactions, present.Counted(r.Compactions, "compaction") + " adopted"},
		{r.Left, present.Counted(r.Left, "compaction") + " not adopted, and kept as events: what they cover cannot be told"},
		{r.Copies, present.Counted(r.Copies, "line") + " told once more, and kept without content"},
		{r.Unreadable, present.Counted(r.Unreadable, "line") + " of no JSON, kept without content"},
		{r.Unfinished, "the last line is not written to its end, and was left out"},
	} {
		if said.n > 0 {
			if err := a.out.linef("  %s", said.what); err != nil {
				return err
			}
		}
	}
	return nil
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
