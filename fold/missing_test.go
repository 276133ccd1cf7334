package fold_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// keeper holds a log and supplies records to views, as a store does.
type keeper struct {
	t       rapid.TB
	log     []patch.Record
	initial map[string]patch.Value
	reads   int // number of records supplied
}

// retry calls question with a view. While the result asks for records, retry supplies them and calls question
// again.
func (k *keeper) retry(v fold.View, question func(fold.View) error) error {
	for range 10 {
		err := question(v)
		var need *fold.MissingRecordsError
		switch {
		case !errors.As(err, &need):
			return err
		default:
			v = v.WithRecords(k.records(need.Seqs))
		}
	}
	k.t.Fatal("the view needs more and more")
	return nil
}

func (k *keeper) records(seqs []uint64) []patch.Record {
	var records []patch.Record
	for _, seq := range seqs {
		records = append(records, k.log[seq-1])
		k.reads++
	}
	return records
}

func (k *keeper) apply(v fold.View, r patch.Record) (next fold.View, err error) {
	err = k.retry(v, func(v fold.View) (err error) {
		next, err = v.Apply(r)
		return err
	})
	return next, err
}

func (k *keeper) check(v fold.View, p *patch.PatchEvent, opts fold.CheckOptions) error {
	return k.retry(v, func(v fold.View) error { return v.Check(p, opts) })
}

func (k *keeper) fold(v fold.View, records []patch.Record) fold.View {
	k.t.Helper()
	for len(records) > 0 {
		from := v.Seq()
		next, err := v.Apply(records...)
		var need *fold.MissingRecordsError
		switch {
		case err == nil:
			return next
		case !errors.As(err, &need):
			k.t.Fatal(err)
		default:
			next = next.WithRecords(k.records(need.Seqs))
		}
		records = records[next.Seq()-from:]
		v = next
	}
	return v
}

func (k *keeper) restore(v fold.View) fold.View {
	k.t.Helper()
	empty, form := fold.New(v.Creation(), k.initial), formOf(k.t, v)
	restored, err := fold.Restore(empty, form, v.Seq())
	if need := (*fold.MissingRecordsError)(nil); errors.As(err, &need) {
		restored, err = fold.Restore(empty.WithRecords(k.records(need.Seqs)), form, v.Seq())
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return restored
}

// newKeeper returns a keeper of the log, and a view of the log.
func newKeeper(t rapid.TB, log ...any) (*keeper, fold.View) {
	t.Helper()
	k := &keeper{t: t}
	v := fold.New("", nil)
	for i, r := range log {
		rec := patch.Record{Seq: uint64(i + 1)}
		switch r := r.(type) {
		case string:
			rec.Event = event(strings.Fields(r)...)
		case *patch.PatchEvent:
			if rec.Patch = r; r.ID() == "" {
				rec.Patch = r.WithID(fmt.Sprint("p", i+1))
			}
		}
		k.log = append(k.log, rec)
		v = k.fold(v, k.log[i:])
	}
	return k, v
}

// If a revert restores events that the view does not contain, every attempt returns an error that names their
// records. No patch is skipped. After the records are supplied, the call succeeds.
func TestMissingRecords(t *testing.T) {
	k, v := newKeeper(t, "e1 a=1", "e2 b=2", "e3", "e4",
		patch.NewSplice(1, 1, event("r1"), event("r2", "c=3")), patch.NewSplice(0, 9), patch.NewSplice(1, 3))
	revert := patch.NewRevert("p7").WithID("p8")
	for name, v := range map[string]fold.View{"folded": v, "restored": k.restore(v)} {
		t.Run(name, func(t *testing.T) {
			want := "needs 2 records, from record 3 on"
			for range 2 {
				next, err := v.Apply(patch.Record{Seq: 8, Patch: revert})
				wantMissingRecords(t, err, want)
				if next.Seq() != 7 || next.SkippedCount() != 1 {
					t.Errorf("at seq %d, %d skipped", next.Seq(), next.SkippedCount())
				}
				next, err = v.Apply(patch.Record{Seq: 8, Event: event("e8")}, patch.Record{Seq: 9, Patch: revert})
				wantMissingRecords(t, err, want)
				if next.Seq() != 8 {
					t.Errorf("folded up to record %d, want 8", next.Seq())
				}
				wantMissingRecords(t, v.Check(revert, fold.CheckOptions{}), want)
				_, err = v.Preview([]*patch.PatchEvent{revert}, fold.CheckOptions{})
				wantMissingRecords(t, err, want)
				_, err = v.Preview([]*patch.PatchEvent{revert.WithGroup("g"), patch.NewRevert("p5").WithGroup("g")}, fold.CheckOptions{})
				wantMissingRecords(t, err, "needs 3 records, from record 2 on") // records that the two reverts need
			}
			next, err := k.apply(v, patch.Record{Seq: 8, Patch: revert})
			if err != nil || ids(next) != "e1 r1 r2 e3 e4" || fmt.Sprint(next.State()) != "map[a:1 c:3]" {
				t.Errorf("applied: %v, %s", err, ids(next))
			}
			skipped, err := v.Skipped()
			if err != nil || len(skipped) != 1 || skipped[0].Seq != 6 {
				t.Errorf("skipped are %v, %v", skipped, err)
			}
			standing, err := v.RevertTargets("p7")
			if err != nil || fmt.Sprint(standing) != "[p7]" {
				t.Errorf("p7 has the targets %v, %v", standing, err)
			}
		})
	}
}

func wantMissingRecords(t *testing.T, err error, want string) {
	t.Helper()
	var need *fold.MissingRecordsError
	if !errors.As(err, &need) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a need: %s", err, want)
	}
}

// If the caller supplies too few records, the error names all needed records again. If the content of a record is
// wrong, the error matches ErrCorrupt. The resulting view does not keep the supplied records.
func TestWrongSuppliedRecords(t *testing.T) {
	k, v := newKeeper(t, "e1", "e2", "e3", patch.NewSplice(0, 2))
	revert := patch.Record{Seq: 5, Patch: patch.NewRevert("p4")}
	_, err := v.WithRecords(k.log[:1]).Apply(revert)
	wantMissingRecords(t, err, "2 records")
	if _, err := v.WithRecords([]patch.Record{k.log[0], {Seq: 2, Patch: patch.NewRevert("x")}}).Apply(revert); !errors.Is(err, patch.ErrCorrupt) {
		t.Errorf("with other content: %v", err)
	}
	next, err := v.WithRecords([]patch.Record{k.log[1], k.log[0]}).Apply(revert) // the records may be in any order
	if err != nil || ids(next) != "e1 e2 e3" {
		t.Errorf("%v, %s", err, ids(next))
	}
	revert.Seq = 6
	next = testlog.Must(v.WithRecords(k.log).Apply(patch.Record{Seq: 5, Event: event("e5")}))(t)
	_, err = next.Apply(revert)
	wantMissingRecords(t, err, "2 records")
	next = testlog.Must(v.WithRecords(k.log).Preview([]*patch.PatchEvent{patch.NewPin("e3")}, fold.CheckOptions{}))(t)
	_, err = next.Apply(revert)
	wantMissingRecords(t, err, "2 records")
}

// Rewind does not need the records of hidden events. Preview of the rewind's patches returns an error that names
// these records.
func TestRewindNeedsNoRecords(t *testing.T) {
	k, v := newKeeper(t, "e1 a=1", "e2", "e3", patch.NewSummarise(0, 3, event("S", "text:a")))
	for name, v := range map[string]fold.View{"folded": v, "restored": k.restore(v)} {
		k.reads = 0
		var patches []*patch.PatchEvent
		err := k.retry(v, func(v fold.View) (err error) {
			patches, err = v.Rewind(3)
			return err
		})
		if err != nil || len(patches) != 2 || k.reads > 0 {
			t.Fatalf("%s: %v, %v, after reading %d records", name, patches, err, k.reads)
		}
		var after fold.View
		err = k.retry(v, func(v fold.View) (err error) {
			after, err = v.Preview(patches, fold.CheckOptions{AllowOrphans: true})
			return err
		})
		if err != nil || ids(after) != "e1 e2" {
			t.Errorf("%s: %v, %s", name, err, ids(after))
		}
	}
}

// When Preview cannot read a restored event, it still counts the event in later indices.
func TestPreviewCountsMissingEvents(t *testing.T) {
	v, err := fold.New("", nil).Apply([]patch.Record{
		{Seq: 1, Event: event("e1")}, {Seq: 2, Event: event("e2")}, {Seq: 3, Event: event("e3")},
		{Seq: 4, Patch: patch.NewSplice(1, 1).WithID("p")},
	}...)

	if err != nil {
		t.Fatal(err)
	}
	group := []*patch.PatchEvent{patch.NewRevert("p").WithGroup("g"), patch.NewSplice(0, 3).WithGroup("g")}
	_, err = v.Preview(group, fold.CheckOptions{AsOfNow: true})
	var need *fold.MissingRecordsError
	if !errors.As(err, &need) || len(need.Seqs) != 1 || need.Seqs[0] != 2 {
		t.Fatalf("got %v, want record 2 to be asked for", err)
	}
	after, err := v.WithRecords([]patch.Record{{Seq: 2, Event: event("e2")}}).Preview(group, fold.CheckOptions{AsOfNow: true})
	if err != nil || after.Len() != 0 {
		t.Fatal(after.Len(), err)
	}
}

// A patch of a group may name an event that an earlier patch of the group restores. The group is checked with
// the actual event, even if the view does not contain it.
func TestGroupRefersToRestoredEvent(t *testing.T) {
	revert, pin := patch.NewRevert("p").WithID("r"), patch.NewPin("e1")
	for _, c := range []struct {
		name  string
		log   []any
		group []*patch.PatchEvent
		want  error
		text  string // text of the error or, without an error, ids of the visible events
	}{
		{"a pin", nil, []*patch.PatchEvent{revert, pin}, nil, "e1 e2"},
		{"an unpin", nil, []*patch.PatchEvent{revert, patch.NewUnpin("e1")}, nil, "e1 e2"},
		{"a truncation", nil, []*patch.PatchEvent{revert, patch.NewTruncateBefore("e1")}, nil, "e1 e2"},
		{"one that cuts it", nil, []*patch.PatchEvent{revert, patch.NewTruncateBefore("e2")}, nil, "e2"},
		{"of events that the group removed", nil, []*patch.PatchEvent{
			patch.NewSplice(0, 1).WithID("q"), patch.NewRevert("q"), patch.NewPin("e2")}, nil, "e2"},
		{"of events that the group added", nil, []*patch.PatchEvent{
			patch.NewSplice(0, 0, event("n")), patch.NewSplice(0, 1).WithID("q"), patch.NewRevert("q"), patch.NewPin("n")}, nil, "n e2"},
		{"of events that the group added, after a revert", nil, []*patch.PatchEvent{
			revert, patch.NewSplice(0, 0, event("n")), patch.NewSplice(0, 1).WithID("q"), patch.NewRevert("q"), patch.NewPin("n")}, nil, "n e1 e2"},
		{"one after the other", []any{patch.NewSplice(0, 1).WithID("p2")}, []*patch.PatchEvent{
			patch.NewRevert("p2"), patch.NewPin("e2"), revert, pin}, nil, "e1 e2"},
		{"an event that does not come back", nil, []*patch.PatchEvent{revert, patch.NewPin("e3")}, fold.ErrEventNotFound, `"e3"`},
		{"one that is pinned", []any{revert, patch.NewPin("e1"), patch.NewRevert("r").WithID("r2")}, []*patch.PatchEvent{
			patch.NewRevert("r2"), patch.NewSplice(0, 1)}, fold.ErrPinned, `visible event 0 (id "e1")`},
		{"a call without its response", []any{"e4 call:c", "e5 resp:c"}, []*patch.PatchEvent{
			patch.NewSplice(2, 1), revert, pin}, fold.ErrOrphanedCall, `event 1 (id "e4")`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, group := range []string{"g", ""} {
				k, v := newKeeper(t, append([]any{"e1", "e2", patch.NewSplice(0, 1).WithID("p")}, c.log...)...)
				var patches []*patch.PatchEvent
				for _, p := range c.group {
					patches = append(patches, p.WithGroup(group))
				}
				var after fold.View
				err := k.retry(v, func(v fold.View) (err error) {
					after, err = v.Preview(patches, fold.CheckOptions{})
					return err
				})
				got := ids(after)
				if err != nil {
					got = err.Error()
				}
				if !errors.Is(err, c.want) || !strings.Contains(got, c.text) {
					t.Errorf("group %q: %s, want %s", group, got, c.text)
				}
			}
		})
	}
}
