package peers

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/adk/v2/session"
)

// BenchmarkAppend appends an event, to one session or to 64 from a goroutine each. An append
// that returned is durable, except in memory. Beside them are a bare file and bare bbolt.
func BenchmarkAppend(b *testing.B) {
	for _, p := range plains {
		b.Run(fmt.Sprintf("service=%s/sessions=1", p.name), p.appendPlain)
	}
	for _, p := range all {
		for _, sessions := range []int{1, 64} {
			b.Run(fmt.Sprintf("service=%s/sessions=%d", p.name, sessions), func(b *testing.B) {
				s, done := p.open(b, b.TempDir(), false)
				defer done()
				handles := make([]session.Session, sessions)
				for i := range handles {
					handles[i] = create(b, s, fmt.Sprint(i))
				}
				var next atomic.Int64
				var group sync.WaitGroup
				b.ResetTimer()
				for _, h := range handles {
					group.Go(func() {
						for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
							if err := s.AppendEvent(context.Background(), h, event(i)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				group.Wait()
			})
		}
	}
}

// lengths are the events that sessions have.
var lengths = []int{100, 1000, 10_000}

// BenchmarkGet gets a session that is in use. read=all also reads each of its events, which
// ADK's services have decoded and share with whoever gets them; patchlog gives copies.
func BenchmarkGet(b *testing.B) {
	for _, n := range lengths {
		for _, p := range all {
			b.Run(fmt.Sprintf("events=%d/service=%s", n, p.name), func(b *testing.B) {
				s, done := p.filled(b, b.TempDir(), n)
				defer done()
				readAll(b, get(b, s, "s"), n)
				b.Run("read=none", func(b *testing.B) {
					for b.Loop() {
						get(b, s, "s")
					}
				})
				b.Run("read=all", func(b *testing.B) {
					for b.Loop() {
						readAll(b, get(b, s, "s"), n)
					}
				})
			})
		}
	}
}

// BenchmarkGetAfterOpen opens a file, which is in the page cache, and gets a session. Beside them is a
// file of JSON lines, whose events are all decoded.
func BenchmarkGetAfterOpen(b *testing.B) {
	for _, n := range lengths {
		b.Run(fmt.Sprintf("events=%d/service=file/read=all", n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "events.jsonl")
			writeLines(b, path, n)
			for b.Loop() {
				if got, err := readLines(path); got != n || err != nil {
					b.Fatalf("%d events, %v", got, err)
				}
			}
		})
		for _, p := range all {
			if !p.kept {
				continue
			}
			b.Run(fmt.Sprintf("events=%d/service=%s", n, p.name), func(b *testing.B) {
				dir := b.TempDir()
				_, done := p.filled(b, dir, n)
				done()
				for _, read := range []string{"none", "all"} {
					b.Run("read="+read, func(b *testing.B) {
						for b.Loop() {
							s, done := p.open(b, dir, false)
							if sess := get(b, s, "s"); read == "all" {
								readAll(b, sess, n)
							}
							done()
						}
					})
				}
			})
		}
	}
}

func readAll(b *testing.B, sess session.Session, want int) {
	b.Helper()
	n := 0
	for e := range sess.Events().All() {
		if e.Content != nil {
			n++
		}
	}
	if n != want {
		b.Fatalf("%d events, want %d", n, want)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
