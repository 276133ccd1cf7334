package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// ImportOptions say how to read a file of the text form. The zero value means the
// defaults.
type ImportOptions struct {
	// Name is what errors call the input; "" means "input".
	Name string

	// MaxBytes is how long the input may be; 0 means 256 MiB. What is read is kept in
	// memory.
	MaxBytes int64

	// MaxRecords is how many records the input may have. 0 means as many as take no more memory than
	// the input warrants: an import takes at most 8 times the bytes of its input, and 32 MiB. A
	// record takes about 700 bytes beside what it says, so that input of long runs of very short
	// records is refused.
	MaxRecords int

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

// What the records read may take of the memory that an import may have. The rest is for what takes
// memory while one of them is read or written.
const (
	importTimes = 7
	importMore  = 28 << 20
)

// importWeight returns about how many bytes an import holds for a record at most: the record, its
// completed copy if it needs one, its places in lists and indexes, and what of it is garbage. It is
// fitted to measurements, which tests repeat.
func importWeight(r patch.Record) int64 {
	const (
		perRecord  = 310
		perEvent   = 450
		perContent = 250
		perCopy    = 500 // of an event or a patch that is completed
	)
	n := perRecord
	if r.Patch != nil {
		n += perCopy
	}
	for _, e := range r.Events() {
		n += perEvent + (e.Footprint()-emptyFootprint)*7/4
		if e.HasContent() || records.HasDelta(e) {
			n += perContent
		}
		if e.Timestamp().IsZero() {
			n += perCopy
		}
	}
	return int64(n)
}

var emptyFootprint = new(patch.Event).Footprint()

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

// Import reads a file of the text form into a session, which it
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
	for gone := ""; ; {
		head, m, err := s.head(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			imported, err := s.importNew(ctx, key, t)
			if errors.Is(err, ErrExists) { // it was created meanwhile
				continue
			}
			return imported, err
		case err == nil:
			err = t.fits(key, m)
		}
		if err != nil {
			return Imported{}, err
		}
		imported, err := s.importInto(ctx, key, head.Creation, t)
		if errors.Is(err, ErrNotFound) && head.Creation != gone { // it was deleted meanwhile
			gone = head.Creation
			continue
		}
		return imported, err
	}
}

// importInto imports into a session that is there.
func (s *Store) importInto(ctx context.Context, key Key, creation string, t *Text) (Imported, error) {
	p := &importing{Text: t}
	done, err := s.commit(ctx, key, creation, p)
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		return Imported{Committed: done}, err
	case err != nil:
		return Imported{}, t.atDuplicate(err)
	}
	return Imported{done, false, p.added, len(done.Records) - p.added}, nil
}

// importing is the plan to import a text into a session that is there.
type importing struct {
	*Text
	added int // how many records it adds
}

func (p *importing) offers() []patch.Record { return p.records }

func (p *importing) draft(d *draft) error {
	match := d.match
	if p.hasPatch {
		match = func() error { return d.matchPrefix(p.differs) }
	}
	if err := match(); err != nil {
		return err
	}
	p.added = len(d.missing)
	return p.add(d, func() error { return nil })
}

func (p *importing) differs(i int) error {
	return p.at(i, fmt.Errorf("%w: the file has a patch in it, and its record %d is not the one that is there", ErrConflict, i+1))
}

// importNew imports into a session that it creates. The session's lock is held for the
// last commit alone.
func (s *Store) importNew(ctx context.Context, key Key, t *Text) (Imported, error) {
	own, shared, err := splitState(t.state())
	if err != nil {
		return Imported{}, err
	}
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	c, err := s.newSession(ctx, h, own, s.opts.Now())
	if err == nil {
		err = c.share(shared)
	}
	if err == nil {
		_, err = c.offer(t.records, s.complete(t.records))
	}
	if err != nil {
		return Imported{}, t.atDuplicate(fmt.Errorf("session %s: %w", key, err))
	}
	for i := range c.records {
		c.missing = append(c.missing, i)
	}
	defer c.staged.drop(ctx) // after the commit it does nothing
	if err := t.add(&c.draft, c.stage); err != nil {
		return Imported{}, err
	}
	if err := h.lock(ctx); err != nil {
		return Imported{}, err
	}
	defer h.unlock()
	switch err := c.commit(); {
	case errors.Is(err, ErrOutcomeUnknown):
		return Imported{Committed: Committed{Records: c.records}}, err
	case err != nil:
		return Imported{}, err
	}
	return Imported{Committed{c.records, c.view}, true, len(c.records), 0}, nil
}

// add adds the records that are missing to a draft, and calls step after each.
func (t *Text) add(d *draft, step func() error) error {
	for _, i := range d.missing {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		var need *fold.NeedError
		switch err := d.addUnjudged(i); {
		case errors.As(err, &need):
			return err
		case err != nil:
			return t.at(i, err)
		}
		if err := step(); err != nil {
			return err
		}
	}
	for i, rec := range d.records {
		if want := t.records[i].Seq; want != 0 && want != rec.Seq {
			return t.at(i, fmt.Errorf("%w: its seq is %d, but its place in session %s is %d", ErrInvalid, want, d.handle.key, rec.Seq))
		}
	}
	if !t.opts.WriteShared {
		d.shared = nil
	}
	return t.receipts(d)
}

// receipts refuses what says that it was erased where no receipt says so, and a receipt by which what
// was there before would be erased: that takes an [Store.Erase].
func (t *Text) receipts(d *draft) error {
	added := map[uint64]int{}
	for _, i := range d.missing {
		added[d.records[i].Seq] = i
	}
	var said erase.Said
	for _, r := range d.records {
		said.Record(r)
	}
	for _, mark := range said.Unsaid() {
		if i, ok := added[mark.Seq]; ok {
			return t.at(i, fmt.Errorf("%w: it says that it was erased, and no receipt of that is with it", ErrInvalid))
		}
	}
	for _, receipt := range said.Receipts {
		i, ok := added[receipt.Seq]
		if !ok {
			continue
		}
		for _, r := range d.records {
			if _, ok := added[r.Seq]; !ok && receipt.Of.Blank(r, receipt.ID()) != r {
				return t.at(i, fmt.Errorf("%w: it is the receipt of an erasing, and record %d of session %s is not erased", ErrInvalid, r.Seq, d.handle.key))
			}
		}
	}
	return nil
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
	if opts.MaxRecords < 0 {
		return nil, &patch.FieldError{Field: "ImportOptions.MaxRecords", Problem: fmt.Sprintf("%d is below 0", opts.MaxRecords)}
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultImportBytes
	}
	if opts.Name == "" {
		opts.Name = "input"
	}
	t := &Text{opts: opts}
	in := &limited{r: contextReader{ctx, r}, left: opts.MaxBytes, limit: opts.MaxBytes}
	d := patch.NewDecoder(in, opts.Name)
	d.MaxLineBytes, d.Translate = maxLine(maxRecord), new(adkjson.Translator).Line
	var err error
	if t.initial, t.header, err = d.InitialState(); err != nil {
		return nil, err
	}
	weight := int64(0)
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
		weight += importWeight(rec)
		var over error
		switch read := in.limit - in.left; {
		case opts.MaxRecords > 0 && len(t.records) == opts.MaxRecords:
			over = fmt.Errorf("%w: there are more than %d records", ErrTooLarge, opts.MaxRecords)
		case opts.MaxRecords == 0 && weight > importTimes*read+importMore:
			over = fmt.Errorf("%w: the first %d bytes hold so many small things, in %d records, that they take more memory than the input warrants", ErrTooLarge, read, len(t.records)+1)
		}
		if over != nil {
			return nil, &patch.LineError{File: opts.Name, Line: d.Line, Err: fmt.Errorf("%w; ImportOptions.MaxRecords sets another limit", over)}
		}
		t.records = append(t.records, rec)
		t.lines = append(t.lines, d.Line)
		t.hasPatch = t.hasPatch || rec.Patch != nil
		if opts.Progress != nil && len(t.records)%progressEvery == 0 {
			opts.Progress(d.Line)
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

// fits reports whether the text may be imported into a session that is there.
func (t *Text) fits(key Key, m meta) error {
	if t.opts.State != nil {
		own, _, err := splitState(t.opts.State)
		if err == nil && !sameState(m.initial, own) {
			err = fmt.Errorf("session %s: %w: it was created with another initial state", key, ErrConflict)
		}
		return err
	}
	if t.header && !sameState(m.initial, t.initial) {
		return fmt.Errorf("session %s: %w: %s begins with another initial state", key, ErrConflict, t.opts.Name)
	}
	return nil
}

// state is the initial state of a session that the import creates.
func (t *Text) state() map[string]any {
	if t.opts.State != nil {
		return t.opts.State
	}
	state := map[string]any{}
	for k, v := range t.initial {
		state[k] = v
	}
	return state
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

func sameState(a, b map[string]patch.Value) bool {
	n := 0
	for k, v := range b {
		if statekey.ScopeOf(k) != statekey.Session {
			continue
		}
		n++
		if other, ok := a[k]; !ok || !other.Equal(v) {
			return false
		}
	}
	return n == len(a)
}

// matchPrefix is [draft.match] where order matters: one of the log and what is offered must
// be a prefix of the other. differs is the error of a record that is not the one offered.
func (d *draft) matchPrefix(differs func(i int) error) error {
	i := 0
	d.missing = nil
	match := func(there []patch.Record) error {
		for _, r := range there[:min(len(there), len(d.offered)-i)] {
			if r.ID() != d.offered[i].ID() || !patch.Same(r, d.offered[i]) {
				return differs(i)
			}
			d.records[i] = r
			i++
		}
		return nil
	}
	n := min(uint64(len(d.offered)), d.before.view.Seq())
	for page, err := range d.store.pages(d.ctx, d.handle.key, logOf(d.view), 1, n) {
		if err == nil {
			err = match(page.records)
		}
		if err != nil {
			return err
		}
	}
	if err := match(d.added); err != nil { // what drafts before this one add to the log
		return err
	}
	d.present = i > 0
	for ; i < len(d.offered); i++ {
		d.missing = append(d.missing, i)
	}
	return nil
}
