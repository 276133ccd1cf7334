package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/patchlog-dev/patchlog/store/backend"
)

const (
	goroutines = 8
	perRoutine = 12
)

// runConcurrently calls f with 0 to n-1, each in a goroutine, and waits for them.
func runConcurrently(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

var concurrentCases = []testCase{
	{"Concurrent/create", func(s *suite) {
		winners := make(chan int, goroutines)
		runConcurrently(goroutines, func(i int) {
			err := s.Append(ctx, "a", create(fmt.Sprint("c", i), i))
			if err == nil {
				winners <- i
				return
			}
			s.wantError(err, backend.ErrExists, "creating at once")
		})
		if len(winners) != 1 {
			s.Fatalf("%d of %d created the session", len(winners), goroutines)
		}
		i := <-winners
		s.want.append("a", create(fmt.Sprint("c", i), i))
	}},
	{"Concurrent/one session", func(s *suite) {
		s.append("a", create("c1", 0))
		var committed sync.Map // from the seq of the record to its batch
		var done atomic.Bool
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() { s.readWhile(&done) })
		}
		runConcurrently(goroutines, func(i int) {
			for k := 0; k < perRoutine; {
				head, err := s.head("a")
				if err != nil {
					s.Errorf("Head: %v", err)
					return
				}
				seq := head.Last + 1
				b := backend.Batch{Creation: "c1", ExpectedLast: head.Last, ExpectedToken: head.Token, Chain: head.Chain, Records: []backend.Record{
					{Seq: seq, IDs: []string{fmt.Sprint(i, "/", k)}, Data: fmt.Append(nil, i, " ", k)},
				}, Shared: []backend.Value{{Name: fmt.Sprint("shared by ", i), Data: fmt.Append(nil, k)}}}
				switch err := s.Append(ctx, "a", b); {
				case err == nil:
					committed.Store(seq, b)
					k++
				case !errors.Is(err, backend.ErrMoved):
					s.Errorf("Append: %v", err)
					return
				}
			}
		})
		done.Store(true)
		readers.Wait()
		for seq := uint64(1); seq <= goroutines*perRoutine; seq++ {
			b, ok := committed.Load(seq)
			if !ok {
				s.Fatalf("no Append committed record %d", seq)
			}
			s.want.append("a", b.(backend.Batch))
		}
	}},
	{"Concurrent/many sessions", func(s *suite) {
		runConcurrently(goroutines, func(i int) {
			name := fmt.Sprint("s", i)
			if err := s.Append(ctx, name, create(name, 0)); err != nil {
				s.Errorf("Append: %v", err)
				return
			}
			for k := range perRoutine {
				s.wantError(s.Append(ctx, name, extend(name, uint64(k), 1)), nil, "Append")
			}
			if i%2 == 0 {
				s.wantError(s.Delete(ctx, name, name, nil), nil, "Delete")
			}
		})
		for i := 1; i < goroutines; i += 2 {
			name := fmt.Sprint("s", i)
			s.want.append(name, create(name, perRoutine))
		}
	}},
	{"Concurrent/close", func(s *suite) {
		s.append("a", create("c1", 20))
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for {
					if _, err := s.Read(ctx, "a", "c1", backend.Range(1, 99), 1<<20); err != nil {
						s.wantError(err, backend.ErrClosed, "Read while closing")
						return
					}
				}
			})
		}
		wg.Go(func() {
			for after := uint64(20); ; after++ {
				if err := s.Append(ctx, "a", extend("c1", after, 1)); err != nil {
					s.wantError(err, backend.ErrClosed, "Append while closing")
					return
				}
			}
		})
		s.wantError(s.Close(), nil, "Close")
		s.closed = true
		wg.Wait()
	}},
	{"Concurrent/cancel", func(s *suite) {
		// A cancelled call has either taken effect completely or changed nothing.
		s.append("a", create("c1", 0))
		last := uint64(0)
		for range 4 * perRoutine {
			cancelled, cancel := context.WithCancel(ctx)
			go cancel()
			b := s.withToken("a", extend("c1", last, 1))
			err := s.Backend.Append(cancelled, "a", b)
			if errors.Is(err, backend.ErrUnknown) {
				err = s.resolve("a", b, err)
			}
			switch {
			case err == nil:
				s.want.append("a", b)
				last++
			case !errors.Is(err, context.Canceled):
				s.Errorf("Append: %v, want %v", err, context.Canceled)
			}
			cancel()
		}
	}},
}

// resolve resolves a batch whose outcome is unknown. It returns nil if the batch was committed, and unknown otherwise.
func (s *suite) resolve(name string, b backend.Batch, unknown error) error {
	s.Helper()
	fenced, err := s.Fence(ctx, name, b.Creation, b.ExpectedToken, b.Next+2)
	s.must(err, "Fence")
	head := s.mustHead(name)
	if committed := head.Token == b.Next; committed == fenced {
		s.Errorf("fenced: %v, committed: %v; want exactly one of the two", fenced, committed)
	}
	if fenced {
		s.want.sessions[name].token = head.Token
		return unknown
	}
	return nil
}

// readWhile reads until done is set. It checks that a page has no gap and that the log never shrinks.
func (s *suite) readWhile(done *atomic.Bool) {
	for before := 0; !done.Load(); {
		got, err := s.Read(ctx, "a", "c1", backend.Range(1, 2*goroutines*perRoutine), 1<<30)
		for i, r := range got {
			if r.Seq != uint64(i+1) {
				err = fmt.Errorf("record %d at place %d", r.Seq, i+1)
			}
		}
		if err != nil || len(got) < before {
			s.Errorf("Read: %d records after there were %d, error %v", len(got), before, err)
			return
		}
		before = len(got)
	}
}
