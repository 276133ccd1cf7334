package peers

import (
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/adk/v2/session"
)

// BenchmarkAppend appends events to one session, or to 64 sessions with one goroutine each. Except in the services in
// memory, an event is durable when its append returns. The baselines are a plain file, and a bbolt file without a
// store.
func BenchmarkAppend(b *testing.B) {
	for _, p := range plains {
		b.Run(fmt.Sprintf("service=%s/sessions=1", p.name), p.appendPlain)
	}
	for _, p := range all {
		for _, sessions := range []int{1, 64} {
			b.Run(fmt.Sprintf("service=%s/sessions=%d", p.name, sessions), func(b *testing.B) {
				s, done := p.open(b, b.TempDir(), false)
				defer done()
				appendInParallel(b, s, sessions, 0)
			})
		}
	}
}

// lengths are the session lengths in events.
var lengths = []int{100, 1000, 10_000}

// BenchmarkGet gets a cached session. With read=all, it also reads each event. ADK's services return events that
// callers share, and patchlog returns copies.
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

// BenchmarkGetAfterOpen opens a file that is in the page cache, gets a session and reads each event. The baseline is a
// file of JSON lines.
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
			b.Run(fmt.Sprintf("events=%d/service=%s/read=all", n, p.name), func(b *testing.B) {
				dir := b.TempDir()
				_, done := p.filled(b, dir, n)
				done()
				for b.Loop() {
					s, done := p.open(b, dir, false)
					readAll(b, get(b, s, "s"), n)
					done()
				}
			})
		}
	}
}

// readAll reads each event of a session. It fails unless exactly want events have text.
func readAll(tb testing.TB, sess session.Session, want int) {
	tb.Helper()
	n := 0
	for e := range sess.Events().All() {
		if e.Content != nil && e.Content.Parts[0].Text != "" {
			n++
		}
	}
	if n != want {
		tb.Fatalf("%d events, want %d", n, want)
	}
}
