package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/patch"
)

// ImportOptions say how to read a file of the text form. The zero value means the
// defaults.
type ImportOptions struct {
	// Name is what errors call the input; "" means "input".
	Name string

	// State is the initial state of a session that the import creates, and must be that
	// of one that is there; its app: and user: keys are left alone unless WriteShared is
	// set. nil means that of the file's header, if it has one.
	State map[string]any

	// WriteShared lets the import write the shared scopes, as appending would. Without
	// it, they stay as they are, since they may have moved on since the file was made.
	WriteShared bool

	// Progress, if not nil, is called now and then with the number of lines read.
	Progress func(lines int)
}

// Imported says what an import did.
type Imported struct {
	Committed
	Created bool // the session was not there before
	Added   int  // records that were not there before
	Present int  // records that were there, with the same content
}

const progressEvery = 256

// maxLine is how long the line of a record may be: longer than its byte form, since
// field names and escapes are spelled out.
func maxLine(maxRecord int) int { return 2*maxRecord + 64<<10 }

// Import reads a file of the text form (semantics, section 8) into a session, which it
// creates if it is not there: all of it in one durable commit, or nothing. Importing the
// same file again adds nothing.
//
// If the file has a patch in it, the log that is there must be a prefix of the file, or
// hold all of it at its start; else events that are not there are appended. Whether a
// patch applies is the fold's matter. A seq in the file is the record's place in the
// session. Errors match [ErrInvalid] or [ErrTooLarge], naming file and line,
// [ErrDuplicateID], or [ErrConflict] if the file does not fit the log that is there.
func (s *Store) Import(ctx context.Context, key Key, r io.Reader, opts ImportOptions) (Imported, error) {
	if err := key.Validate(); err != nil {
		return Imported{}, err
	}
	f, err := s.readFile(ctx, r, opts)
	if err != nil {
		return Imported{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	if err := h.lock(ctx); err != nil {
		return Imported{}, err
	}
	defer h.unlock()
	w := write{store: s, handle: h, records: f.records}
	created, err := w.beginImport(ctx, f, opts)
	if err != nil {
		return Imported{}, err
	}
	for _, i := range w.missing {
		if err := w.add(i); err != nil {
			return Imported{}, f.at(i, err)
		}
	}
	for i, rec := range w.records {
		if want := f.records[i].Seq; want != 0 && want != rec.Seq {
			return Imported{}, f.at(i, fmt.Errorf("%w: its seq is %d, but its place in session %s is %d", ErrInvalid, want, key, rec.Seq))
		}
	}
	if !opts.WriteShared {
		w.batch.Shared = nil
	}
	switch err := w.commit(ctx); {
	case errors.Is(err, ErrOutcomeUnknown):
		return Imported{Committed: Committed{Records: w.records}}, err
	case err != nil:
		return Imported{}, err
	}
	added := len(w.missing)
	return Imported{Committed{w.records, w.view}, created, added, len(w.records) - added}, nil
}

// file is the content of a file of the text form.
type file struct {
	name     string
	records  []patch.Record // without partial events
	lines    []int          // of each record
	initial  map[string]patch.Value
	header   bool
	hasPatch bool
}

func (s *Store) readFile(ctx context.Context, r io.Reader, opts ImportOptions) (file, error) {
	f := file{name: opts.Name}
	if f.name == "" {
		f.name = "input"
	}
	d := patch.NewDecoder(r, f.name)
	d.MaxLineBytes = maxLine(s.opts.MaxRecordBytes)
	var err error
	if f.initial, f.header, err = d.InitialState(); err != nil {
		return file{}, err
	}
	for {
		rec, err := d.Next()
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return file{}, err
		}
		if err := ctx.Err(); err != nil {
			return file{}, err
		}
		if rec.Event != nil && rec.Event.Partial() {
			continue
		}
		f.records = append(f.records, rec)
		f.lines = append(f.lines, d.Line())
		f.hasPatch = f.hasPatch || rec.Patch != nil
		if opts.Progress != nil && len(f.records)%progressEvery == 0 {
			opts.Progress(d.Line())
		}
	}
}

// at says which line an error is about.
func (f file) at(i int, err error) error {
	return &patch.LineError{File: f.name, Line: f.lines[i], Err: err}
}

// beginImport opens or creates the session, and finds out which of the file's records
// are there.
func (w *write) beginImport(ctx context.Context, f file, opts ImportOptions) (created bool, err error) {
	key := w.handle.key
	_, m, err := w.store.head(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return true, w.createForImport(f, opts)
	case err != nil:
		return false, err
	case opts.State != nil:
		own, _, err := splitState(opts.State)
		if err != nil {
			return false, err
		}
		if !sameState(m.initial, own) {
			return false, fmt.Errorf("session %s: %w: it was created with another initial state", key, ErrConflict)
		}
	case f.header && !sameState(m.initial, f.initial):
		return false, fmt.Errorf("session %s: %w: %s begins with another initial state", key, ErrConflict, f.name)
	}
	view, err := w.store.lockedView(ctx, w.handle)
	if err != nil {
		return false, err
	}
	if err := w.begin(view, ""); err != nil {
		return false, err
	}
	if f.hasPatch {
		return false, w.settlePrefix(ctx, f)
	}
	return false, f.atDuplicate(w.settle(ctx))
}

// atDuplicate says which line an error is about, if it is about an id.
func (f file) atDuplicate(err error) error {
	var dup *DuplicateIDError
	if errors.As(err, &dup) {
		for i, r := range f.records {
			if r.ID() == dup.ID {
				return f.at(i, err)
			}
		}
	}
	return err
}

func (w *write) createForImport(f file, opts ImportOptions) error {
	state := opts.State
	if state == nil {
		state = map[string]any{}
		for k, v := range f.initial {
			state[k] = v
		}
	}
	own, shared, err := splitState(state)
	if err != nil {
		return err
	}
	if err := w.create(own, w.store.opts.Now()); err != nil {
		return err
	}
	if err := w.share(shared); err != nil {
		return err
	}
	w.complete()
	for i := range w.records {
		w.missing = append(w.missing, i)
	}
	return nil
}

func sameState(a, b map[string]patch.Value) bool {
	n := 0
	for k, v := range b {
		if patch.ScopeOf(k) != patch.ScopeSession {
			continue
		}
		n++
		if other, ok := a[k]; !ok || !other.Equal(v) {
			return false
		}
	}
	return n == len(a)
}

// settlePrefix is settle for a file with patches: order matters, so one of log and
// file must be a prefix of the other.
func (w *write) settlePrefix(ctx context.Context, f file) error {
	key := w.handle.key
	w.complete()
	n := min(len(w.offered), int(w.view.Seq()))
	i := 0
	for page, err := range w.store.pages(ctx, key, w.view.Creation(), 1, uint64(n)) {
		if err != nil {
			return err
		}
		for _, there := range page.records {
			if there.ID() != w.offered[i].ID() || !patch.Same(there, w.offered[i]) {
				return f.at(i, fmt.Errorf("session %s: %w: the file has a patch in it, and its record %d is not the one that is there", key, ErrConflict, i+1))
			}
			w.records[i] = there
			i++
		}
	}
	for ; i < len(w.offered); i++ {
		w.missing = append(w.missing, i)
	}
	return nil
}

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
