package command

import (
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

// valuesOf returns the view's state.
func valuesOf(v fold.View) map[string]patch.Value {
	return maps.Collect(v.Values())
}

// stateTable writes a state for people.
func (o *output) stateTable(values map[string]patch.Value) error {
	if len(values) == 0 {
		return o.line("the state is empty")
	}
	t := newTable("key", "value")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		t.add(cell{present.Printable(key), cyan}, cell{present.ValueText(values[key]), plain})
	}
	return o.table(t)
}
