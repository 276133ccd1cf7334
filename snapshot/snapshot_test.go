package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
)

// initial is the initial state of a view. It is not part of a snapshot.
var initial = map[string]patch.Value{"tenant": mustValue("t1"), "k": mustValue(int8(3))}

func mustValue(v any) patch.Value {
	value, err := patch.NewValue(v)
	if err != nil {
		panic(err)
	}
	return value
}

// restore decodes a snapshot. It supplies the records that the view needs.
func restore(data []byte, creation string, records []patch.Record) (fold.View, error) {
	empty, last := fold.New(creation, initial), uint64(len(records))
	v, err := snapshot.Decode(data, empty, last)
	if need := (*fold.MissingRecordsError)(nil); errors.As(err, &need) {
		var at []patch.Record
		for _, seq := range need.Seqs {
			at = append(at, records[seq-1])
		}
		v, err = snapshot.Decode(data, empty.WithRecords(at), last)
	}
	return v, err
}

// folded folds records onto a view, and supplies the records that the view needs.
func folded(t *rapid.T, v fold.View, records []patch.Record) fold.View {
	for int(v.Seq()) < len(records) {
		next, err := v.Apply(records[v.Seq():]...)
		if errors.As(err, new(*fold.MissingRecordsError)) {
			next = next.WithRecords(records)
		} else if err != nil {
			t.Fatal(err)
		}
		v = next
	}
	return v
}

// For every k, folding the records after k onto snapshot k gives the same view as folding all records. This
// also holds after any later patch.
func TestPropertySnapshotAtAnySeq(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 50}).Draw(t, "records")
		n := len(records)
		whole := fold.New("creation", initial)
		views := []fold.View{whole}
		for _, r := range records {
			whole = testlog.Must(whole.WithRecords(records[:r.Seq-1]).Apply(r))(t)
			views = append(views, whole)
		}
		ref := fuzz.NewReference(initial, records...)
		p := fuzz.PatchOn("the patch", ref).Draw(t, "patch")
		want := fmt.Sprint(whole.WithRecords(records).Check(p, fold.CheckOptions{}))
		after := fuzz.NewReference(initial, append(records[:n:n], patch.Record{Seq: uint64(n + 1), Patch: p})...)
		for k, v := range views {
			data := testlog.Must(snapshot.Encode(v))(t)
			got := testlog.Must(restore(data, "creation", records))(t)
			again, err := snapshot.Encode(got)
			if err != nil || !bytes.Equal(data, again) {
				t.Fatalf("snapshot %d of %d: made again it differs (%v)", k, n, err)
			}
			skipped := testlog.Must(whole.Skipped())(t)
			got = folded(t, got, records)
			if err := fuzz.Compare(got, ref); err != nil || got.SkippedCount() != len(skipped) {
				t.Fatalf("snapshot %d of %d: %v, %d skipped\n%s", k, n, err, got.SkippedCount(), fuzz.Text(records, initial))
			}
			got = got.WithRecords(records)
			if refusal := fmt.Sprint(got.Check(p, fold.CheckOptions{})); refusal != want {
				t.Fatalf("snapshot %d of %d: %v is judged %s, want %s", k, n, p, refusal, want)
			}
			next := folded(t, got, append(records[:n:n], patch.Record{Seq: uint64(n + 1), Patch: p}))
			if err := fuzz.Compare(next, after); err != nil {
				t.Fatalf("snapshot %d of %d, then %v: %v", k, n, p, err)
			}
		}
	})
}

func someLog(t testing.TB) []patch.Record {
	t.Helper()
	var records []patch.Record
	for i := range 40 {
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i), InvocationID: "inv", Actions: patch.Actions{StateDelta: map[string]any{"k": i}}})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	for _, p := range []*patch.PatchEvent{
		patch.NewSplice(3, 5).WithState(patch.Keep), patch.NewSplice(20, 1, records[0].Event, records[1].Event), patch.NewSplice(99, 1), patch.NewSplice(10, 1),
	} {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
	}
	return records
}

// A snapshot is unusable if a bit is flipped, if it is truncated, or if it belongs to another version, another
// session or a longer log. Decode never panics.
func TestUnusable(t *testing.T) {
	records := someLog(t)
	v := testlog.Must(fold.New("creation", initial).Apply(records...))(t)
	data := testlog.Must(snapshot.Encode(v))(t)
	if _, err := restore(data, "creation", records); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if _, err := restore(bad, "creation", records); !errors.Is(err, snapshot.ErrUnusable) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
		if _, err := restore(data[:i], "creation", records); !errors.Is(err, snapshot.ErrUnusable) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	testlog.ErrorIs(t, testlog.ErrorOf(restore(data, "another", records)), snapshot.ErrUnusable, "another creation")
	testlog.ErrorIs(t, testlog.ErrorOf(snapshot.Decode(data, fold.New("creation", nil), uint64(len(records)-1))), snapshot.ErrUnusable, "a shorter log")
}

// If the bytes after the checksum are not a view's form, the snapshot is unusable. If the form has another
// version, it is outdated.
func TestMalformedHeader(t *testing.T) {
	const last = 44
	v := testlog.Must(fold.New("creation", initial).Apply(someLog(t)...))(t)
	whole := testlog.Must(snapshot.Encode(v))(t)
	for name, at := range map[string]int{"version": 4} {
		data := append([]byte{}, whole...)
		data[at]++
		if _, err := snapshot.Decode(data, fold.New("creation", nil), last); !errors.Is(err, snapshot.ErrUnusable) || errors.Is(err, snapshot.ErrOutdated) {
			t.Errorf("%s damaged: %v", name, err)
		}
		_, err := snapshot.Decode(snapshot.Resigned(data), fold.New("creation", nil), last)
		if !errors.Is(err, snapshot.ErrUnusable) || !errors.Is(err, snapshot.ErrOutdated) || !strings.Contains(err.Error(), "version") {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, err := snapshot.Decode(snapshot.Resigned(whole[:len(whole)-1]), fold.New("creation", nil), last); !errors.Is(err, snapshot.ErrUnusable) || errors.Is(err, snapshot.ErrOutdated) {
		t.Errorf("the view cut short: %v", err)
	}
	for n := range 6 {
		testlog.ErrorIs(t, testlog.ErrorOf(snapshot.Decode(whole[:n], fold.New("creation", nil), last)), snapshot.ErrUnusable, "%d bytes", n)
	}
}

// The size of a snapshot depends on the number of runs and of patches, not on the number of visible or hidden
// events.
func TestSize(t *testing.T) {
	var records []patch.Record
	for i := range 10_000 {
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i)}))(t)
		records = append(records, patch.Record{Seq: uint64(i + 1), Event: e})
	}
	v := testlog.Must(fold.New("c", nil).Apply(records...))(t)
	data, err := snapshot.Encode(v)
	if err != nil || len(data) > 40 {
		t.Errorf("10,000 events that no patch touched take %d bytes (%v)", len(data), err)
	}
	for range 3000 { // markers accumulate between two events
		v = testlog.Must(v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: patch.NewSplice(50, 3)}))(t)
	}
	if data, err = snapshot.Encode(v); err != nil || len(data) > 3000*25 {
		t.Errorf("after 3,000 cuts %d bytes (%v)", len(data), err)
	}
}

func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		policy  snapshot.Policy
		visible int
		grown   uint64
		want    bool
	}{
		{snapshot.Policy{}, 10, 255, false}, {snapshot.Policy{}, 10, 256, true},
		{snapshot.Policy{}, 100_000, 256, false}, {snapshot.Policy{}, 100_000, 10_000, true},
		{snapshot.Policy{Every: 10}, 0, 10, true}, {snapshot.Policy{Every: -1}, 0, 1 << 40, false},
		{snapshot.Policy{Every: 1, MinPercent: 100}, 50, 49, false}, {snapshot.Policy{Every: 1, MinPercent: 100}, 50, 50, true},
	} {
		if got := c.policy.Due(c.visible, c.grown); got != c.want {
			t.Errorf("%+v, %d visible, grown by %d: %v", c.policy, c.visible, c.grown, got)
		}
	}
	testlog.ErrorIs(t, (snapshot.Policy{MinPercent: -1}).Validate(), patch.ErrInvalid, "a percentage below 0")
	testlog.WantNil(t, (snapshot.Policy{}).Validate())
}
