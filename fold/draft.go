package fold

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Draft collects the records that one call will log after a view. It contains the view after these records. A
// draft does no I/O. If a revert needs records of the log, the error is a *[MissingRecordsError]. The caller
// then makes a new draft with these records in Supplied. A method that returns an error leaves the draft
// unchanged.
type Draft struct {
	View     View
	Added    []patch.Record // records that the draft has added to its first view
	Supplied []patch.Record // records of the log, in ascending order; see [View.WithRecords]
}

// Logged contains the entries of the log's index that concern the records of one call.
type Logged struct {
	Records map[string]patch.Record // logged records by id, for the ids in the call
	Groups  map[string]bool         // groups of the call's patches that the log already contains
}

// CheckUnique returns a *[DuplicateIDError] if an id occurs twice in the records of one call.
func CheckUnique(call []patch.Record) error {
	seen := map[string]bool{}
	for _, r := range call {
		for id := range r.IDs() {
			if seen[id] {
				return &DuplicateIDError{ID: id}
			}
			seen[id] = true
		}
	}
	return nil
}

// Match finds the records of a call that are already logged. A call can therefore be repeated safely. The
// argument offered contains the records as the caller passed them, and the argument completed contains the
// results of [patch.Complete] for these records. Ids, times and bases are compared only if the offered record
// has them.
//
// For each record of the call, the result matched contains the logged record or, if it is not logged yet, the
// completed record. The result missing contains the indices of the records that are not logged. If an id is
// used for other content, the error is a *[DuplicateIDError].
func Match(log Logged, offered, completed []patch.Record) (matched []patch.Record, missing []int, err error) {
	matched = slices.Clone(completed)
	for i, r := range completed {
		id := r.ID()
		logged, ok := log.Records[id]
		for other := range r.IDs() {
			if !ok {
				id = other
				logged, ok = log.Records[id]
			}
		}
		switch {
		case !ok:
			missing = append(missing, i)
			continue
		case logged.ID() != r.ID() || !patch.Same(logged, offered[i]):
			return nil, nil, &DuplicateIDError{ID: id, Seq: logged.Seq}
		}
		matched[i] = logged
	}
	return matched, missing, nil
}

// Append sets the seq of a record and adds the record without checking it.
func (d *Draft) Append(r *patch.Record) error {
	r.Seq = d.View.Seq() + 1
	var next View
	err := d.withMissingRecords(func(v View) (err error) {
		next, err = v.Apply(*r)
		return err
	})
	if err == nil {
		d.View, d.Added = next, append(d.Added, *r)
	}
	return err
}

// withMissingRecords calls do with the draft's view. While do needs records, withMissingRecords calls do again with a
// view that has these records. A view may need more records after it has received the first records. If the draft does
// not contain all of them, the error names all records that were needed so far.
func (d *Draft) withMissingRecords(do func(View) error) error {
	v, seqs := d.View, []uint64(nil)
	for {
		err := do(v)
		need := (*MissingRecordsError)(nil)
		if !errors.As(err, &need) {
			return err
		}
		numBefore := len(seqs)
		seqs = append(seqs, need.Seqs...)
		slices.Sort(seqs)
		seqs = slices.Compact(seqs)
		records := d.find(seqs)
		switch {
		case len(records) < len(seqs):
			return &MissingRecordsError{Seqs: seqs}
		case len(seqs) == numBefore:
			return fmt.Errorf("%w: records %d are still missing, although they were supplied", patch.ErrCorrupt, seqs)
		}
		v = d.View.WithRecords(records)
	}
}

// find returns the supplied or added records with the given seqs.
func (d *Draft) find(seqs []uint64) (records []patch.Record) {
	for _, seq := range seqs {
		for _, from := range [][]patch.Record{d.Added, d.Supplied} {
			i, ok := slices.BinarySearchFunc(from, seq, func(r patch.Record, seq uint64) int { return cmp.Compare(r.Seq, seq) })
			if ok {
				records = append(records, from[i])
				break
			}
		}
	}
	return records
}

// AddGroup adds a single patch, or all patches of one group, to the draft. It sets the seqs of the patches. It
// returns an error if [View.Preview] refuses the patches, or if the log already contains the group.
func (d *Draft) AddGroup(log Logged, opts CheckOptions, added []patch.Record) error {
	patches := make([]*patch.PatchEvent, len(added))
	for i := range added {
		added[i].Seq = d.View.Seq() + 1 + uint64(i)
		patches[i] = added[i].Patch
	}
	var after View
	err := d.withMissingRecords(func(v View) (err error) {
		after, err = v.Preview(patches, opts)
		return err
	})
	// A repeated group makes a patch malformed. This rule comes after the rule for the base, and before all
	// other rules.
	if err == nil || !errors.Is(err, ErrUnknownPatch) && !errors.Is(err, ErrConflict) {
		if group := patches[0].Group(); log.Groups[group] {
			return &patch.FieldError{Field: "group", Problem: fmt.Sprintf("the log already has group %q; choose a new id for the group", group)}
		}
	}
	if err == nil {
		d.View, d.Added = after, append(d.Added, added...)
	}
	return err
}

// AddPatches adds the patches of one call, group by group, as [Draft.AddGroup] does. Only the base of the first patch
// is checked, because the author of a patch has seen the patches before it in the same call. The arguments
// matched and missing are the results of [Match]. On success, the slice matched contains the missing records as
// they will be logged.
func (d *Draft) AddPatches(log Logged, opts PatchOptions, matched []patch.Record, missing []int) error {
	if len(missing) > 0 && opts.On.Creation() != "" && opts.On.Edition() != d.View.Edition() {
		return errErased
	}
	check := opts.Check()
	for from := 0; from < len(missing); {
		var added []patch.Record // records of one group
		for i := from; i < len(missing); i++ {
			r := matched[missing[i]]
			if i > from && (added[0].Patch.Group() == "" || r.Patch.Group() != added[0].Patch.Group()) {
				break
			}
			if err := CheckNotErased(r); err != nil {
				return err
			}
			based, err := opts.withBase(r.Patch, d.View, i-from, i == 0)
			if err != nil {
				return err
			}
			added = append(added, patch.Record{Patch: based})
		}
		check.AsOfNow = from > 0 || hasSeenEarlierAttempt(d.View, matched[:missing[0]], added[0].Patch)
		if err := d.AddGroup(log, check, added); err != nil {
			return err
		}
		for i, r := range added {
			matched[missing[from+i]] = r
		}
		from += len(added)
	}
	return nil
}

// errErased refuses patches that were made before an erasure, because they may contain erased content.
var errErased = fmt.Errorf("%w: events were erased since the patch's author read the session; read it again and make a new patch", ErrConflict)

// CheckNotErased returns an error if a new record has an erasure mark. Only an erasure may set this mark.
func CheckNotErased(r patch.Record) error {
	_, erased := records.Envelope(r).ErasedBy()
	for _, e := range r.Events() {
		_, eventErased := e.ErasedBy()
		erased = erased || eventErased
	}
	if !erased {
		return nil
	}
	return &patch.FieldError{Field: "customMetadata/" + patch.OwnMetadata, Problem: fmt.Sprintf("record %q has an erasure mark, but only an erasure may set this mark; remove it", r.ID())}
}

// withBase sets the base of a patch without a base, as the options require. The argument n is the number of
// patches between v and this patch. The argument first says whether the patch is the first of its call. The
// author of a later patch has seen the patches before it.
func (o PatchOptions) withBase(p *patch.PatchEvent, v View, n int, first bool) (*patch.PatchEvent, error) {
	switch {
	case !records.LacksBase(p):
	case o.On.Creation() != "" && first:
		return p.WithBase(o.On.PatchSeq()), nil
	case o.On.Creation() != "" && n == 0:
		return p.WithBase(v.PatchSeq()), nil
	case o.On.Creation() != "":
		return p.WithBase(v.Seq() + uint64(n)), nil
	case records.IsIndexed(p) && !o.AsOfNow:
		return nil, &patch.FieldError{Field: "base", Problem: "the indices of the patch need a view that they refer to: " +
			"give it a base, pass the view in On, or set AsOfNow"}
	}
	return p, nil
}

// hasSeenEarlierAttempt reports whether two conditions hold. An earlier attempt of this call logged the log's newest
// patch. The author of the first missing patch had seen all patches before the call.
func hasSeenEarlierAttempt(v View, logged []patch.Record, first *patch.PatchEvent) bool {
	base, based := first.Base()
	own := false
	for _, r := range logged {
		if b, ok := r.Patch.Base(); ok && b <= base {
			base, own = r.Seq, true
		}
	}
	return based && own && base == v.PatchSeq()
}

// Grouped returns records for patches that follow a view. The base of each patch is the patch before it. If
// there are several patches, they form a group, and newID returns its id. If author is not empty, it becomes
// the author of all patches.
func Grouped(v View, author string, newID func() string, patches []*patch.PatchEvent) []patch.Record {
	group, base := "", v.PatchSeq()
	if len(patches) > 1 {
		group = newID()
	}
	out := make([]patch.Record, len(patches))
	for i, p := range patches {
		if author != "" {
			p = p.WithAuthor(author)
		}
		out[i] = patch.Record{Seq: v.Seq() + 1 + uint64(i), Patch: p.WithBase(base).WithGroup(group)}
		base = out[i].Seq
	}
	return out
}
