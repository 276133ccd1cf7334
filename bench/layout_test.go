package bench_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"
)

var layoutFull = flag.Bool("layout.full", false, "compare file layouts on the full matrix, not the short one")

// layoutCase is one cell of the matrix.
type layoutCase struct{ writers, sessions, bytes int }

func layoutCases() (cases []layoutCase) {
	writers, bytes := []int{1, 64, 256}, []int{512}
	if *layoutFull {
		writers, bytes = []int{1, 16, 64, 256}, []int{512, 8192}
	}
	for _, n := range bytes {
		for _, s := range []int{1, 1000} {
			for _, w := range writers {
				cases = append(cases, layoutCase{writers: w, sessions: s, bytes: n})
			}
		}
	}
	return cases
}

// before and during are how many events are in the file before the clock starts, and
// how many one iteration appends: about a second's work.
func (c layoutCase) before() int {
	if c.bytes > 4096 {
		return 4_000
	}
	return 20_000
}

func (c layoutCase) during() int {
	n := map[int]int{1: 1_000, 16: 6_000, 64: 15_000, 256: 20_000}[c.writers]
	if c.bytes > 4096 {
		n /= 4
	}
	return n
}

// BenchmarkLayout compares layouts of the file: how records are keyed, and how the ids
// that are taken are kept. Events come from writers that wait for each to be durable
// before they send the next; one committer puts what has come in into one transaction.
// An iteration appends a fixed number of events, so -benchtime=1x is enough. The order
// puts the layouts next to each other in time, since other load comes and goes.
//
//   - B-written/event counts the pages that bbolt has written, meta pages included: by its
//     own statistics, which wchar in /proc/self/io confirms to the byte. (write_bytes
//     there is no use: it counts whole folios and what the file system adds.)
//   - open-ms is opening the file again and reading 100 records of a session.
//   - read-ns/event is reading every session from its start, cached.
//   - find-µs is finding an id by the file alone, filter-ms making the filter of ids of
//     one session.
func BenchmarkLayout(b *testing.B) {
	for _, c := range layoutCases() {
		for _, name := range layoutNames {
			b.Run(fmt.Sprintf("layout=%s/writers=%d/sessions=%d/bytes=%d", name, c.writers, c.sessions, c.bytes), func(b *testing.B) {
				benchmarkLayout(b, name, c)
			})
		}
	}
}

func benchmarkLayout(b *testing.B, name string, c layoutCase) {
	path := filepath.Join(b.TempDir(), "layout.db")
	l := newLayout(name)
	com := newCommitter(b, openLayout(b, path), l)
	work := &workload{layoutCase: c}
	com.fill(b, work, c.before())

	commits, written := com.commits, com.written()
	var waits []time.Duration
	var elapsed time.Duration
	for b.Loop() {
		start := time.Now()
		waits = append(waits, com.run(b, work, c.during())...)
		elapsed += time.Since(start)
	}
	commits, written = com.commits-commits, com.written()-written

	slices.Sort(waits)
	n := float64(len(waits))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(n/elapsed.Seconds(), "events/s")
	b.ReportMetric(n/float64(commits), "events/commit")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(written)/n, "B-written/event")
	measureFile(b, path, com)
}

// measureFile closes the file and reports what it takes to use it again.
func measureFile(b *testing.B, path string, com *committer) {
	if err := com.db.Close(); err != nil {
		b.Fatal(err)
	}
	l, page := com.layout, 0
	start := time.Now()
	db := openLayout(b, path)
	view(b, db, func(tx *bbolt.Tx) {
		l.read(tx, 0, func(uint64, []byte) bool { page++; return page < 100 })
	})
	b.ReportMetric(time.Since(start).Seconds()*1e3, "open-ms")

	view(b, db, func(tx *bbolt.Tx) {
		b.ReportMetric(float64(tx.Size())/float64(com.events), "file-B/event")

		start, read := time.Now(), 0
		var record []byte
		for session := range com.sessions {
			l.read(tx, session, func(_ uint64, r []byte) bool {
				record = append(record[:0], r...) // readers hand out copies
				read++
				return true
			})
		}
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(read), "read-ns/event")
		if read != com.events || len(record) == 0 {
			b.Fatalf("read %d of %d events", read, com.events)
		}

		start = time.Now()
		for _, e := range com.samples {
			if seq := l.find(tx, e.session, e.id); seq != e.seq {
				b.Fatalf("session %d: id %s is at %d, want %d", e.session, e.id, seq, e.seq)
			}
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/float64(len(com.samples)), "find-µs")

		start = time.Now()
		if loaded := l.load(tx, 0); loaded > 0 {
			b.ReportMetric(time.Since(start).Seconds()*1e3, "filter-ms")
		}
	})
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

// TestLayouts holds each layout to what the benchmark takes for granted: seqs without a
// gap, taken ids refused within a commit and across commits, records in order, ids found.
func TestLayouts(t *testing.T) {
	defer func(mask uint64) { hashMask = mask }(hashMask)
	hashMask = 0xff
	for _, name := range layoutNames {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "layout.db")
			com := newCommitter(t, openLayout(t, path), newLayout(name))
			com.db.NoSync = true
			work := &workload{layoutCase: layoutCase{writers: 7, sessions: 3, bytes: 100}}
			var all []*event
			for range 50 {
				var batch []*event
				for range work.writers {
					batch = append(batch, work.next())
				}
				all = append(all, batch...)
				if err := com.commit(batch); err != nil {
					t.Fatal(err)
				}
			}
			if name != noIDs {
				old, fresh := *all[0], *work.next()
				again := fresh
				if err := com.commit([]*event{&old, &fresh, &again}); err != nil {
					t.Fatal(err)
				}
				if !old.taken || fresh.taken || !again.taken {
					t.Fatalf("taken: %v %v %v", old.taken, fresh.taken, again.taken)
				}
				all = append(all, &fresh)
			}
			if err := com.db.Close(); err != nil {
				t.Fatal(err)
			}

			db, l := openLayout(t, path), newLayout(name)
			defer db.Close()
			view(t, db, func(tx *bbolt.Tx) {
				for session := range uint64(3) {
					var want []*event
					for _, e := range all {
						if e.session == session {
							want = append(want, e)
						}
					}
					n := 0
					l.read(tx, session, func(seq uint64, record []byte) bool {
						if n++; seq != uint64(n) || n > len(want) || string(record) != string(want[n-1].record) {
							t.Fatalf("session %d: record %d is not what was written", session, n)
						}
						return true
					})
					if n != len(want) {
						t.Fatalf("session %d: %d records, want %d", session, n, len(want))
					}
					for i, e := range want {
						if seq := l.find(tx, session, e.id); seq != uint64(i+1) {
							t.Fatalf("session %d: id of %d found at %d", session, i+1, seq)
						}
					}
					if seq := l.find(tx, session, "none"); seq != 0 {
						t.Fatalf("an id that nobody takes is at %d", seq)
					}
				}
			})
		})
	}
}
