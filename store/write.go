package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Committed is what a write put into the log.
type Committed struct {
	// Records are the records as they are logged, with seqs, ids and times, in the
	// order of the call; for a retry those that were there. Partial events are not
	// among them. They are set too if the error matches [ErrOutcomeUnknown], so that
	// the call can be repeated with the same ids.
	Records []patch.Record

	// View is the session's view after the write.
	View fold.View
}

// AppendOptions say what an append expects. The zero value expects nothing.
type AppendOptions struct {
	// IfSeq, if not nil, is the seq that the log's last record must have, 0 for an
	// empty log; else the error is a *[SeqError]. A call of which all is in the log
	// already, or that has nothing to log, expects nothing.
	IfSeq *uint64

	// Creation, if not empty, is the id of the session's creation; a session that was
	// deleted and created again gives [ErrNotFound].
	Creation string
}

// AppendEvents appends events to the end of the session's log, all of them in one
// durable commit or none. A missing id gets a UUID, a missing timestamp the time of the
// call; temp: keys are not logged, partial events neither; app: and user: keys go to
// the shared scopes in the same commit.
//
// Retrying is safe: an event whose id is in the log already, as an event with the same
// content, is skipped, and the record that is there is returned. This is looked at
// before anything else. Errors match [ErrNotFound], [ErrDuplicateID], [ErrConflict],
// [ErrTooLarge] or [ErrOutcomeUnknown]; nothing was written then, but for the last,
// where that is not known.
func (s *Store) AppendEvents(ctx context.Context, key Key, opts AppendOptions, events ...*patch.Event) (Committed, error) {
	records := make([]patch.Record, 0, len(events))
	for i, e := range events {
		switch {
		case e == nil:
			return Committed{}, fmt.Errorf("%w: event %d of the call is nil", ErrInvalid, i)
		case !e.Partial():
			records = append(records, patch.Record{Event: e})
		}
	}
	return s.write(ctx, key, opts.Creation, records, func(w *write) error {
		if last := w.view.Seq(); len(w.missing) > 0 && opts.IfSeq != nil && *opts.IfSeq != last {
			return &SeqError{Expected: *opts.IfSeq, Last: last}
		}
		for _, i := range w.missing {
			if err := w.add(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// write is a commit in the making. Its handle is locked.
type write struct {
	store   *Store
	handle  *handle
	view    fold.View      // with what the write adds
	records []patch.Record // as they are or will be logged
	offered []patch.Record // as the caller gave them
	missing []int          // indices of the records that are not in the log yet
	batch   backend.Batch
	size    int // of the batch's records, in bytes
}

// begin takes the session's newest view, which must be of the given creation unless
// that is empty.
func (w *write) begin(newest fold.View, creation string) error {
	if creation != "" && creation != newest.Creation() {
		return fmt.Errorf("session %s: %w: it was created again since", w.handle.key, ErrNotFound)
	}
	w.view = newest
	w.batch = backend.Batch{Creation: newest.Creation(), After: newest.Seq()}
	return nil
}

// settle completes the records and finds out which are in the log already.
func (w *write) settle(ctx context.Context) error {
	w.complete()
	ids, err := w.ids()
	if err != nil {
		return err
	}
	seqs, err := w.lookup(ctx, ids)
	if err != nil {
		return err
	}
	logged := func(seq uint64) (patch.Record, error) {
		return w.store.record(ctx, w.handle.key, w.view.Creation(), seq)
	}
	if err = w.match(seqs, logged); errors.Is(err, backend.ErrIndex) {
		if seqs, err = w.search(ctx, ids, err); err == nil {
			err = w.match(seqs, logged)
		}
	}
	return err
}

// complete gives the records what they lack.
func (w *write) complete() {
	now := w.store.opts.Now()
	w.offered = w.records
	w.records = make([]patch.Record, len(w.offered))
	for i, r := range w.offered {
		w.records[i] = patch.Complete(r, w.store.opts.NewID, now)
	}
}

// ids returns all ids that the records take.
func (w *write) ids() ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for i := range w.records {
		for id := range w.records[i].IDs() {
			if seen[id] {
				return nil, w.duplicate(id, 0)
			}
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// match sorts the records into those that are in the log, by the seqs of the ids that
// are taken, and those that are missing. It fails with [backend.ErrIndex] if a record has
// not the id that it should.
func (w *write) match(seqs map[string]uint64, logged func(seq uint64) (patch.Record, error)) error {
	w.missing = nil
	for i, r := range w.records {
		id := r.ID()
		for other := range r.IDs() {
			if seqs[id] == 0 {
				id = other
			}
		}
		at := seqs[id]
		if at == 0 {
			w.missing = append(w.missing, i)
			continue
		}
		there, err := logged(at)
		switch {
		case err != nil:
			return err
		case !slices.Contains(slices.Collect(there.IDs()), id):
			return fmt.Errorf("session %s: %w: %w: it says that record %d has id %q", w.handle.key, ErrCorrupt, backend.ErrIndex, at, id)
		case there.ID() != r.ID() || !patch.Same(there, w.offered[i]):
			return w.duplicate(id, at)
		}
		w.records[i] = there
	}
	return nil
}

func (w *write) duplicate(id string, seq uint64) error {
	return fmt.Errorf("session %s: %w", w.handle.key, &DuplicateIDError{ID: id, Seq: seq})
}

// lookup returns the seqs of the records that take the ids, of those that are taken.
func (w *write) lookup(ctx context.Context, ids []string) (map[string]uint64, error) {
	seqs, err := w.store.backend.Lookup(ctx, w.handle.key.name(), w.view.Creation(), ids)
	if errors.Is(err, backend.ErrIndex) {
		return w.search(ctx, ids, err)
	}
	if err != nil {
		return nil, fromBackend(w.handle.key, err)
	}
	taken := map[string]uint64{}
	for i, seq := range seqs {
		if seq != 0 {
			taken[ids[i]] = seq
		}
	}
	return taken, nil
}

// search is lookup where the index is damaged: the log has the answer.
func (w *write) search(ctx context.Context, ids []string, cause error) (map[string]uint64, error) {
	key := w.handle.key
	w.store.opts.Logger.Warn("patchlog: the index of ids is damaged; each write reads the log for them", "session", key.String(), "error", cause)
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	taken := map[string]uint64{}
	for page, err := range w.store.pages(ctx, key, w.logHead(), 1, w.view.Seq()) {
		if err != nil {
			return nil, err
		}
		for _, r := range page.records {
			for id := range r.IDs() {
				if wanted[id] {
					taken[id] = r.Seq
				}
			}
		}
	}
	return taken, nil
}

// logHead is the head of the log that the write's view is of, as much as reading a part of
// it takes.
func (w *write) logHead() backend.Head {
	return backend.Head{Creation: w.view.Creation(), Last: newest}
}

// add puts the record with index i at the end of the write's view and batch.
func (w *write) add(i int) error {
	r := &w.records[i]
	r.Seq = w.view.Seq() + 1
	data, err := patch.AppendRecord(nil, *r)
	if err != nil {
		return err
	}
	if most := w.store.opts.MaxRecordBytes; len(data) > most {
		return fmt.Errorf("%w: record %q takes %d bytes; the limit is %d", ErrTooLarge, r.ID(), len(data), most)
	}
	if w.view, err = w.view.Apply(*r); err != nil {
		return err
	}
	w.put(*r, data)
	return w.share(slices.Collect(r.SharedChanges()))
}

// put adds a record to the batch. data is its byte form.
func (w *write) put(r patch.Record, data []byte) {
	raw := backend.Record{Seq: r.Seq, Sum: patch.Checksum(data), Data: data}
	for id := range r.IDs() {
		raw.IDs = append(raw.IDs, id)
	}
	w.batch.Records = append(w.batch.Records, raw)
	w.size += len(data)
}

// stage has the backend keep the batch's records where nobody sees them, if they are as
// many as one commit should have. The batch must be one that creates its session, and who
// calls stage must call Unstage if the session is not created.
func (w *write) stage(ctx context.Context) error {
	if len(w.batch.Records) < pageRecords && w.size < pageBytes {
		return nil
	}
	err := w.store.backend.Stage(ctx, w.batch.Creation, w.batch.After, w.batch.Records)
	if errors.Is(err, backend.ErrUnknown) {
		err = fmt.Errorf("a commit failed, and nothing is left: %w", causeOf(err))
	}
	if err != nil {
		return fromBackend(w.handle.key, err)
	}
	w.batch.After += uint64(len(w.batch.Records))
	w.batch.Records, w.size = nil, 0
	return nil
}

// share adds changes of shared scopes to the batch.
func (w *write) share(changes []patch.Change) error {
	for _, c := range changes {
		name := sharedName(w.handle.key, c.Key)
		if len(name) > backend.MaxNameBytes {
			return fmt.Errorf("%w: state key %.40q has %d bytes", ErrTooLarge, c.Key, len(c.Key))
		}
		data, err := c.Value.MarshalBinary()
		if err != nil {
			return err
		}
		if most := w.store.opts.MaxRecordBytes; len(data) > most {
			return fmt.Errorf("%w: the value of state key %.40q takes %d bytes; the limit is %d", ErrTooLarge, c.Key, len(data), most)
		}
		w.batch.Shared = append(w.batch.Shared, backend.Value{Name: name, Data: data})
	}
	return nil
}

// commit makes the write durable and publishes its view.
func (w *write) commit(ctx context.Context) error {
	if len(w.batch.Records) == 0 && !w.batch.Create {
		return nil
	}
	key := w.handle.key
	err := w.store.backend.Append(ctx, key.name(), w.batch)
	if err == nil {
		w.handle.publish(w.view.Release(&source{store: w.store, key: key, creation: w.view.Creation()}))
		w.store.maybeSnapshot(w.handle, w.view)
		return nil
	}
	// What is in memory may no longer be what is stored: read it again.
	w.handle.drop()
	switch {
	case errors.Is(err, backend.ErrUnknown):
		err = w.findOut(ctx, err)
	case errors.Is(err, backend.ErrMoved):
		err = fmt.Errorf("%w: someone else writes to the storage", ErrConflict)
	}
	return fromBackend(key, err)
}

// findOut asks the backend whether a batch took place whose commit failed. It returns
// nil if it did.
func (w *write) findOut(ctx context.Context, failure error) error {
	// The caller may be gone; the question is still worth an answer.
	landed, err := w.landed(context.WithoutCancel(ctx))
	switch {
	case err != nil:
		return stillUnknown(failure, err)
	case !landed:
		return fmt.Errorf("the commit failed and wrote nothing: %w", causeOf(failure))
	}
	w.store.opts.Logger.Warn("patchlog: a commit failed but took place", "session", w.handle.key.String(), "error", failure)
	return nil
}

// landed reports whether the batch is in the log. A batch is atomic, so the id of its
// first record tells; its seq does not, since another writer may have taken it.
func (w *write) landed(ctx context.Context) (bool, error) {
	name := w.handle.key.name()
	head, err := w.store.backend.Head(ctx, name)
	switch {
	case errors.Is(err, backend.ErrNotFound), err == nil && head.Creation != w.batch.Creation:
		return false, nil
	case err != nil:
		return false, err
	case len(w.batch.Records) == 0: // it was to create the session
		return true, nil
	}
	first := w.batch.Records[0]
	seqs, err := w.store.backend.Lookup(ctx, name, head.Creation, first.IDs[:1])
	if errors.Is(err, backend.ErrIndex) { // then the record itself tells
		there, err := w.store.record(ctx, w.handle.key, head.Creation, first.Seq)
		return err == nil && there.ID() == first.IDs[0], err
	}
	return err == nil && seqs[0] == first.Seq, err
}

// stillUnknown is the error of a commit whose outcome could not be found out.
func stillUnknown(failure, err error) error {
	return &backend.UnknownError{Cause: fmt.Errorf("%w; and asking failed: %w", causeOf(failure), err)}
}

// causeOf returns why a commit failed, without the claim that its outcome is unknown.
func causeOf(failure error) error {
	var unknown *backend.UnknownError
	if errors.As(failure, &unknown) {
		return unknown.Cause
	}
	return errors.New(failure.Error())
}
