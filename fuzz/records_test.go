package fuzz

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// In a fixed number of draws, Records generates each important case often enough.
func TestRecordsCoverage(t *testing.T) {
	testlog.SkipUnderRace(t)
	const draws = 600
	seen := map[string]int{}
	for seed := range draws {
		recs := Records(Options{}).Example(seed)
		r := NewReference(InitialState().Example(seed))
		ids := map[string]bool{}
		for i, rec := range recs {
			if rec.Seq != uint64(i+1) {
				t.Fatalf("record %d has seq %d", i, rec.Seq)
			}
			for id := range rec.IDs() {
				seen["an id again"] += count(ids[id])
				ids[id] = true
			}
			if rec.Event != nil {
				countEvent(seen, rec.Event)
			} else {
				countPatch(seen, r, rec.Patch)
			}
			r.Apply(rec)
		}
		for _, batch := range Batches(recs) {
			countGroup(seen, r, batch)
		}
		seen["records"] += len(recs)
		seen["an empty log"] += count(len(recs) == 0)
		for _, s := range r.Skipped() {
			seen["skipped: "+string(s.Reason)]++
		}
		for _, v := range r.State() {
			seen["state "+v.String()]++
		}
		countPairs(seen, pair(r.visible()))
	}
	if n := seen["records"] / draws; n < 10 || n > DefaultMax {
		t.Errorf("%d records in a log", n)
	}
	want := []string{"an id again", "an empty log"}
	for _, typ := range []patch.Type{patch.Splice, patch.TruncateBefore, patch.Summarise} {
		for _, policy := range []patch.StatePolicy{patch.Keep, patch.Drop} {
			want = append(want, "passes: "+string(typ)+" "+string(policy))
		}
	}
	want = append(want, "passes: revert drop", "a redo", "a reverted redo",
		"passes: pin drop", "passes: unpin drop", "a pin again", "a pinned summary", "a revert of a pin", "a revert of an unpin",
		"a group of several", "a group of several with events", "a reverted group", "a redone group", "a group that is there",
		"a group that names an event that it restores",
	)
	for _, flaw := range []patch.Flaw{
		patch.UnknownType, patch.MissingField, patch.WrongField, patch.ForeignField, patch.NestedPatch,
		patch.SummaryDelta, patch.NoContent, patch.NoEffect, OutOfRange, NotFound, PatchNotFound, Blocked,
	} {
		want = append(want, "skipped: "+string(flaw))
	}
	want = append(want,
		"refused: "+UnknownInLog, "refused: "+Conflict, "refused: "+Invalid, "refused: "+OutOfRange,
		"refused: "+NotFound, "refused: "+Blocked, "refused: "+Pinned, "refused: "+OrphanedCall,
		"orphan: "+LostCall, "orphan: "+OtherCall, "orphan: "+LostResponse, "orphan: "+HiddenCall, "orphan: "+BarePosition,
		"a suggested span", "no span to suggest", "a suggested event",
		"an insertion", "a cut", "a replacement by two", "a truncation of nothing", "a base that holds",
		"by the user", "a branch", "no invocation", "no content", "no parts", "only state", "a summary of role model",
		"parallel calls", "a call without id", "a long-running call", "calls and responses together",
		"an open call", "an amended call", "an unpaired response", "a response across branches",
	)
	for _, literal := range stateLiterals {
		want = append(want, "state "+literal)
	}
	for _, what := range want {
		if seen[what] < 5 {
			t.Errorf("%s: %d times", what, seen[what])
		}
	}
	if testing.Verbose() {
		for _, what := range slices.Sorted(maps.Keys(seen)) {
			t.Logf("%6d %s", seen[what], what)
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func hasDelta(e *patch.Event) bool {
	return len(slices.Collect(e.Changes()))+len(slices.Collect(e.SharedChanges())) > 0
}

func countEvent(seen map[string]int, e *patch.Event) {
	parts := slices.Collect(e.FunctionParts())
	calls, withoutID, longRunning := 0, false, false
	for _, p := range parts {
		if !p.Response {
			calls++
			withoutID = withoutID || p.ID == ""
			longRunning = longRunning || slices.Contains(e.LongRunningToolIDs(), p.ID)
		}
	}
	text, hasContent := e.Field("content")
	seen["by the user"] += count(e.Author() == "user")
	seen["a branch"] += count(e.Branch() != "")
	seen["no invocation"] += count(e.InvocationID() == "")
	seen["no content"] += count(!hasContent)
	seen["no parts"] += count(string(text) == `{"parts":[],"role":"user"}`)
	seen["only state"] += count(!hasContent && hasDelta(e))
	seen["a summary of role model"] += count(e.IsSummary() && e.Role() == "model")
	seen["parallel calls"] += count(calls > 1)
	seen["a call without id"] += count(withoutID)
	seen["a long-running call"] += count(longRunning)
	seen["calls and responses together"] += count(calls > 0 && calls < len(parts))
}

func countPatch(seen map[string]int, r *Reference, p *patch.PatchEvent) {
	err := r.Check(CheckOptions{}, p)
	if err == nil {
		seen["passes: "+string(p.Type())+" "+string(p.StatePolicy())]++
		_, hasBase := p.Base()
		seen["a base that holds"] += count(hasBase)
		if p.Type() == patch.Splice {
			seen["an insertion"] += count(p.Count() == 0)
			seen["a cut"] += count(len(p.NewEvents()) == 0)
			seen["a replacement by two"] += count(p.Count() > 0 && len(p.NewEvents()) == 2)
		}
		if p.Type() == patch.TruncateBefore {
			seen["a truncation of nothing"] += count(r.Visible()[0].ID() == p.EventID())
		}
		seen["a pin again"] += count(p.Type() == patch.Pin && r.Pinned()[r.indexOfID(p.EventID())])
		seen["a pinned summary"] += count(p.Type() == patch.Pin && r.visible()[r.indexOfID(p.EventID())].insertedBy != nil)
		if p.Type() == patch.Revert {
			of := r.findPatch(p.PatchID())
			seen["a revert of a pin"] += count(of.pin != nil && of.target == nil && of.isPin)
			seen["a revert of an unpin"] += count(of.pin != nil && of.target == nil && !of.isPin)
		}
		for n := 0; p != nil && p.Type() == patch.Revert; n++ {
			seen["a redo"] += count(n == 1)
			seen["a reverted redo"] += count(n == 2)
			p = patchIn(r.log, p.PatchID())
		}
		return
	}
	var refusal *Refusal
	errors.As(err, &refusal)
	seen["refused: "+refusal.Kind]++
	seen["a group that is there"] += count(r.hasGroup(p.Group()))
	rules := map[string]bool{}
	for _, o := range refusal.Orphans {
		rules[o.Rule] = true
	}
	for rule := range rules {
		seen["orphan: "+rule]++
	}
	if refusal.Kind == OrphanedCall {
		_, _, suggested := r.Suggest(p, CheckOptions{})
		before := p.Type() == patch.TruncateBefore
		seen["a suggested span"] += count(suggested && !before)
		seen["no span to suggest"] += count(!suggested && !before)
		seen["a suggested event"] += count(suggested && before)
	}
}

// countGroup counts the cases that occur in a batch. The model r includes the batch.
func countGroup(seen map[string]int, r *Reference, batch []patch.Record) {
	var puts, reverts, redos int
	back := map[string]bool{} // ids of events that reverts in the batch restore
	for _, rec := range batch {
		if p := rec.Patch; p != nil && len(batch) > 1 && p.Validate() == nil && p.Type() != patch.Revert {
			seen["a group that names an event that it restores"] += count(back[p.EventID()])
		}
		for _, a := range r.applied {
			if a.seq != rec.Seq || len(batch) == 1 {
				continue
			}
			if a.target != nil {
				for _, n := range visibleOf(a.in) {
					back[n.event.ID()] = true
				}
			}
			switch {
			case a.target != nil && a.target.target != nil:
				redos++
			case a.target != nil:
				reverts++
			case a.addsEvents():
				puts++
			}
		}
	}
	seen["a group of several"] += count(len(batch) > 1)
	seen["a group of several with events"] += count(puts > 0)
	seen["a reverted group"] += count(reverts > 1)
	seen["a redone group"] += count(redos > 1)
}

func patchIn(log []patch.Record, id string) *patch.PatchEvent {
	for _, rec := range log {
		if rec.Patch != nil && rec.ID() == id {
			return rec.Patch
		}
	}
	return nil
}

func countPairs(seen map[string]int, p pairing) {
	for _, c := range p.parts {
		call, paired := p.callOf[c.place()]
		seen["an open call"] += count(!c.Response && p.isOpen(c))
		seen["an amended call"] += count(len(p.responses[c.place()]) > 1)
		seen["an unpaired response"] += count(c.Response && !paired)
		seen["a response across branches"] += count(paired && call.node.event.Branch() != c.node.event.Branch())
	}
}

// If Options.Accepted is set, the log has no repeated ids, and no patch that is refused or skipped.
func TestRecordsAccepted(t *testing.T) {
	seen := map[string]int{}
	for seed := range 200 {
		r := NewReference(nil)
		ids := map[string]bool{}
		recs := Records(Options{Max: 25, Accepted: true}).Example(seed)
		for _, rec := range recs {
			for id := range rec.IDs() {
				if id == "" || ids[id] {
					t.Fatalf("id %q is empty or occurs twice", id)
				}
				ids[id] = true
			}
			if rec.Patch != nil {
				seen[string(rec.Patch.Type())]++
			}
		}
		for _, batch := range Batches(recs) {
			var patches []*patch.PatchEvent
			for _, rec := range batch {
				if rec.Patch != nil {
					patches = append(patches, rec.Patch)
				}
			}
			if err := r.Check(CheckOptions{}, patches...); err != nil {
				t.Fatalf("%v are refused: %v", patches, err)
			}
			for _, rec := range batch {
				r.Apply(rec)
			}
			seen["group"] += count(len(batch) > 1)
		}
		if len(r.Skipped()) > 0 || r.Seq() > 25 {
			t.Fatalf("skipped %v, last seq %d", r.Skipped(), r.Seq())
		}
	}
	for what, least := range map[string]int{
		"splice": 50, "truncate_before": 50, "summarise": 50, "pin": 50, "unpin": 20, "revert": 50, "group": 30,
	} {
		if seen[what] < least {
			t.Errorf("%d times %s", seen[what], what)
		}
	}
}

// If a property fails for a log, rapid shrinks the log to the records that cause the failure.
func TestRecordsShrink(t *testing.T) {
	testlog.SkipUnderRace(t)
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.seed": "1", "rapid.checks": "2000"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		defer f.Value.Set(before)
	}

	var smallest []patch.Record
	func() {
		defer func() { recover() }()
		rapid.Check(failing{t}, func(t *rapid.T) {
			recs := Records(Options{}).Draw(t, "records")
			r := NewReference(nil)
			for _, rec := range recs {
				if p := rec.Patch; p != nil && p.Type() == patch.Summarise && p.Count() == 2 && r.Check(CheckOptions{}, p) == nil {
					smallest = recs
					t.Fatal("a summary of two")
				}
				r.Apply(rec)
			}
		})
	}()
	if len(smallest) == 0 || len(smallest) > 5 {
		t.Errorf("shrunk to %d records, want 3 or few more:\n%s", len(smallest), Text(smallest, nil))
	}
}

// failing is a testing.TB for a check that must fail. If the check fails, the test does not fail.
type failing struct{ testing.TB }

func (failing) Log(...any)            {}
func (failing) Logf(string, ...any)   {}
func (failing) Error(...any)          {}
func (failing) Errorf(string, ...any) {}
func (failing) Fail()                 {}
func (failing) Fatal(...any)          { panic("failed") }
func (failing) Fatalf(string, ...any) { panic("failed") }
func (failing) FailNow()              { panic("failed") }

// The id of an inserted event begins with the id of its patch. So patches that are drawn for the same call share no
// ids.
func TestInsertedIDsDeriveFromPatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Patch("p", nil).Draw(t, "patch")
		for id := range (patch.Record{Patch: p}).IDs() {
			if id != "p" && !strings.HasPrefix(id, "p.") {
				t.Fatalf("%v inserts an event with the id %q", p, id)
			}
		}
	})
}
