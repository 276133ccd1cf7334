package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkFileSize fills a file in bulk, with events of 512 bytes or with the recorded sessions in the repository.
// It reports the size of the file's used pages, divided by the size of the events in JSON.
func BenchmarkFileSize(b *testing.B) {
	b.Run("events=512B", func(b *testing.B) {
		fileSize(b, func(s *store.Store) (text int) {
			create(b, s, 0)
			for range 300 {
				batch := make([]*patch.Event, 1000)
				for i := range batch {
					batch[i] = eventOf(512)
				}
				text += textOf(b, appendEvents(b, s, 0, batch...).Records)
			}
			return text
		})
	})
	set := recorded.Sets(b)[0]
	b.Run("events=recorded/set="+set.Name, func(b *testing.B) {
		fileSize(b, func(s *store.Store) (text int) {
			for round := 0; text < 300<<20; round++ {
				for _, name := range set.Files {
					f := testlog.Must(os.Open(name))(b)
					key := store.Key{App: "app", User: fmt.Sprint(round), Session: filepath.Base(name)}
					text += textOf(b, testlog.Must(s.Import(b.Context(), key, f, store.ImportOptions{}))(b).Records)
					f.Close()
				}
			}
			return text
		})
	})
}

// fileSize reports the size of a file that fill writes. The function fill returns the size of its events in JSON.
func fileSize(b *testing.B, fill func(*store.Store) (text int)) {
	b.Helper()
	for b.Loop() {
		s, path := teststore.File(b, store.Options{NoSync: true})
		text := fill(s)
		testlog.NoError(b, s.Close())
		b.ReportMetric(float64(used(b, path))/float64(text), "used-B/JSON-B")
	}
}

// used returns the total size of a file's used pages.
func used(b *testing.B, path string) (size int64) {
	b.Helper()
	db := testlog.Must(bbolt.Open(path, 0o600, nil))(b)
	defer db.Close()
	testlog.NoError(b, db.View(func(tx *bbolt.Tx) error {
		size = tx.Size() - int64(db.Stats().FreePageN*db.Info().PageSize)
		return nil
	}))
	return size
}

func textOf(b *testing.B, records []patch.Record) (n int) {
	b.Helper()
	for _, r := range records {
		n += len(testlog.Must(r.Event.MarshalJSON())(b)) + 1
	}
	return n
}
