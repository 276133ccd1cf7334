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
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
)

// session is the immutable model of a session after some calls. If the session does not exist, log is nil. The
// creation id is "" until a reply shows it. If lenient is set, a delete may succeed although the session does not
// exist, because a delete of unknown outcome may have been repeated.
type session struct {
	creation   string
	log        *entry
	pastHotIDs []string // ids of hot events in deleted creations of the session
	lenient    bool
	replyCount int // number of replies that have shown this state
}

// entry is a record of a log, with the view after the record. The first entry has no record.
type entry struct {
	before *entry
	record patch.Record
	view   fold.View
	sum    uint64
}

var seed = maphash.MakeSeed()

func newLog() *entry { return &entry{view: fold.New("", nil), sum: 1} }

// sum returns a checksum for comparing sessions.
func (s session) sum() uint64 {
	sum := uint64(len(s.pastHotIDs) + s.replyCount)
	if s.log != nil {
		sum += maphash.String(seed, s.creation) ^ s.log.sum
	}
	return sum
}

func (s session) view() fold.View { return s.log.view }

// fullView returns the view with all records of the log, including records of hidden events.
func (e *entry) fullView() fold.View {
	log := make([]patch.Record, e.view.Seq())
	for at := e; at.before != nil; at = at.before {
		log[at.record.Seq-1] = at.record
	}
	return e.view.WithRecords(log)
}

func (e *entry) at(seq uint64) *entry {
	for e.view.Seq() > seq {
		e = e.before
	}
	return e
}

// unknownIDPrefix is the prefix of ids that the model invents. It invents ids for the records of reverts and rewinds
// whose outcome is unknown, because no reply has the real ids.
const unknownIDPrefix = "untold "

// mayHaveID reports whether the record may have the given id.
func (e *entry) mayHaveID(id string) bool {
	own := e.record.ID()
	return own == id || strings.HasPrefix(own, unknownIDPrefix)
}

// find returns the record that has the id, or that inserts an event with the id.
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

// hotIDs returns the ids of the events that set shared values.
func (e *entry) hotIDs() (ids []string) {
	for ; e.before != nil; e = e.before {
		if id := e.record.ID(); ops.IsHot(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (e *entry) add(r patch.Record) *entry {
	r.Seq = e.view.Seq() + 1
	view := e.view
	if r.Patch != nil {
		view = e.fullView()
	}
	next, err := view.Apply(r)
	if err != nil {
		panic(fmt.Sprintf("linear: %v", err)) // cannot fail, because the view has all records
	}
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, e.sum)
	h.WriteString(r.ID())
	return &entry{e, r, next, h.Sum64()}
}

// step implements [state]. A call of unknown outcome takes effect if it can. If it has no effect, its place in the
// order may be after all other calls.
func (s session) step(o operation) (bool, state) {
	ok, after := s.apply(o)
	if after.log != s.log {
		after.replyCount = 0
		ok = ok && s.isFullyShown(o)
	}
	if o.Kind != source && o.showsSession() {
		after.replyCount++
	}
	return ok, after
}

func (s session) isComplete() bool { return s.log == nil || s.creation != "" }

func (s session) apply(o operation) (bool, session) {
	unknown, exists := o.Outcome == ops.Unknown, s.log != nil
	switch o.Kind {
	case ops.Create, ops.Fork:
		if exists {
			return unknown || o.Outcome == ops.Exists, s
		}
		s.creation, s.log = o.Creation, newLog()
		if o.Kind == ops.Fork {
			s.log, _, _ = s.log.appendMissing(o.records, nil)
		}
		return unknown || o.Outcome == ops.Done && s.matchesReply(o.Reply), s
	case ops.Delete:
		if !exists {
			return unknown || o.Outcome == ops.NotFound || s.lenient && o.Outcome == ops.Done, s
		}
		return unknown || o.Outcome == ops.Done, session{lenient: s.lenient, pastHotIDs: append(slices.Clip(s.pastHotIDs), s.log.hotIDs()...)}
	case ops.Import:
		if o.Outcome == ops.Done && o.Created == exists {
			return false, s
		}
		if !exists && (unknown || o.Outcome == ops.Done) {
			s.creation, s.log, exists = o.Creation, newLog(), true
		}
	}
	if !exists {
		return unknown || o.Outcome == ops.NotFound && o.Kind != ops.Import, s
	}
	if o.On != "" && o.On != s.creation {
		// A client's view may be of an earlier creation of the session.
		if unknown || o.Outcome == ops.NotFound {
			return true, s
		}
		if s.creation != "" {
			return false, s
		}
	}
	if s.creation == "" && o.Outcome == ops.Done && o.Kind != source { // the reply to a fork has the creation id of the fork, not of the source
		s.creation = o.Creation
	}
	if !o.Writes() {
		return s.isValidRead(o), s
	}
	if o.Outcome == ops.Done && o.Seq != s.view().Seq()+o.countAfter(s.view().Seq()) {
		return false, s // more replies show this state than possible
	}
	log, seqs, err := s.write(o)
	if err != nil {
		return unknown || o.wasRefusedFor(err), s
	}
	s.log = log
	// The reply shows the view directly after this write, even if later writes were in the same commit.
	return unknown || o.Outcome == ops.Done && slices.Equal(o.Seqs, seqs) && s.matchesReply(o.Reply), s
}

// isFullyShown reports whether every reply that shows the current state is already in the order. Only then may a
// call change the state.
func (s session) isFullyShown(o operation) bool {
	return s.log == nil || s.replyCount >= o.replies[stateID{s.creation, s.view().Seq()}]
}

// stateID identifies the state of a session after a write.
type stateID struct {
	creation string
	seq      uint64
}

// showsSession reports whether the reply shows the session as it was at the call.
func (e Call) showsSession() bool {
	return e.Outcome == ops.Done && e.Creation != "" && e.Kind != ops.At
}

// countAfter returns the number of the call's records whose seqs are greater than after.
func (o operation) countAfter(after uint64) (n uint64) {
	for _, seq := range o.Seqs {
		if seq > after {
			n++
		}
	}
	return n
}

// isValidRead reports whether the reply is a valid read of the session.
func (s session) isValidRead(o operation) bool {
	switch o.Kind {
	case ops.Get:
		return o.Outcome == ops.Done && s.matchesReply(o.Reply) && s.mayShowValue(o.Session, o.Values["app:hot"]) && s.mayShowValue(o.Session, o.Values["user:hot"])
	case source:
		if o.At != nil {
			if *o.At > s.view().Seq() {
				return o.Outcome == ops.NotFound
			}
			s.log = s.log.at(*o.At)
		}
		s.creation = ""
		return o.Outcome == ops.Exists || o.Outcome == ops.Done && s.matchesReply(o.Reply)
	case ops.At:
		if *o.At > s.view().Seq() {
			return o.Outcome == ops.NotFound
		}
		s.log = s.log.at(*o.At)
		return o.Outcome == ops.Done && s.matchesReply(o.Reply)
	case ops.Raw, ops.Export:
		e := s.log
		if o.Outcome != ops.Done || len(o.Logged) != int(e.view.Seq()) {
			return false
		}
		for i := range slices.Backward(o.Logged) {
			if !e.mayHaveID(o.Logged[i]) || o.Seqs[i] != e.record.Seq {
				return false
			}
			e = e.before
		}
		return true
	}
	return false
}

// mayShowValue reports whether a read of the session may show the shared value. If an event of this session set the
// value, the read must also show that event.
func (s session) mayShowValue(name, value string) bool {
	if !ops.IsHot(value) || ops.SessionOf(value) != name || slices.Contains(s.pastHotIDs, value) {
		return true
	}
	_, found := s.log.find(value)
	return found
}

// matchesReply reports whether a reply shows the session. It ignores shared values.
func (s session) matchesReply(r ops.Reply) bool {
	v := s.view()
	return r.Seq == v.Seq() && r.PatchSeq == v.PatchSeq() && (s.creation == "" || r.Creation == s.creation) && len(r.Visible) == v.Len() &&
		slices.Equal(r.Visible, ops.Visible(v)) && maps.Equal(sessionValues(r.Values), ops.Texts(maps.Collect(v.Values())))
}

// sessionValues returns the values without the shared values.
func sessionValues(values map[string]string) map[string]string {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(key, _ string) bool { return statekey.ScopeOf(key) != statekey.Session })
	return values
}

// refusal is the reason for which the model refuses a call.
type refusal struct {
	kind string
	last uint64 // the expected Reply.Last; 0 means any
}

func (r *refusal) Error() string { return r.kind }

// wasRefusedFor reports whether the store refused the call for the same reason as the model.
func (o operation) wasRefusedFor(err error) bool {
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

// write returns the session's log after a call and the seqs of the call's records, or a refusal.
func (s session) write(o operation) (*entry, []uint64, error) {
	switch o.Kind {
	case ops.Append, ops.Patch:
		offered := o.Op.Records()
		missing, err := s.missing(offered)
		switch {
		case err != nil, missing == 0:
		case o.Kind == ops.Patch:
			if o.On != "" {
				offered[0].Patch = offered[0].Patch.WithBase(o.Base)
			}
			err = s.checkPatches(offered, fold.CheckOptions{AsOfNow: o.On == ""})
		case o.IfSeq != nil && *o.IfSeq != s.view().Seq():
			err = &refusal{fuzz.Conflict, s.view().Seq()}
		}
		return s.log.appendMissing(offered, err)
	case ops.Import:
		return s.writeImport(o.records)
	case ops.Revert:
		ids, err := s.log.fullView().RevertTargets(o.IDs[0])
		if err != nil {
			return nil, nil, err
		}
		var patches []*patch.PatchEvent
		for _, id := range ids {
			patches = append(patches, patch.NewRevert(id))
		}
		return s.writeUndo(o, patches, fold.CheckOptions{AsOfNow: true})
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
		patches, err := s.log.fullView().Rewind(from)
		if err != nil {
			return nil, nil, err
		}
		return s.writeUndo(o, patches, fold.CheckOptions{AsOfNow: true, AllowOrphans: true, AllowPinned: true})
	}
	panic("linear: " + string(o.Kind) + " does not write")
}

// missing returns the number of offered records that are not in the log.
func (s session) missing(offered []patch.Record) (n int, err error) {
	for _, r := range offered {
		logged, ok := s.log.find(r.ID())
		for id := range r.IDs() {
			if _, taken := s.log.find(id); !ok && taken {
				return 0, &refusal{kind: ops.Duplicate}
			}
		}
		switch {
		case !ok:
			n++
		case logged.ID() != r.ID() || !patch.Same(logged, r):
			return 0, &refusal{kind: ops.Duplicate}
		}
	}
	return n, nil
}

// appendMissing adds the offered records that are not in the log. It returns the new log and the seqs of all offered
// records. If err is not nil, it returns err.
func (e *entry) appendMissing(offered []patch.Record, err error) (*entry, []uint64, error) {
	if err != nil {
		return nil, nil, err
	}
	var seqs []uint64
	for _, r := range offered {
		if logged, ok := e.find(r.ID()); ok {
			seqs = append(seqs, logged.Seq)
			continue
		}
		e = e.add(r)
		seqs = append(seqs, e.view.Seq())
	}
	return e, seqs, nil
}

// writeUndo adds patches that the store made. The ids of the patches are in the reply.
func (s session) writeUndo(o operation, patches []*patch.PatchEvent, opts fold.CheckOptions) (*entry, []uint64, error) {
	var offered []patch.Record
	for i, p := range patches {
		id := fmt.Sprintf("%s%d.%d", unknownIDPrefix, o.n, i)
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
		offered = append(offered, patch.Record{Patch: p})
	}
	return s.log.appendMissing(offered, s.checkPatches(offered, opts))
}

// checkPatches returns the reason for which the session refuses patches, or nil.
func (s session) checkPatches(offered []patch.Record, opts fold.CheckOptions) error {
	var patches []*patch.PatchEvent
	for _, r := range offered {
		patches = append(patches, r.Patch)
	}
	_, err := s.log.fullView().Preview(patches, opts)
	return err
}

// writeImport returns the session's log after an import of records.
func (s session) writeImport(offered []patch.Record) (*entry, []uint64, error) {
	if slices.ContainsFunc(offered, func(r patch.Record) bool { return r.Patch != nil }) {
		offered = slices.Clone(offered)
		for e := s.log; e.before != nil; e = e.before { // one of the two logs must be a prefix of the other
			i := int(e.record.Seq) - 1
			if i >= len(offered) {
				continue
			}
			// Two patches with the same id count as equal, because one patch is a copy of the other.
			if !e.mayHaveID(offered[i].ID()) || e.record.Event != nil && !patch.Same(e.record, offered[i]) {
				return nil, nil, &refusal{kind: fuzz.Conflict}
			}
			offered[i] = e.record
		}
	} else if _, err := s.missing(offered); err != nil {
		return nil, nil, err
	}
	log, seqs, err := s.log.appendMissing(offered, nil)
	for i, seq := range seqs {
		if offered[i].Seq != 0 && offered[i].Seq != seq {
			return nil, nil, &refusal{kind: fuzz.Invalid}
		}
	}
	return log, seqs, err
}
