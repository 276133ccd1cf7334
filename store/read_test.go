package store_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestRawEvents(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		for range e.store.RawEvents(ctx, key, 1) {
			e.Fatal("an empty log has a record")
		}
		var events []*patch.Event
		for i := range 1300 { // makes more than two pages of records
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
		for r, err := range e.store.RawEvents(ctx, key, 5) {
			e.no(err)
			if r.Seq == 7 {
				break
			}
		}
		// If the caller's context ends, RawEvents yields the context's error and ends.
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
		// If the session is deleted, RawEvents ends, even if the session is created again.
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

// RawEvents reads one page of records at a time, and omits no record at the border of two pages.
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

// looking is a context whose method Err first calls a function.
type looking struct {
	context.Context
	look func()
}

func (l looking) Err() error {
	l.look()
	return l.Context.Err()
}

// Calls that read a whole log need memory for the visible events and one page. The first 30 events are random, to show
// that a call does not keep all hidden events. The other events are long and repetitive, to show that a call does not
// keep all records of a compressed page. A revert reads the restored events again.
func TestCallsHoldAPage(t *testing.T) {
	testlog.SkipUnderRace(t)
	b := &hooked{Backend: openBoltAt(t, filepath.Join(t.TempDir(), "log.db"))}
	opts := store.Options{Snapshots: snapshot.Policy{Every: -1}}
	s := newStore(t, b, opts)
	add(t, s, key, nil, 1)
	noise, long := make([]byte, 300_000), strings.Repeat("x", 500_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for i := range 90 {
		author := base64.StdEncoding.EncodeToString(noise)
		if i >= 30 {
			author = long
		}
		must(t)(s.AppendEvents(ctx, key, []*patch.Event{testlog.New(patch.Fields{Author: author})}, store.AppendOptions{}))
		cut := testlog.Must(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, asOfNow))(t)
		if i == 20 {
			must(t)(s.Revert(ctx, key, cut.Records[0].ID(), store.UndoOptions{}))
		}
	}
	if raw, err := b.Read(ctx, name(key), infoOf(t, s, key).Creation, backend.Range(63, 1000), 1<<20); err != nil || len(raw) < 100 {
		t.Fatalf("%d records are a page of the backend's, %v", len(raw), err)
	}
	opts.CacheBytes = -1
	s = newStore(t, b, opts)
	defer s.Close()
	for name, call := range map[string]func(look func()) error{
		"RawEvents": func(look func()) error {
			for r, err := range s.RawEvents(ctx, key, 1) {
				if err != nil {
					return err
				}
				if r.Seq%10 == 1 {
					look()
				}
				runtime.KeepAlive(r)
			}
			return nil
		},
		"Verify": func(look func()) error { return errIn(s.Verify(looking{ctx, look}, store.VerifyOptions{})) },
		"Fork": func(look func()) error {
			b.appended = func(ctx context.Context, _ int, next func(context.Context) error) error {
				look()
				return next(ctx)
			}
			return errOf(s.Fork(ctx, key, forkKey, store.ForkOptions{}))
		},
	} {
		before, most := heap(), uint64(0)
		testlog.NoError(t, call(func() { most = max(most, heap()) }))
		if most == 0 || most > before+8<<20 {
			t.Errorf("%s takes %d bytes", name, int64(most)-int64(before))
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// name returns the backend's name of a session whose key needs no escaping.
func name(key store.Key) string {
	return strings.Join([]string{key.App, key.User, key.Session, ""}, "\x00\x01")
}

// If another caller deletes the session during an import, the import creates it again.
func TestImportWhileDeleted(t *testing.T) {
	onEach(t, func(e *env) {
		b := e.hook()
		e.create(nil)
		e.append(say("a"))
		b.fetched = func(q backend.Query, _ *backend.Fetched) {
			if q.Session != "" {
				b.fetched = nil
				e.no(e.store.Delete(ctx, key))
			}
		}
		done, err := e.store.Import(ctx, key, strings.NewReader(`{"id":"b"}`), store.ImportOptions{})
		e.no(err)
		if !done.Created || done.Added != 1 || done.View.Seq() != 1 {
			e.Errorf("created: %v, %d added, %d records", done.Created, done.Added, done.View.Seq())
		}
	})
}

// Get reads the "app:" values and the "user:" values at the same moment.
func TestScopesOfOneMoment(t *testing.T) {
	onEach(t, func(e *env) {
		b := e.hook()
		e.create(nil)
		e.append(sets("a", `{"app:x":1,"user:x":1}`))
		other := key
		other.Session = "other"
		e.must(e.store.Create(ctx, other, nil, store.CreateOptions{}))
		b.fetched = func(q backend.Query, _ *backend.Fetched) {
			if len(q.Shared) > 0 {
				b.fetched = nil
				e.must(e.store.AppendEvents(ctx, other, []*patch.Event{sets("b", `{"app:x":2,"user:x":2}`)}, store.AppendOptions{}))
			}
		}
		session := sessionOf(e, e.store, key)
		app, _ := session.Value("app:x")
		user, _ := session.Value("user:x")
		if !app.Equal(user) {
			e.Errorf("app:x is %v, and user:x is %v", app, user)
		}
	})
}

// cached is a store whose cache has a limit. The storage contains all sessions.
type cached struct {
	*env
	reads *hooked
}

func numbered(i int) store.Key { return store.Key{App: "a", User: "u", Session: fmt.Sprint("s", i)} }

// onCache runs a test with the cache limit that fill returns. The function fill creates the sessions.
func onCache(t *testing.T, fill func(e *env) (limit int), run func(c cached)) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.opts.CacheBytes = int64(fill(e))
		run(cached{e, e.hook()})
	})
}

// filled creates a session with n events and returns its size in memory.
func (e *env) filled(i, n int) int {
	e.Helper()
	e.must(e.store.Create(ctx, numbered(i), nil, store.CreateOptions{}))
	return e.more(i, says("e", n)...)
}

func (e *env) more(i int, events ...*patch.Event) int {
	e.Helper()
	c, err := e.store.AppendEvents(ctx, numbered(i), events, store.AppendOptions{})
	e.no(err)
	return c.View.Footprint()
}

// read reports whether a read of the session reaches the storage.
func (c cached) read(i int) bool {
	c.Helper()
	c.reads.takeCalls()
	c.must(c.store.Get(ctx, numbered(i)))
	return strings.Contains(c.reads.takeCalls(), "cold Fetch")
}

// The cache evicts the least recently used session first, and keeps as many sessions as the limit allows.
func TestCacheOrder(t *testing.T) {
	const sessions, kept = 10, 4
	onCache(t, func(e *env) (limit int) {
		for i := range sessions {
			limit = kept*e.filled(i, 20) + 1000
		}
		return limit
	}, func(c cached) {
		random := rand.New(rand.NewPCG(1, 2))
		var used []int // numbers of the sessions, with the most recently used session first
		for n := range 400 {
			i := random.IntN(sessions)
			at := slices.Index(used, i)
			if got, want := c.read(i), at < 0 || at >= kept; got != want {
				c.Fatalf("use %d: session %d is read: %t, want %t; it was used after %v", n, i, got, want, used[:max(at, 0)])
			}
			if at >= 0 {
				used = slices.Delete(used, at, at+1)
			}
			used = slices.Insert(used, 0, i)
		}
	})
}

// If a cached session grows, the cache counts its new size.
func TestCacheCountsGrowth(t *testing.T) {
	onCache(t, func(e *env) int { return e.filled(0, 20) + e.filled(1, 20) + e.filled(2, 20) + 1000 }, func(c cached) {
		for i := range 3 {
			c.read(i)
		}
		c.more(2, says("more", 10)...)
		if c.read(1) || c.read(2) || !c.read(0) {
			c.Error("session 0 was to go, and no other")
		}
	})
}

// If a session is larger than the cache, repeated use reads it once, alone or together with small sessions. Of
// three such sessions, the cache keeps two.
func TestCacheKeepsLargeSession(t *testing.T) {
	onCache(t, func(e *env) int {
		size := 0
		for i := range 3 {
			size = e.filled(i, 300)
		}
		e.filled(3, 1)
		e.filled(4, 1)
		return size / 4
	}, func(c cached) {
		for n := range 10 {
			c.more(0, say(fmt.Sprint("more", n)))
			if c.read(0) && n > 0 {
				c.Errorf("append %d had the session read again", n)
			}
		}
		for n := range 10 {
			testlog.Equal(c, fmt.Sprintf("use %d of a small session: read", n), c.read(3+n%2), n < 2)
			testlog.Equal(c, fmt.Sprintf("use %d of a small session: the large one is read again", n), c.read(0), false)
		}
		for _, step := range []struct {
			use  int
			read bool
		}{{1, true}, {0, false}, {1, false}, {2, true}, {1, false}, {2, false}, {0, true}, {1, true}, {0, false}} {
			testlog.Equal(c, fmt.Sprintf("large session %d: read", step.use), c.read(step.use), step.read)
		}
	})
}

// The cache does not count events that patches hide.
func TestCacheCountsWhatIsThere(t *testing.T) {
	onCache(t, func(e *env) int {
		size := 0
		for i := range 4 {
			size = e.filled(i, 500)
			for n := range 5 {
				e.must(e.store.ApplyPatch(ctx, numbered(i), []*patch.PatchEvent{patch.NewSummarise(n, 90, summary(fmt.Sprint("s", n)))}, asOfNow))
			}
		}
		return size // size of a session without hidden events
	}, func(c cached) {
		for round := range 3 {
			for i := range 4 {
				testlog.Equal(c, fmt.Sprintf("round %d: session %d is read", round, i), c.read(i), round == 0)
			}
		}
		for i := range 4 { // events that become hidden do not count
			c.more(i, says("big", 400)...)
			view, err := c.store.View(ctx, numbered(i))
			c.no(err)
			_, err = c.store.ApplyPatch(ctx, numbered(i), []*patch.PatchEvent{patch.NewSplice(0, view.Len()).WithState(patch.Keep)}, asOfNow)
			c.no(err)
		}
		for i := range 4 {
			testlog.Equal(c, "a session of which nothing is visible is read again", c.read(i), false)
		}
	})
}

func (e *env) say(key store.Key, texts ...string) {
	e.Helper()
	if _, err := e.store.Create(ctx, key, nil, store.CreateOptions{}); err != nil && !errors.Is(err, store.ErrExists) {
		e.Fatal(err)
	}
	for _, text := range texts {
		e.must(e.store.AppendEvents(ctx, key, []*patch.Event{said("", text)}, store.AppendOptions{}))
	}
}

// eager makes the store write a snapshot after each record, if the log has at most 100 visible events.
var eager = snapshot.Policy{Every: 1, MinPercent: 1}

// onEachWithSnapshots is onEach with a snapshot after each record. The test fails if the store warns and the test
// has not read the warning.
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

// anew waits until all due snapshots are written. Then it opens a new store on the same data, without a view in
// memory.
func (e *env) anew(policy snapshot.Policy) {
	e.Helper()
	e.opts.Snapshots = policy
	e.reopen()
}

// snapshot returns the session's stored snapshot.
func (e *env) snapshot() []byte {
	e.Helper()
	kept, err := backend.FetchSnapshot(ctx, e.backend, name(key), e.creation())
	e.no(err)
	return kept.Data
}

func (e *env) putSnapshot(data []byte) {
	e.Helper()
	head, err := backend.FetchHead(ctx, e.backend, name(key))
	e.no(err)
	e.no(e.backend.PutSnapshot(ctx, name(key), head.Creation, backend.Snapshot{Seq: head.Last, Chain: head.Chain, Data: data}))
}

// creation returns the session's creation id without loading the view.
func (e *env) creation() string {
	e.Helper()
	return infoOf(e, e.store, key).Creation
}

// snapshotSeq returns the seq of the session's stored snapshot.
func (e *env) snapshotSeq() uint64 {
	e.Helper()
	return seqOf(e.snapshot(), e.creation())
}

// seqOf returns the seq of a snapshot.
func seqOf(data []byte, creation string) uint64 {
	v, err := snapshot.Decode(data, fold.New(creation, nil), 1<<40)
	if err != nil && !errors.As(err, new(*fold.MissingRecordsError)) {
		panic(err)
	}
	return v.Seq()
}

// cutLog creates a log of 40 records. Most of the first 30 are hidden, and two are skipped.
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
		testlog.Equal(e, "the snapshot stands at", e.snapshotSeq(), 40)
		encode := func(v fold.View, err error) []byte {
			e.no(err)
			data, err := snapshot.Encode(v)
			e.no(err)
			return data
		}
		records := e.records(key)
		of := func(seq uint64, another *patch.PatchEvent) []byte { // returns a snapshot of a log in which one record is different
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
			"future":            encode(e.refold(records).Apply(patch.Record{Seq: 41, Event: say("future")})),
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
			testlog.Equal(e, "what replaced the snapshot "+name, e.snapshot(), good)
		}
	})
}

func TestSnapshotOfDeletedSession(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, w *warnings) {
		// The session stays in use while its snapshot is being written.
		put, goOn := make(chan struct{}), make(chan struct{})
		whole := e.backend.Backend
		once := sync.OnceFunc(func() { close(put); <-goOn })
		e.backend.Backend = &hooked{Backend: whole, put: once}
		e.create(nil)
		e.append(says("a", 20)...)
		<-put
		old := e.snapshot()
		e.no(e.store.Delete(ctx, key))
		e.create(nil)
		testlog.Equal(e, "the snapshot of a session without records", e.snapshot(), nil)
		close(goOn)
		for _, event := range says("b", 5) {
			e.append(event)
		}
		e.same("visible", ids(e.view()), "b1 b2 b3 b4 b5")
		e.no(e.store.Close())
		e.backend.Backend = whole
		e.anew(snapshot.Policy{Every: -1})
		testlog.Equal(e, "the new session's snapshot stands at", e.snapshotSeq(), 5)
		e.putSnapshot(old)
		e.anew(snapshot.Policy{Every: -1})
		e.same("visible", ids(e.view()), "b1 b2 b3 b4 b5")
		if lines := w.take(); len(lines) != 1 || !strings.Contains(lines[0], "another session") {
			e.Errorf("warnings %q", lines)
		}
		e.anew(eager) // writes a new snapshot
		e.view()
		w.take()
	})
}

// The first read of a session in a new store reads only the records of the visible log. It reads neither hidden
// records nor skipped patches. The view reads the skipped patches when a caller asks for them.
func TestColdRead(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		e.cutLog()
		e.anew(snapshot.Policy{Every: -1})
		e.append(says("c", 2)...)
		want := e.refold(e.records(key))
		e.reopen()
		var seqs []uint64
		whole := e.backend.Backend
		b := &hooked{Backend: whole, read: func(records []backend.Record) []backend.Record {
			for _, r := range records {
				seqs = append(seqs, r.Seq)
			}
			return records
		}}
		e.backend.Backend = b
		take := func() string { // returns the seqs of the records read since the last take
			slices.Sort(seqs)
			text := fmt.Sprint(slices.Compact(seqs))
			seqs = nil
			return text
		}
		read := func() string {
			e.open()
			take()
			e.view()
			return take()
		}
		// The records read are 31 with s1, a21 and a22, 33 with r1, a25 to a30, b1 to b6, and the records after
		// the snapshot.
		e.same("records read", read(), "[21 22 25 26 27 28 29 30 31 33 35 36 37 38 39 40 41 42]")
		v := e.view()
		if v.SkippedCount() != 2 || take() != "[]" {
			e.Error("counting the skipped patches reads records")
		}
		e.same("view", e.viewText(v), e.viewText(want))
		e.same("records read for the skipped patches", take(), "[]")
		// A view older than the snapshot is folded from the first record.
		e.must(e.store.ViewAt(ctx, key, 3))
		e.same("records read for a view at 3", take(), "[1 2 3]")
		e.must(e.store.ViewAt(ctx, key, 40))
		// The chain at the end of the log proves that the snapshot belongs to this log, so these records are read
		// too.
		e.same("records read for a view at 40", take(), "[21 22 25 26 27 28 29 30 31 33 35 36 37 38 39 40 41 42]")
		// Without a snapshot, the whole log is read.
		b.fetched = withoutSnapshot(storetest.ErrInjected)
		e.opts.Logger = slog.New(slog.DiscardHandler)
		if got := read(); strings.Count(got, " ") != 41 {
			e.Errorf("without a snapshot records %s were read", got)
		}
		// If a view later reads records, it reads them from its own session, not from a new session with the same
		// key.
		b.fetched = nil
		e.open()
		v = e.view()
		e.no(e.store.Delete(ctx, key))
		e.create(nil)
		e.is(errOf(e.store.History(ctx, key, v)), store.ErrNotFound)
		e.is(errOf(e.store.HistoryPage(ctx, key, v, "e1", 1)), store.ErrNotFound)
		e.backend.Backend = whole
	})
}

// withoutSnapshot returns a hook with which a cold read cannot read the snapshot.
func withoutSnapshot(err error) func(backend.Query, *backend.Fetched) {
	return func(_ backend.Query, news *backend.Fetched) {
		if news.Snapshot.Err = err; news.Snapshot.Data != nil {
			news.Snapshot.Data, news.Records = nil, nil
		}
	}
}

func TestFailingSnapshots(t *testing.T) {
	for _, failure := range []error{storetest.ErrInjected, backend.ErrDamaged, &backend.UnknownError{Cause: storetest.ErrInjected}} {
		onEachWithSnapshots(t, func(e *env, w *warnings) {
			fail := func(engine backend.Backend) backend.Backend {
				return &hooked{Backend: engine, serve: failing("PutSnapshot", failure), fetched: withoutSnapshot(failure)}
			}
			e.reopenOn(fail)
			e.create(nil)
			e.append(says("a", 5)...)
			e.apply(patch.NewSplice(0, 1).WithID("p"))
			e.append(say("b"))
			e.must(e.store.ViewAt(ctx, key, 6))
			e.no(e.store.Close())
			if len(w.take()) == 0 {
				e.Errorf("%v was not logged", failure)
			}
			e.reopenOn(fail)
			e.same("visible", ids(e.view()), "a2 a3 a4 a5 b")
			e.reopen()
			w.take()
		})
	}
}

// Close waits until the current snapshot and the queued snapshots are written.
func TestCloseWritesSnapshots(t *testing.T) {
	onEachWithSnapshots(t, func(e *env, _ *warnings) {
		keys := []store.Key{key, {App: "a", User: "u", Session: "1"}, {App: "a", User: "u", Session: "2"}}
		synctest.Test(e.T, func(t *testing.T) {
			goOn := make(chan struct{})
			s := newStore(t, &hooked{Backend: e.backend.Backend, put: func() { <-goOn }}, e.opts)
			for _, k := range keys {
				must(t)(s.Create(ctx, k, nil, store.CreateOptions{}))
				must(t)(s.AppendEvents(ctx, k, says("a", 3), store.AppendOptions{}))
			}
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			synctest.Wait()
			testlog.Equal(t, "calls of Close that did not wait", len(closed), 0)
			must(t)(s.Create(ctx, elsewhere, nil, store.CreateOptions{})) // after Close has started, no snapshot becomes due
			must(t)(s.AppendEvents(ctx, elsewhere, says("late", 3), store.AppendOptions{}))
			close(goOn)
			testlog.NoError(t, <-closed)
		})
		e.store = newStore(e, e.backend, e.opts) // closing this store also closes the engine
		e.reopen()
		n := 0
		listed, err := e.backend.List(ctx, "", "", 9)
		e.no(err)
		for _, l := range listed {
			kept, err := backend.FetchSnapshot(ctx, e.backend, l.Session, l.Creation)
			e.no(err)
			if kept.Data != nil {
				n++
			}
		}
		testlog.Equal(e, "snapshots", n, len(keys))
	})
}

// warnings collects the warnings of a store.
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

// take returns the warnings since the last take.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}
