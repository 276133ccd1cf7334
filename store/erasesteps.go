package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// A commit replaces so many records, or bytes of them: others wait for it.
const (
	eraseRecords = 64
	eraseBytes   = 1 << 18
)

// A step is tried so often where others write to the session, or the outcome is unknown.
const eraseTries = 64

// finish does what receipts in a session's log say, and is not done yet.
//
// Patches that are logged meanwhile may stand for what is being erased. So before the last
// step, and with nothing in between, they are looked at, and what they have put in gets a
// receipt too. From that step on the log is another edition, which no patch fits that was made
// of one before: see [errErased].
func (e *erasing) finish(ctx context.Context, key Key, creation string, receipts []patch.Record) error {
	h := e.store.cache.acquire(key)
	defer e.store.cache.release(h)
	f := finishing{store: e.store, opts: e.opts, h: h, creation: creation}
	f.take(receipts...)
	defer f.end(ctx)
	for {
		late, err := f.steps(ctx)
		if err != nil || len(late.of.Seqs) == 0 {
			return err
		}
		if err := f.further(ctx, late); err != nil && !errors.Is(err, errReplan) {
			return err
		}
	}
}

// finishing is the work on the receipts of a session.
type finishing struct {
	store    *Store
	opts     EraseOptions
	h        *handle
	creation string
	receipts []receipt
	looked   uint64 // up to this patch, none that came late stands for what is erased
}

// receipt is what a receipt in a log says of the records before it.
type receipt struct {
	patch.Record
	of patch.Erasure
}

func receiptOf(r patch.Record) receipt {
	e, _ := r.Patch.Erasure()
	// What a hand has written into a log may be about records that are not there.
	for i, s := range e.Seqs {
		if s.To >= r.Seq {
			e.Seqs[i].To = r.Seq - 1
			if e.Seqs = e.Seqs[:i+1]; s.From >= r.Seq {
				e.Seqs = e.Seqs[:i]
			}
			break
		}
	}
	return receipt{r, e}
}

func (f *finishing) take(records ...patch.Record) {
	for _, r := range records {
		f.receipts = append(f.receipts, receiptOf(r))
	}
}

// spreading returns the receipts that do not keep what stands for what they cover.
func (f *finishing) spreading() []receipt {
	return slices.DeleteFunc(slices.Clone(f.receipts), func(r receipt) bool { return r.of.KeepsSummaries })
}

// end sees to it that nothing in memory has what was erased. In an exclusive backend the view in memory
// stays as it was up to here: reading it anew after each step would keep others waiting. So that the next
// one does not wait either, the new view is read before the old one goes.
func (f *finishing) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	var r replayed
	err := errOtherLog // where others write, who looks next finds out
	if !f.store.shared && f.h.newest.Load() != nil {
		r, err = f.store.replay(ctx, f.h.key, newest)
	}
	if f.h.lock(ctx) == nil {
		f.h.drop()
		if err == nil {
			f.store.publishAfterErase(ctx, f.h, r)
		}
		f.h.unlock()
	}
	f.store.finder.Forget(f.h.key)
	f.h.wake()
}

// further logs a receipt of what patches have put in that came late.
func (f *finishing) further(ctx context.Context, late *erasePlan) error {
	p := patch.NewErase(late.of).WithAuthor(f.spreading()[0].Patch.Author())
	done, err := f.store.commit(ctx, f.h.key, f.creation, erasePlanned{p, late.view.PatchSeq(), late.view.Edition()})
	if err == nil {
		f.take(done.Records[0])
	}
	return err
}

// steps replaces all that the receipts cover, and returns without the last step if there is
// something to erase besides.
func (f *finishing) steps(ctx context.Context) (late *erasePlan, err error) {
	var spans []patch.Span
	for _, r := range f.receipts {
		spans = append(spans, r.of.Seqs...)
	}
	spans = union(spans)
	var before []uint64
	for seqs := range chunks(spans) {
		if before != nil {
			if err := f.step(ctx, before); err != nil {
				return nil, err
			}
		}
		before = seqs
	}
	for {
		last, err := f.lastStep(ctx, before)
		if err != nil || last {
			return &erasePlan{}, err
		}
		if late, err = f.late(ctx); err != nil || len(late.of.Seqs) > 0 {
			return late, err
		}
		f.looked = late.view.PatchSeq()
	}
}

// union returns spans in order, none of which overlap.
func union(spans []patch.Span) []patch.Span {
	slices.SortFunc(spans, func(a, b patch.Span) int { return cmp.Compare(a.From, b.From) })
	var out []patch.Span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.From <= out[last].To {
			out[last].To = max(out[last].To, s.To)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// newest returns the seq of the newest patch that is known to stand for nothing that is
// erased, but for what the receipts cover.
func (f *finishing) newest() uint64 { return max(f.looked, f.receipts[len(f.receipts)-1].Seq) }

// step replaces records, a commit at a time.
func (f *finishing) step(ctx context.Context, seqs []uint64) error {
	for len(seqs) > 0 {
		n, err := f.locked(ctx, func() (int, error) {
			head, m, err := f.head(ctx)
			if err != nil {
				return 0, err
			}
			return f.replace(ctx, seqs, head, m, false)
		})
		if err != nil {
			return err
		}
		seqs = seqs[n:]
	}
	return nil
}

// lastStep is step for the last records, and reports whether it could be made: no patch was
// logged that has to be looked at first. It makes the log another edition also if it finds all
// of them erased.
func (f *finishing) lastStep(ctx context.Context, seqs []uint64) (done bool, err error) {
	for !done {
		var stop bool
		n, err := f.locked(ctx, func() (int, error) {
			c, _, err := f.store.newestOf(ctx, f.h, f.store.lockedCurrent, nil)
			if err != nil {
				return 0, err
			}
			if c.view.PatchSeq() > f.newest() {
				stop = true
				return 0, nil
			}
			head, m, err := f.head(ctx)
			if err != nil {
				return 0, err
			}
			if f.store.shared { // as the view knows it: if another has come, it is refused
				head.Last, head.Token, head.Chain = c.view.Seq(), c.token, c.chain
			}
			return f.replace(ctx, seqs, head, m, true)
		})
		if err != nil || stop {
			return false, err
		}
		seqs = seqs[n:]
		done = len(seqs) == 0
	}
	return true, nil
}

// head returns the session's head, and what it was created with.
func (f *finishing) head(ctx context.Context) (backend.Head, meta, error) {
	head, m, err := f.store.head(ctx, f.h.key)
	switch {
	case err != nil:
	case head.Creation != f.creation:
		err = fmt.Errorf("session %s: %w: it was created again since", f.h.key, ErrNotFound)
	case head.Damaged != 0:
		err = inDoubt(f.h.key, head)
	}
	return head, m, err
}

// locked does a step with the session's lock, and again if the log has moved on, or if it is
// not known whether the step took place: doing it twice is doing it once.
func (f *finishing) locked(ctx context.Context, do func() (int, error)) (n int, err error) {
	for range eraseTries {
		if err := f.h.lock(ctx); err != nil {
			return 0, err
		}
		n, err = do()
		f.h.unlock()
		if !errors.Is(err, backend.ErrMoved) && !errors.Is(err, backend.ErrUnknown) {
			break
		}
	}
	return n, fromBackend(f.h.key, err)
}

// replace replaces the first of some records, as many as one commit should have, and returns
// how many. Errors are the backend's.
func (f *finishing) replace(ctx context.Context, seqs []uint64, head backend.Head, m meta, always bool) (n int, err error) {
	s, key := f.store, f.h.key
	r := backend.Replacement{Creation: f.creation, Last: head.Last, Seen: head.Token, Next: newToken(), Chain: head.Chain}
	var raw []backend.Record
	if len(seqs) > 0 {
		if raw, err = s.backend.Pick(ctx, key.name(), f.creation, seqs, eraseBytes); err != nil {
			return 0, err
		}
		if len(raw) == 0 {
			return 0, errMissing(key, seqs[0])
		}
	}
	for i, old := range raw {
		was, err := decode(key, seqs[i], old)
		if err != nil {
			return 0, err
		}
		is := was
		for _, receipt := range f.receipts {
			is = receipt.of.Blank(is, receipt.ID())
		}
		if is == was {
			continue
		}
		data, err := patch.AppendRecord(nil, is)
		if err != nil {
			return 0, err
		}
		r.Records = append(r.Records, s.replaced(old, data))
	}
	if r.Meta, err = erasedMeta(m, f.receipts); err != nil {
		return 0, err
	}
	if len(r.Records) == 0 && r.Meta == nil && !always {
		return len(raw), nil
	}
	return len(raw), f.commit(ctx, r)
}

// commit makes a replacement. Errors are the backend's.
func (f *finishing) commit(ctx context.Context, r backend.Replacement) error {
	err := f.store.backend.Replace(ctx, f.h.key.name(), r)
	switch {
	case err == nil:
		f.h.wake()
	case errors.Is(err, backend.ErrUnknown):
		f.h.drop()
		if _, fenced := f.store.backend.Fence(ctx, f.h.key.name(), f.creation, r.Seen, newToken()); fenced != nil {
			return stillUnknownFinally(err, fenced)
		}
	}
	return err
}

// replaced puts a form in the place of a record's.
func (s *Store) replaced(old backend.Record, form []byte) backend.Replaced {
	return backend.Replaced{Seq: old.Seq, Old: old.Data, Data: compressRecord(form), OldSum: recordform.Checksum(old.Data), Sum: recordform.Checksum(form)}
}

// stillUnknownFinally is the error of a step whose outcome cannot be found out now.
func stillUnknownFinally(failure, err error) error {
	return fmt.Errorf("%w: %w; and asking failed: %w", ErrOutcomeUnknown, causeOf(failure), err)
}

// erasedMeta returns a session's meta record with values of the initial state null, or nil if it
// is as the receipts say.
func erasedMeta(m meta, receipts []receipt) ([]byte, error) {
	changed := false
	initial := maps.Clone(m.initial)
	for _, r := range receipts {
		for _, name := range r.of.Initial {
			if v, there := initial[name]; there && !isNull(v) {
				initial[name], changed = null, true
			}
		}
	}
	if !changed {
		return nil, nil
	}
	return encodeMeta(meta{m.created, initial})
}

var null = func() patch.Value {
	v, err := patch.ParseValue([]byte("null"))
	if err != nil {
		panic(err)
	}
	return v
}()

// late plans the erasing of what patches have put in, since the first of the receipts, in the
// place of what these cover.
func (f *finishing) late(ctx context.Context) (*erasePlan, error) {
	receipts := f.spreading()
	if len(receipts) == 0 {
		v, err := f.store.View(ctx, f.h.key)
		return &erasePlan{view: v}, err
	}
	after := receipts[0].Seq
	for _, r := range receipts {
		after = min(after, r.Seq)
	}
	covered := func(ref fold.Ref) bool {
		return slices.ContainsFunc(receipts, func(r receipt) bool { return r.of.CoversEvent(ref.Seq, ref.Index) })
	}
	first, opts := receipts[0].of, f.opts
	if opts.Summaries == KeepSummaries {
		opts.Summaries = BlankSummaries
	}
	e, err := f.store.newErasing(EraseOptions{ID: receipts[0].ID(), Values: first.Values, Reason: first.Reason, // the new receipt gets an id when it is logged
		Summaries: opts.Summaries, Resummarise: opts.Resummarise, Context: opts.Context})
	if err != nil {
		return nil, err
	}
	return e.plan(ctx, f.h.key, nothing, covered, after)
}

// unfinished returns those receipts of a log of which something is left to do.
func (s *Store) unfinished(ctx context.Context, key Key, creation string, receipts []patch.Record) (left []patch.Record, err error) {
	initial, err := s.InitialState(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, r := range receipts {
		done, err := s.isFinished(ctx, key, creation, initial, receiptOf(r))
		if err != nil {
			return nil, err
		}
		if !done {
			left = append(left, r)
		}
	}
	return left, nil
}

func (s *Store) isFinished(ctx context.Context, key Key, creation string, initial map[string]patch.Value, r receipt) (bool, error) {
	for _, name := range r.of.Initial {
		if value, there := initial[name]; there && !isNull(value) {
			return false, nil
		}
	}
	for seqs := range chunks(r.of.Seqs) {
		records, err := s.pick(ctx, key, creation, seqs)
		if err != nil {
			return false, err
		}
		for _, covered := range records {
			if r.of.Blank(covered, r.ID()) != covered {
				return false, nil
			}
		}
	}
	return true, nil
}
