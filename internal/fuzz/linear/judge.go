package linear

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/patch"
)

// Seen is an operation with its reply and the times of its start and end, in nanoseconds of one clock.
type Seen struct {
	ops.Op
	ops.Reply
	From, To int64
}

// History has the operations of all clients, in the order of their ends.
type History []Seen

// Options configures [History.Judge]. The zero value is the default.
type Options struct {
	// Faults permits failed calls and unknown outcomes. Without it they are violations.
	Faults bool
}

// patience is the checker's time limit per object. The search takes seconds, but on a machine that runs many tests
// it gets a small part of the time.
const patience = 5 * time.Minute

// Judge checks the history of each object against the model, and returns the violations: the object, and its history
// around the end of the longest valid order. A check that exceeds its time limit is a violation too.
func (h History) Judge(opts Options) (violations []string) {
	histories := map[object][]porcupine.Operation{}
	replies, shared := map[moment]int{}, map[string]int{}
	for _, e := range h {
		if e.Kind == ops.Get && e.Outcome == ops.Done {
			shared[e.App+e.Values["app:hot"]]++
		}
		if e.shows() {
			replies[moment{e.Creation, e.Seq}]++
		}
	}
	sources := h.sources()
	for i, e := range h {
		var copied []patch.Record
		switch {
		case !opts.Faults && (e.Outcome == ops.Failed || e.Outcome == ops.Unknown || e.Outcome == ops.Gone):
			violations = append(violations, "an operation failed, without a fault: "+e.String())
		case e.Outcome == ops.Failed: // records reported as not written must not be seen
			continue
		case e.Outcome == ops.Gone:
			e.Outcome = ops.Unknown
		}
		if e.Outcome == ops.Unknown {
			if !e.Changes() {
				continue
			}
			e.To = settled(e, h[i:])
		}
		if e.Kind == ops.Fork && (e.Outcome == ops.Done || e.Outcome == ops.Unknown) {
			source := sources[object{app: e.App, name: e.Source}]
			switch {
			case int(*e.At) <= len(source):
				copied = source[:*e.At]
			case e.Outcome == ops.Unknown: // it had no effect, or the source would have the records
				continue
			default:
				violations = append(violations, "the history lacks the records that a fork has copied: "+e.String())
			}
		}
		for b, o := range objects(i, e, copied) {
			o.replies, o.shared = replies, shared
			call := porcupine.Operation{ClientId: e.Client, Input: o, Call: e.From, Return: e.To}
			histories[b] = append(histories[b], call)
			if opts.Faults && b.kind == "session" && e.repeats() {
				o.Outcome = ops.Unknown
				call.Input = o
				histories[b] = append(histories[b], call)
			}
		}
	}
	for b, calls := range histories {
		if b.kind == "values" {
			calls = once(calls)
		}
		switch result, info := porcupine.CheckOperationsVerbose(b.model(opts, calls), calls, patience); result {
		case porcupine.Illegal:
			violations = append(violations, b.String()+": "+where(calls, info))
		case porcupine.Unknown:
			violations = append(violations, fmt.Sprintf("%s: the checker did not end with %d operations in %v", b, len(calls), patience))
		}
	}
	violations = append(violations, h.judgeErased()...)
	slices.Sort(violations)
	return violations
}

// repeats reports whether a call found its own records followed by later ones. If the reply to its commit was lost,
// the call may have written them itself and found them afterwards: that is two operations.
func (e Seen) repeats() bool {
	writes := e.Kind == ops.Append || e.Kind == ops.Patch || e.Kind == ops.Import
	return writes && e.Outcome == ops.Done && len(e.Seqs) > 0 && e.Seq > e.Seqs[len(e.Seqs)-1]
}

// sources returns the records of the forked sessions, from the longest reading of each. A source is never deleted, so
// its log only grows, but the reading of a backup, which is last in the history, shows an earlier log. A fork's reply
// does not have the records: reading them may fail though the fork took effect.
func (h History) sources() map[object][]patch.Record {
	longest := map[object]Seen{}
	for _, e := range h {
		b := object{app: e.App, name: e.Session}
		if e.Kind == ops.Raw && e.Outcome == ops.Done && len(e.Seqs) > len(longest[b].Seqs) {
			longest[b] = e
		}
	}
	records := map[object][]patch.Record{}
	for _, e := range h {
		b := object{app: e.App, name: e.Source}
		if e.Kind == ops.Fork && records[b] == nil {
			records[b], _ = ops.Parse(longest[b].Exported)
		}
	}
	return records
}

func (b object) String() string { return strings.TrimSpace(b.app + " " + b.kind + " " + b.name) }

// settled returns the time from which a call of unknown outcome has no further effect: when a repetition with the same
// ids found its records or added them. A deletion has none once another one has looked up the session, since it
// deletes only one creation.
func settled(e Seen, later History) int64 {
	for _, l := range later {
		if l.App == e.App && l.Session == e.Session && l.Kind == e.Kind && l.From > e.To {
			switch {
			case (e.Kind == ops.Append || e.Kind == ops.Patch) && l.Outcome == ops.Done && slices.Equal(l.IDs, e.IDs),
				e.Kind == ops.Delete && (l.Outcome == ops.Done || l.Outcome == ops.NotFound):
				return l.To
			}
		}
	}
	return math.MaxInt64
}

// where returns the calls around the first one that the longest valid order lacks.
func where(calls []porcupine.Operation, info porcupine.LinearizationInfo) string {
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
	slices.SortFunc(calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	first := slices.IndexFunc(calls, func(op porcupine.Operation) bool { return !longest[op.Input.(operation).n] })
	text := fmt.Sprintf("%d calls have no order; the longest has %d", len(calls), len(longest))
	for i := max(first-10, 0); i < min(first+10, len(calls)); i++ {
		mark := "  "
		switch {
		case i == first:
			mark = "> "
		case !longest[calls[i].Input.(operation).n]:
			mark = "! "
		}
		text += "\n" + mark + calls[i].Input.(operation).String()
	}
	return text
}

// String returns the operation and its outcome in one line.
func (e Seen) String() string {
	text := fmt.Sprintf("%8.3f–%8.3f ms client %d: %s %s %s %v", float64(e.From)/1e6, float64(e.To)/1e6, e.Client, e.App, e.Session, e.Kind, e.IDs)
	if e.IfSeq != nil {
		text += fmt.Sprintf(" if %d", *e.IfSeq)
	}
	switch {
	case e.Kind == ops.Patch:
		text += fmt.Sprintf(" [%d,+%d) %s on %q %d", e.Start, e.Count, e.Op.Records()[0].Patch.Type(), e.On, e.Base)
	case e.Kind == ops.Lease:
		text += fmt.Sprintf(" for %v by %d: %v", e.TTL(), e.Owner, e.Held)
	case e.Kind == ops.Fork:
		text += " of " + e.Source
	}
	if e.At != nil {
		text += fmt.Sprintf(" at %d", *e.At)
	}
	text += fmt.Sprintf(": %s %s seqs %v → %d/%d", e.Outcome, e.Err, e.Seqs, e.Seq, e.PatchSeq)
	return text + fmt.Sprintf(" %.4s %.300s %v", e.Creation, strings.Join(e.Visible, " "), e.Values)
}

// Until returns the history up to a moment of its clock. Operations still running then have an unknown outcome.
func (h History) Until(at int64) (cut History) {
	for _, e := range h {
		switch {
		case e.To <= at:
			cut = append(cut, e)
		case e.From <= at:
			cut = append(cut, Seen{Op: e.Op, Reply: ops.Reply{Outcome: ops.Gone}, From: e.From, To: at})
		}
	}
	return cut
}

// judgeErased checks the sessions with erasures: each reading has the events appended before it, and exactly the
// acknowledged blanks.
func (h History) judgeErased() (violations []string) {
	for _, read := range h {
		if !strings.HasPrefix(read.Session, erased) || read.Kind != ops.Raw || read.Outcome != ops.Done {
			continue
		}
		add := func(format string, args ...any) {
			violations = append(violations, fmt.Sprintf("%s %s at %.3f ms: ", read.App, read.Session, float64(read.From)/1e6)+fmt.Sprintf(format, args...))
		}
		asked, appended := map[string]bool{}, map[string]bool{}
		for _, e := range h {
			if e.App != read.App || e.Session != read.Session || e.From > read.To {
				continue
			}
			before := e.Outcome == ops.Done && e.To < read.From
			for _, id := range e.IDs {
				there := slices.Contains(read.Logged, id)
				switch e.Kind {
				case ops.Append:
					appended[id] = true
					if there != slices.Contains(read.Logged, e.IDs[0]) || before && !there {
						add("event %s is lost", id)
					}
				case ops.Erase:
					asked[id] = true
					if before && !slices.Contains(read.Blank, id) {
						add("event %s was erased, and is not blank", id)
					}
				}
			}
		}
		for i, id := range read.Logged {
			if slices.Contains(read.Logged[:i], id) {
				add("id %s is there twice", id)
			}
			if appended[id] && !asked[id] && slices.Contains(read.Blank, id) {
				add("event %s is blank, and was not erased", id)
			}
		}
	}
	return violations
}
