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

// Call is an operation with its reply, and with the times of its start and end. The times are in nanoseconds of one
// clock.
type Call struct {
	ops.Op
	ops.Reply
	From, To int64
}

// History has the operations of all clients, in the order in which the operations ended.
type History []Call

// Options configures [History.Judge].
type Options struct {
	// Faults permits failed calls and unknown outcomes. If Faults is not set, they are violations.
	Faults bool
}

// searchTimeout limits the checker's search for one object. A search takes seconds, but other tests may use most of
// the machine.
const searchTimeout = 5 * time.Minute

// Judge checks the history of each object against the model. A violation names the object. It has the part of the
// object's history around the end of the longest valid order. If a check exceeds its time limit, Judge reports a
// violation too.
func (h History) Judge(opts Options) (violations []string) {
	histories := map[object][]porcupine.Operation{}
	replies, shared := map[stateID]int{}, map[string]int{}
	for _, e := range h {
		if e.Kind == ops.Get && e.Outcome == ops.Done {
			shared[e.App+e.Values["app:hot"]]++
		}
		if e.showsSession() {
			replies[stateID{e.Creation, e.Seq}]++
		}
	}
	sources := h.sources()
	for i, e := range h {
		var copied []patch.Record
		switch {
		case !opts.Faults && (e.Outcome == ops.Failed || e.Outcome == ops.Unknown || e.Outcome == ops.Gone):
			violations = append(violations, "an operation failed, without a fault: "+e.String())
		case e.Outcome == ops.Failed: // no reply may show records of a failed call
			continue
		case e.Outcome == ops.Gone:
			e.Outcome = ops.Unknown
		}
		if e.Outcome == ops.Unknown {
			if !e.Changes() {
				continue
			}
			e.To = effectiveUntil(e, h[i:])
		}
		if e.Kind == ops.Fork && (e.Outcome == ops.Done || e.Outcome == ops.Unknown) {
			source := sources[object{app: e.App, name: e.Source}]
			switch {
			case int(*e.At) <= len(source):
				copied = source[:*e.At]
			case e.Outcome == ops.Unknown: // the fork had no effect, because the source lacks the records
				continue
			default:
				violations = append(violations, "the history lacks the records that a fork has copied: "+e.String())
			}
		}
		for b, o := range objects(i, e, copied) {
			o.replies, o.shared = replies, shared
			call := porcupine.Operation{ClientId: e.Client, Input: o, Call: e.From, Return: e.To}
			histories[b] = append(histories[b], call)
			if opts.Faults && b.kind == "session" && e.mayBeRetry() {
				o.Outcome = ops.Unknown
				call.Input = o
				histories[b] = append(histories[b], call)
			}
		}
	}
	for b, calls := range histories {
		if b.kind == "values" {
			calls = mergeRetries(calls)
		}
		switch result, info := porcupine.CheckOperationsVerbose(b.model(opts, calls), calls, searchTimeout); result {
		case porcupine.Illegal:
			violations = append(violations, b.String()+": "+describeViolation(calls, info))
		case porcupine.Unknown:
			violations = append(violations, fmt.Sprintf("%s: the checker did not end with %d operations in %v", b, len(calls), searchTimeout))
		}
	}
	violations = append(violations, h.judgeErased()...)
	slices.Sort(violations)
	return violations
}

// mayBeRetry reports whether a call found its own records in the log, followed by later records. The call may have
// written these records itself. If the reply to its commit was lost, the call first wrote them and then found them.
// The checker treats these two steps as two operations.
func (e Call) mayBeRetry() bool {
	writes := e.Kind == ops.Append || e.Kind == ops.Patch || e.Kind == ops.Import
	return writes && e.Outcome == ops.Done && len(e.Seqs) > 0 && e.Seq > e.Seqs[len(e.Seqs)-1]
}

// sources returns the records of the sessions that were forked, from the longest read of each session. A source is
// never deleted, so its log only grows. The last read may be of a backup, which shows an earlier log. The reply to a
// fork does not have the records, because the read of the fork may fail after the fork took effect.
func (h History) sources() map[object][]patch.Record {
	longest := map[object]Call{}
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

// effectiveUntil returns the time after which a call of unknown outcome can no longer take effect. If a repeated
// write has the same ids, the call is settled, because the repeated write found or added the records. If the call is
// a deletion, a later deletion settles it, because a deletion deletes only the creation that it has looked up.
func effectiveUntil(e Call, later History) int64 {
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

// describeViolation returns the calls around the first call that is missing in the longest valid order.
func describeViolation(calls []porcupine.Operation, info porcupine.LinearizationInfo) string {
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
func (e Call) String() string {
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

// Until returns the history up to a moment of its clock. Operations that were running at that moment have the
// outcome [ops.Gone].
func (h History) Until(at int64) (cut History) {
	for _, e := range h {
		switch {
		case e.To <= at:
			cut = append(cut, e)
		case e.From <= at:
			cut = append(cut, Call{Op: e.Op, Reply: ops.Reply{Outcome: ops.Gone}, From: e.From, To: at})
		}
	}
	return cut
}

// judgeErased checks the sessions with erasures. Each read must have the events that were appended before the read.
// An event that was erased before the read must be blank. An event that no operation erased must not be blank.
func (h History) judgeErased() (violations []string) {
	for _, read := range h {
		if !strings.HasPrefix(read.Session, erasedPrefix) || read.Kind != ops.Raw || read.Outcome != ops.Done {
			continue
		}
		add := func(format string, args ...any) {
			violations = append(violations, fmt.Sprintf("%s %s at %.3f ms: ", read.App, read.Session, float64(read.From)/1e6)+fmt.Sprintf(format, args...))
		}
		erasedIDs, appended := map[string]bool{}, map[string]bool{}
		for _, e := range h {
			if e.App != read.App || e.Session != read.Session || e.From > read.To {
				continue
			}
			before := e.Outcome == ops.Done && e.To < read.From
			for _, id := range e.IDs {
				isLogged := slices.Contains(read.Logged, id)
				switch e.Kind {
				case ops.Append:
					appended[id] = true
					if isLogged != slices.Contains(read.Logged, e.IDs[0]) || before && !isLogged {
						add("event %s is lost", id)
					}
				case ops.Erase:
					erasedIDs[id] = true
					if before && !slices.Contains(read.Erased, id) {
						add("event %s was erased, and is not blank", id)
					}
				}
			}
		}
		for i, id := range read.Logged {
			if slices.Contains(read.Logged[:i], id) {
				add("id %s occurs twice", id)
			}
			if appended[id] && !erasedIDs[id] && slices.Contains(read.Erased, id) {
				add("event %s is blank, and was not erased", id)
			}
		}
	}
	return violations
}
