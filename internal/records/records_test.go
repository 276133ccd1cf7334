package records_test

import (
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
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

// A model counts the tokens of the prompt that it answers, so an event with the role user has no count.
func TestPromptTokens(t *testing.T) {
	for text, want := range map[string]int{
		`{"content":{"role":"model","parts":[{"text":"a"}]},"usageMetadata":{"promptTokenCount":12}}`: 12,
		`{"usageMetadata":{"promptTokenCount":12}}`:                                                   12,
		`{"content":{"role":"user","parts":[{"text":"a"}]},"usageMetadata":{"promptTokenCount":12}}`:  0,
		`{"content":{"role":"model"},"usageMetadata":{"promptTokenCount":-1}}`:                        0,
		`{"content":{"role":"model"},"usageMetadata":{"promptTokenCount":"x"}}`:                       0,
		`{"content":{"role":"model"}}`:                                                                0,
	} {
		if got := records.PromptTokens(testlog.Must(patch.ParseEvent([]byte(text)))(t)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
