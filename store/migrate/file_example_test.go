package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// This example imports a transcript of Claude Code and writes its lines back.
func ExampleOpenFile() {
	text, err := os.ReadFile("testdata/claude-code.jsonl")
	check(err)
	source, err := migrate.OpenFile(text, migrate.FileOptions{Name: "claude-code.jsonl", Key: store.Key{User: "ada"}})
	check(err)
	ctx := context.Background()
	s, err := store.OpenMemory(store.Options{})
	check(err)
	defer s.Close()
	var key store.Key
	_, err = migrate.Run(ctx, s, source, migrate.Options{Session: func(r migrate.Result) error {
		key = r.Key
		fmt.Printf("%s: %s, %d records\n", key, r.Status, r.Added)
		for _, d := range r.Differences {
			fmt.Println("-", d)
		}
		return r.Err
	}})
	check(err)
	var lines bytes.Buffer
	check(migrate.WriteLines(&lines, s.RawEvents(ctx, key, 1)))
	fmt.Println("the lines are the file's:", bytes.Equal(lines.Bytes(), text))
	// Output:
	// claude-code/ada/7e2f0c44-3333-4a6b-8d0a-11aa22bb33cc: created, 28 records
	// - 1 rewind: the abandoned branch is hidden
	// - 1 compaction adopted
	// - 1 line repeated, and kept without content
	// the lines are the file's: true
}
