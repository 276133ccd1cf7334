package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// ImportOptions say how to read a file of the text form. The zero value means the
// defaults.
type ImportOptions struct {
	// Name is what errors call the input; "" means "input".
	Name string

	// MaxBytes is how long the input may be; 0 means 256 MiB. What is read is kept in
	// memory, where it takes about seven times as much.
	MaxBytes int64

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

// DefaultImportBytes is how long the input of an import may be, unless
// [ImportOptions.MaxBytes] says otherwise.
const DefaultImportBytes = 256 << 20

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
// creates if it is not there: all of it, or nothing. Importing the same file again adds
// nothing. Others read and write the session while the input is read.
//
// If the file has a patch in it, the log that is there must be a prefix of the file, or
// hold all of it at its start; else events that are not there are appended. Whether a
// patch applies is the fold's matter. A seq in the file is the record's place in the
// session. Errors match [ErrInvalid] or [ErrTooLarge], naming file and line,
// [ErrDuplicateID], or [ErrConflict] if the file does not fit the log that is there.
//
// What is added to a session that is there is one durable commit. A session that is
// created is put together in steps, and others write in between; it is there with the
// last one, as a whole.
func (s *Store) Import(ctx context.Context, key Key, r io.Reader, opts ImportOptions) (Imported, error) {
	if err := key.Validate(); err != nil {
		return Imported{}, err
	}
	t, err := readText(ctx, r, opts, s.opts.MaxRecordBytes)
	if err != nil {
		return Imported{}, err
	}
	return s.ImportText(ctx, key, t)
}

// ImportText is [Store.Import] of what [ReadText] has read, with its options.
func (s *Store) ImportText(ctx context.Context, key Key, t *Text) (Imported, error) {
	if t == nil {
		return Imported{}, fmt.Errorf("%w: the text is nil", ErrInvalid)
	}
	if err := key.Validate(); err != nil {
		return Imported{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	switch _, err := s.backend.Head(ctx, key.name()); {
	case errors.Is(err, backend.ErrNotFound):
		imported, err := s.importNew(ctx, h, t)
		if !errors.Is(err, ErrExists) { // else it was created meanwhile
			return imported, err
		}
	case err != nil:
		return Imported{}, fromBackend(key, err)
	}
	return s.importInto(ctx, h, t)
}

// importNew imports into a session that it creates. The session's lock is held for the
// last commit alone.
func (s *Store) importNew(ctx context.Context, h *handle, t *Text) (Imported, error) {
	w := write{store: s, handle: h, records: t.records}
	if err := w.createForImport(t); err != nil {
		return Imported{}, err
	}
	defer s.backend.Unstage(w.batch.Creation) // after the commit it does nothing
	if err := w.addText(ctx, t, w.stage); err != nil {
		return Imported{}, err
	}
	if err := h.lock(ctx); err != nil {
		return Imported{}, err
	}
	defer h.unlock()
	return w.imported(ctx, true)
}

// importInto imports into a session that is there.
func (s *Store) importInto(ctx context.Context, h *handle, t *Text) (Imported, error) {
	if err := h.lock(ctx); err != nil {
		return Imported{}, err
	}
	defer h.unlock()
	w := write{store: s, handle: h, records: t.records}
	if err := w.beginImport(ctx, t); err != nil {
		return Imported{}, err
	}
	if err := w.addText(ctx, t, func(context.Context) error { return nil }); err != nil {
		return Imported{}, err
	}
	return w.imported(ctx, false)
}

// addText adds the records that are missing, and calls step after each.
func (w *write) addText(ctx context.Context, t *Text, step func(ctx context.Context) error) error {
	for _, i := range w.missing {
		if err := w.add(i); err != nil {
			return t.at(i, err)
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	for i, rec := range w.records {
		if want := t.records[i].Seq; want != 0 && want != rec.Seq {
			return t.at(i, fmt.Errorf("%w: its seq is %d, but its place in session %s is %d", ErrInvalid, want, w.handle.key, rec.Seq))
		}
	}
	if !t.opts.WriteShared {
		w.batch.Shared = nil
	}
	return nil
}

// imported commits, and says what was done.
func (w *write) imported(ctx context.Context, created bool) (Imported, error) {
	switch err := w.commit(ctx); {
	case errors.Is(err, ErrOutcomeUnknown):
		return Imported{Committed: Committed{Records: w.records}}, err
	case err != nil:
		return Imported{}, err
	}
	added := len(w.missing)
	return Imported{Committed{w.records, w.view}, created, added, len(w.records) - added}, nil
}

// Text is a file of the text form that has been read and checked, to be imported.
type Text struct {
	opts     ImportOptions
	records  []patch.Record // without partial events
	lines    []int          // of each record
	initial  map[string]patch.Value
	header   bool
	hasPatch bool
}

// ReadText reads a file of the text form, and checks its form. It takes no store, so that
// none needs to be open, and locked, while it waits for its input. Errors match
// [ErrInvalid] or [ErrTooLarge], naming file and line.
func ReadText(ctx context.Context, r io.Reader, opts ImportOptions) (*Text, error) {
	return readText(ctx, r, opts, patch.MaxRecordBytes)
}

func readText(ctx context.Context, r io.Reader, opts ImportOptions, maxRecord int) (*Text, error) {
	if r == nil {
		return nil, fmt.Errorf("%w: the reader is nil", ErrInvalid)
	}
	if opts.MaxBytes < 0 {
		return nil, &patch.FieldError{Field: "ImportOptions.MaxBytes", Problem: fmt.Sprintf("%d is below 0", opts.MaxBytes)}
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultImportBytes
	}
	if opts.Name == "" {
		opts.Name = "input"
	}
	t := &Text{opts: opts}
	d := patch.NewDecoder(&limited{r: r, left: opts.MaxBytes, limit: opts.MaxBytes}, opts.Name)
	d.MaxLineBytes = maxLine(maxRecord)
	var err error
	if t.initial, t.header, err = d.InitialState(); err != nil {
		return nil, err
	}
	for {
		rec, err := d.Next()
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if rec.Event != nil && rec.Event.Partial() {
			continue
		}
		t.records = append(t.records, rec)
		t.lines = append(t.lines, d.Line())
		t.hasPatch = t.hasPatch || rec.Patch != nil
		if opts.Progress != nil && len(t.records)%progressEvery == 0 {
			opts.Progress(d.Line())
		}
	}
}

// limited is a reader that fails where its input goes on beyond a limit.
type limited struct {
	r     io.Reader
	left  int64
	limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		p = p[:l.left+1] // one more tells
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n - 1, fmt.Errorf("%w: the input goes on beyond %d bytes; the limit can be set higher", ErrTooLarge, l.limit)
	}
	return n, err
}

// at says which line an error is about.
func (t *Text) at(i int, err error) error {
	return &patch.LineError{File: t.opts.Name, Line: t.lines[i], Err: err}
}

// beginImport finds out which of the file's records are in a session that is there.
func (w *write) beginImport(ctx context.Context, t *Text) error {
	key := w.handle.key
	_, m, err := w.store.head(ctx, key)
	switch {
	case err != nil:
		return err
	case t.opts.State != nil:
		own, _, err := splitState(t.opts.State)
		if err != nil {
			return err
		}
		if !sameState(m.initial, own) {
			return fmt.Errorf("session %s: %w: it was created with another initial state", key, ErrConflict)
		}
	case t.header && !sameState(m.initial, t.initial):
		return fmt.Errorf("session %s: %w: %s begins with another initial state", key, ErrConflict, t.opts.Name)
	}
	view, err := w.store.lockedView(ctx, w.handle)
	if err != nil {
		return err
	}
	if err := w.begin(view, ""); err != nil {
		return err
	}
	if t.hasPatch {
		return w.settlePrefix(ctx, t)
	}
	return t.atDuplicate(w.settle(ctx))
}

// atDuplicate says which line an error is about, if it is about an id.
func (t *Text) atDuplicate(err error) error {
	var dup *DuplicateIDError
	if errors.As(err, &dup) {
		for i, r := range t.records {
			if r.ID() == dup.ID {
				return t.at(i, err)
			}
		}
	}
	return err
}

func (w *write) createForImport(t *Text) error {
	state := t.opts.State
	if state == nil {
		state = map[string]any{}
		for k, v := range t.initial {
			state[k] = v
		}
	}
	own, shared, err := splitState(state)
	if err != nil {
		return err
	}
	if err := w.create(own); err != nil {
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
func (w *write) settlePrefix(ctx context.Context, t *Text) error {
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
				return t.at(i, fmt.Errorf("session %s: %w: the file has a patch in it, and its record %d is not the one that is there", key, ErrConflict, i+1))
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
