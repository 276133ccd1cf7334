package pg_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// event is one call, as its client saw it.
type event struct {
	call
	reply
	from, to int64
}

// session is the model of one session: what it is after some calls.
type session struct {
	there    bool
	creation string // "" if it is not known
	seq      uint64
	patchSeq uint64
	events   []modelEvent
	patches  []modelPatch
	sum      uint64
}

type modelEvent struct {
	id     string
	hidden string // the patch that hides it
}

type modelPatch struct {
	id    string
	stays bool
}

var seed = maphash.MakeSeed()

// finished gives the session the sum that it is compared by.
func (s session) finished() session {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, [2]uint64{s.seq, s.patchSeq})
	maphash.WriteComparable(&h, s.there)
	maphash.WriteComparable(&h, s.creation)
	for _, e := range s.events {
		maphash.WriteComparable(&h, e)
	}
	for _, p := range s.patches {
		maphash.WriteComparable(&h, p)
	}
	s.sum = h.Sum64()
	return s
}

func (s session) visible() (at []int) {
	for i, e := range s.events {
		if e.hidden == "" {
			at = append(at, i)
		}
	}
	return at
}

func (s session) has(id string) bool {
	return slices.ContainsFunc(s.events, func(e modelEvent) bool { return e.id == id }) ||
		slices.ContainsFunc(s.patches, func(p modelPatch) bool { return p.id == id })
}

// shows reports whether an answer is what the session is.
func (s session) shows(r reply) bool {
	at := s.visible()
	if !s.there || r.Seq != s.seq || r.PatchSeq != s.patchSeq || len(at) != len(r.Visible) {
		return false
	}
	for i, k := range at {
		if s.events[k].id != r.Visible[i] {
			return false
		}
	}
	return s.creation == "" || r.Creation == s.creation
}

// step is whether a call may have had this outcome at this moment, and what the session is
// after it. A call whose outcome is unknown has an effect if it can have one: it may be
// given a moment after all others.
func step(s session, e event) (bool, session) {
	unknown := e.Kind == "unknown"
	switch e.Kind {
	case "done", "unknown":
	case "not found":
		// A client's view may be of a session that was deleted and created again.
		return !s.there || e.On != "" && s.creation != e.On, s
	case "exists":
		return e.Op == "create" && s.there, s
	case "conflict":
		switch {
		case !s.there:
			return false, s
		case e.Op == "append":
			return e.IfSeq != nil && *e.IfSeq != s.seq && e.Last == s.seq, s
		case e.Op == "patch":
			return e.On != "" && e.Base < s.patchSeq && e.Last == s.patchSeq, s
		}
		return false, s
	case "range":
		return s.there && e.Op == "patch" && e.Start+e.Count > len(s.visible()), s
	case "invalid":
		return s.there && e.Op == "revert" && !s.has(e.IDs[0]), s
	case "blocked":
		return s.there && e.Op == "revert" && s.has(e.IDs[0]), s
	default:
		return false, s
	}
	if e.Op == "create" {
		if s.there {
			return unknown, s
		}
		s = session{there: true, creation: e.Creation}.finished()
		return unknown || s.shows(e.reply), s
	}
	if e.Op == "delete" { // done: it is gone, whoever did it
		return true, session{}.finished()
	}
	if !s.there {
		return unknown, s
	}
	if e.Op == "get" {
		ok := s.shows(e.reply)
		if ok && s.creation == "" {
			s.creation = e.Creation
			s = s.finished()
		}
		return ok, s
	}
	return s.write(e, unknown)
}

func (s session) write(e event, unknown bool) (bool, session) {
	seqs := []uint64{}
	before := s.seq
	switch e.Op {
	case "append":
		missing := slices.DeleteFunc(slices.Clone(e.IDs), s.has)
		switch {
		case len(missing) == 0:
			return true, s // a retry, whose answer names the records that are there
		case e.IfSeq != nil && *e.IfSeq != s.seq:
			return unknown, s
		case len(missing) != len(e.IDs): // a call lands as a whole
			return unknown, s
		}
		s.events = slices.Clone(s.events)
		for _, id := range missing {
			s.seq++
			seqs = append(seqs, s.seq)
			s.events = append(s.events, modelEvent{id: id})
		}
	case "patch":
		at := s.visible()
		switch {
		case s.has(e.IDs[0]):
			return true, s
		case e.Start+e.Count > len(at), e.On != "" && e.Base != s.patchSeq, e.On != "" && s.creation != "" && s.creation != e.On:
			return unknown, s
		}
		s.events = slices.Clone(s.events)
		for _, i := range at[e.Start : e.Start+e.Count] {
			s.events[i].hidden = e.IDs[0]
		}
		s.seq++
		s.patchSeq = s.seq
		seqs = append(seqs, s.seq)
		s.patches = append(slices.Clone(s.patches), modelPatch{e.IDs[0], true})
	case "revert":
		i := slices.IndexFunc(s.patches, func(p modelPatch) bool { return p.id == e.IDs[0] })
		if i < 0 || !s.patches[i].stays {
			return unknown, s
		}
		s.events, s.patches = slices.Clone(s.events), slices.Clone(s.patches)
		s.patches[i].stays = false
		for i := range s.events {
			if s.events[i].hidden == e.IDs[0] {
				s.events[i].hidden = ""
			}
		}
		s.seq++
		s.patchSeq = s.seq
		seqs = append(seqs, s.seq)
	}
	if unknown {
		return true, s.finished()
	}
	if s.creation == "" {
		s.creation = e.Creation
	}
	// The view is of just after the write, though others share the commit.
	return before < s.seq && slices.Equal(e.Seqs, seqs) && s.shows(e.reply), s.finished()
}

var model = porcupine.Model{
	Init: func() any { return session{}.finished() },
	Step: func(state, input, output any) (bool, any) { return step(state.(session), input.(event)) },
	Equal: func(a, b any) bool {
		return a.(session).sum == b.(session).sum
	},
	Hash: func(state any) uint64 { return state.(session).sum },
}

// judge holds a history against the model, each session's by itself, and returns what does
// not fit: the sessions, and how their histories go where the longest prefix that fits ends.
// Calls that did nothing are no part of it.
func judgeHistory(t testing.TB, history []event) (violations []string) {
	t.Helper()
	bySession := map[string][]porcupine.Operation{}
	open := 0
	for i, e := range history {
		switch {
		case e.Kind == "failed" || e.Kind == "worker":
			continue // what it claims to have not written must not be seen
		case e.Kind == "unknown" && (e.Op == "get"):
			continue
		case e.Kind == "unknown":
			if e.to = settled(e, history[i:]); e.to == math.MaxInt64 {
				open++
			}
		}
		bySession[e.Session] = append(bySession[e.Session], porcupine.Operation{Input: e, Call: e.from, Return: e.to})
	}
	for name, ops := range bySession {
		began := time.Now()
		switch result, info := porcupine.CheckOperationsVerbose(model, ops, 40*time.Second); result {
		case porcupine.Illegal:
			violations = append(violations, name+": "+where(ops, info))
		case porcupine.Unknown:
			t.Errorf("session %s: the checker was not done with %d calls, %d of all sessions' open, in %v", name, len(ops), open, time.Since(began))
		}
	}
	return violations
}

// settled returns when a call whose outcome was unknown can have no effect any more: when a
// repetition with the same ids found them in the log, or put them there. A deletion has none
// once another has looked for the session: it is of one creation only.
func settled(e event, later []event) int64 {
	for _, l := range later {
		if l.Session == e.Session && l.Op == e.Op && l.from > e.to {
			switch {
			case (e.Op == "append" || e.Op == "patch") && l.Kind == "done" && slices.Equal(l.IDs, e.IDs),
				e.Op == "delete" && (l.Kind == "done" || l.Kind == "not found"):
				return l.to
			}
		}
	}
	return math.MaxInt64
}

// where shows the calls around the first one that the longest order leaves out.
func where(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	longest := []porcupine.Operation{}
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, some := range partition {
			if len(some) > len(longest) {
				longest = some
			}
		}
	}
	in := map[string]bool{}
	for _, op := range longest {
		in[op.Input.(event).String()] = true
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	i := slices.IndexFunc(ops, func(op porcupine.Operation) bool { return !in[op.Input.(event).String()] })
	text := fmt.Sprintf("%d calls have no order; the longest has %d", len(ops), len(longest))
	for j, op := range ops {
		if j < i-8 || j > i+16 {
			continue
		}
		mark := "  "
		if !in[op.Input.(event).String()] {
			mark = "! "
		}
		text += "\n" + mark + op.Input.(event).String()
	}
	return text
}

func (e event) String() string {
	text := fmt.Sprintf("%8.3f–%8.3f ms %s %s %v", float64(e.from)/1e6, float64(e.to)/1e6, e.Session, e.Op, e.IDs)
	if e.IfSeq != nil {
		text += fmt.Sprintf(" if %d", *e.IfSeq)
	}
	if e.Op == "patch" {
		text += fmt.Sprintf(" [%d,+%d) on %q %d", e.Start, e.Count, e.On, e.Base)
	}
	return text + fmt.Sprintf(": %s %s seqs %v → %d/%d %s %v", e.Kind, e.Err, e.Seqs, e.Seq, e.PatchSeq, e.Creation, strings.Join(e.Visible, " "))
}
