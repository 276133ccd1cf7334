package blanks_test

import (
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/blanks"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// log is a log and the view of its records.
type log struct {
	*testing.T
	records []patch.Record
	view    fold.View
}

func newLog(t *testing.T) *log {
	l := &log{T: t, view: fold.New("c", nil)}
	for i := range 6 {
		l.add(patch.Record{Event: testlog.Text(fmt.Sprint("e", i), "i", "user", "text")})
	}
	return l
}

func (l *log) add(r patch.Record) {
	r.Seq = uint64(len(l.records) + 1)
	l.records = append(l.records, r)
	l.view = testlog.Must(l.view.WithRecords(l.records).Apply(r))(l)
}

// summarise adds a patch that replaces events with a summary.
func (l *log) summarise(id string, start, count int) {
	l.add(patch.Record{Patch: patch.NewSummarise(start, count, testlog.Text(id, "i", "model", "short")).WithID("p" + id)})
}

func (l *log) revert(maxGrowth int, erased ...string) blanks.Plan {
	o := blanks.Options{MaxGrowth: maxGrowth, ErasedIDs: map[string]bool{}, Read: func(seqs []uint64) (out []patch.Record, err error) {
		for _, seq := range seqs {
			out = append(out, l.records[seq-1])
		}
		return out, nil
	}}
	for _, id := range erased {
		o.ErasedIDs[id] = true
	}
	return testlog.Must(blanks.PlanReverts(l.view, o))(l)
}

// A blank summary is reverted if it covers events that are not blank. A summary of summaries is reverted first.
func TestRevert(t *testing.T) {
	l := newLog(t)
	l.summarise("s1", 0, 2)
	l.summarise("s2", 1, 2)
	plan := l.revert(1000, "e0", "s1")
	testlog.Equal(t, "reverted", plan.Summaries, []string{"s1"})
	testlog.Equal(t, "visible then", plan.After.Len(), 5)
	testlog.Equal(t, "left", plan.NotReverted, nil)
	testlog.Equal(t, "visible blanks before", blanks.VisibleSummaries(l.view, map[string]bool{"s1": true, "e5": true}), []string{"s1"})

	l.summarise("s3", 0, 2) // covers both summaries
	plan = l.revert(1000, "e0", "s1", "s3")
	testlog.Equal(t, "a path down", plan.Summaries, []string{"s3", "s1"})
	plan = l.revert(1000)
	testlog.Equal(t, "nothing is blank", len(plan.Reverts), 0)
}

// A summary is not reverted if all covered events are blank, if its group has another effect, or if the view
// would grow too much.
func TestNotReverted(t *testing.T) {
	l := newLog(t)
	l.summarise("s1", 0, 2)
	testlog.Equal(t, "all events behind it are blank", l.revert(1000, "s1", "e0", "e1").NotReverted, []string{"s1"})

	l = newLog(t)
	l.add(patch.Record{Patch: patch.NewSummarise(0, 2, testlog.Text("s1", "i", "model", "short")).WithState(patch.Drop).WithID("p")})
	testlog.Equal(t, "it drops state", l.revert(1000, "s1", "e0").NotReverted, []string{"s1"})

	l = newLog(t)
	l.summarise("s1", 0, 3)
	l.summarise("s2", 1, 3)
	plan := l.revert(0, "s1", "s2", "e0", "e3")
	testlog.Equal(t, "one path is taken in any case", plan.Summaries, []string{"s2"})
	testlog.Equal(t, "and no more", plan.NotReverted, []string{"s1"})
}
