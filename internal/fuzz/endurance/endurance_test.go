package endurance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/fuzz/long"
	"github.com/patchlog-dev/patchlog/internal/fuzz/memory"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

var (
	ctx   = context.Background()
	key   = store.Key{App: "app", User: "user", Session: "long"}
	quiet = slog.New(slog.DiscardHandler)
)

// file is a store in a file, with the costs of calls measured so far.
type file struct {
	testing.TB
	round *long.Round
	label string // names the figures in messages
	size  int    // current number of events or sessions
	first map[string]uint64
	path  string
	store *store.Store
}

func newFile(t testing.TB, r *long.Round, of string) *file {
	before := runtime.NumGoroutine()
	f := &file{TB: t, round: r, label: of, first: map[string]uint64{}, path: filepath.Join(t.TempDir(), "log.db")}
	f.open()
	t.Cleanup(func() {
		f.close()
		n := runtime.NumGoroutine()
		for range 30_000 { // a goroutine that is about to end may still be counted
			if n <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
			n = runtime.NumGoroutine()
		}
		t.Errorf("%d goroutines are left, of %d", n, before)
	})
	return f
}

func (f *file) open() {
	var err error
	f.store, err = store.Open(f.path, store.Options{Logger: quiet, NoSync: true})
	testlog.NoError(f, err)
}

func (f *file) close() { testlog.NoError(f, f.store.Close()) }

// measure makes calls of one kind and measures their allocation. Each call returns the given number of things. If
// the allocation per thing is more than times the allocation at the first size, measure fails the test.
func (f *file) measure(what string, calls, things int, times uint64, do func() error) {
	f.Helper()
	now := allocated(f, calls, do) / uint64(things)
	f.round.Count(fmt.Sprintf("%s: bytes of %s at %d", f.label, what, f.size), int(now))
	before, ok := f.first[what]
	if !ok {
		f.first[what] = now
	} else if isTooMuch(now, before, times) {
		f.Errorf("%s: %s at %d allocates %d bytes, and %d at the first size: more than %d times as much", f.label, what, f.size, now, before, times)
	}
}

// allocated returns the median allocation of the calls. The median ignores calls that do extra work, such as writing
// a snapshot.
func allocated(t testing.TB, calls int, do func() error) uint64 {
	t.Helper()
	var all []uint64
	for range calls {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		testlog.NoError(t, do())
		runtime.ReadMemStats(&after)
		all = append(all, after.TotalAlloc-before.TotalAlloc)
	}
	slices.Sort(all)
	return all[calls/2]
}

func isTooMuch(now, before, times uint64) bool { return now > times*before+8<<10 }

// sizesFor returns the sizes at which calls are measured in a short, a usual and a long run.
func sizesFor(short, usual, many []int) []int {
	switch {
	case long.Long():
		return many
	case testing.Short():
		return short
	}
	return usual
}

// probes is the number of measured calls per size.
const probes = 50

func TestOneSession(t *testing.T) {
	for of, compact := range map[string]bool{"compacted": true, "not compacted": false} {
		t.Run(of, func(t *testing.T) {
			for r := range long.Rounds(t, 1) {
				newFile(t, r, of).grow(compact)
			}
		})
	}
}

func (f *file) grow(compact bool) {
	_, err := f.store.Create(ctx, key, map[string]any{"begun": true}, store.CreateOptions{})
	testlog.NoError(f, err)
	n := 0
	add := func(many int) error {
		var events []*patch.Event
		for range many {
			events = append(events, event(n))
			n++
		}
		_, err := f.store.AppendEvents(ctx, key, events, store.AppendOptions{})
		return err
	}
	pass := func() error {
		compactor, err := compaction.New(f.store, compaction.Config{Enabled: true, CompactionInterval: 20, OverlapSize: 1}, compaction.Options[store.Key]{Logger: quiet})
		if err == nil {
			_, err = compactor.Compact(ctx, key, compaction.Run{})
		}
		return err
	}
	get := func() error {
		_, err := f.store.Get(ctx, key)
		return err
	}
	for _, f.size = range sizesFor([]int{200, 1000}, []int{500, 5000}, []int{1000, 10_000, 100_000, 1_000_000}) {
		for n < f.size-2*probes {
			testlog.NoError(f, add(min(100, f.size-2*probes-n)))
			if compact && n%500 == 0 {
				testlog.NoError(f, pass())
			}
		}
		f.measure("append", 2*probes, 1, 2, func() error { return add(1) }) // allow twice the allocation, because a larger tree has longer paths
		if compact {
			f.measure("pass", 1, 1, 4*uint64(len(fmt.Sprint(f.size))), pass) // a pass may merge one summary of each level
		}
		f.measure("get, warm", probes, 1, 2, get)
		f.close()
		f.open()
		times := uint64(4) // the view has one summary of each level
		if !compact {
			times = uint64(f.size) // without a compaction, all events are visible
		}
		f.measure("get, cold", 1, 1, times, get)
	}
	if compact {
		testlog.NoError(f, pass())
	}
	testlog.NoError(f, f.checkContent(n))
	// The memory limit is small, although the hidden events have large contents.
	memory.Within(f, 28<<20, func() {
		for p, err := range f.store.Verify(ctx, store.VerifyOptions{}) {
			f.Error(p, err)
		}
		testlog.NoError(f, f.store.Backup(ctx, io.Discard))
	})
	space, err := f.store.Vacuum(ctx, store.VacuumOptions{})
	testlog.NoError(f, err)
	if space.File > max(2*space.Live, 16<<20) {
		f.Errorf("%s: after a vacuum: %+v", f.label, space)
	}
}

// checkContent checks that reads return the written content. It reads each event, the state, and views as of some seqs.
// It compares each view with a fold of the log.
func (f *file) checkContent(events int) (wrong error) {
	f.Helper()
	report := func(format string, args ...any) {
		wrong = errors.Join(wrong, fmt.Errorf(f.label+": "+format, args...))
	}
	seq := uint64(0)
	memory.Within(f, 4<<20, func() { // the log is read page by page
		n := 0
		seq = 0
		for rec, err := range f.store.RawEvents(ctx, key, 1) {
			testlog.NoError(f, err)
			if seq++; rec.Seq != seq {
				report("record %d after record %d", rec.Seq, seq-1)
			}
			if rec.Event == nil {
				continue
			}
			if want := event(n); rec.ID() != want.ID() || n%1000 == 0 && rec.Event.String() != want.String() {
				report("event %d is %s", n, rec.Event)
			}
			n++
		}
		if n != events {
			report("%d events, want %d", n, events)
		}
	})
	f.close()
	f.open()
	for i := range uint64(4) {
		at := 1 + (seq-1)*(4-i)/4
		v, err := f.store.ViewAt(ctx, key, at)
		testlog.NoError(f, err)
		if want := f.foldLog(v.Creation(), at); !equalViews(v, want) {
			report("the view at record %d, of %d events, is not a fold's, of %d", at, v.Len(), want.Len())
		}
	}
	cold, err := f.store.Get(ctx, key)
	testlog.NoError(f, err)
	for i := range min(events, 20) {
		last := events - 1 - (events-1-i)%20 // number of the last event that set the key
		if got := fmt.Sprint(cold.State()[fmt.Sprint("k", i)]); got != fmt.Sprint(last) {
			report("k%d is %s, want %d", i, got, last)
		}
	}
	return wrong
}

// equalViews reports whether two views have the same encoded snapshot.
func equalViews(a, b fold.View) bool {
	one, err := snapshot.Encode(a)
	other, otherErr := snapshot.Encode(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

func (f *file) foldLog(creation string, seq uint64) fold.View {
	f.Helper()
	start, err := f.store.ViewAt(ctx, key, 0)
	initial := maps.Collect(start.Values())
	testlog.NoError(f, err)
	v := fold.New(creation, initial)
	for rec, err := range f.store.RawEvents(ctx, key, 1) {
		testlog.NoError(f, err)
		if rec.Seq > seq {
			break
		}
		v, err = v.Apply(rec)
		testlog.NoError(f, err)
	}
	return v
}

func event(n int) *patch.Event {
	text := fmt.Sprintf("In step %d the order %d of customer %d went on to the next desk, as was asked for.", n, 4000000+n, n%977)
	author, role := "user", "user"
	// A compaction of events that no model has read would cost more than it saves.
	if n%2 == 1 {
		author, role = "agent", "model"
	}
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":"e%d","author":%q,"invocationId":"i%d","timestamp":"2026-11-22T00:00:00Z","content":{"role":%q,"parts":[{"text":%q}]},"actions":{"stateDelta":{"k%d":%d}}}`, n, author, n/10, role, text, n%20, n))
	if err != nil {
		panic(err)
	}
	return e
}

func TestManySessions(t *testing.T) {
	for r := range long.Rounds(t, 1) {
		f, n := newFile(t, r, "sessions"), 0
		for _, f.size = range sizesFor([]int{100, 300}, []int{100, 1000}, []int{1000, 10_000, 100_000}) {
			for ; n < f.size; n++ {
				_, err := f.store.Create(ctx, sessionKey(n), map[string]any{"n": n}, store.CreateOptions{})
				testlog.NoError(t, err)
				testlog.NoError(t, f.appendTo(n))
			}
			f.close()
			f.measure("open", 1, 1, 3, func() error { f.open(); return nil })
			f.measure("the first of a list", 1, 1, 3, func() error { return f.list(store.ListOptions{}, 1) })
			f.measure("a user's list", 1, f.size/100, 3, func() error { return f.list(store.ListOptions{App: "app", User: "user-042"}, f.size/100) })
			testlog.NoError(t, f.list(store.ListOptions{}, f.size))
			at := func() int { return r.Random.IntN(f.size) }
			f.measure("get, cold", probes, 1, 3, func() error { return f.checkSession(at()) })
			f.measure("append", probes, 1, 3, func() error { return f.appendTo(at()) })
		}
	}
}

func sessionKey(i int) store.Key {
	return store.Key{App: "app", User: fmt.Sprintf("user-%03d", i%100), Session: fmt.Sprintf("s-%07d", i)}
}

// appendTo appends an event to a session. If the session does not exist, appendTo creates it.
func (f *file) appendTo(session int) error {
	_, err := f.store.AppendEvents(ctx, sessionKey(session), []*patch.Event{event(session)}, store.AppendOptions{})
	return err
}

func (f *file) checkSession(session int) error {
	got, err := f.store.Get(ctx, sessionKey(session))
	if err == nil && (got.View.Len() != 1 || fmt.Sprint(got.State()["n"]) != fmt.Sprint(session)) {
		err = fmt.Errorf("session %d has %d events and the state %v", session, got.View.Len(), got.State())
	}
	return err
}

// list lists sessions, at most want of them. It checks that they are distinct, sorted and complete.
func (f *file) list(opts store.ListOptions, want int) error {
	n, last := 0, store.Key{}
	for info, err := range f.store.List(ctx, opts) {
		if err != nil {
			return err
		}
		if last.User > info.Key.User || last.User == info.Key.User && last.Session >= info.Key.Session || info.Seq != 1 {
			return fmt.Errorf("session %v with %d records is after %v", info.Key, info.Seq, last)
		}
		last = info.Key
		if n++; n == want && want == 1 {
			return nil
		}
	}
	if n != want {
		return fmt.Errorf("%d sessions, want %d", n, want)
	}
	return nil
}

// The harness detects wrong content, and costs that grow with the log.
func TestControl(t *testing.T) {
	for r := range long.Rounds(t, 1) {
		f := newFile(t, r, "control")
		_, err := f.store.Create(ctx, key, nil, store.CreateOptions{})
		testlog.NoError(t, err)
		var read []uint64 // allocations for reading the whole log
		for n := range 400 {
			_, err := f.store.AppendEvents(ctx, key, []*patch.Event{event(n + n/399)}, store.AppendOptions{}) // the event numbered 399 is missing
			testlog.NoError(t, err)
			if n == 20 || n == 398 {
				read = append(read, allocated(t, 1, func() error { f.foldLog("", uint64(n)); return nil }))
			}
		}
		if !isTooMuch(read[1], read[0], 4) {
			t.Errorf("reading the log allocates %d bytes, and then %d, and it is not reported", read[0], read[1])
		}
		if early, err := f.store.ViewAt(ctx, key, 398); err != nil || equalViews(early, f.foldLog(early.Creation(), 399)) {
			t.Errorf("two views differ, and it is not reported: %v", err)
		}
		if f.checkContent(400) == nil {
			t.Error("an event is missing, and it is not reported")
		}
		for _, n := range []int{2, 3} {
			if f.list(store.ListOptions{}, n) == nil {
				t.Errorf("there is one session, not %d, and it is not reported", n)
			}
		}
	}
}
