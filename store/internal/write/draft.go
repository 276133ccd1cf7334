package write

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Draft has the records that a plan would write, based on the log and on the earlier drafts of the write group. The
// embedded [fold.Draft] validates the records in memory; only ids are looked up in the backend. Each record is
// encoded when it is added, so that a record over the size limit is refused at once.
type Draft struct {
	fold.Draft
	batch

	Records []patch.Record // the call's records, as they are or will be logged
	Missing []int          // indices of the records that the log does not have
	Logged  bool           // the log already has some of the records

	ctx        context.Context
	session    *Session
	lastStored uint64         // seq of the last stored record; the drafted records after it are in Supplied
	offered    []patch.Record // the records as the caller passed them
	lookUp     bool           // ids are looked up; if false, the backend refuses ids that the log has
	isNew      bool
	stage      func() error // called after each record of a new session
}

// Match divides the call's records into those that the log has and those that are missing. See [fold.Match].
func (d *Draft) Match() error {
	log, err := d.loggedRecords(d.Records)
	if err != nil {
		return err
	}
	matched, missing, err := fold.Match(log, d.offered, d.Records)
	if err == nil {
		d.Records, d.Missing, d.Logged = matched, missing, len(missing) < len(matched)
	}
	return err
}

// loggedRecords returns the records, in the log and in earlier drafts, that have ids of the call's records.
func (d *Draft) loggedRecords(call []patch.Record) (log fold.Logged, err error) {
	seqs := map[uint64][]string{} // from the seq to the ids
	for _, r := range call {
		for id := range r.IDs() {
			if at := d.taken[id]; at != 0 {
				seqs[at] = append(seqs[at], id)
			}
		}
	}
	if len(seqs) == 0 {
		return log, nil
	}
	logged, err := d.read(slices.Sorted(maps.Keys(seqs)))
	log.Records = map[string]patch.Record{}
	for _, r := range logged {
		ids := slices.Collect(r.IDs())
		for _, id := range seqs[r.Seq] {
			if !slices.Contains(ids, id) {
				return log, fmt.Errorf("%w: the index of ids maps id %q to record %d, which does not have this id", patch.ErrCorrupt, id, r.Seq)
			}
			log.Records[id] = r
		}
	}
	return log, err
}

// loggedGroups returns which patch groups of a call are in the log or in earlier drafts.
func (d *Draft) loggedGroups(call []patch.Record) (log fold.Logged) {
	log.Groups = map[string]bool{}
	for _, r := range call {
		if r.Patch != nil && r.Patch.Group() != "" {
			log.Groups[r.Patch.Group()] = d.taken[groupIndex(r.Patch.Group())] != 0
		}
	}
	return log
}

// read returns records of the log or of earlier drafts, in the order of their seqs. A shared backend may return
// records that are newer than the view. The commit then fails with ErrMoved, and the plan is drafted again.
func (d *Draft) read(seqs []uint64) (records []patch.Record, err error) {
	var stored []uint64
	added := d.earlierRecords()
	for _, seq := range seqs {
		if seq > d.lastStored && seq <= d.View.Seq() {
			records = append(records, added[seq-d.lastStored-1])
		} else {
			stored = append(stored, seq)
		}
	}
	if len(stored) == 0 {
		return records, nil
	}
	logged, err := d.session.Records(d.ctx, d.View.Creation(), stored)
	records = append(records, logged...)
	slices.SortFunc(records, func(a, b patch.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return records, err
}

// earlierRecords returns the records of earlier drafts. It must be called before this draft adds a record.
func (d *Draft) earlierRecords() []patch.Record {
	return d.Supplied[len(d.Supplied)-int(d.View.Seq()-d.lastStored):]
}

// MatchPrefix is Match for a plan whose records must be in order: either the log must be a prefix of the offered
// records, or the reverse. If a logged record differs from the offered one, MatchPrefix returns differs(i).
func (d *Draft) MatchPrefix(differs func(i int) error) error {
	d.Records, d.Missing = slices.Clone(d.Records), nil
	common := min(len(d.offered), int(min(d.View.Seq(), math.MaxInt)))
	for i := 0; i < common; {
		records, err := d.read(backend.Range(uint64(i+1), min(common-i, stageRecords)))
		if err != nil {
			return err
		}
		for _, logged := range records {
			if logged.ID() != d.offered[i].ID() || !patch.Same(logged, d.offered[i]) {
				return differs(i)
			}
			d.Records[i] = logged
			i++
		}
	}
	d.Logged = common > 0
	for i := common; i < len(d.offered); i++ {
		d.Missing = append(d.Missing, i)
	}
	return nil
}

// Append adds the missing record with this index. Appending an event needs no validation against the view.
func (d *Draft) Append(i int) error {
	return d.addAtomically(func() error { return d.Draft.Append(&d.Records[i]) })
}

// Patches validates and adds the missing patches.
func (d *Draft) Patches(opts fold.PatchOptions) error {
	if len(d.Missing) > 0 && d.Counts.Open > 0 {
		return ErrReceiptOpen
	}
	log := d.loggedGroups(d.Records)
	return d.addAtomically(func() error { return d.Draft.AddPatches(log, opts, d.Records, d.Missing) })
}

// Propose validates patches that the plan itself made, as one change, and adds them. It returns the patches as they
// are logged.
func (d *Draft) Propose(opts fold.CheckOptions, proposed ...patch.Record) ([]patch.Record, error) {
	if d.Counts.Open > 0 {
		return nil, ErrReceiptOpen
	}
	proposed = d.session.Complete(proposed)
	if err := fold.CheckUnique(proposed); err != nil {
		return nil, err
	}
	if d.lookUp {
		ids := indexIDs(proposed)
		taken, err := d.session.lookup(d.ctx, d.View.Creation(), ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if at := cmp.Or(taken[id], d.taken[id]); at != 0 {
				return nil, &fold.DuplicateIDError{ID: id, Seq: at}
			}
		}
	}
	return proposed, d.addAtomically(func() error { return d.AddGroup(d.loggedGroups(proposed), opts, proposed) })
}

// Share makes the draft write these changes of shared scopes instead of the changes in its records.
func (d *Draft) Share(changes []patch.Change) error {
	d.shared = nil
	return d.addShared(d.session, changes)
}

// IsNew reports whether the session does not exist yet.
func (d *Draft) IsNew() bool { return d.isNew }

// Err returns the context's error. A plan with many records calls it in order to stop early.
func (d *Draft) Err() error { return d.ctx.Err() }

// Label returns the session's name for messages.
func (d *Draft) Label() string { return d.session.Label }

// ErrReceiptOpen: an erasure of the session must be finished before a patch is logged, because the patch may quote
// the text to erase.
var ErrReceiptOpen = fmt.Errorf("%w: an erase of the session is unfinished", fold.ErrConflict)

// addAtomically calls the function add, which adds records to the embedded fold.Draft. If this function or the encoding fails,
// addAtomically restores the draft.
func (d *Draft) addAtomically(add func() error) error {
	before, encoded := d.Draft, d.batch
	err := add()
	for _, r := range d.Added[len(before.Added):] {
		if err == nil {
			err = d.batch.add(d.session, r)
		}
		if err == nil && d.stage != nil {
			err = d.stage()
		}
	}
	if err != nil {
		d.Draft, d.batch = before, d.batch.restore(encoded)
	}
	return err
}
