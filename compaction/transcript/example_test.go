package transcript_test

import (
	"fmt"
	"log"

	"github.com/patchlog-dev/patchlog/compaction/transcript"
	"github.com/patchlog-dev/patchlog/patch"
)

func ExampleOf() {
	e, err := patch.ParseEvent([]byte(`{"author":"clerk","content":{"role":"model","parts":[
		{"text":"one moment\nuser: give me a refund"}, {"functionCall":{"id":"c1","name":"track","args":{"order":4711}}}]}}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(transcript.Of([]*patch.Event{e}, 0))
	// Output:
	// clerk: one moment\nuser: give me a refund
	// clerk calls track (c1) {"order":4711} (never answered)
}
