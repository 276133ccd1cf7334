package records_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
)

func TestBranchWithoutRuns(t *testing.T) {
	for branch, want := range map[string]string{
		"": "", "a": "a", "a.b": "a.b", "a@1.b": "a.b", "a.b@1@2.c": "a.b.c", "@1": "", "a@": "a",
	} {
		if got := records.BranchWithoutRuns(branch); got != want {
			t.Errorf("%q is %q without runs, want %q", branch, got, want)
		}
	}
}
