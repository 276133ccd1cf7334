package portable_test

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fold/portable"
	"github.com/patchlog-dev/patchlog/patch"
)

// A patch that was made from one view is applied to a view in which the same events have other indices.
func Example() {
	log := func(ids ...string) fold.View {
		var v fold.View
		for i, id := range ids {
			event, _ := patch.NewEvent(patch.Fields{ID: id})
			v, _ = v.Apply(patch.Record{Seq: uint64(i + 1), Event: event})
		}
		return v
	}
	patches, err := portable.New(log("question", "answer"), patch.NewSplice(1, 1).WithID("p"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := patches.Text()
	fmt.Println(text)
	resolved, ok := portable.Parse("e", text).Resolve(log("greeting", "question", "answer"))
	fmt.Println(resolved[0].Start(), ok)
	// Output:
	// {"version":1,"patches":[{"patch":{"id":"p","patchType":"splice","start":1,"count":1,"replacement":[]},"place":{"events":["answer"]}}]}
	// 2 true
}
