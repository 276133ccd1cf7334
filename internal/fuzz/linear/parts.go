package linear

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/patch"
)

// operation is the part of a call that concerns one object.
type operation struct {
	Call
	n       int             // index of the call in the history
	records []patch.Record  // records that an import offers, or that a fork copies
	replies map[stateID]int // key: state of the session; value: number of replies that show the state
	shared  map[string]int  // key: app and hot id; value: number of replies that show the id as shared value
}

// source is the kind of the read that a fork makes of its source. The read and the creation of the fork may take
// effect at different times.
const source ops.Kind = "source"

// object is a session, the shared values of an app, or a lease. The checker searches an order for each object
// separately, so that it need not order independent calls. The model of a session checks that a shared value does
// not appear before its event.
type object struct {
	app, kind, name string
}

// objects returns the operations of a call, by object. The call has index n in the history. If the call is a fork,
// the argument copied has the records that it copies.
func objects(n int, e Call, copied []patch.Record) map[object]operation {
	o := operation{Call: e, n: n}
	all := map[object]operation{}
	switch e.Kind {
	case ops.Vacuum, ops.Backup:
		return nil
	case ops.Lease:
		return map[object]operation{{e.App, "lease", e.Session}: o}
	case ops.Import:
		o.records, _ = ops.Parse(e.Text)
	case ops.Fork:
		o.records = copied
		if e.Outcome != ops.Unknown {
			read := o
			read.Kind = source
			all[object{e.App, "session", e.Source}] = read
		}
	}
	if !strings.HasPrefix(e.Session, erasedPrefix) { // [History.judgeErased] checks sessions with this prefix
		all[object{e.App, "session", e.Session}] = o
	}
	if e.Kind == ops.Get && e.Outcome == ops.Done || e.Kind == ops.Append && ops.IsHot(e.IDs[0]) && (e.Outcome == ops.Done || e.Outcome == ops.Unknown) {
		all[object{e.App, "values", ""}] = o
	}
	return all
}

// state is the model of an object after some calls.
type state interface {
	// step reports whether a call can have its outcome in this state. It also returns the next state.
	step(operation) (bool, state)
	sum() uint64

	// isComplete reports whether the model has all data of the state, so that a reply adds nothing.
	isComplete() bool
}

func (b object) model(opts Options, calls []porcupine.Operation) porcupine.Model {
	var first state
	switch b.kind {
	case "values":
		first = values{}
	case "lease":
		first = lease(-1)
	default:
		first = session{lenient: opts.Faults}
	}
	var idle []operation
	for _, op := range calls {
		if o := op.Input.(operation); o.isNoOp() {
			idle = append(idle, o)
		}
	}
	slices.SortFunc(idle, func(a, b operation) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.n, b.n)) })
	return porcupine.Model{
		Init:  func() any { return order{state: first} },
		Step:  func(s, input, _ any) (bool, any) { return s.(order).step(input.(operation), idle) },
		Equal: func(a, b any) bool { return a.(order).sum() == b.(order).sum() },
		Hash:  func(s any) uint64 { return s.(order).sum() },
	}
}

// order is an object's state after calls in some order. Calls that change nothing are called idle. Idle calls come
// as early as possible. Every valid order can be transformed into an order of this kind, so the checker tries no
// other orders.
type order struct {
	state
	at      int64 // latest start of a call in the order
	waiting []int // idle calls that are not in the order, and started no later than at
	next    int   // index of the first idle call that started after at
}

func (s order) step(o operation, idle []operation) (bool, any) {
	ok, after := s.state.step(o)
	if !ok {
		return false, s
	}
	s.at = max(s.at, o.From)
	s.waiting = slices.Clip(s.waiting)
	for s.next < len(idle) && idle[s.next].From <= s.at {
		s.waiting = append(s.waiting, s.next)
		s.next++
	}
	own := -1
	for i, k := range s.waiting {
		if idle[k].n == o.n && idle[k].Kind == o.Kind {
			own = i
			break
		}
		if ok, _ := s.state.step(idle[k]); ok && s.isComplete() {
			return false, s
		}
	}
	if own >= 0 {
		s.waiting = slices.Delete(slices.Clone(s.waiting), own, own+1)
	}
	s.state = after
	return true, s
}

// isNoOp reports whether the call cannot have changed anything.
func (o operation) isNoOp() bool {
	switch {
	case o.Outcome == ops.Unknown:
		return false
	case o.Outcome != ops.Done, o.Kind == ops.Get, o.Kind == ops.At, o.Kind == ops.Raw, o.Kind == ops.Export, o.Kind == source:
		return true
	case o.Writes(): // a write of records that all existed already changes nothing
		return !o.Created && (len(o.Seqs) == 0 || slices.Max(o.Seqs) < o.Seq)
	}
	return false
}

// values is the model of an app's shared values.
type values struct {
	id    string // id of the last logged hot event
	shown int    // number of replies that have shown the values
}

// step implements [state]. As in [session.step], the values change only after every reply that shows them.
func (v values) step(o operation) (bool, state) {
	if o.Kind == ops.Append {
		return v.shown >= o.shared[o.App+v.id], values{id: o.IDs[0]}
	}
	ok := o.Values["app:hot"] == v.id && o.Values["user:hot"] == v.id
	v.shown++
	return ok, v
}

func (values) isComplete() bool { return true }

func (v values) sum() uint64 { return maphash.String(seed, v.id) + uint64(v.shown) }

// lease is the model of a lease. It is the number of the store that holds the lease, or -1.
type lease int

func (l lease) step(o operation) (bool, state) {
	isFree, ttl := l < 0 || l == lease(o.Owner), o.TTL()
	switch {
	case o.Outcome != ops.Done || o.Held != (isFree && ttl != 0):
		return false, l
	case !isFree || ttl < 0:
		return true, l
	case ttl == 0:
		return true, lease(-1)
	}
	return true, lease(o.Owner)
}

func (lease) isComplete() bool { return true }

func (l lease) sum() uint64 { return uint64(l) }

// mergeRetries merges all attempts of the same hot append, because together they set the values once.
func mergeRetries(calls []porcupine.Operation) []porcupine.Operation {
	first := map[string]int{}
	var merged []porcupine.Operation
	for _, op := range calls {
		o := op.Input.(operation)
		if o.Kind == ops.Append {
			if i, again := first[o.IDs[0]]; again {
				merged[i].Return = op.Return
				continue
			}
			first[o.IDs[0]] = len(merged)
		}
		merged = append(merged, op)
	}
	return slices.Clip(merged)
}
