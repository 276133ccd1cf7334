package bolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
)

// BenchmarkFirstLookup looks an id up in a session of 100,000 ids just after the file was
// opened, when the rows are counted.
func BenchmarkFirstLookup(b *testing.B) {
	path := filepath.Join(b.TempDir(), "log.db")
	backed, err := bolt.Open(path, bolt.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	batch := backend.Batch{Creation: "c", Create: true}
	for seq := uint64(1); seq <= 100_000; seq++ {
		batch.Records = append(batch.Records, backend.Record{Seq: seq, IDs: []string{fmt.Sprint("id", seq)}, Data: []byte("x")})
	}
	if err := errors.Join(backed.Append(ctx, "a", batch), backed.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		backed, err := bolt.Open(path, bolt.Options{NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := backed.Lookup(ctx, "a", "c", []string{"id7"}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := backed.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
