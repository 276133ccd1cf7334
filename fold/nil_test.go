package fold_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// TestNil checks that what is not there is refused at once, by name.
func TestNil(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(fold.View) error
		says string
	}{
		"check": {func(v fold.View) error { return v.Check(nil, fold.CheckOptions{}) }, "patch is nil"},
		"preview": {func(v fold.View) error {
			_, err := v.Preview([]*patch.PatchEvent{nil}, fold.CheckOptions{})
			return err
		}, "patch is nil"},
		"apply":   {func(v fold.View) error { _, err := v.Apply(patch.Record{Seq: v.Seq() + 1}); return err }, "neither event nor patch"},
		"summary": {func(v fold.View) error { return v.Check(patch.NewSummarise(0, 1, nil), fold.CheckOptions{}) }, "summaryEvent"},
	} {
		for kind, v := range map[string]fold.View{"zero view": {}, "new view": fold.New("c", nil)} {
			if err := c.do(v); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s on a %s: %v", name, kind, err)
			}
		}
	}
}
