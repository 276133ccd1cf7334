package linear

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Seen is a call as its client saw it: what came of it, and between which moments, as one clock
// shows them in nanoseconds.
type Seen struct {
	Call
	Reply
	From, To int64
}

// History is what all clients saw, in the order in which the calls ended.
type History []Seen

// Options say how a history is judged. The zero value means the defaults.
type Options struct {
	// Faults says that calls may fail, or end without it being known what came of them, since
	// something broke. Without it, that is a violation too.
	Faults bool

	// Within is how long the checker may take for an app; 0 means a minute.
	Within time.Duration
}

// Judge holds a history against the model, each object's by itself, and returns what does not fit:
// the objects, and how their histories go where the longest order that fits ends. That the checker
// was not done in time is returned too, since nothing is known then.
func (h History) Judge(opts Options) (violations []string) {
	histories := map[object][]porcupine.Operation{}
	replies, shared := map[moment]int{}, map[string]int{}
	for _, e := range h {
		if e.Op == Get && e.Kind == Done {
			shared[e.App+e.Values["app:hot"]]++
		}
		if e.shows() {
			replies[moment{e.Creation, e.Seq}]++
		}
	}
	for i, e := range h {
		switch {
		case !opts.Faults && (e.Kind == Failed || e.Kind == Unknown || e.Kind == Gone):
			violations = append(violations, "nothing broke, and a call did: "+e.String())
		case e.Kind == Failed: // what it claims to have not written must not be seen
			continue
		case e.Kind == Gone:
			e.Kind = Unknown
		}
		if e.Kind == Unknown {
			if !e.mayWrite() {
				continue
			}
			e.To = settled(e, h[i:])
		}
		for b, o := range objects(i, e) {
			o.replies, o.shared = replies, shared
			histories[b] = append(histories[b], porcupine.Operation{ClientId: e.Client, Input: o, Call: e.From, Return: e.To})
		}
	}
	within := cmp.Or(opts.Within, time.Minute)
	for b, ops := range histories {
		if b.kind == "values" {
			ops = once(ops)
		}
		switch result, info := porcupine.CheckOperationsVerbose(b.model(opts, ops), ops, within); result {
		case porcupine.Illegal:
			violations = append(violations, b.String()+": "+where(ops, info))
		case porcupine.Unknown:
			violations = append(violations, fmt.Sprintf("%s: the checker was not done with %d calls in %v", b, len(ops), within))
		}
	}
	slices.Sort(violations)
	return violations
}

func (b object) String() string { return strings.TrimSpace(b.app + " " + b.kind + " " + b.name) }

// mayWrite reports whether a call whose outcome is not known may have changed something.
func (c Call) mayWrite() bool {
	return c.writes() || c.Op == Create || c.Op == Delete || c.Op == Fork || c.Op == Lease
}

// settled returns when a call whose outcome was unknown can have no effect any more: when a
// repetition with the same ids found them in the log, or put them there. A deletion has none
// once another has looked for the session: it is of one creation only.
func settled(e Seen, later History) int64 {
	for _, l := range later {
		if l.App == e.App && l.Session == e.Session && l.Op == e.Op && l.From > e.To {
			switch {
			case (e.Op == Append || e.Op == Patch) && l.Kind == Done && slices.Equal(l.IDs, e.IDs),
				e.Op == Delete && (l.Kind == Done || l.Kind == notFound):
				return l.To
			}
		}
	}
	return math.MaxInt64
}

// where shows the calls around the one that had to have its moment first of those that the
// longest order leaves out.
func where(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	longest := map[int]bool{}
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				clear(longest)
				for _, op := range order {
					longest[op.Input.(operation).n] = true
				}
			}
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	first := slices.IndexFunc(ops, func(op porcupine.Operation) bool { return !longest[op.Input.(operation).n] })
	text := fmt.Sprintf("%d calls have no order; the longest has %d", len(ops), len(longest))
	for i := max(first-10, 0); i < min(first+10, len(ops)); i++ {
		mark := "  "
		switch {
		case i == first:
			mark = "> "
		case !longest[ops[i].Input.(operation).n]:
			mark = "! "
		}
		text += "\n" + mark + ops[i].Input.(operation).String()
	}
	return text
}

// String returns the call and what came of it, in a line.
func (e Seen) String() string {
	text := fmt.Sprintf("%8.3f–%8.3f ms %s %s %s %v", float64(e.From)/1e6, float64(e.To)/1e6, e.App, e.Session, e.Op, e.IDs)
	if e.IfSeq != nil {
		text += fmt.Sprintf(" if %d", *e.IfSeq)
	}
	switch {
	case e.Op == Patch:
		text += fmt.Sprintf(" [%d,+%d) %s on %q %d", e.Start, e.Count, e.patch(e.Reply).Type(), e.On, e.Base)
	case e.Op == Lease:
		text += fmt.Sprintf(" for %v by %d: %v", e.ttl(), e.Owner, e.Held)
	case e.Op == Fork:
		text += " of " + e.Source
	}
	if e.At != nil {
		text += fmt.Sprintf(" at %d", *e.At)
	}
	text += fmt.Sprintf(": %s %s seqs %v → %d/%d", e.Kind, e.Err, e.Seqs, e.Seq, e.PatchSeq)
	return text + fmt.Sprintf(" %.4s %s %v", e.Creation, strings.Join(e.Visible, " "), e.Values)
}
