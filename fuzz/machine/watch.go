package machine

import (
	"context"
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// watch follows the session in the bbolt store from a seq on, over all operations.
type watch struct {
	stop   func()
	seen   int // records of the log that have been yielded, or come before the first
	yields chan yield
}

type yield struct {
	record patch.Record
	err    error
}

func (m *machine) follow(from int) {
	ctx, stop := context.WithCancel(context.Background())
	w := watch{stop: stop, seen: max(from, 1) - 1, yields: make(chan yield)}
	s, key := m.stores[0], m.key
	go func() {
		defer close(w.yields)
		for r, err := range s.Watch(ctx, key, uint64(from)) {
			select {
			case w.yields <- yield{r, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	m.watch = w
}

// next returns what is yielded next, and false if nothing is any more.
func (w watch) next(t *rapid.T) (yield, bool) {
	select {
	case y, ok := <-w.yields:
		return y, ok
	case <-time.After(time.Minute):
		t.Fatalf("nothing was yielded after record %d for a minute", w.seen)
		return yield{}, false
	}
}

// watched checks that the watch yields what the log has got since.
func (m *machine) watched(t *rapid.T) {
	w := &m.watch
	for w.seen < len(m.records) {
		y, ok := w.next(t)
		if !ok || y.err != nil {
			t.Fatalf("the watch ended after record %d: %v\n%s", w.seen, y.err, m.log())
		}
		compareRecords(t, m.records[w.seen:w.seen+1], []patch.Record{y.record})
		w.seen++
	}
}

// watchEnds checks that an error ends the watch.
func (m *machine) watchEnds(t *rapid.T, target error) {
	if y, ok := m.watch.next(t); !ok || !errors.Is(y.err, target) {
		t.Fatalf("the watch yields %v and %v after record %d, want %v", y.record, y.err, m.watch.seen, target)
	}
	if y, ok := m.watch.next(t); ok {
		t.Fatalf("the watch has ended, and yields %v and %v", y.record, y.err)
	}
}

// unwatch ends the watch, if there is one.
func (m *machine) unwatch() {
	if m.watch.stop == nil {
		return
	}
	m.watch.stop()
	for range m.watch.yields {
	}
}
