package linear

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
)

// session is the model of a session, after some calls. It is immutable. Its creation is "" if it
// is not known, and its log is nil if it is not there. If lenient, a delete may have been of a
// session that was gone already, as it may be if one is repeated whose outcome was unknown.
type session struct {
	creation string
	log      *entry
	past     []string // ids of hot events of creations that were deleted
	lenient  bool
	shown    int // how many replies have shown it as it is
}

// entry is a record of a log, and the view after it. The first stands before all records.
type entry struct {
	before *entry
	record patch.Record
	view   fold.View
	sum    uint64
}

var seed = maphash.MakeSeed()

func newLog() *entry { return &entry{view: fold.New("", nil), sum: 1} }

// sum is what a session is compared by.
func (s session) sum() uint64 {
	sum := uint64(len(s.past) + s.shown)
	if s.log != nil {
		sum += maphash.String(seed, s.creation) ^ s.log.sum
	}
	return sum
}

func (s session) view() fold.View { return s.log.view }

// whole returns the view with all records of the log at hand: a view does not keep what patches hide.
func (e *entry) whole() fold.View {
	log := make([]patch.Record, e.view.Seq())
	for at := e; at.before != nil; at = at.before {
		log[at.record.Seq-1] = at.record
	}
	return e.view.With(log)
}

// at returns the log's entry of a seq that it has.
func (e *entry) at(seq uint64) *entry {
	for e.view.Seq() > seq {
		e = e.before
	}
	return e
}

// untold begins the ids that the model gives to records of reverts and rewinds whose outcome is
// unknown: no client was told their ids.
const untold = "untold "

// is reports whether the record may have the id.
func (e *entry) is(id string) bool {
	own := e.record.ID()
	return own == id || strings.HasPrefix(own, untold)
}

// find returns the record that takes the id, which may be that of an event that a patch put in.
func (e *entry) find(id string) (patch.Record, bool) {
	for ; e.before != nil; e = e.before {
		for other := range e.record.IDs() {
			if other == id {
				return e.record, true
			}
		}
	}
	return patch.Record{}, false
}

// hot returns the ids of the events that set shared values.
func (e *entry) hot() (ids []string) {
	for ; e.before != nil; e = e.before {
		if id := e.record.ID(); ops.IsHot(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// add returns the log with one more record.
func (e *entry) add(r patch.Record) *entry {
	r.Seq = e.view.Seq() + 1
	view := e.view
	if r.Patch != nil {
		view = e.whole()
	}
	next, err := view.Apply(r)
	if err != nil {
		panic(fmt.Sprintf("linear: %v", err)) // all records are at hand
	}
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, e.sum)
	h.WriteString(r.ID())
	return &entry{e, r, next, h.Sum64()}
}

// step implements [state]. A call whose outcome is unknown has an effect if it can have one: it may
// be given a moment after all others.
func (s session) step(o operation) (bool, state) {
	ok, after := s.after(o)
	if after.log != s.log {
		after.shown = 0
		ok = ok && s.over(o)
	}
	if o.Kind != source && o.shows() {
		after.shown++
	}
	return ok, after
}

func (s session) known() bool { return s.log == nil || s.creation != "" }

func (s session) after(o operation) (bool, session) {
	unknown, there := o.Outcome == ops.Unknown, s.log != nil
	switch o.Kind {
	case ops.Create, ops.Fork:
		if there {
			return unknown || o.Outcome == ops.Exists, s
		}
		s.creation, s.log = o.Creation, newLog()
		if o.Kind == ops.Fork {
			s.log, _, _ = s.log.put(o.records, nil)
		}
		return unknown || o.Outcome == ops.Done && s.shows(o.Reply), s
	case ops.Delete:
		if !there {
			return unknown || o.Outcome == ops.NotFound || s.lenient && o.Outcome == ops.Done, s
		}
		return unknown || o.Outcome == ops.Done, session{lenient: s.lenient, past: append(slices.Clip(s.past), s.log.hot()...)}
	case ops.Import:
		if o.Outcome == ops.Done && o.Created == there {
			return false, s
		}
		if !there && (unknown || o.Outcome == ops.Done) {
			s.creation, s.log, there = o.Creation, newLog(), true
		}
	}
	if !there {
		return unknown || o.Outcome == ops.NotFound && o.Kind != ops.Import, s
	}
	if o.On != "" && o.On != s.creation {
		// A client's view may be of a session that was deleted and created again.
		if unknown || o.Outcome == ops.NotFound {
			return true, s
		}
		if s.creation != "" {
			return false, s
		}
	}
	if s.creation == "" && o.Outcome == ops.Done {
		s.creation = o.Creation
	}
	if !o.Writes() {
		return s.reads(o), s
	}
	if o.Outcome == ops.Done && o.Seq != s.view().Seq()+o.added(s.view().Seq()) {
		return false, s // soon told
	}
	log, seqs, err := s.write(o)
	if err != nil {
		return unknown || o.refused(err), s
	}
	s.log = log
	// The view is of just after the write, though others share the commit.
	return unknown || o.Outcome == ops.Done && slices.Equal(o.Seqs, seqs) && s.shows(o.Reply), s
}

// over reports whether all have seen the session as it is who ever do. No order has to be tried in
// which it is changed before.
func (s session) over(o operation) bool {
	return s.log == nil || s.shown >= o.replies[moment{s.creation, s.view().Seq()}]
}

// moment is a session as a write has left it.
type moment struct {
	creation string
	seq      uint64
}

// shows reports whether the reply shows the session as it is at that moment.
func (e Seen) shows() bool { return e.Outcome == ops.Done && e.Creation != "" && e.Kind != ops.At }

// added returns how many of the call's records came after a seq.
func (o operation) added(after uint64) (n uint64) {
	for _, seq := range o.Seqs {
		if seq > after {
			n++
		}
	}
	return n
}

// reads is whether the session may be read so.
func (s session) reads(o operation) bool {
	switch o.Kind {
	case ops.Get:
		return o.Outcome == ops.Done && s.shows(o.Reply) && s.knows(o.Session, o.Values["app:hot"]) && s.knows(o.Session, o.Values["user:hot"])
	case source:
		if o.At != nil {
			if *o.At > s.view().Seq() {
				return o.Outcome == ops.NotFound
			}
			s.log = s.log.at(*o.At)
		}
		s.creation = ""
		return o.Outcome == ops.Exists || o.Outcome == ops.Done && s.shows(o.Reply)
	case ops.At:
		if *o.At > s.view().Seq() {
			return o.Outcome == ops.NotFound
		}
		s.log = s.log.at(*o.At)
		return o.Outcome == ops.Done && s.shows(o.Reply)
	case ops.Raw, ops.Export:
		e := s.log
		if o.Outcome != ops.Done || len(o.Logged) != int(e.view.Seq()) {
			return false
		}
		for i := range slices.Backward(o.Logged) {
			if !e.is(o.Logged[i]) || o.Seqs[i] != e.record.Seq {
				return false
			}
			e = e.before
		}
		return true
	}
	return false
}

// knows reports whether a shared value may be seen with the session as it is: what an event of
// its own has set is seen with that event.
func (s session) knows(name, value string) bool {
	if !ops.IsHot(value) || ops.SessionOf(value) != name || slices.Contains(s.past, value) {
		return true
	}
	_, there := s.log.find(value)
	return there
}

// shows reports whether an answer is what the session is. What is shared is not looked at.
func (s session) shows(r ops.Reply) bool {
	v := s.view()
	return r.Seq == v.Seq() && r.PatchSeq == v.PatchSeq() && (s.creation == "" || r.Creation == s.creation) && len(r.Visible) == v.Len() &&
		slices.Equal(r.Visible, ops.Visible(v)) && maps.Equal(own(r.Values), ops.Texts(maps.Collect(v.Values())))
}

// own returns the values that are no shared scope's.
func own(values map[string]string) map[string]string {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(key, _ string) bool { return statekey.ScopeOf(key) != statekey.Session })
	return values
}

// refusal is why the model refuses a call.
type refusal struct {
	kind string
	last uint64 // see [Reply]; 0 is any
}

func (r *refusal) Error() string { return r.kind }

// refused reports whether the call was refused for the model's reason.
func (o operation) refused(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return o.Outcome == r.kind && (r.last == 0 || o.Last == r.last)
	}
	var conflict *fold.ConflictError
	if errors.As(err, &conflict) && o.Last != conflict.Newest {
		return false
	}
	return o.Outcome == ops.OutcomeOf(err)
}

// write returns the session's log after a call, and the seqs of the call's records; or why the
// call is refused.
func (s session) write(o operation) (*entry, []uint64, error) {
	switch o.Kind {
	case ops.Append:
		offered := o.Op.Records()
		missing, err := s.missing(offered)
		if err == nil && missing > 0 && o.IfSeq != nil && *o.IfSeq != s.view().Seq() {
			return nil, nil, &refusal{fuzz.Conflict, s.view().Seq()}
		}
		return s.log.put(offered, err)
	case ops.Import:
		return s.imports(o.records)
	case ops.Patch:
		offered := o.Op.Records()
		missing, err := s.missing(offered)
		if err == nil && missing > 0 {
			var patches []*patch.PatchEvent
			if o.On != "" {
				offered[0].Patch = offered[0].Patch.WithBase(o.Base)
			}
			for _, r := range offered {
				patches = append(patches, r.Patch)
			}
			_, err = s.log.whole().Preview(patches, fold.CheckOptions{AsOfNow: o.On == ""})
		}
		return s.log.put(offered, err)
	case ops.Revert:
		ids, err := s.log.whole().Standing(o.IDs[0])
		if err != nil {
			return nil, nil, err
		}
		var patches []*patch.PatchEvent
		for _, id := range ids {
			patches = append(patches, patch.NewRevert(id))
		}
		return s.back(o, patches, fold.CheckOptions{AsOfNow: true})
	case ops.Rewind:
		from := uint64(0)
		for e := s.log; e.before != nil; e = e.before {
			if e.record.Event != nil && e.record.Event.InvocationID() == ops.Invocation(o.IDs[0]) {
				from = e.record.Seq
			}
		}
		if from == 0 {
			return nil, nil, &refusal{kind: fuzz.NotFound}
		}
		patches, err := s.log.whole().Rewind(from)
		if err != nil {
			return nil, nil, err
		}
		return s.back(o, patches, fold.CheckOptions{AsOfNow: true, AllowOrphans: true, AllowPinned: true})
	}
	panic("linear: " + string(o.Kind) + " does not write")
}

// missing returns how many of the records are not in the log.
func (s session) missing(offered []patch.Record) (n int, err error) {
	for _, r := range offered {
		there, ok := s.log.find(r.ID())
		for id := range r.IDs() {
			if _, taken := s.log.find(id); !ok && taken {
				return 0, &refusal{kind: ops.Duplicate}
			}
		}
		switch {
		case !ok:
			n++
		case there.ID() != r.ID() || !patch.Same(there, r):
			return 0, &refusal{kind: ops.Duplicate}
		}
	}
	return n, nil
}

// put returns the log with those of the records that it has not, if there is no error, and the
// seqs of all.
func (e *entry) put(offered []patch.Record, err error) (*entry, []uint64, error) {
	if err != nil {
		return nil, nil, err
	}
	var seqs []uint64
	for _, r := range offered {
		if there, ok := e.find(r.ID()); ok {
			seqs = append(seqs, there.Seq)
			continue
		}
		e = e.add(r)
		seqs = append(seqs, e.view.Seq())
	}
	return e, seqs, nil
}

// back logs patches that a store has made, under the ids that it says.
func (s session) back(o operation, patches []*patch.PatchEvent, opts fold.CheckOptions) (*entry, []uint64, error) {
	var offered []patch.Record
	for i, p := range patches {
		id := fmt.Sprintf("%s%d.%d", untold, o.n, i)
		switch {
		case i < len(o.Logged):
			id = o.Logged[i]
		case o.Outcome == ops.Done:
			return nil, nil, &refusal{kind: "fewer patches than it takes"}
		}
		p = p.WithID(id)
		if len(patches) > 1 {
			p = p.WithGroup(fmt.Sprint("group ", o.n))
		}
		patches[i] = p
		offered = append(offered, patch.Record{Patch: p})
	}
	_, err := s.log.whole().Preview(patches, opts)
	return s.log.put(offered, err)
}

// imports returns the session's log after records of a text were imported.
func (s session) imports(offered []patch.Record) (*entry, []uint64, error) {
	if slices.ContainsFunc(offered, func(r patch.Record) bool { return r.Patch != nil }) {
		offered = slices.Clone(offered)
		for e := s.log; e.before != nil; e = e.before { // one must be a prefix of the other
			i := int(e.record.Seq) - 1
			if i >= len(offered) {
				continue
			}
			// Patches of one id are the same: the one is the other's copy.
			if !e.is(offered[i].ID()) || e.record.Event != nil && !patch.Same(e.record, offered[i]) {
				return nil, nil, &refusal{kind: fuzz.Conflict}
			}
			offered[i] = e.record
		}
	} else if _, err := s.missing(offered); err != nil {
		return nil, nil, err
	}
	log, seqs, err := s.log.put(offered, nil)
	for i, seq := range seqs {
		if offered[i].Seq != 0 && offered[i].Seq != seq {
			return nil, nil, &refusal{kind: fuzz.Invalid}
		}
	}
	return log, seqs, err
}
