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
	"github.com/patchlog-dev/patchlog/store/migrate"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

// importAgents imports session files of coding agents, each by itself. If some cannot be imported, the others still
// are.
func (r *importing) importAgents(ctx context.Context, names []string) error {
	r.many = true
	seen := map[store.Key]string{} // the file of each session
	for _, name := range names {
		src, err := r.open(ctx, name)
		if err == nil {
			err = r.importAgent(ctx, src, seen)
			src.close()
		}
		var usage *usageError
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, errOutput) || errors.As(err, &usage):
			return err
		default:
			r.counts[migrate.Failed]++
			r.problems++
			if err := r.problem(err); err != nil {
				return err
			}
		}
	}
	return r.sum(store.CopiedShared{}, nil, "", nil)
}

// errOutput is the error of a report that cannot be written.
var errOutput = errors.New("output")

func (r *importing) importAgent(ctx context.Context, src *importSource, seen map[store.Key]string) error {
	if err := r.checkFlags(src.format); err != nil {
		return err
	}
	if sessionfile.Format(src.format).Validate() != nil {
		return fmt.Errorf("%s is no session file of a coding agent; other sources are imported one at a time", src.name)
	}
	read, err := r.readAgent(ctx, src)
	if err != nil {
		return err
	}
	if other, ok := seen[read.key]; ok {
		return fmt.Errorf("%s: session %s is that of %s already", src.input.name, read.key, other)
	}
	seen[read.key] = src.input.name
	o, err := r.importText(ctx, read.key, read.text, func(s *store.Store) error { return read.belongsTo(ctx, s, src.input.name) })
	if errors.Is(err, store.ErrConflict) {
		err = fmt.Errorf("%w; --app or --user give the file another key", err)
	}
	if err != nil {
		return err
	}
	o.agentFile, o.notes = newAgentFile(src.input.name, read.report)
	if err := r.report(o, nil); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// agentSession is a session file that has been read.
type agentSession struct {
	key    store.Key
	text   *store.Text
	first  string // the id of its first record
	report sessionfile.Report
}

func (r *importing) readAgent(ctx context.Context, src *importSource) (*agentSession, error) {
	in, format := src.input, sessionfile.Format(src.format)
	defer r.bar.end()
	count := &counting{r: io.LimitReader(in.r, r.maxBytes+1)}
	d := sessionfile.NewDecoder(count, format, in.name)
	read := &agentSession{}
	var text bytes.Buffer
	e := patch.NewEncoder(&text)
	for {
		rec, err := d.Next()
		if count.n > r.maxBytes {
			return nil, fmt.Errorf("%s: %w: the input goes on beyond %d bytes; the limit can be set higher", in.name, store.ErrTooLarge, r.maxBytes)
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
		r.bar.update(count.n, in.size, present.Counted(d.Report().Lines, "line"))
	}
	read.report = d.Report()
	read.key = store.Key{App: string(r.appName), User: string(r.user), Session: d.SessionID()}
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
		Name: "what was read of " + in.name, MaxBytes: int64(text.Len()) + 1,
	})
	return read, err
}

// belongsTo returns an error if there is a session of the key that was not read from the same file.
func (f *agentSession) belongsTo(ctx context.Context, s *store.Store, name string) error {
	for rec, err := range s.RawEvents(ctx, f.key, 1) {
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return err
		case rec.ID() != f.first:
			return fmt.Errorf("%s: %w: session %s is there, and does not begin as the file does", name, store.ErrConflict, f.key)
		}
		return nil
	}
	return nil
}

// agentFile is what an outcome says of the file.
type agentFile struct {
	File        string `json:"file"`
	Lines       int    `json:"lines"`
	Rewinds     int    `json:"rewinds"`
	Compactions int    `json:"compactions"`
	Left        int    `json:"compactionsLeft"`
	Copies      int    `json:"copies"`
	Unreadable  int    `json:"unreadable"`
	Unfinished  int    `json:"unfinishedBytes"`
}

// newAgentFile returns what an outcome says of a file, and the same in lines.
func newAgentFile(name string, r sessionfile.Report) (f *agentFile, notes []string) {
	for _, note := range []struct {
		n    int
		text string
	}{
		{r.Rewinds, present.Counted(r.Rewinds, "rewind") + ": what was left behind is hidden"},
		{r.Compactions, present.Counted(r.Compactions, "compaction") + " adopted"},
		{r.Left, present.Counted(r.Left, "compaction") + " not adopted, and kept as events: what they cover cannot be told"},
		{r.Copies, present.Counted(r.Copies, "line") + " told once more, and kept without content"},
		{r.Unreadable, present.Counted(r.Unreadable, "line") + " of no JSON, kept without content"},
		{r.Unfinished, "the last line is not written to its end, and was left out"},
	} {
		if note.n > 0 {
			notes = append(notes, note.text)
		}
	}
	return &agentFile{name, r.Lines, r.Rewinds, r.Compactions, r.Left, r.Copies, r.Unreadable, r.Unfinished}, notes
}
