package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// eager has a snapshot written after each record of a log with up to 100 visible events.
var eager = snapshot.Policy{Every: 1, Share: 1}

// onEachWithSnapshots runs a test as onEach does, with snapshots after each record. A
// warning that the test has not taken fails it.
func onEachWithSnapshots(t *testing.T, run func(e *env, w *warnings)) {
	t.Helper()
	w := &warnings{Handler: slog.DiscardHandler}
	onEachWith(t, store.Options{Snapshots: eager, Logger: slog.New(w)}, func(e *env) {
		run(e, w)
		if lines := w.take(); len(lines) > 0 {
			e.Errorf("warnings: %q", lines)
		}
	})
}

// anew opens a store on what is stored, once all snapshots that are due are written. It
// remembers no view.
func (e *env) anew(policy snapshot.Policy) {
	e.Helper()
	e.opts.Snapshots = policy
	e.reopen()
}

// snapshot returns the session's stored snapshot.
func (e *env) snapshot() []byte {
	e.Helper()
	info := store.Info{Key: key, Creation: e.creation()}
	kept, err := e.backend.Snapshot(ctx, e.nameOf(info), info.Creation)
	e.no(err)
	return kept.Data
}

func (e *env) putSnapshot(data []byte) {
	e.Helper()
	info := store.Info{Key: key, Creation: e.creation()}
	head, err := backend.HeadOf(ctx, e.backend, e.nameOf(info))
	e.no(err)
	e.no(e.backend.PutSnapshot(ctx, e.nameOf(info), info.Creation, backend.Snapshot{Seq: head.Last, Chain: head.Chain, Data: data}))
}

// creation returns the session's creation id, and makes no store read its view.
func (e *env) creation() string {
	e.Helper()
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if info.Key == key {
			return info.Creation
		}
	}
	e.Fatal("the session is not there")
	return ""
}

// snapshotSeq returns where the session's stored snapshot stands.
func (e *env) snapshotSeq() uint64 {
	e.Helper()
	return seqOf(e.snapshot(), e.creation())
}

// seqOf returns where a snapshot stands.
func seqOf(data []byte, creation string) uint64 {
	v, err := snapshot.Decode(data, fold.New(creation, nil), 1<<40)
	if err != nil && !errors.As(err, new(*fold.NeedError)) {
		panic(err)
	}
	return v.Seq()
}

// refold folds the session's log from its first record.
func (e *env) refold(records []patch.Record) fold.View {
	e.Helper()
	initial, err := e.store.InitialState(ctx, key)
	e.no(err)
	v, err := fold.New(e.creation(), initial).Apply(records...)
	e.no(err)
	return v
}

// At each length of a log, what is read from the snapshot is what the log folds to.
func TestSnapshotAtEveryLength(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		records, initial := fuzz.Records(fuzz.Options{Max: 16, Accepted: true}), fuzz.InitialState()
		if e.path == "" {
			rapid.Check(e.T, func(t *rapid.T) {
				e.snapshotAtEveryLength(t, records.Draw(t, "records"), initial.Draw(t, "initial"))
			})
			return
		}
		whole := e.backend.Backend
		e.backend.Backend = unclosed{whole} // opening the file each time would take long
		for seed := range 8 {
			if seed == 2 && testing.Short() {
				break
			}
			e.snapshotAtEveryLength(e, records.Example(seed), initial.Example(seed))
		}
		e.backend.Backend = whole
	})
}

func (e *env) snapshotAtEveryLength(t rapid.TB, records []patch.Record, initial map[string]patch.Value) {
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, fuzz.Text(records, initial))
		}
	}
	open := func() *store.Store {
		s, err := store.New(e.backend, e.opts)
		no(err)
		return s
	}
	state := map[string]any{}
	for k, v := range initial {
		state[k] = v
	}
	s := open()
	if err := s.Delete(ctx, key); !errors.Is(err, store.ErrNotFound) {
		no(err)
	}
	_, err := s.Create(ctx, key, state)
	no(err)
	ref := fuzz.NewReference(initial)
	for _, batch := range fuzz.Batches(records) {
		var c store.Committed
		var patches []*patch.PatchEvent
		for _, r := range batch {
			patches = append(patches, r.Patch)
		}
		r := batch[len(batch)-1]
		if r.Patch != nil {
			c, err = s.ApplyPatch(ctx, key, asOfNow, patches...)
		} else {
			c, err = s.AppendEvents(ctx, key, store.AppendOptions{}, r.Event)
		}
		no(err)
		no(s.Close())
		listed, err := e.backend.List(ctx, "", "", 1)
		no(err)
		kept, err := e.backend.Snapshot(ctx, listed[0].Session, listed[0].Creation)
		no(err)
		if at := seqOf(kept.Data, listed[0].Creation); at != r.Seq {
			t.Fatalf("after record %d the snapshot stands at %d", r.Seq, at)
		}
		for _, r := range c.Records {
			ref.Apply(r)
		}
		s = open()
		read, err := s.Get(ctx, key)
		no(err)
		no(fuzz.Compare(read.View, ref))
	}
}

// cutLog makes a log of 40 records: most of the first 30 are hidden, two are skipped.
func (e *env) cutLog() {
	e.Helper()
	e.create(map[string]any{"tenant": "t1"})
	var text strings.Builder
	for i := range 30 {
		fmt.Fprintf(&text, "%s\n", sets(fmt.Sprint("a", i+1), fmt.Sprintf(`{"k":%d}`, i)))
	}
	text.WriteString(`{"id":"p1","patchType":"summarise","start":0,"count":20,"summaryEvent":{"id":"s1","content":{"role":"user","parts":[{"text":"x"}]}}}` + "\n")
	text.WriteString(`{"id":"p2","patchType":"splice","start":99,"count":1}` + "\n")
	text.WriteString(`{"id":"p3","patchType":"splice","start":3,"count":2,"replacement":[{"id":"r1"}]}` + "\n")
	text.WriteString(`{"id":"p4","patchType":"truncate_before","eventId":"a1"}` + "\n")
	e.importText("log", text.String())
	e.append(says("b", 6)...)
}

func TestUnusableSnapshotsAreReplaced(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, w *warnings) {
		e.cutLog()
		want := e.viewText(e.view())
		e.anew(eager)
		good := e.snapshot()
		if e.snapshotSeq() != 40 {
			e.Fatalf("the snapshot stands at %d", e.snapshotSeq())
		}
		encode := func(v fold.View, err error) []byte {
			e.no(err)
			data, err := snapshot.Encode(v)
			e.no(err)
			return data
		}
		records := e.records(key)
		whole := e.refold(records)
		of := func(seq uint64, another *patch.PatchEvent) []byte { // of a log with another record
			records := slices.Clone(records)
			records[seq-1] = patch.Record{Seq: seq, Patch: another}
			return encode(e.refold(records), nil)
		}
		damage := slices.Clone(good)
		damage[len(damage)/2] ^= 16
		old := slices.Clone(good)
		old[0]--
		for name, data := range map[string][]byte{
			"damaged":           damage,
			"truncated":         good[:len(good)-1],
			"empty":             {},
			"of old version":    old,
			"of another":        encode(fold.New("another", nil).Apply(e.records(key)...)),
			"future":            encode(whole.Apply(patch.Record{Seq: 41, Event: say("future")})),
			"of no such event":  of(27, patch.NewSplice(26, 0, say("x"), say("y"))),
			"of no new event":   of(33, patch.NewSplice(3, 2, say("x"), say("y"))),
			"of a cut's events": of(34, patch.NewSplice(1, 0, say("x"))),
		} {
			e.putSnapshot(data)
			e.anew(eager)
			for range 2 {
				e.same("view with a snapshot "+name, e.viewText(e.view()), want)
			}
			e.anew(snapshot.Policy{Every: -1})
			if lines := w.take(); len(lines) != 1 || !strings.Contains(lines[0], "snapshot") || !strings.Contains(lines[0], key.String()) {
				e.Errorf("with a snapshot %s: warnings %q", name, lines)
			}
			if got := e.snapshot(); string(got) != string(good) {
				e.Errorf("the snapshot %s was not replaced: %x", name, got)
			}
		}
	})
}

func TestSnapshotOfDeletedSession(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, w *warnings) {
		// The session's handle stays in use, since its snapshot is still being written.
		put, goOn := make(chan struct{}), make(chan struct{})
		whole := e.backend.Backend
		once := sync.OnceFunc(func() { close(put); <-goOn })
		e.backend.Backend = &watched{Backend: whole, afterPut: once}
		e.create(nil)
		e.append(says("a", 20)...)
		<-put
		old := e.snapshot()
		e.no(e.store.Delete(ctx, key))
		e.create(nil)
		if data := e.snapshot(); data != nil {
			e.Errorf("a session without records has the snapshot %x", data)
		}
		close(goOn)
		for _, event := range says("b", 5) {
			e.append(event)
		}
		e.same("visible", ids(e.view()), "b1 b2 b3 b4 b5")
		e.no(e.store.Close())
		e.backend.Backend = whole
		e.anew(snapshot.Policy{Every: -1})
		if seq := e.snapshotSeq(); seq != 5 {
			e.Errorf("the new session's snapshot stands at %d", seq)
		}
		e.putSnapshot(old)
		e.anew(snapshot.Policy{Every: -1})
		e.same("visible", ids(e.view()), "b1 b2 b3 b4 b5")
		if lines := w.take(); len(lines) != 1 || !strings.Contains(lines[0], "another session") {
			e.Errorf("warnings %q", lines)
		}
		e.anew(eager) // has it replaced
		e.view()
		w.take()
	})
}

// A cold read costs the visible log: what is hidden is not read, nor are skipped patches
// until someone asks for them.
func TestColdRead(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		e.cutLog()
		e.anew(snapshot.Policy{Every: -1})
		e.append(says("c", 2)...)
		want := e.refold(e.records(key))
		e.reopen()
		b := &watched{Backend: e.backend.Backend}
		e.backend.Backend = b
		read := func() string {
			e.open()
			b.take()
			e.view()
			return b.take()
		}
		// s1, of record 31; a21, a22; r1, of 33; a25 to a30; b1 to b6; then what the
		// snapshot has not seen.
		e.same("records read", read(), "[21 22 25 26 27 28 29 30 31 33 35 36 37 38 39 40 41 42]")
		v := e.view()
		if v.SkippedCount() != 2 || b.take() != "[]" {
			e.Error("counting the skipped patches reads records")
		}
		e.same("view", e.viewText(v), e.viewText(want))
		e.same("records read for the skipped patches", b.take(), "[]")
		// A view that stands before the snapshot is folded from the first record.
		e.must(e.store.ViewAt(ctx, key, 3))
		e.same("records read for a view at 3", b.take(), "[1 2 3]")
		e.must(e.store.ViewAt(ctx, key, 40))
		// That the snapshot is of this log shows at its end.
		e.same("records read for a view at 40", b.take(), "[21 22 25 26 27 28 29 30 31 33 35 36 37 38 39 40 41 42]")
		// Without a snapshot all is read.
		b.err = storetest.ErrInjected
		e.opts.Logger = slog.New(slog.DiscardHandler)
		if got := read(); strings.Count(got, " ") != 41 {
			e.Errorf("without a snapshot records %s were read", got)
		}
		// What is read later is of the session that the view is of.
		b.err = nil
		e.open()
		v = e.view()
		e.no(e.store.Delete(ctx, key))
		e.create(nil)
		if _, err := e.store.History(ctx, key, v); !errors.Is(err, store.ErrNotFound) {
			e.Errorf("the history of a deleted session: error %v", err)
		}
		e.backend.Backend = b.Backend
	})
}

// A snapshot that can be neither read nor written fails no call.
func TestFailingSnapshots(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, w *warnings) {
		for i, failure := range []error{
			storetest.ErrInjected, backend.ErrDamaged, &backend.UnknownError{Cause: storetest.ErrInjected},
		} {
			whole := e.backend.Backend
			e.backend.Backend = &watched{Backend: whole, err: failure}
			e.open()
			e.create(nil)
			e.append(says("a", 5)...)
			e.apply(patch.NewSplice(0, 1).WithID("p"))
			e.append(say("b"))
			e.must(e.store.ViewAt(ctx, key, 6))
			e.no(e.store.Close())
			if len(w.take()) == 0 {
				e.Errorf("failure %d was not logged", i)
			}
			if e.path != "" {
				whole = openBoltAt(e.T, e.path)
				e.backend.Backend.(*watched).Backend = whole
			}
			e.open()
			e.same("visible", ids(e.view()), "a2 a3 a4 a5 b")
			e.no(e.store.Delete(ctx, key))
			e.no(e.store.Close())
			w.take()
			if e.path != "" {
				whole = openBoltAt(e.T, e.path)
			}
			e.backend.Backend = whole
			e.open()
		}
	})
}

// Close waits for a snapshot that is being written, and for those that wait.
func TestCloseWritesSnapshots(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		whole := e.backend.Backend
		goOn := make(chan struct{})
		e.backend.Backend = &watched{Backend: whole, afterPut: func() { <-goOn }}
		keys := []store.Key{key, {App: "a", User: "u", Session: "1"}, {App: "a", User: "u", Session: "2"}}
		for _, k := range keys {
			e.must(e.store.Create(ctx, k, nil))
			e.must(e.store.AppendEvents(ctx, k, store.AppendOptions{}, says("a", 3)...))
		}
		closed := make(chan error)
		go func() { closed <- e.store.Close() }()
		select {
		case err := <-closed:
			e.Fatalf("it did not wait (%v)", err)
		case <-time.After(20 * time.Millisecond):
		}
		close(goOn)
		e.no(<-closed)
		e.backend.Backend = whole
		e.reopen()
		n := 0
		listed, err := e.backend.List(ctx, "", "", 9)
		e.no(err)
		for _, l := range listed {
			kept, err := e.backend.Snapshot(ctx, l.Session, l.Creation)
			e.no(err)
			if kept.Data != nil {
				n++
			}
		}
		if n != len(keys) {
			e.Errorf("%d snapshots were written, want %d", n, len(keys))
		}
	})
}

// Closing while others write panics nowhere and logs nothing: no snapshot becomes due
// once closing has begun.
func TestCloseWhileSnapshotsBecomeDue(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	w := &warnings{Handler: slog.DiscardHandler}
	for range rounds {
		s, err := store.OpenMemory(store.Options{Snapshots: eager, Logger: slog.New(w)})
		testlog.NoError(t, err)
		must(t)(s.Create(ctx, key, nil))
		together(4, func(i int) {
			if i == 0 {
				time.Sleep(200 * time.Microsecond)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			for {
				if _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, new(patch.Event)); err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	if lines := w.take(); len(lines) > 0 {
		t.Errorf("warnings: %q", lines[:min(len(lines), 3)])
	}
}

// While others write and delete, and snapshots come and go, no reader takes one for
// damaged, and Verify finds nothing.
func TestSnapshotsWhileOthersWrite(t *testing.T) {
	writes := 200
	if testing.Short() {
		writes = 60
	}
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		e.create(nil)
		brief := store.Key{App: "a", User: "u", Session: "brief"}
		done := make(chan struct{})
		var wg sync.WaitGroup
		reader := func(read func() error) {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := read(); err != nil && !errors.Is(err, store.ErrNotFound) {
						e.Error(err)
						return
					}
				}
			})
		}
		for _, k := range []store.Key{key, brief} {
			reader(func() error {
				_, err := e.store.ViewAt(ctx, k, 1)
				return err
			})
		}
		reader(func() error {
			for p, err := range e.store.Verify(ctx, store.VerifyOptions{}) {
				if err != nil {
					return err
				}
				return fmt.Errorf("verify: %s", p)
			}
			return nil
		})
		for i := range writes {
			if i%10 == 0 {
				must(e)(e.store.Create(ctx, brief, nil))
			}
			for _, k := range []store.Key{key, brief} {
				must(e)(e.store.AppendEvents(ctx, k, store.AppendOptions{}, say(fmt.Sprint(i))))
			}
			if i%10 == 9 {
				e.no(e.store.Delete(ctx, brief))
			}
			if i%20 == 19 {
				e.must(e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 15)))
			}
		}
		close(done)
		wg.Wait()
	})
}

// warnings counts what a store warns of.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	w.lines = append(w.lines, text)
	return nil
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// watched is a backend that tells which records were read, and may fail or stall where
// snapshots are concerned.
type watched struct {
	backend.Backend
	afterPut func()

	mu   sync.Mutex
	err  error
	seqs []uint64
}

func (b *watched) note(records []backend.Record, err error) ([]backend.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		b.seqs = append(b.seqs, r.Seq)
	}
	return records, err
}

// take returns the seqs of the records that were read since the last call.
func (b *watched) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.seqs)
	text := fmt.Sprint(slices.Compact(b.seqs))
	b.seqs = nil
	return text
}

func (b *watched) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	return b.note(b.Backend.Read(ctx, session, creation, seqs, maxBytes))
}

func (b *watched) Snapshot(ctx context.Context, session, creation string) (backend.Snapshot, error) {
	if b.err != nil {
		return backend.Snapshot{}, b.err
	}
	return b.Backend.Snapshot(ctx, session, creation)
}

func (b *watched) PutSnapshot(ctx context.Context, session, creation string, kept backend.Snapshot) error {
	if b.err != nil {
		return b.err
	}
	err := b.Backend.PutSnapshot(ctx, session, creation, kept)
	if b.afterPut != nil {
		b.afterPut()
	}
	return err
}
