package fuzz_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/fuzz/ops"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

func readRecords(t *testing.T, file string) []patch.Record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	records, _, err := records.ReadAll(patch.NewDecoder(f, file))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		records[i].Seq = uint64(i + 1)
	}
	return records
}

// The fold of a recorded session agrees with the model. Patches on the session are checked and applied as in the
// model.
func TestCorpusMatchesReference(t *testing.T) {
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) {
			long := 0
			for _, file := range set.Files {
				records := readRecords(t, file)
				if testing.Short() && len(records) > 100 {
					long++
					continue
				}
				checkMatchesReference(t, file, records)
			}
			if long > 0 {
				t.Logf("left out, for the run is short: %d sessions of more than 100 events", long)
			}
		})
	}
}

func checkMatchesReference(t *testing.T, file string, records []patch.Record) {
	t.Helper()
	v, err := fold.New("", nil).Apply(records...)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	ref := fuzz.NewReference(nil, records...)
	if err := fuzz.Compare(v, ref); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for i := range 6 {
		p := fuzz.Patch(fmt.Sprint("p", i), ref.Visible()).Example(i)
		got, want := ops.OutcomeOf(v.Check(p, fold.CheckOptions{})), ops.ExpectedOutcome(ref, ops.Op{Kind: ops.Patch, AsOfNow: true, Offered: []patch.Record{{Patch: p}}})
		if got != want {
			t.Fatalf("%s: %v: got %q, want %q", file, p, got, want)
		}
		r := patch.Record{Seq: v.Seq() + 1, Patch: p}
		if v, err = v.Apply(r); err != nil {
			t.Fatal(err)
		}
		ref.Apply(r)
		if err := fuzz.Compare(v, ref); err != nil {
			t.Fatalf("%s, after %v: %v", file, p, err)
		}
	}
}
