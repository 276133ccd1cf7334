package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// importFile imports a session file, or a file in patchlog's text form, into the target.
func (m *migration) importFile(ctx context.Context, s *Session, r *Result) error {
	text, differences := s.log, r.Differences
	r.Differences = nil // report differences only if records are added
	if text == nil {
		missing, err := m.recordsToImport(ctx, s, r)
		if err != nil || missing == nil {
			return err
		}
		if text, err = encodeRecords(ctx, missing); err != nil {
			return err
		}
	}
	if s.firstID != "" {
		if err := m.checkFirstRecord(ctx, s); err != nil {
			return err
		}
	}
	target := m.target
	if m.opts.DryRun {
		scratch, err := store.OpenMemory(scratchOptions())
		if err != nil {
			return err
		}
		defer scratch.Close() // the store is in memory, so Close cannot fail
		if _, err := scratch.CopyFrom(ctx, s.Key, target, store.CopyOptions{NoShared: true}); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		target = scratch
	}
	done, err := text.Import(ctx, target, s.Key)
	if err != nil {
		return err
	}
	r.setImported(done)
	if s.log != nil && r.Status == Extended {
		if err := r.reopenCalls(ctx, target, &done); err != nil {
			return err
		}
	}
	if s.adopt {
		if err := r.adoptRecords(ctx, target, done); err != nil {
			return err
		}
	}
	if r.Added > 0 {
		r.Differences = append(r.Differences, differences...)
		if n := done.View.SkippedCount(); n > 0 {
			r.Differences = append(r.Differences, Difference{What: present.Counted(n, "patch") + " without effect: 'patchlog audit' shows why"})
		}
	}
	return nil
}

// checkFirstRecord checks a session that is named after its file. If the session already has the log of another
// file, checkFirstRecord returns a conflict. Files with the same name may be unrelated.
func (m *migration) checkFirstRecord(ctx context.Context, s *Session) error {
	for rec, err := range m.target.RawEvents(ctx, s.Key, 1) {
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return err
		case rec.ID() != s.firstID:
			return s.conflictError(1)
		}
		return nil
	}
	return nil
}

// conflictError returns the error for a session whose record at seq differs from the record in the file.
func (s *Session) conflictError(seq uint64) error {
	s.nothingInCommon = seq == 1
	return fmt.Errorf("%s: session %s: %w: its record %d differs from the file's; to import the file as another session, give 'patchlog import' another KEY", s.file, s.Key, store.ErrConflict, seq)
}

// recordsToImport returns the records for an import. They are the records that are already in the session, followed
// by the records to add. If there is nothing to add, recordsToImport returns nil.
func (m *migration) recordsToImport(ctx context.Context, s *Session, r *Result) (iter.Seq2[patch.Record, error], error) {
	positions := make(map[string]int, len(s.Records))
	for i, rec := range s.Records {
		positions[rec.ID()] = i
	}
	// n is the number of the file's records that the log has.
	n, targetHasMore := 0, false
	for rec, err := range m.target.RawEvents(ctx, s.Key, 1) {
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		i, inFile := positions[rec.ID()]
		matches := inFile && i == n && isSameRecord(rec, s.Records[i])
		isLine := false
		if !matches && n < len(s.Records) {
			_, isLine = recordLine(rec)
		}
		switch {
		case matches:
			n++
		case n == len(s.Records): // the log has more records than the file
			targetHasMore = true
		case inFile || isLine || rec.Seq == 1:
			return nil, s.conflictError(rec.Seq)
		default:
			targetHasMore = true
		}
		r.Seq = rec.Seq
	}
	r.Present = n
	newRecords := s.Records[n:]
	if len(newRecords) == 0 {
		if r.Status = Unchanged; targetHasMore {
			r.Status = Ahead
		}
		return nil, nil
	}
	for _, rec := range newRecords {
		if targetHasMore && rec.Patch != nil {
			return nil, fmt.Errorf("%s: session %s: %w: it has records that are not in the file, and the file has a new rewind or compaction; to import the file as another session, give 'patchlog import' another KEY", s.file, s.Key, store.ErrConflict)
		}
	}
	reopened, err := m.planReopenCalls(ctx, s.Key, newRecords, targetHasMore)
	if err != nil {
		return nil, err
	}
	return func(yield func(patch.Record, error) bool) {
		// A text that contains a patch must begin with the whole log.
		if n > 0 && !targetHasMore || len(reopened) > 0 {
			for rec, err := range m.target.RawEvents(ctx, s.Key, 1) {
				if !yield(rec, err) || err != nil {
					return
				}
			}
		}
		for _, p := range reopened {
			if !yield(patch.Record{Patch: p}, nil) {
				return
			}
		}
		for i, rec := range newRecords {
			// The text has the record now, so the slice can release its memory.
			if newRecords[i] = (patch.Record{}); !yield(rec, nil) {
				return
			}
		}
	}, nil
}

// planReopenCalls returns patches that remove recorded answers to calls. It removes an answer if the result of the
// call is in newRecords, because a model API refuses a call with two results.
func (m *migration) planReopenCalls(ctx context.Context, key store.Key, newRecords []patch.Record, targetHasMore bool) ([]*patch.PatchEvent, error) {
	if !targetHasMore { // recorded answers are patches that are not in the file
		return nil, nil
	}
	var results []*patch.Event
	for _, rec := range newRecords {
		// If newRecords has a patch and targetHasMore is set, recordsToImport has already returned an error.
		results = append(results, rec.Event)
	}
	session, err := m.target.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return compaction.ReopenCalls(session.View, results...)
}

// isSameRecord reports whether a logged record equals a record of the file. The two are equal if they store the same
// line, or if they are the same record.
func isSameRecord(logged, imported patch.Record) bool {
	a, b := lineEvent(logged), lineEvent(imported)
	if a == nil || b == nil {
		return logged.Patch != nil && imported.Patch != nil
	}
	x, _ := a.Field("customMetadata")
	if y, _ := b.Field("customMetadata"); bytes.Equal(x, y) && bytes.Contains(x, []byte(lineKey)) {
		return true
	}
	line, ok := eventLine(a)
	other, otherOK := eventLine(b)
	return ok && otherOK && bytes.Equal(line.bytes(), other.bytes()) || !ok && !otherOK && patch.Same(logged, imported)
}

// encodeRecords returns records in patchlog's text form.
func encodeRecords(ctx context.Context, records iter.Seq2[patch.Record, error]) (*store.Text, error) {
	out, in := io.Pipe()
	defer out.Close()
	go func() {
		for rec, err := range records {
			if err == nil {
				err = patch.WriteRecord(in, rec)
			}
			if err != nil {
				in.CloseWithError(err)
				return
			}
		}
		in.Close()
	}()
	return store.ReadText(ctx, out, store.ImportOptions{Name: "the file's records", MaxBytes: 1 << 40, MaxRecordBytes: patch.MaxRecordBytes})
}

// setImported sets the result of an import or a copy.
func (r *Result) setImported(done store.Imported) {
	r.Added, r.Present, r.Seq, r.Status = done.Added, done.Present, done.View.Seq(), Unchanged
	switch {
	case done.Created:
		r.Status = Created
	case done.Added > 0:
		r.Status = Extended
	case done.View.Seq() > uint64(done.Present):
		r.Status = Ahead
	}
}

// reopenCalls removes recorded answers to calls whose results were added with a text. For a session file,
// planReopenCalls has the same purpose.
func (r *Result) reopenCalls(ctx context.Context, s *store.Store, done *store.Imported) error {
	var results []*patch.Event
	for _, rec := range done.Records {
		if rec.Event != nil {
			results = append(results, rec.Event)
		}
	}
	patches, err := compaction.ReopenCalls(done.View, results...)
	if err != nil || len(patches) == 0 {
		return err
	}
	c, err := s.ApplyPatch(ctx, r.Key, patches, store.PatchOptions{On: done.View, AllowOrphans: true})
	if err != nil {
		return fmt.Errorf("imported, but calls have two results: %w", err)
	}
	r.Added, r.Seq, done.View = r.Added+len(c.Records), c.View.Seq(), c.View
	return nil
}

// adoptRecords replaces compaction records, and the events that they cover, by summaries in one commit.
func (r *Result) adoptRecords(ctx context.Context, s *store.Store, done store.Imported) error {
	plan := adkrecord.Adopt(done.View, adkrecord.Options{})
	r.Adopted, r.NotAdopted = plan.Adopted, plan.NotAdopted
	if len(plan.Patches) == 0 {
		return nil
	}
	c, err := s.ApplyPatch(ctx, r.Key, plan.Patches, store.PatchOptions{On: done.View})
	if err != nil {
		return fmt.Errorf("imported, but the compaction records were not adopted: %w", err)
	}
	r.Added, r.Seq = r.Added+len(c.Records), c.View.Seq()
	if r.Status != Created {
		r.Status = Extended
	}
	return nil
}

// database is a source that reads a second patchlog database.
type database struct {
	store *store.Store
	key   store.Key // key of the requested session; the zero Key means all sessions
}

// NewDatabase returns the sessions of another patchlog database as a source. If the key is not zero, the source has
// only the session with this key. [store.Store.CopyFrom] copies the logs and, if the key is zero, the shared values.
// Run does not close s.
func NewDatabase(s *store.Store, key store.Key) Source { return &database{s, key} }

// String returns the title of the format.
func (d *database) String() string { return patchlogDatabase.Title }

// Count implements [Source].
func (d *database) Count(ctx context.Context) (n int, err error) {
	for _, err := range d.Sessions(ctx) {
		var sessionErr *SessionError
		if err != nil && !errors.As(err, &sessionErr) {
			return 0, err
		}
		n++
	}
	return n, nil
}

// Sessions implements [Source].
func (d *database) Sessions(ctx context.Context) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		if d.key != (store.Key{}) {
			yield(&Session{Key: d.key, store: d.store}, nil)
			return
		}
		for info, err := range d.store.List(ctx, store.ListOptions{}) {
			corrupt := errors.Is(err, store.ErrCorrupt) // if the session is corrupt, other sessions can still be copied
			if corrupt {
				err = &SessionError{Key: info.Key, Err: err}
			}
			if !yield(&Session{Key: info.Key, store: d.store, listed: true}, err) || err != nil && !corrupt {
				return
			}
		}
	}
}

// Shared implements [Source]. It yields nothing, because copyShared copies the shared values.
func (d *database) Shared(context.Context) iter.Seq2[Shared, error] {
	return func(func(Shared, error) bool) {}
}

// Differences implements [Source].
func (d *database) Differences(context.Context) ([]Difference, error) { return nil, nil }

func (m *migration) copySession(ctx context.Context, s *Session, r *Result) error {
	done, err := m.target.CopyFrom(ctx, s.Key, s.store, store.CopyOptions{DryRun: m.opts.DryRun})
	if s.listed && errors.Is(err, store.ErrNotFound) {
		r.Status = Gone
		return nil
	}
	if err != nil {
		return err
	}
	r.setImported(done)
	return nil
}
