package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// BenchmarkFileSize fills a file in bulk and says how large it is beside the events' JSON:
// with events of 512 bytes, and with recorded sessions: those that the
// repository carries and, where it is there, the large corpus.
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
					batch[i] = eventOf(b, 512)
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
	for _, set := range recorded.Sets(b) {
		b.Run("events=recorded/set="+set.Name, func(b *testing.B) {
			rounds := 20 // enough that the file's steps of growth do not count
			if !set.Large {
				rounds = 400
			}
			fileSize(b, func(s *store.Store) (text int) {
				for round := range rounds {
					for _, name := range set.Files {
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
	}
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
