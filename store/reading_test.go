package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// fill lets the session's log grow to n records, with patches of each type in it.
func (e *env) fill(n int) {
	e.Helper()
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	for {
		v := e.view()
		i, l := int(v.Seq()), v.Len()
		if i >= n {
			return
		}
		id := fmt.Sprint("f", i)
		switch k := rnd.IntN(10); {
		case k == 0 && l > 3:
			e.apply(patch.NewSplice(rnd.IntN(l), 1, sets(id, fmt.Sprintf(`{"k%d":%d}`, i%5, i))))
		case k == 1 && l > 3:
			e.apply(patch.NewSummarise(rnd.IntN(l-2), 2, summary(id)))
		case k == 2 && l > 6:
			e.apply(patch.NewTruncateBefore(v.At(rnd.IntN(3)).ID()))
		default:
			e.append(event(`{"id":%q,"author":"a","timestamp":"2025-11-20T10:%02d:00Z","actions":{"stateDelta":{"k%d":%d}}}`, id, rnd.IntN(60), i%5, i))
		}
	}
}

func TestRawEvents(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		for range e.store.RawEvents(ctx, key, 1) {
			e.Fatal("an empty log has a record")
		}
		var events []*patch.Event
		for i := range 1300 { // more than two pages
			events = append(events, event(`{"id":"e%d"}`, i+1))
		}
		e.append(events...)
		e.apply(patch.NewSplice(3, 2).WithID("p"))
		for _, from := range []uint64{0, 1, 2, 512, 513, 514, 1300, 1301, 1302, 1 << 63} {
			seq := max(from, 1)
			for r, err := range e.store.RawEvents(ctx, key, from) {
				e.no(err)
				if r.Seq != seq {
					e.Fatalf("from %d: record %d, want %d", from, r.Seq, seq)
				}
				if want := fmt.Sprint("e", seq); r.Event != nil && r.ID() != want {
					e.Errorf("record %d has id %q", seq, r.ID())
				}
				seq++
			}
			if want := max(1302, max(from, 1)); seq != want {
				e.Errorf("from %d: ended before %d, want %d", from, seq, want)
			}
		}
	})
}

func TestRawEventsEnds(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 1100)...)
		// When the loop does.
		for r, err := range e.store.RawEvents(ctx, key, 5) {
			e.no(err)
			if r.Seq == 7 {
				break
			}
		}
		// When the caller is gone.
		cancelled, cancel := context.WithCancel(ctx)
		defer cancel()
		var last uint64
		var end error
		for r, err := range e.store.RawEvents(cancelled, key, 1) {
			if end = err; err == nil {
				last = r.Seq
				cancel()
			}
		}
		if !errors.Is(end, context.Canceled) || last == 1100 {
			e.Errorf("after %d records: %v, want %v", last, end, context.Canceled)
		}
		// When the session is, even if there is a new one.
		end = nil
		for r, err := range e.store.RawEvents(ctx, key, 1) {
			if end = err; err == nil && r.Seq == 1 {
				e.no(e.store.Delete(ctx, key))
				e.create(nil)
				e.append(says("b", 1200)...)
			} else if err == nil && r.ID() != fmt.Sprint("a", r.Seq) {
				e.Fatalf("record %d of another creation", r.Seq)
			}
		}
		e.is(end, store.ErrNotFound, key.String())
	})
}

// A page of records is read at a time, and pages have no seam.
func TestLargeRecordsPageByPage(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		var want []string
		for i, size := range []int{10, 700_000, 700_000, 10, 3_000_000, 10, 10} {
			want = append(want, fmt.Sprint("e", i))
			e.append(event(`{"id":%q,"content":{"parts":[{"text":"%0*d"}]}}`, want[i], size, 1))
		}
		e.reopen()
		e.same("visible", ids(e.view()), fmt.Sprint(want)[1:len(fmt.Sprint(want))-1])
	})
}
