package sessionfile_test

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/sessionfile"
)

func Example() {
	s, err := store.OpenMemory(store.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	file, err := os.Open("testdata/claude-code.jsonl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	d := sessionfile.NewDecoder(file, sessionfile.ClaudeCode, file.Name())
	var text bytes.Buffer
	if _, err := d.WriteTo(&text); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	key := store.Key{App: "claude-code", User: "ada", Session: d.SessionID()}
	done, err := s.Import(ctx, key, &text, store.ImportOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("visible:", done.View.Len(), "of", done.View.Seq(), "records")
	lines := 0
	for _, err := range sessionfile.Lines(s.RawEvents(ctx, key, 1)) {
		if err != nil {
			fmt.Println(err)
			return
		}
		lines++
	}
	fmt.Println("lines given back:", lines)
	// Output:
	// visible: 10 of 28 records
	// lines given back: 27
}
