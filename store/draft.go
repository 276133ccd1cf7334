package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/recordform"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// plan is what a call wants to be logged.
type plan interface {
	// offers returns the records that the caller gave, which may be in the log already.
	offers() []patch.Record

	// draft adds records to a draft, or refuses, by what the draft's view says. The error
	// is a *[fold.MissingRecordsError] if the view must be given more of its log first; the plan is
	// then drafted anew.
	draft(d *draft) error
}

// draft is what a plan would write, on the log as it is and as the drafts before it in
// the group leave it. It is judged in memory; only ids are looked up.
type draft struct {
	*group
	ctx  context.Context
	have []patch.Record // of the log, ascending: what the plan needed when it was last tried

	view    fold.View      // with what the draft adds
	offered []patch.Record // as the caller gave them
	records []patch.Record // as they are or will be logged
	missing []int          // indices of the records that are not in the log yet
	present bool           // some of what the plan wants is in the log already
	adds    []patch.Record
	batch   []backend.Record // of what it adds
	size    int              // of the batch, in bytes
	indexed map[string]bool  // ids of groups and invocations that it adds to the index
	shared  []backend.Value
	counts  counts

	invocations []string     // see [current]
	then        func() error // if not nil, called after each record that is added
}

// found returns those of the records with the given seqs that are at hand.
func (d *draft) found(seqs []uint64) []patch.Record {
	var records []patch.Record
	for _, seq := range seqs {
		if r, ok := d.find(seq); ok {
			records = append(records, r)
		}
	}
	return records
}

func (d *draft) find(seq uint64) (patch.Record, bool) {
	for _, records := range [][]patch.Record{d.added, d.adds, d.have} {
		i, ok := slices.BinarySearchFunc(records, seq, func(r patch.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
		if ok {
			return records[i], true
		}
	}
	return patch.Record{}, false
}

// offer takes what the caller gave, completed, and returns the ids that it takes.
func (d *draft) offer(offered, completed []patch.Record) (ids []string, err error) {
	d.offered, d.records = offered, slices.Clone(completed)
	seen := map[string]bool{}
	for _, r := range completed {
		for id := range r.IDs() {
			if seen[id] {
				return nil, &DuplicateIDError{ID: id}
			}
			seen[id] = true
			ids = append(ids, id)
		}
		for _, id := range []string{groupOf(r), invocationOf(r)} {
			if id != "" && !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// complete gives records what they lack: ids and times.
func (s *Store) complete(records []patch.Record) []patch.Record {
	if len(records) == 0 {
		return nil
	}
	now := s.opts.Now()
	out := make([]patch.Record, len(records))
	for i, r := range records {
		out[i] = patch.Complete(r, s.opts.NewID, now)
	}
	return out
}

// groupOf returns the id that a record's group takes in the index of ids, longer than any
// other may be, or "" if it has no group.
func groupOf(r patch.Record) string {
	if r.Patch == nil || r.Patch.Group() == "" {
		return ""
	}
	return strings.Repeat("\x00", patch.MaxIDBytes+1) + r.Patch.Group()
}

// invocationOf returns the id that the invocation of a record's event takes in the index of ids, by which a rewind finds
// the invocation's first event, or "" if there is none.
func invocationOf(r patch.Record) string {
	if r.Event == nil || r.Event.InvocationID() == "" {
		return ""
	}
	return invocationIndex(r.Event.InvocationID())
}

func invocationIndex(invocation string) string {
	sum := sha256.Sum256([]byte(invocation)) // it may have any length
	return strings.Repeat("\x01", patch.MaxIDBytes+1) + string(sum[:])
}

// match sorts the records into those that are in the log and those that are missing.
func (d *draft) match() error {
	d.missing = nil
	for i, r := range d.records {
		id := r.ID()
		for other := range r.IDs() {
			if d.taken[id] == 0 {
				id = other
			}
		}
		at := d.taken[id]
		if at == 0 {
			d.missing = append(d.missing, i)
			continue
		}
		there, err := d.logged(at)
		switch {
		case err != nil:
			return err
		case !slices.Contains(slices.Collect(there.IDs()), id):
			return fmt.Errorf("%w: the index of ids says that record %d has id %q", ErrCorrupt, at, id)
		case there.ID() != r.ID() || !patch.Same(there, d.offered[i]):
			return &DuplicateIDError{ID: id, Seq: at}
		}
		d.records[i], d.present = there, true
	}
	return nil
}

// logged returns a record of the log, or of a draft before this one.
func (d *draft) logged(seq uint64) (patch.Record, error) {
	if r, ok := d.find(seq); ok {
		return r, nil
	}
	return d.store.record(d.ctx, d.handle.key, d.view.Creation(), seq)
}

// propose takes records that the plan itself has made, whose ids are new.
func (d *draft) propose(records []patch.Record) error {
	ids, err := d.offer(records, d.store.complete(records))
	if err != nil {
		return err
	}
	seqs, err := d.lookup(d.ctx, ids)
	if err != nil {
		return err
	}
	maps.Copy(d.taken, seqs)
	return d.match()
}

// apply returns the draft's view after one more record.
func (d *draft) apply(r patch.Record) (fold.View, error) {
	next, err := d.view.Apply(r)
	var need *fold.MissingRecordsError
	if errors.As(err, &need) {
		return d.view.WithRecords(d.found(need.Seqs)).Apply(r)
	}
	return next, err
}

// addMissing adds all that is missing, without judging it.
func (d *draft) addMissing() error {
	for _, i := range d.missing {
		if err := d.addUnjudged(i); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) addUnjudged(i int) error {
	r := &d.records[i]
	r.Seq = d.view.Seq() + 1
	next, err := d.apply(*r)
	if err == nil {
		err = d.add(*r)
	}
	if err == nil {
		d.view = next
	}
	return err
}

// errReceiptOpen: an erasing of the session is to be finished first. Its text may be in what a patch's author saw.
var errReceiptOpen = fmt.Errorf("%w: an erasing of the session is not finished", ErrConflict)

// addPatches judges patches that are missing, all of one group or a single one, and adds
// them.
func (d *draft) addPatches(indices []int, opts fold.CheckOptions) error {
	if d.counts.open > 0 {
		return errReceiptOpen
	}
	patches := make([]*patch.PatchEvent, len(indices))
	for n, i := range indices {
		d.records[i].Seq = d.view.Seq() + 1 + uint64(n)
		patches[n] = d.records[i].Patch
	}
	after, err := d.view.Preview(patches, opts)
	var need *fold.MissingRecordsError
	for errors.As(err, &need) {
		found := d.found(need.Seqs)
		if len(found) < len(need.Seqs) {
			return err
		}
		after, err = d.view.WithRecords(found).Preview(patches, opts)
	}
	// Whether the log holds the group is a matter of form: after the base, before all else.
	if err == nil || !errors.Is(err, fold.ErrUnknownPatch) && !errors.Is(err, ErrConflict) && !errors.As(err, &need) {
		if held := d.newGroup(d.records[indices[0]]); held != nil {
			return held
		}
	}
	if err != nil {
		return err
	}
	for _, i := range indices {
		if err := d.add(d.records[i]); err != nil {
			return err
		}
	}
	d.view = after
	return nil
}

// addOwn judges a patch that the plan itself has made beside what was offered, whose ids are new,
// and adds it.
func (d *draft) addOwn(p *patch.PatchEvent) error {
	if d.counts.open > 0 {
		return errReceiptOpen
	}
	r := d.store.complete([]patch.Record{{Patch: p}})[0]
	r.Seq = d.view.Seq() + 1
	after, err := d.view.Preview([]*patch.PatchEvent{r.Patch}, fold.CheckOptions{})
	if err == nil {
		err = d.add(r)
	}
	if err == nil {
		d.view = after
	}
	return err
}

// newGroup reports whether patches of a record's group may be logged: whether none has been.
func (d *draft) newGroup(r patch.Record) error {
	if id := groupOf(r); id == "" || d.taken[id] == 0 {
		return nil
	}
	return &patch.FieldError{Field: "group", Problem: fmt.Sprintf("the log holds group %q already; take an id of your own", r.Patch.Group())}
}

// add puts a record, which has its seq, at the end of the draft.
func (d *draft) add(r patch.Record) error {
	data, err := patch.AppendRecord(nil, r)
	if err != nil {
		return err
	}
	if most := d.store.opts.MaxRecordBytes; len(data) > most {
		return fmt.Errorf("%w: record %q takes %d bytes; the limit is %d", ErrTooLarge, r.ID(), len(data), most)
	}
	d.put(r, data)
	d.adds = append(d.adds, r)
	if err := d.share(slices.Collect(records.SharedChanges(r))); err != nil || d.then == nil {
		return err
	}
	return d.then()
}

// put puts a record into the draft's batch. data is its byte form.
func (d *draft) put(r patch.Record, data []byte) {
	raw := backend.Record{Seq: r.Seq, Sum: recordform.Checksum(data), Data: data}
	for id := range r.IDs() {
		raw.IDs = append(raw.IDs, id)
	}
	if id := groupOf(r); id != "" {
		d.index(&raw, id)
	}
	if id := invocationOf(r); id != "" && !slices.Contains(d.invocations, r.Event.InvocationID()) {
		d.index(&raw, id)
		d.invocations = withInvocation(d.invocations, r.Event.InvocationID())
	}
	d.batch = append(d.batch, raw)
	d.counts.add(r)
	d.size += len(data)
}

// index has a record take an id of a group or an invocation, if it is the first of it.
func (d *draft) index(raw *backend.Record, id string) {
	if d.taken[id] != 0 || d.indexed[id] {
		return
	}
	raw.IDs = append(raw.IDs, id)
	if d.indexed == nil {
		d.indexed = map[string]bool{}
	}
	d.indexed[id] = true
}

// share adds changes of shared scopes to the batch.
func (d *draft) share(changes []patch.Change) error {
	for _, c := range changes {
		name := sharedName(d.handle.key, c.Key)
		if len(name) > backend.MaxNameBytes {
			return fmt.Errorf("%w: state key %.40q has %d bytes", ErrTooLarge, c.Key, len(c.Key))
		}
		data, err := c.Value.MarshalBinary()
		if err != nil {
			return err
		}
		if most := d.store.opts.MaxRecordBytes; len(data) > most {
			return fmt.Errorf("%w: the value of state key %.40q takes %d bytes; the limit is %d", ErrTooLarge, c.Key, len(data), most)
		}
		d.shared = append(d.shared, backend.Value{Name: name, Data: data})
	}
	return nil
}
