package patch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

// TestNil checks that what is not there is refused at once, by name.
func TestNil(t *testing.T) {
	var none *patch.PatchEvent
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"patch":             {none.Validate, "patch"},
		"replacement event": {patch.NewSplice(0, 1, nil).Validate, "replacement/0"},
		"summary":           {patch.NewSummarise(0, 1, nil).Validate, "summaryEvent"},
		"reader":            {func() error { _, err := patch.NewDecoder(nil, "f").Next(); return err }, "reader"},
		"reader of header":  {func() error { _, _, err := patch.NewDecoder(nil, "f").InitialState(); return err }, "reader"},
		"writer of header":  {func() error { return patch.NewEncoder(nil).Header(nil) }, "writer"},
		"writer":            {func() error { return patch.NewEncoder(nil).Record(parse(t, `{}`)) }, "writer"},
		"record":            {func() error { _, err := patch.AppendRecord(nil, patch.Record{}); return err }, "without event and patch"},
		"record as text":    {func() error { _, err := patch.Record{}.MarshalJSON(); return err }, "without event and patch"},
		"target":            {func() error { return parse(t, `{"content":{}}`).Event.Decode("content", nil) }, "content"},
	} {
		if err := c.do(); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
