package fuzz_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
)

// Each function refuses a nil argument. The error names the argument.
func TestNil(t *testing.T) {
	for says, err := range map[string]error{
		"fold":      fuzz.Check(nil, nil, nil),
		"view":      fuzz.Compare(nil, fuzz.NewReference(nil)),
		"reference": fuzz.Compare(fold.View{}, nil),
		"patch":     fuzz.NewReference(nil).Check(fuzz.CheckOptions{}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
