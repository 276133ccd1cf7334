package sessionfile_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

// exit ends the program if there is an error.
func exit(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func Example() {
	s, err := store.OpenMemory(store.Options{})
	exit(err)
	defer s.Close()
	file, err := os.Open("testdata/claude-code.jsonl")
	exit(err)
	defer file.Close()
	d := sessionfile.NewDecoder(file, sessionfile.ClaudeCode, file.Name())
	var text bytes.Buffer
	exit(d.WriteText(&text))
	ctx := context.Background()
	key := store.Key{App: "claude-code", User: "ada", Session: d.SessionID()}
	done, err := s.Import(ctx, key, &text, store.ImportOptions{})
	exit(err)
	fmt.Println("visible:", done.View.Len(), "of", done.View.Seq(), "records")
	var lines bytes.Buffer
	exit(sessionfile.WriteLines(&lines, s.RawEvents(ctx, key, 1)))
	fmt.Println("lines given back:", bytes.Count(lines.Bytes(), []byte("\n")))
	// Output:
	// visible: 10 of 28 records
	// lines given back: 27
}
