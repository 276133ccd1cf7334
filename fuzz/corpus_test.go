package fuzz_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
)

// corpus returns the recorded sessions, which stand beside the repository if at all.
func corpus(t *testing.T) map[string][]patch.Record {
	t.Helper()
	files, err := filepath.Glob("../../shared/corpus/*/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the corpus of recorded sessions is not here")
	}
	sessions := map[string][]patch.Record{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		records, _, err := patch.NewDecoder(f, file).ReadAll()
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for i := range records {
			records[i].Seq = uint64(i + 1)
		}
		sessions[file] = records
	}
	return sessions
}

// Recorded sessions fold as the model folds them, and patches on them are judged and
// applied as the model does.
func TestCorpusFoldsAsReference(t *testing.T) {
	for file, records := range corpus(t) {
		if testing.Short() && len(records) > 100 {
			continue
		}
		v, err := fold.Fold(fold.New("", nil), records)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		ref := fuzz.NewReference(nil)
		for _, r := range records {
			ref.Apply(r)
		}
		if err := fuzz.Compare(v, ref); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range 6 {
			p := fuzz.Patch(fmt.Sprint("p", i), ref.Visible()).Example(i)
			got, want := kindOf(v.Check(p, fold.CheckOptions{})), ""
			var refusal *fuzz.Refusal
			if err := ref.Check(p, false); errors.As(err, &refusal) {
				want = refusal.Kind
			}
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
}
