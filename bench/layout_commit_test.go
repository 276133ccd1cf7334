package bench_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	bbolt "go.etcd.io/bbolt"
)

// event is one append. The layout sets seq and taken.
type event struct {
	session uint64
	id      string
	record  []byte // begins with the id
	seq     uint64
	taken   bool
	done    chan error
}

const idBytes = 36

// workload makes events with random ids. They go to the sessions in turn, in an order
// that puts neighbours in time far apart in the file. The calls of next are one
// writer's; a workload has a part per writer.
type workload struct {
	layoutCase
	made int
	rng  *rand.Rand
	step int // between the turns of one writer; 0 means 1
}

func (w *workload) next() *event {
	if w.rng == nil {
		w.rng = rand.New(rand.NewPCG(uint64(w.made), uint64(w.step)))
	}
	e := &event{session: uint64(w.made*617) % uint64(w.sessions), record: make([]byte, w.bytes)}
	w.made += max(w.step, 1)
	var id uuid.UUID
	binary.NativeEndian.PutUint64(id[:], w.rng.Uint64())
	binary.NativeEndian.PutUint64(id[8:], w.rng.Uint64())
	e.id = id.String()
	copy(e.record, e.id)
	return e
}

// committer commits what it finds in its queue, without waiting for more, in one
// transaction, and acknowledges each event after the sync.
type committer struct {
	db      *bbolt.DB
	layout  layout
	queue   chan *event
	commits int

	events   int
	sessions map[uint64]bool // that have events
	samples  []*event        // some of the events
}

func newCommitter(tb testing.TB, db *bbolt.DB, l layout) *committer {
	tb.Helper()
	if err := db.Update(l.create); err != nil {
		tb.Fatal(err)
	}
	return &committer{db: db, layout: l, sessions: map[uint64]bool{}}
}

func (c *committer) commit(batch []*event) error {
	if err := c.db.Update(func(tx *bbolt.Tx) error { return c.layout.put(tx, batch) }); err != nil {
		return err
	}
	c.commits++
	for _, e := range batch {
		if e.taken {
			continue
		}
		if c.sessions[e.session] = true; c.events%101 == 0 {
			c.samples = append(c.samples, e)
		}
		c.events++
	}
	return nil
}

// fill brings the file to n events without syncing each commit, in commits as large as
// the writers can make them.
func (c *committer) fill(b *testing.B, w *workload, n int) {
	c.db.NoSync = true
	for range n / w.writers {
		var batch []*event
		for range w.writers {
			batch = append(batch, w.next())
		}
		if err := c.commit(batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.db.Sync(); err != nil {
		b.Fatal(err)
	}
	c.db.NoSync = false
}

// run appends n events with the workload's writers and returns how long each waited.
func (c *committer) run(b *testing.B, w *workload, n int) (waits []time.Duration) {
	c.queue = make(chan *event, w.writers)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		var batch []*event
		for first := range c.queue {
			batch = append(batch[:0], first)
			for len(c.queue) > 0 {
				batch = append(batch, <-c.queue)
			}
			err := c.commit(batch)
			for _, e := range batch {
				e.done <- err
			}
		}
	}()

	var mu sync.Mutex
	var writers sync.WaitGroup
	for i := range w.writers {
		part := workload{layoutCase: w.layoutCase, made: w.made + i, step: w.writers}
		writers.Go(func() {
			own := make([]time.Duration, 0, n/w.writers)
			done := make(chan error, 1)
			for range n / w.writers {
				e := part.next()
				e.done = done
				start := time.Now()
				c.queue <- e
				if err := <-done; err != nil || e.taken {
					b.Errorf("append: %v, id taken: %v", err, e.taken)
					return
				}
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, own...)
		})
	}
	writers.Wait()
	close(c.queue)
	<-stopped
	if b.Failed() {
		b.FailNow()
	}
	w.made += n
	return waits
}

// written is how many bytes have gone to the file: all pages that commits allocate are
// written once, and a meta page each.
func (c *committer) written() int64 {
	stats := c.db.Stats()
	return stats.TxStats.GetPageAlloc() + int64(c.commits)*int64(c.db.Info().PageSize)
}

func openLayout(tb testing.TB, path string) *bbolt.DB {
	tb.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:         time.Second,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: 1 << 30,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return db
}

func view(tb testing.TB, db *bbolt.DB, f func(tx *bbolt.Tx)) {
	tb.Helper()
	if err := db.View(func(tx *bbolt.Tx) error { f(tx); return nil }); err != nil {
		tb.Fatal(err)
	}
}
