package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// Problem is something that [Store.Verify] found wrong.
type Problem struct {
	Key Key    // of the session; the zero Key is the storage as a whole
	Seq uint64 // of the record; 0 is the session as a whole
	Err error
}

func (p Problem) String() string {
	switch {
	case p.Key == (Key{}):
		return p.Err.Error()
	case p.Seq == 0:
		return fmt.Sprintf("session %s: %v", p.Key, p.Err)
	}
	return fmt.Sprintf("session %s, record %d: %v", p.Key, p.Seq, p.Err)
}

// VerifyOptions say what to verify. The zero value means everything.
type VerifyOptions struct {
	// Key, if not zero, is the one session to verify, else the error is [ErrNotFound];
	// the storage's own structure is left out then.
	Key Key

	// Progress, if not nil, is called with each session before it is verified.
	Progress func(Key)
}

// Verify reads all there is and yields what is wrong: damage of the storage's structure,
// records that cannot be read, are not at their place or are not those that were written,
// ids that the index does not know, events that say that they were erased
// and of which no receipt says it, erasures that are not finished, snapshots and cached views that differ from a fold of
// the whole log, shared values that cannot be read. Damage in one place does not keep it
// from looking at the others. It yields an error, and ends, if it could not go on, and
// where opts.Key is of no session, one that matches [ErrNotFound].
//
// Others may read and write meanwhile; in a file, a write waits for Verify no longer than for
// another write. What is deleted while the structure is looked at takes up its room until
// then. Of that, pages of the file that are lost to use, which harms nothing else, are found
// if there are no writes meanwhile. Verify waits for a [Store.Backup] or [Store.Vacuum] that is reading
// the file, and they for it.
//
// It holds one page of one session's records at a time, and of the session as it goes a few dozen bytes
// for each visible event, what visible events set in the state, and what the patches hid.
//
// A snapshot that does not fit is reported though it harms nothing: it is not used. One
// that another version of the program made is left out.
func (s *Store) Verify(ctx context.Context, opts VerifyOptions) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		v := verification{ctx: ctx, store: s, yield: yield}
		if opts.Key != (Key{}) {
			if err := opts.Key.Validate(); err != nil {
				yield(Problem{}, err)
				return
			}
			if _, err := backend.HeadOf(ctx, s.backend, opts.Key.name()); errors.Is(err, backend.ErrNotFound) {
				yield(Problem{}, fromBackend(opts.Key, err))
				return
			}
			v.session(ctx, opts.Key)
			return
		}
		if c, ok := s.backend.(backend.Checker); ok {
			if err := c.Check(ctx); err != nil && !v.report(Key{}, 0, fromBackend(Key{}, err)) {
				return
			}
		}
		for info, err := range s.List(ctx, ListOptions{}) {
			switch {
			case err != nil && !errors.Is(err, ErrCorrupt):
				yield(Problem{}, err)
				return
			case err != nil && !s.known(ctx, info.Key):
				if !v.report(Key{}, 0, err) {
					return
				}
				continue
			}
			if opts.Progress != nil {
				opts.Progress(info.Key)
			}
			if !v.session(ctx, info.Key) {
				return
			}
		}
		v.shared(ctx)
	}
}

// errUnfinished: something that a receipt covers is still there.
var errUnfinished = errors.New("the erasing that this is the receipt of is not finished: erase once more, and be it nothing, to finish it")

// errNotErased: something that a closed receipt covers is still there.
var errNotErased = fmt.Errorf("%w: it is the receipt of an erasing, and something is left of what it covers", ErrCorrupt)

// verification is a run of Verify.
type verification struct {
	ctx   context.Context
	store *Store
	yield func(Problem, error) bool

	// Of the session that is verified:
	head     backend.Head
	rechecks int  // how often it may be verified again, if its head is another one by now
	again    bool // it is to be verified again
}

func (v *verification) report(key Key, seq uint64, err error) (goOn bool) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed) {
		v.yield(Problem{}, err)
		return false
	}
	if v.rechecks > 0 {
		// The first problem may come of a failover, after which the rest of the log is another one's.
		head := v.head
		if err = v.store.recheck(v.ctx, key, &head, err); err == nil || errors.Is(err, ErrNotFound) {
			v.again = true
			return false
		}
		v.rechecks = 0
	}
	return v.yield(Problem{key, seq, err}, nil)
}

// known reports whether the backend knows of a session, which a damaged name may not be of.
func (s *Store) known(ctx context.Context, key Key) bool {
	if key.Validate() != nil {
		return false
	}
	_, err := backend.HeadOf(ctx, s.backend, key.name())
	return !errors.Is(err, backend.ErrNotFound)
}

// shared verifies the values that sessions share.
func (v *verification) shared(ctx context.Context) {
	values, err := backend.SharedOf(ctx, v.store.backend, "")
	if err != nil {
		v.report(Key{}, 0, fromBackend(Key{}, err))
		return
	}
	for _, raw := range values {
		if _, err := sharedValue(raw); err != nil && !v.report(Key{}, 0, err) {
			return
		}
	}
}

// session verifies one session, and reports whether to go on.
func (v *verification) session(ctx context.Context, key Key) (goOn bool) {
	defer func() { v.rechecks = 0 }()
	for rechecks := maxRechecks; ; rechecks-- {
		v.again = false
		if goOn = v.log(ctx, key, rechecks); !v.again {
			return goOn
		}
	}
}

// log verifies a session. If a problem is found while its head moves, it sets v.again and returns
// false, unless rechecks is 0 or a problem was reported.
func (v *verification) log(ctx context.Context, key Key, rechecks int) (goOn bool) {
	var m meta
	var data []byte
	var end uint64 // of the head's chain
	head, err := backend.HeadOf(ctx, v.store.backend, key.name())
	if err == nil {
		m, err = decodeMeta(head.Meta)
	}
	if err == nil {
		var last uint64
		var kept backend.Snapshot
		kept, last, err = v.store.snapshotOf(ctx, key, head.Creation)
		data = kept.Data
		end = head.Last
		v.head, v.rechecks = head, rechecks
		head.Last = max(head.Last, last)
	}
	if errors.Is(err, backend.ErrNotFound) { // deleted meanwhile
		return true
	}
	if err != nil {
		v.rechecks = 0
		return v.report(key, 0, fromBackend(Key{}, err))
	}
	var saved fold.View
	if data != nil {
		if saved, err = snapshot.Decode(data, fold.New(head.Creation, nil), head.Last); err != nil && !errors.As(err, new(*fold.NeedError)) {
			data = nil
			if !errors.Is(err, snapshot.ErrOutdated) && !v.report(key, 0, err) {
				return false
			}
		}
	}
	cached := v.store.cachedView(key)

	view, whole := fold.New(head.Creation, m.initial).Outline(), true
	var chain backend.Chain
	var index indexed
	var erased erase.Said
	// What was read in part before an erasing, and in part after it, fits together nowhere.
	changed := func() bool { return v.store.replacedSince(ctx, key, head) }
	check := func() bool {
		if data != nil && view.Seq() == saved.Seq() {
			if again, err := snapshot.Encode(view); (err != nil || !bytes.Equal(again, data)) && !changed() {
				return v.report(key, 0, fmt.Errorf("%w: the snapshot at record %d is not what the log folds to", ErrCorrupt, saved.Seq()))
			}
		}
		if cached != nil && cached.Creation() == head.Creation && view.Seq() == cached.Seq() &&
			cached.Edition() == head.Edition && !sameView(view, *cached) && !changed() {
			return v.report(key, 0, fmt.Errorf("%w: the view in memory at record %d is not what the log folds to", ErrCorrupt, view.Seq()))
		}
		return true
	}
	if !check() {
		return false
	}
	for seq := uint64(1); seq <= head.Last; {
		raw, err := v.store.backend.Read(ctx, key.name(), head.Creation, backend.Range(seq, pageRecords), pageBytes)
		if errors.Is(err, backend.ErrNotFound) {
			return true
		}
		if err == nil && len(raw) == 0 {
			err = fmt.Errorf("%w: it is missing; the log goes on to record %d", ErrCorrupt, head.Last)
		}
		if err != nil {
			return v.report(key, seq, fromBackend(Key{}, err))
		}
		raw = onePage(raw)
		recs, errs := decodeAll(key, raw, from(seq))
		index.of(ctx, v.store.backend, key, head.Creation, recs)
		for i, r := range raw {
			if seq > head.Last {
				break
			}
			chain = chain.Add(recordform.Checksum(r.Data))
			rec, err := recs[i], errs[i]
			erased.Record(rec)
			switch {
			case err != nil:
				whole = false
			case whole:
				if view, err = v.fold(ctx, key, view, rec, index.wrong()); err == nil {
					err = index.check(rec)
				}
			default: // there is nothing to fold onto
				err = index.check(rec)
			}
			if errors.Is(err, ErrNotFound) {
				return true
			}
			if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
				err = corrupt.Err
			}
			if err != nil && !v.report(key, seq, err) || whole && !check() {
				return false
			}
			if whole && seq == end && chain != head.Chain && head.Damaged == 0 && !changed() && !v.report(key, seq, errChain(head)) {
				return false
			}
			seq++
		}
	}
	if index.damage != nil && !index.said && !v.report(key, 0, index.damage) {
		return false
	}
	if !v.erasures(ctx, key, head.Creation, erased, changed) {
		return false
	}
	if head.Damaged != 0 {
		return v.report(key, head.Damaged, named(head.Err()))
	}
	return true
}

// fold folds a record onto a view of outlines. What patches are about is read again. wrong says that
// the index of ids is not to be asked.
func (v *verification) fold(ctx context.Context, key Key, view fold.View, rec patch.Record, wrong error) (fold.View, error) {
	s := v.store
	at, err := s.named(ctx, key, view, rec, wrong)
	if err != nil {
		return view, err
	}
	next, err := view.With(at).Apply(rec)
	var need *fold.NeedError
	if errors.As(err, &need) {
		var back []patch.Record
		for seqs := range slices.Chunk(need.Seqs, pageRecords) {
			some, err := s.pick(ctx, key, view.Creation(), seqs)
			if err != nil {
				return view, err
			}
			for _, r := range some {
				if r.Event != nil {
					r.Event = r.Event.Outline()
				}
				back = append(back, r)
			}
		}
		next, err = view.With(back).Apply(rec)
	}
	if err != nil {
		return view, &CorruptError{Key: key, Seq: rec.Seq, Err: err}
	}
	return next, nil
}

// named returns the record that holds the event which a patch names by its id, if it names one and the
// view's log has it.
func (s *Store) named(ctx context.Context, key Key, view fold.View, rec patch.Record, wrong error) ([]patch.Record, error) {
	if rec.Patch == nil || rec.Patch.EventID() == "" {
		return nil, nil
	}
	id := rec.Patch.EventID()
	var taken map[string]uint64
	var err error
	if wrong != nil {
		taken, err = s.search(ctx, key, view, []string{id}, wrong)
	} else {
		taken, err = s.lookup(ctx, key, view, []string{id})
	}
	if seq := taken[id]; err == nil && seq != 0 && seq <= view.Seq() {
		return s.pick(ctx, key, view.Creation(), []uint64{seq})
	}
	return nil, err
}

// erasures reports blanks that no receipt covers, and receipts that are open or of what is still there. If the log
// has changed since its end was looked up, the receipt may be behind that.
func (v *verification) erasures(ctx context.Context, key Key, creation string, said erase.Said, changed func() bool) (goOn bool) {
	for _, mark := range said.Unsaid() {
		err := fmt.Errorf("%w: it says that it was erased, and the log has no receipt %.80q that is about it", ErrCorrupt, mark.Receipt)
		if !changed() && !v.report(key, mark.Seq, err) {
			return false
		}
	}
	if len(said.Receipts) == 0 {
		return true
	}
	initial, err := v.store.InitialState(ctx, key)
	if err != nil {
		return v.report(key, 0, err)
	}
	for _, r := range said.Receipts {
		problem := errUnfinished
		done := r.Of.Closed > 0
		if done {
			problem = errNotErased
			done, err = v.store.isErased(ctx, key, creation, initial, r)
		}
		switch {
		case errors.Is(err, ErrNotFound):
			return true
		case errors.Is(err, ErrCorrupt): // which was reported
		case err != nil:
			return v.report(key, r.Seq, err)
		case !done && !v.report(key, r.Seq, problem):
			return false
		}
	}
	return true
}

// indexed is what the index of ids says of a page's records, and what is found of it beside
// what is said of single records.
type indexed struct {
	seqs   map[string]uint64
	err    error // what kept it from saying anything
	damage error
	said   bool // of a record, that the index is wrong about it
}

// of asks the index for the ids of records, at once: each question may be a way to a server.
func (x *indexed) of(ctx context.Context, b backend.Backend, key Key, creation string, records []patch.Record) {
	var ids []string
	for _, rec := range records {
		if rec.Event == nil && rec.Patch == nil { // it could not be read
			continue
		}
		ids = slices.AppendSeq(ids, rec.IDs())
	}
	seqs, err := b.Lookup(ctx, key.name(), creation, ids)
	x.seqs, x.err = make(map[string]uint64, len(ids)), nil
	switch {
	case errors.Is(err, backend.ErrIndex):
		x.damage = named(err)
	case err != nil:
		x.err = fromBackend(Key{}, err)
	}
	for i, seq := range seqs {
		x.seqs[ids[i]] = seq
	}
}

// wrong returns why the index is not to be asked, if it has been found to be wrong.
func (x *indexed) wrong() error {
	if x.said {
		return errIndexWrong
	}
	return x.damage
}

var errIndexWrong = fmt.Errorf("%w: the index of ids is wrong about a record", ErrCorrupt)

// check reports whether the index knows the ids of a record.
func (x *indexed) check(rec patch.Record) error {
	if x.err != nil {
		return x.err
	}
	for id := range rec.IDs() {
		if seq, said := x.seqs[id]; said && seq != rec.Seq {
			x.said = true
			return fmt.Errorf("%w: the index says of id %q that record %d has it", ErrCorrupt, id, seq)
		}
	}
	return nil
}

// cachedView returns the session's view that is in memory, or nil.
func (s *Store) cachedView(key Key) *fold.View {
	h := s.cache.acquire(key)
	defer s.cache.release(h)
	if c := h.newest.Load(); c != nil {
		return &c.view
	}
	return nil
}

// sameView reports whether two views are equal: the same nodes with the same carries,
// and the same state.
func sameView(a, b fold.View) bool {
	formA, errA := snapshot.Encode(a)
	formB, errB := snapshot.Encode(b)
	if errA != nil || errB != nil || !bytes.Equal(formA, formB) {
		return false
	}
	n := 0
	for key, value := range a.Values() {
		if other, ok := b.Value(key); !ok || !other.Equal(value) {
			return false
		}
		n++
	}
	for range b.Values() {
		n--
	}
	return n == 0
}
