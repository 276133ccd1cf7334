package endurance_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/internal/long"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var key = store.Key{App: "app", User: "user", Session: "long"}

// marks are how many events there are when calls are measured.
func marks() []int {
	switch {
	case long.Long():
		return []int{1000, 10_000, 100_000, 1_000_000}
	case testing.Short():
		return []int{200, 1000}
	}
	return []int{500, 5000}
}

// Calls are measured so often at each mark.
const probes = 50

// One session grows and grows.
func TestOneSession(t *testing.T) {
	for _, c := range []struct {
		of      string
		compact bool
	}{{"compacted", true}, {"not compacted", false}} {
		t.Run(c.of, func(t *testing.T) {
			for r := range long.Rounds(t, 1) {
				grow(t, r, c.of, c.compact)
			}
		})
	}
}

func grow(t *testing.T, r *long.Round, of string, compact bool) {
	f := newFile(t, r, of)
	defer func() { f.close() }()
	created, err := f.store.Create(ctx, key, map[string]any{"begun": true})
	no(t, err)
	n := 0
	add := func(many int) error {
		var events []*patch.Event
		for range many {
			events = append(events, event(n))
			n++
		}
		_, err := f.store.AppendEvents(ctx, key, store.AppendOptions{}, events...)
		return err
	}
	pass := func() error {
		if !compact {
			return nil
		}
		compactor, err := compaction.New(f.store, compaction.Config{Enabled: true, CompactionInterval: 20, OverlapSize: 1}, compaction.Options[store.Key]{Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			_, err = compactor.Compact(ctx, key, compaction.Run{})
		}
		return err
	}
	var first map[string]uint64
	for _, mark := range marks() {
		for n < mark-2*probes {
			no(t, add(min(100, mark-2*probes-n)))
			if n%500 == 0 {
				no(t, pass())
			}
		}
		costs := f.calls(mark, add, pass)
		if first == nil {
			first = costs
			continue
		}
		for what, now := range costs {
			times := uint64(2) // a way in a tree is longer in a taller one
			switch {
			case what == "pass": // it may merge summaries of each level
				times = 4 * uint64(len(fmt.Sprint(mark)))
			case what == "get, cold" && !compact: // all that is visible
				times = uint64(mark)
			case what == "get, cold": // a summary of each level
				times = 4
			}
			if err := worse(fmt.Sprintf("%s: %s at %d events", of, what, mark), now, first[what], times); err != nil {
				t.Error(err)
			}
		}
	}
	no(t, pass())
	if err := f.isWhole(created.View.Creation(), n); err != nil {
		t.Error(err)
	}
	f.whole(compact)
}

// calls measures the calls of a session with so many events, and returns what they allocate.
func (f *file) calls(mark int, add func(int) error, pass func() error) map[string]uint64 {
	t := f.t
	t.Helper()
	at := func(what string) string { return fmt.Sprintf("%s at %d", what, mark) }
	costs := map[string]uint64{}
	var appends singles
	f.measure(at(fmt.Sprint(2*probes, " appends")), func() error {
		for range 2 * probes {
			if err := appends.take(func() error { return add(1) }); err != nil {
				return err
			}
		}
		return nil
	})
	costs["append"] = f.reportSingles(at("append"), appends)
	costs["pass"] = f.measure(at("pass of compaction"), pass).allocated
	costs["get, warm"] = f.measure(at(fmt.Sprint(probes, " gets, warm")), func() error {
		for range probes {
			if _, err := f.store.Get(ctx, key); err != nil {
				return err
			}
		}
		return nil
	}).allocated
	seq := uint64(0)
	f.close()
	f.measure(at("open"), func() error { f.open(); return nil })
	costs["get, cold"] = f.measure(at("get, cold"), func() error {
		got, err := f.store.Get(ctx, key)
		seq = got.View.Seq()
		return err
	}).allocated
	f.measure(at("view in the middle"), func() error {
		v, err := f.store.ViewAt(ctx, key, seq/2)
		if err == nil && v.Seq() != seq/2 {
			err = fmt.Errorf("the view at record %d is at %d", seq/2, v.Seq())
		}
		return err
	})
	got, err := f.store.Get(ctx, key)
	no(t, err)
	f.report(at("visible events"), got.View.Len())
	f.report(at("records"), int(seq))
	f.report(at("heap in use KiB"), int(held()>>10))
	return costs
}

// isWhole holds what is read against what was written: each event at its place, and views at some
// places against a fold of the log.
func (f *file) isWhole(creation string, events int) error {
	f.t.Helper()
	n, seq := 0, uint64(0)
	var wrong []error
	report := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(f.of+": "+format, args...))
	}
	c := f.measure("raw events", func() error {
		for rec, err := range f.store.RawEvents(ctx, key, 1) {
			if err != nil {
				return err
			}
			if seq++; rec.Seq != seq {
				report("record %d behind record %d", rec.Seq, seq-1)
			}
			if rec.Event == nil {
				continue
			}
			if want := event(n); rec.ID() != want.ID() || n%1000 == 0 && rec.Event.String() != want.String() {
				report("event %d is %s", n, rec.Event)
				return nil
			}
			n++
		}
		return nil
	})
	if n != events {
		report("%d events, want %d", n, events)
	}
	if page := uint64(64 << 20); c.peak > page { // a page, and what the collector leaves for a while
		report("reading the log page by page took %d bytes", c.peak)
	}
	f.close()
	f.open()
	cold, err := f.store.Get(ctx, key)
	no(f.t, err)
	if err := same(cold.View, f.folded(key, creation, seq)); err != nil {
		report("read from a snapshot: %w", err)
	}
	for i := range uint64(3) {
		at := 1 + (seq-1)*(i+1)/4
		v, err := f.store.ViewAt(ctx, key, at)
		no(f.t, err)
		if err := same(v, f.folded(key, creation, at)); err != nil {
			report("%w", err)
		}
	}
	for i := range min(events, 20) {
		last := events - 1 - (events-1-i)%20 // that set it
		if got := fmt.Sprint(cold.State()[fmt.Sprint("k", i)]); got != fmt.Sprint(last) {
			report("k%d is %s, want %d", i, got, last)
		}
	}
	return errors.Join(wrong...)
}

// What is not what was written is reported, and what grows with the log.
func TestControlSession(t *testing.T) {
	for r := range long.Rounds(t, 1) {
		f := newFile(t, r, "control")
		defer func() { f.close() }()
		created, err := f.store.Create(ctx, key, nil)
		no(t, err)
		var read []uint64 // what reading all of the log allocates
		for n := range 400 {
			_, err := f.store.AppendEvents(ctx, key, store.AppendOptions{}, event(n+n/399)) // the last but one is missing
			no(t, err)
			if n == 20 || n == 398 {
				var s singles
				no(t, s.take(func() error { f.folded(key, "", uint64(n)); return nil }))
				read = append(read, s.allocated[0])
			}
		}
		if worse("reading the log", read[1], read[0], 4) == nil {
			t.Errorf("reading the log allocates %d bytes, and then %d, and it is not reported", read[0], read[1])
		}
		if f.isWhole(created.View.Creation(), 400) == nil {
			t.Error("an event is missing, and it is not reported")
		}
		early, err := f.store.ViewAt(ctx, key, 398)
		no(t, err)
		if same(early, created.View) == nil {
			t.Error("two views differ, and it is not reported")
		}
	}
}
