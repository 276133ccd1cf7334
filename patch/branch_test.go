package patch_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

func TestBranchWithoutRuns(t *testing.T) {
	for branch, want := range map[string]string{
		"": "", "a": "a", "a.b": "a.b", "a@1.b": "a.b", "a.b@1@2.c": "a.b.c", "@1": "", "a@": "a",
	} {
		if got := patch.BranchWithoutRuns(branch); got != want {
			t.Errorf("%q: %q, want %q", branch, got, want)
		}
	}
}
