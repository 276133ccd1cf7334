package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
	"github.com/patchlog-dev/patchlog/store/internal/write"
)

// ImportOptions says how to read a file of the text form, which docs/FORMAT.md describes. The zero value selects
// the defaults.
type ImportOptions struct {
	// Name is the name of the input in errors. "" means "input".
	Name string

	// MaxBytes is the maximum length of the input. 0 means 256 MiB. An import uses at most 32 MiB of memory plus 8
	// times the length of its input. It refuses input that needs more, such as very many short records.
	MaxBytes int64

	// MaxRecordBytes is the [Options.MaxRecordBytes] of the store to import into. 0 means 16 MiB. [Store.Import]
	// ignores this field and uses the limit of its store. A line that is much longer than the limit is refused
	// before its end is read.
	MaxRecordBytes int

	// DryRun reports what the import would do, and writes nothing.
	DryRun bool

	// Progress, if not nil, is called after every 256 records with the number of lines read so far.
	Progress func(lines int)
}

// DefaultImportBytes is the default of [ImportOptions.MaxBytes].
const DefaultImportBytes = 256 << 20

// An import may use importBytesPerByte bytes of memory for each byte of input, plus importBaseBytes, for the
// records that it has read. The rest of its memory is for reading or writing one record.
const (
	importBytesPerByte = 7
	importBaseBytes    = 28 << 20
)

// importWeight estimates the maximum memory that an import needs for a record. It counts the record, its completed
// copy if it needs one, its entries in lists and indexes, and garbage. The factors are fitted to measurements,
// which tests repeat.
func importWeight(r patch.Record) int64 {
	const (
		perRecord  = 310
		perEvent   = 450
		perContent = 250
		perCopy    = 500 // for a copy of an event or a patch with id and time
	)
	n := perRecord
	if r.Patch != nil {
		n += perCopy
	}
	for _, e := range r.Events() {
		n += perEvent + (e.Footprint()-emptyFootprint)*7/4
		if e.SaysSomething() || records.HasDelta(e) {
			n += perContent
		}
		if e.Timestamp().IsZero() {
			n += perCopy
		}
	}
	return int64(n)
}

var emptyFootprint = new(patch.Event).Footprint()

// Imported is the result of an import or a copy, or of its dry run.
type Imported struct {
	Committed
	Created bool // whether the session is new
	Added   int  // number of new records
	Present int  // number of records that were already in the log with the same content

	// [Store.CopyFrom] with the zero key sets the following fields. Shared is the number of shared values that this
	// store lacked. Different are the names of the shared values that differ.
	Shared    int
	Different []string
}

const progressEvery = 256

// maxLine returns the maximum length of a record's line. A line is longer than the record's byte form, because it
// spells out field names and escapes.
func maxLine(most int) int { return 2*most + 64<<10 }

// Import reads a file of the text form into a session. If it fails, the session does not change. If the session
// does not exist, Import creates it with the initial state in the file's header. Import does not change shared
// scopes. A repeated import of the same file adds nothing. The session may be read and written while Import reads
// its input.
//
// If the file contains a patch, the log must be a prefix of the file, or the file a prefix of the log. A file
// without patches may be imported into any log; its new events are appended. If the file has a header, the session
// must have the same initial state. A patch that cannot be applied is imported too, and the view skips it. If a
// record in the file has a seq, it must get this seq in the session.
//
// An existing session gets its new records in one durable commit. A new session is written in several commits,
// between which other writes run. It becomes visible with the last commit, complete.
//
// The error matches [ErrConflict] if the file does not fit the log. It matches [ErrDuplicateID] if the log has an
// id with other content. It matches [ErrInvalid] or [ErrTooLarge] if the file is refused, and then names file and
// line. If the error matches [ErrOutcomeUnknown], repeat the import.
func (s *Store) Import(ctx context.Context, key Key, r io.Reader, opts ImportOptions) (Imported, error) {
	if err := key.Validate(); err != nil { // refuse an invalid key before reading the input
		return Imported{}, err
	}
	opts.MaxRecordBytes = s.opts.MaxRecordBytes
	t, err := ReadText(ctx, r, opts)
	if err != nil {
		return Imported{}, err
	}
	return t.Import(ctx, s, key)
}

// Import imports the text into a session of s, as [Store.Import] does, with the options of [ReadText].
func (t *Text) Import(ctx context.Context, s *Store, key Key) (Imported, error) {
	p := &importPlan{name: t.opts.Name, meta: meta{initial: ownState(t.initial)}, requireInitial: t.header, records: t.records, add: t.add}
	imported, err := s.importInto(ctx, key, p, t.opts.DryRun)
	return imported, t.addDuplicateLine(err)
}

// importPlan is the plan to add the records of a file or of another store to a session.
type importPlan struct {
	name           string // name of the source in errors
	meta           meta   // for a session that the import creates; a zero created means the time of the call
	requireInitial bool   // an existing session must have the initial state of meta
	records        []patch.Record
	add            func(d *write.Draft) error
	added          int // number of records that the last draft adds
}

func (p *importPlan) Offered() []patch.Record { return p.records }

func (p *importPlan) Draft(d *write.Draft) error {
	err := p.add(d)
	p.added = len(d.Missing)
	if err == nil && d.Counts.Open > 0 && slices.ContainsFunc(d.Added, func(r patch.Record) bool { return r.Patch != nil }) {
		err = write.ErrReceiptOpen
	}
	return err
}

// importInto adds the records to a session. It creates the session if it does not exist. If dry is true, it only
// drafts the records.
func (s *Store) importInto(ctx context.Context, key Key, p *importPlan, dry bool) (Imported, error) {
	for gone := ""; ; {
		head, m, err := s.headAndMeta(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			imported, err := s.importNew(ctx, key, p, dry)
			if errors.Is(err, ErrExists) { // another call created the session after headAndMeta
				continue
			}
			return imported, err
		case err == nil && p.requireInitial && !maps.EqualFunc(m.initial, p.meta.initial, patch.Value.Equal):
			err = fmt.Errorf("session %s: %w: %s has another initial state than the session", key, ErrConflict, p.name)
		}
		if err != nil {
			return Imported{}, err
		}
		done, err := s.commitOrDraft(ctx, key, head.Creation, p, dry)
		switch {
		case errors.Is(err, ErrNotFound) && head.Creation != gone: // another call deleted the session after headAndMeta
			gone = head.Creation
			continue
		case err != nil:
			return Imported{Committed: done}, err
		}
		return Imported{Committed: done, Added: p.added, Present: len(done.Records) - p.added}, nil
	}
}

func (s *Store) importNew(ctx context.Context, key Key, p *importPlan, dry bool) (Imported, error) {
	m := p.meta
	if m.created.IsZero() {
		m.created = s.opts.Now().UTC()
	}
	c, err := s.create(ctx, key, m, nil, p, dry)
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		return Imported{Committed: Committed{Records: c.Records}}, err
	case err != nil:
		return Imported{}, err
	}
	return Imported{Committed: Committed{Records: c.Records, View: c.View}, Created: true, Added: len(c.Records)}, nil
}

// add adds the records of the text that the log lacks.
func (t *Text) add(d *write.Draft) error {
	match := d.Match
	if t.hasPatch {
		match = func() error { return d.MatchPrefix(t.mismatchError) }
	}
	if err := match(); err != nil {
		return err
	}
	for _, i := range d.Missing {
		if err := d.Err(); err != nil {
			return err
		}
		switch err := d.Append(i); {
		case errors.As(err, new(*fold.MissingRecordsError)):
			return err
		case err != nil:
			return t.lineError(i, err)
		}
	}
	for i, rec := range d.Records {
		if want := t.records[i].Seq; want != 0 && want != rec.Seq {
			return t.lineError(i, fmt.Errorf("%w: its seq is %d, but in session %s its seq would be %d", ErrInvalid, want, d.Label(), rec.Seq))
		}
	}
	// The import writes no shared values, because they may have changed since the file was written.
	return cmp.Or(t.checkReceipts(d), d.Share(nil))
}

// eraseCovered completes the open receipts in the file, which was written during an erase. It blanks the records
// that these receipts cover, because the new session treats an inherited receipt as closed.
func (t *Text) eraseCovered() {
	for i, r := range t.records {
		if r.Seq = uint64(i) + 1; !receipt.IsReceipt(r) {
			continue
		}
		open := receipt.Decode(r)
		if open.Erasure.ClosedAt > 0 || open.Erasure.Session == "" {
			continue
		}
		receipt.NullInitial(t.initial, []receipt.Receipt{open})
		for j, covered := range t.records[:i] {
			given := covered.Seq
			covered.Seq = uint64(j) + 1
			covered = receipt.Blank(covered, []receipt.Receipt{open})
			covered.Seq = given
			t.records[j] = covered
		}
	}
}

func (t *Text) mismatchError(i int) error {
	return t.lineError(i, fmt.Errorf("%w: the file contains a patch, so its records must be those of the log; record %d differs", ErrConflict, i+1))
}

// checkReceipts refuses a new blank record without a receipt. It also refuses a new receipt that covers a record already
// in the session, unless that record is blank. To erase that record, use [Store.Erase].
func (t *Text) checkReceipts(d *write.Draft) error {
	added := map[uint64]int{}
	for _, i := range d.Missing {
		added[d.Records[i].Seq] = i
	}
	var marks receipt.Marks
	for _, r := range d.Records {
		marks.Add(r)
	}
	for _, mark := range marks.WithoutReceipt() {
		if i, ok := added[mark.Seq]; ok {
			return t.lineError(i, fmt.Errorf("%w: it is marked as erased, but the file has no receipt that covers it", ErrInvalid))
		}
	}
	for _, erased := range marks.Receipts {
		i, ok := added[erased.Seq]
		if !ok {
			continue
		}
		for _, r := range d.Records {
			if _, ok := added[r.Seq]; !ok && erased.Erasure.Blank(r, erased.ID()) != r {
				return t.lineError(i, fmt.Errorf("%w: it is the receipt of an erase, but record %d of session %s, which the receipt covers, is not erased", ErrInvalid, r.Seq, d.Label()))
			}
		}
	}
	return nil
}

// Text is a file of the text form that [ReadText] has read and checked. [Text.Import] imports it. A Text can be
// imported several times.
type Text struct {
	opts     ImportOptions
	records  []patch.Record // records of the file, without partial events
	lines    []int          // line of each record
	initial  map[string]patch.Value
	header   bool
	hasPatch bool
}

// ReadText reads a file of the text form and checks the form of its records. ReadText needs no store. A caller can
// therefore open the store afterwards, so that the store's file is not locked while the caller waits for input. The
// error matches [ErrInvalid] or [ErrTooLarge] and names file and line. If r fails, ReadText returns the error of r.
func ReadText(ctx context.Context, r io.Reader, opts ImportOptions) (*Text, error) {
	if r == nil {
		return nil, fmt.Errorf("%w: the reader is nil", ErrInvalid)
	}
	if opts.MaxBytes < 0 {
		return nil, &patch.FieldError{Field: "ImportOptions.MaxBytes", Problem: fmt.Sprintf("%d is below 0", opts.MaxBytes)}
	}
	if most := opts.MaxRecordBytes; most < 0 || most > patch.MaxRecordBytes {
		return nil, &patch.FieldError{Field: "ImportOptions.MaxRecordBytes", Problem: fmt.Sprintf("%d is not between 0 and %d", most, patch.MaxRecordBytes)}
	}
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultImportBytes)
	opts.MaxRecordBytes = cmp.Or(opts.MaxRecordBytes, DefaultMaxRecordBytes)
	opts.Name = cmp.Or(opts.Name, "input")
	t := &Text{opts: opts}
	in := &limited{r: contextReader{ctx, r}, left: opts.MaxBytes, limit: opts.MaxBytes}
	d := patch.NewDecoder(in, opts.Name)
	d.MaxLineBytes = maxLine(opts.MaxRecordBytes)
	var err error
	if t.initial, t.header, err = d.InitialState(); err != nil {
		return nil, err
	}
	weight := int64(0)
	for {
		rec, err := d.Next()
		if err == io.EOF {
			t.eraseCovered()
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
		if read := in.limit - in.left; weight > importBytesPerByte*read+importBaseBytes {
			err := fmt.Errorf("%w: the first %d bytes contain %d records with so many small values that reading them takes more than 8 times their size in memory; import them in several files", ErrTooLarge, read, len(t.records)+1)
			return nil, &patch.LineError{File: opts.Name, Line: d.Line, Err: err}
		}
		t.records = append(t.records, rec)
		t.lines = append(t.lines, d.Line)
		t.hasPatch = t.hasPatch || rec.Patch != nil
		if opts.Progress != nil && len(t.records)%progressEvery == 0 {
			opts.Progress(d.Line)
		}
	}
}

// limited is a reader that fails if its input exceeds a limit.
type limited struct {
	r     io.Reader
	left  int64
	limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		p = p[:l.left+1] // one more byte than allowed shows that the input is too long
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n - 1, fmt.Errorf("%w: the input is longer than the limit of %d bytes; the limit can be raised", ErrTooLarge, l.limit)
	}
	return n, err
}

// lineError adds the line of record i to an error.
func (t *Text) lineError(i int, err error) error {
	return &patch.LineError{File: t.opts.Name, Line: t.lines[i], Err: err}
}

// addDuplicateLine adds the line of the duplicate id to a [DuplicateIDError].
func (t *Text) addDuplicateLine(err error) error {
	var dup *DuplicateIDError
	if errors.As(err, &dup) {
		for i, r := range t.records {
			if r.ID() == dup.ID {
				return t.lineError(i, err)
			}
		}
	}
	return err
}

// ownState returns the session's own keys of a state.
func ownState(state map[string]patch.Value) map[string]patch.Value {
	own := map[string]patch.Value{} // not nil, because nil would be stored as null
	maps.Copy(own, state)
	maps.DeleteFunc(own, func(k string, _ patch.Value) bool { return statekey.ScopeOf(k) != statekey.Session })
	return own
}
