package compaction_test

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// A call that was brought back for its answer is in the history once.
func ExampleWithoutRestored() {
	var history []fold.Entry
	for _, text := range []string{`{"id":"e1"}`, `{"id":"e2"}`, `{"id":"copy","customMetadata":{"patchlog":{"recalled":"e1"}}}`} {
		e, err := patch.ParseEvent([]byte(text))
		if err != nil {
			panic(err)
		}
		history = append(history, fold.Entry{Event: e})
	}
	for _, e := range compaction.WithoutRestored(history) {
		fmt.Println(e.Event.ID())
	}
	// Output:
	// e1
	// e2
}
