package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkFileSize fills a file in bulk, with events of 512 bytes or with recorded sessions, and reports its size
// and its used pages as shares of the events' JSON. The recorded sessions are those in the repository and, if
// present, the large corpus without them, also by family.
func BenchmarkFileSize(b *testing.B) {
	ctx := context.Background()
	b.Run("events=512B", func(b *testing.B) {
		fileSize(b, func(s *store.Store) (text int) {
			if _, err := s.Create(ctx, sessionKey(0), nil); err != nil {
				b.Fatal(err)
			}
			for range 300 {
				batch := make([]*patch.Event, 1000)
				for i := range batch {
					batch[i] = eventOf(512)
				}
				c, err := s.AppendEvents(ctx, sessionKey(0), store.AppendOptions{}, batch...)
				if err != nil {
					b.Fatal(err)
				}
				text += textOf(b, c.Records)
			}
			return text
		})
	})
	for _, part := range parts(recorded.Sets(b)) {
		b.Run("events=recorded/"+part.name, func(b *testing.B) {
			fileSize(b, func(s *store.Store) (text int) {
				for round := 0; text < part.bytes; round++ {
					for _, name := range part.files {
						f, err := os.Open(name)
						if err != nil {
							b.Fatal(err)
						}
						key := store.Key{App: "app", User: fmt.Sprint(round), Session: filepath.Base(name)}
						done, err := s.Import(ctx, key, f, store.ImportOptions{})
						if err != nil {
							b.Fatal(err)
						}
						f.Close()
						text += textOf(b, done.Records)
					}
				}
				return text
			})
		})
	}
}

// part is a group of files of recorded sessions.
type part struct {
	name  string
	files []string
	bytes int // of JSON to fill a file with; a file grows in steps of 16 MiB
}

// parts returns the sets, and each family of the large corpus, without the files of the small set.
func parts(sets []recorded.Set) (all []part) {
	known := map[string]bool{}
	for _, set := range sets {
		whole := part{name: "set=" + set.Name, bytes: 300 << 20}
		var families []part
		for _, name := range set.Files {
			if known[filepath.Base(name)] {
				continue
			}
			known[filepath.Base(name)] = true
			whole.files = append(whole.files, name)
			family := "family=" + filepath.Base(filepath.Dir(name))
			if n := len(families); n == 0 || families[n-1].name != family {
				families = append(families, part{name: family, bytes: 60 << 20})
			}
			last := &families[len(families)-1]
			last.files = append(last.files, name)
		}
		if all = append(all, whole); set.Large {
			all = append(all, families...)
		}
	}
	return all
}

func fileSize(b *testing.B, fill func(*store.Store) (text int)) {
	b.Helper()
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "size.db")
		s, err := store.Open(path, store.Options{Durability: store.Relaxed})
		if err != nil {
			b.Fatal(err)
		}
		text := fill(s)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/float64(text), "file-B/JSON-B")
		b.ReportMetric(float64(used(b, path))/float64(text), "used-B/JSON-B")
	}
}

// used returns the size of the used pages of a file.
func used(b *testing.B, path string) int64 {
	b.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var size int64
	if err := db.View(func(tx *bbolt.Tx) error {
		size = tx.Size() - int64(db.Stats().FreePageN*db.Info().PageSize)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return size
}

func textOf(b *testing.B, records []patch.Record) int {
	b.Helper()
	n := 0
	for _, r := range records {
		line, err := r.Event.MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		n += len(line) + 1
	}
	return n
}
