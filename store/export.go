package store

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/patch"
)

// ExportOptions say what to export. The zero value means the whole log.
type ExportOptions struct {
	// Visible exports the visible events alone, without header and seqs: a session
	// that forgets what was hidden.
	Visible bool
}

// Export writes the session in the text form. Importing it elsewhere gives an equal
// view. The session may be written to meanwhile; the export ends with the record that
// was the last when it started.
func (s *Store) Export(ctx context.Context, key Key, out io.Writer, opts ExportOptions) error {
	if out == nil {
		return fmt.Errorf("%w: the writer is nil", ErrInvalid)
	}
	buf := bufio.NewWriterSize(out, 64<<10)
	enc := patch.NewEncoder(buf)
	if opts.Visible {
		session, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		for _, e := range session.View.Events() {
			if err := enc.Record(patch.Record{Event: e}); err != nil {
				return err
			}
		}
		return buf.Flush()
	}
	if err := key.Validate(); err != nil {
		return err
	}
	head, m, err := s.head(ctx, key)
	if err != nil {
		return err
	}
	if err := enc.Header(m.initial); err != nil {
		return err
	}
	for page, err := range s.pages(ctx, key, head.Creation, 1, head.Last) {
		if err != nil {
			return err
		}
		for _, r := range page.records {
			if err := enc.Record(r); err != nil {
				return err
			}
		}
	}
	return buf.Flush()
}
