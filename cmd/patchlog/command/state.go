package command

import (
	"maps"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
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
		t.add(cell{printable(key), cyan}, cell{valueText(values[key]), plain})
	}
	return o.table(t)
}

func valueText(v patch.Value) string { return printableUpTo(v.String(), describedRunes) }

// stateChange is what a patch does to the state.
type stateChange struct {
	Changed map[string]patch.Value `json:"changed"` // keys that are new or have another value
	Removed []string               `json:"removed"` // in key order
}

func changeOf(before, after fold.View) stateChange {
	c := stateChange{Changed: map[string]patch.Value{}, Removed: []string{}}
	for key, value := range after.Values() {
		if old, ok := before.Value(key); !ok || !old.Equal(value) {
			c.Changed[key] = value
		}
	}
	for key := range before.Values() {
		if _, ok := after.Value(key); !ok {
			c.Removed = append(c.Removed, key)
		}
	}
	return c
}
