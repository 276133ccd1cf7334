package store_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

var (
	ctx = context.Background()
	key = store.Key{App: "app", User: "user", Session: "session"}
	now = time.Date(2025, 11, 20, 10, 30, 0, 123456789, time.UTC)
)

// env is a store under test on one of the engines.
type env struct {
	*testing.T
	store   *store.Store
	backend *storetest.Faulty // the store's backend
	engine  backend.Backend   // the engine under backend and its wrappers
	path    string            // path of the file; "" for a store in memory
	opts    store.Options
	known   fold.View // view that a test reads before it counts backend calls
}

// onEach runs a test on bbolt and in memory, with a clock that always returns now. Afterwards it calls checkAll.
func onEach(t *testing.T, run func(e *env)) {
	t.Helper()
	onEachWith(t, store.Options{}, run)
}

func onEachWith(t *testing.T, opts store.Options, run func(e *env)) {
	t.Helper()
	if opts.Now == nil {
		opts.Now = func() time.Time { return now }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, engine := range []struct {
		name string
		open func(t *testing.T) (b backend.Backend, path string)
	}{
		{"bolt", openBolt},
		{"memory", func(*testing.T) (backend.Backend, string) { return unclosed{&memory.Backend{}}, "" }},
	} {
		t.Run(engine.name, func(t *testing.T) {
			b, path := engine.open(t)
			e := &env{T: t, backend: &storetest.Faulty{Backend: b}, engine: b, path: path, opts: opts}
			e.open()
			run(e)
			e.backend.Plan(storetest.Plan{})
			e.checkAll()
		})
	}
}

func openBolt(t *testing.T) (backend.Backend, string) {
	path := filepath.Join(t.TempDir(), "log.db")
	return openBoltAt(t, path), path
}

func openBoltAt(t *testing.T, path string) backend.Backend {
	t.Helper()
	// Without NoSync the tests would be slow. Other tests check durability.
	return testlog.Must(bolt.Open(path, bolt.Options{NoSync: true}))(t)
}

// unclosed is a backend in memory whose Close does nothing, so that a new store can use the data.
type unclosed struct{ backend.Backend }

func (unclosed) Close() error { return nil }

func (e *env) open() {
	e.Helper()
	e.store = newStore(e, e.backend, e.opts)
}

// with returns a copy of the env for a subtest.
func (e *env) with(t *testing.T) *env {
	part := *e
	part.T = t
	return &part
}

// reopen closes the store and opens it again on the same data.
func (e *env) reopen() {
	e.Helper()
	e.reopenOn(func(b backend.Backend) backend.Backend { return b })
}

// reopenOn is reopen with a wrapper between the store and the engine.
func (e *env) reopenOn(wrap func(engine backend.Backend) backend.Backend) {
	e.Helper()
	if err := e.store.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
		e.Fatal(err)
	}
	if e.path != "" {
		e.engine = openBoltAt(e.T, e.path)
	}
	e.backend.Backend = wrap(e.engine)
	e.open()
}

func (e *env) hook() *hooked {
	e.Helper()
	h := &hooked{}
	e.reopenOn(func(engine backend.Backend) backend.Backend {
		h.Backend = engine
		return h
	})
	return h
}

// dump returns the sessions, records and shared values of the backend, as text.
func (e *env) dump() string {
	e.Helper()
	var b strings.Builder
	listed, err := e.backend.List(ctx, "", "", 1<<20)
	e.no(err)
	for _, l := range listed {
		fmt.Fprintf(&b, "session %q %q %x %d\n", l.Session, l.Creation, l.Meta, l.Last)
		records, err := e.backend.Read(ctx, l.Session, l.Creation, backend.Range(1, 1<<16), 1<<30)
		e.no(err)
		for _, r := range records {
			fmt.Fprintf(&b, "record %d %x\n", r.Seq, r.Data)
		}
	}
	values, err := backend.FetchShared(ctx, e.backend, "")
	e.no(err)
	for _, v := range values {
		fmt.Fprintf(&b, "shared %q %x\n", v.Name, v.Data)
	}
	return b.String()
}

// viewText returns everything that a view contains, as text.
func (e *env) viewText(v fold.View) string {
	e.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "seq %d, patch %d, creation %s\n", v.Seq(), v.PatchSeq(), v.Creation())
	for i, event := range v.Events() {
		fmt.Fprintf(&b, "%d %d %t %t %s\n", i, v.Entry(i).Seq, v.Entry(i).Summary, v.IsPinned(i), event)
	}
	for k, value := range v.Values() {
		fmt.Fprintf(&b, "%q = %s (%#v)\n", k, value, value.Any())
	}
	fmt.Fprintln(&b, e.skipped(v))
	return b.String()
}

func (e *env) skipped(v fold.View) []patch.Skip {
	e.Helper()
	if v.SkippedCount() == 0 {
		return nil
	}
	return testlog.Must(v.Skipped())(e)
}

// withoutCreation removes the first line of text, which has the creation id.
func withoutCreation(text string) string {
	_, rest, _ := strings.Cut(text, "\n")
	return rest
}

func ids(v fold.View) string {
	var out []string
	for _, e := range v.Events() {
		out = append(out, e.ID())
	}
	return strings.Join(out, " ")
}

// must fails the test if a call returns an error. It ignores the call's result.
func must(t testlog.Failer) func(result any, err error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		testlog.NoError(t, err)
	}
}

// errOf returns the error of a call, without the call's result.
func errOf(_ any, err error) error { return err }

func newStore(t testlog.Failer, b backend.Backend, opts store.Options) *store.Store {
	t.Helper()
	return testlog.Must(store.New(b, opts))(t)
}

func openStore(t testlog.Failer, path string, opts store.Options) *store.Store {
	t.Helper()
	return testlog.Must(store.Open(path, opts))(t)
}

func sessionOf(t testlog.Failer, s *store.Store, key store.Key) store.Session {
	t.Helper()
	return testlog.Must(s.Get(ctx, key))(t)
}

func viewOf(t testlog.Failer, s *store.Store, key store.Key) fold.View {
	t.Helper()
	return sessionOf(t, s, key).View
}

func infoOf(t testlog.Failer, s *store.Store, key store.Key) store.Info {
	t.Helper()
	return testlog.Must(s.Info(ctx, key))(t)
}

func readFile(t testlog.Failer, path string) []byte {
	t.Helper()
	return testlog.Must(os.ReadFile(path))(t)
}

func (e *env) no(err error) {
	e.Helper()
	testlog.NoError(e, err)
}

func (e *env) must(_ any, err error) {
	e.Helper()
	testlog.NoError(e, err)
}

func (e *env) same(what, got, want string) {
	e.Helper()
	if got != want {
		e.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// is checks that an error matches target and that its text contains each of the names.
func (e *env) is(err, target error, names ...string) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("error %v, want one that matches %q", err, target)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			e.Errorf("error %q does not name %q", err, name)
		}
	}
}

func as[T error](e *env, err error) T {
	e.Helper()
	var out T
	if !errors.As(err, &out) {
		e.Fatalf("error %v is no %T", err, out)
	}
	return out
}

func (e *env) create(state map[string]any) {
	e.Helper()
	e.must(e.store.Create(ctx, key, state, store.CreateOptions{}))
}

func (e *env) append(events ...*patch.Event) store.Committed {
	e.Helper()
	return testlog.Must(e.store.AppendEvents(ctx, key, events, store.AppendOptions{}))(e)
}

// try appends events and returns the error.
func (e *env) try(events ...*patch.Event) error {
	return errOf(e.store.AppendEvents(ctx, key, events, store.AppendOptions{}))
}

func (e *env) apply(patches ...*patch.PatchEvent) store.Committed {
	e.Helper()
	return testlog.Must(e.store.ApplyPatch(ctx, key, patches, store.PatchOptions{On: e.view()}))(e)
}

func (e *env) importText(name, text string) store.Imported {
	e.Helper()
	return testlog.Must(e.importInto(key, text, store.ImportOptions{Name: name}))(e)
}

func (e *env) export() string {
	e.Helper()
	return exportOf(e, e.store, key, store.ExportOptions{})
}

func (e *env) get() store.Session {
	e.Helper()
	return sessionOf(e, e.store, key)
}

func (e *env) view() fold.View {
	e.Helper()
	return e.get().View
}

func (e *env) records(key store.Key) []patch.Record {
	e.Helper()
	return recordsOf(e, e.store, key)
}

// state returns the session's state, with shared values, as JSON.
func (e *env) state() string {
	e.Helper()
	return string(testlog.Must(json.Marshal(e.get().Values()))(e))
}

func event(format string, args ...any) *patch.Event { return testlog.Event(format, args...) }

// parsePatch makes a patch from JSON. The patch may be invalid.
func parsePatch(format string, args ...any) *patch.PatchEvent {
	return testlog.Record(format, args...).Patch
}

func say(id string) *patch.Event {
	return event(`{"id":%q,"invocationId":"inv1","author":"user","content":{"role":"user","parts":[{"text":"this is %s"}]}}`, id, id)
}

// says returns n events whose ids are the prefix followed by 1, 2 and so on.
func says(prefix string, n int) []*patch.Event {
	var out []*patch.Event
	for i := range n {
		out = append(out, say(fmt.Sprint(prefix, i+1)))
	}
	return out
}

func summary(id string) *patch.Event {
	return event(`{"id":%q,"author":"summariser","content":{"role":"user","parts":[{"text":"summary %s"}]}}`, id, id)
}

// sets returns an event with the state delta that the JSON in delta describes.
func sets(id, delta string) *patch.Event {
	return event(`{"id":%q,"author":"agent","actions":{"stateDelta":%s}}`, id, delta)
}

func call(id, inv string, callIDs ...string) *patch.Event {
	return callEvent(id, inv, "model", "functionCall", "args", callIDs)
}

func answer(id, inv string, callIDs ...string) *patch.Event {
	return callEvent(id, inv, "user", "functionResponse", "response", callIDs)
}

func callEvent(id, inv, role, kind, what string, callIDs []string) *patch.Event {
	var parts []string
	for _, c := range callIDs {
		parts = append(parts, fmt.Sprintf(`{%q:{"id":%q,"name":"tool","%s":{}}}`, kind, c, what))
	}
	return event(`{"id":%q,"invocationId":%q,"author":"agent","content":{"role":%q,"parts":[%s]}}`, id, inv, role, strings.Join(parts, ","))
}

// beforeFirst returns a hook that runs do before the first call with the given name.
func beforeFirst(call string, do func()) func(ctx context.Context, call string) (backend.Backend, error) {
	var begun atomic.Bool
	return func(_ context.Context, c string) (backend.Backend, error) {
		if c == call && begun.CompareAndSwap(false, true) {
			do()
		}
		return nil, nil
	}
}

// hooked is a backend that records the names of its calls and calls a test's functions.
type hooked struct {
	backend.Backend
	serve      func(ctx context.Context, call string) (backend.Backend, error) // chooses the backend for a call; nil means the wrapped backend
	fetched    func(q backend.Query, news *backend.Fetched)                    // runs before a Fetch returns
	read       func([]backend.Record) []backend.Record                         // runs before a Read returns
	found      func(ids []string, seqs []uint64)                               // runs before a Lookup returns
	put        func()                                                          // runs after a PutSnapshot
	named      func(call, session string)                                      // runs before a call for a session
	appended   func(ctx context.Context, n int, next func(ctx context.Context) error) error
	maxRecords int // maximum number of records that a Read returns; 0 means no limit

	mu         sync.Mutex
	calls      []string
	fetchTimes []time.Time
	appends    int
}

// through makes a backend call. If the hook serve returns an error, through returns this error without the call.
func through[T any](ctx context.Context, h *hooked, call string, do func(b backend.Backend) (T, error)) (out T, err error) {
	h.mu.Lock()
	h.calls = append(h.calls, call)
	if call == "Fetch" {
		h.fetchTimes = append(h.fetchTimes, time.Now())
	}
	b, serve := h.Backend, h.serve
	h.mu.Unlock()
	if serve != nil {
		other, err := serve(ctx, call)
		if err != nil {
			return out, err
		}
		if other != nil {
			b = other
		}
	}
	return do(b)
}

func (h *hooked) name(call, session string) {
	if h.named != nil {
		h.named(call, session)
	}
}

// only adapts a backend call without a result to the function through.
func only(do func(b backend.Backend) error) func(b backend.Backend) (struct{}, error) {
	return func(b backend.Backend) (struct{}, error) { return struct{}{}, do(b) }
}

// takeCalls returns the names of the calls since the last takeCalls.
func (h *hooked) takeCalls() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := strings.Join(h.calls, " ")
	h.calls = nil
	return calls
}

// set replaces the hook that answers calls.
func (h *hooked) set(serve func(ctx context.Context, call string) (backend.Backend, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serve = serve
}

// takeIntervals returns the intervals between the Fetch calls since the last takeIntervals, and clears them.
func (h *hooked) takeIntervals() (apart []time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.fetchTimes[min(1, len(h.fetchTimes)):] {
		apart = append(apart, h.fetchTimes[i+1].Sub(h.fetchTimes[i]))
	}
	h.fetchTimes = nil
	return apart
}

// late makes the next Append call take instead. The outcome of that Append is unknown, as if the
// connection broke during the call.
func (h *hooked) late(take func(do func() error)) {
	h.appended = func(_ context.Context, _ int, next func(ctx context.Context) error) error {
		h.appended = nil
		take(func() error { return next(context.Background()) })
		return &backend.UnknownError{Cause: errors.New("connection reset")}
	}
}

func (h *hooked) Append(ctx context.Context, session string, batch backend.Batch) error {
	return errOf(through(ctx, h, "Append", only(func(b backend.Backend) error {
		next := func(ctx context.Context) error { return b.Append(ctx, session, batch) }
		if h.appended == nil {
			return next(ctx)
		}
		h.mu.Lock()
		h.appends++
		n := h.appends
		h.mu.Unlock()
		return h.appended(ctx, n, next)
	})))
}

func (h *hooked) Replace(ctx context.Context, session, creation string, make func(backend.Head) (backend.Replacement, error)) error {
	h.name("Replace", session)
	return errOf(through(ctx, h, "Replace", only(func(b backend.Backend) error { return b.Replace(ctx, session, creation, make) })))
}

func (h *hooked) Relatives(ctx context.Context, family, after string, limit int) ([]backend.Listed, error) {
	return through(ctx, h, "Relatives", func(b backend.Backend) ([]backend.Listed, error) { return b.Relatives(ctx, family, after, limit) })
}

func (h *hooked) Fetch(ctx context.Context, q backend.Query) (backend.Fetched, error) {
	call := "Fetch"
	if q.UpTo != 0 {
		call = "cold Fetch"
	}
	h.name(call, q.Session)
	return through(ctx, h, call, func(b backend.Backend) (backend.Fetched, error) {
		news, err := b.Fetch(ctx, q)
		if h.maxRecords > 0 {
			news.Records = news.Records[:min(len(news.Records), h.maxRecords)]
		}
		if h.read != nil && q.UpTo != 0 {
			news.Records = h.read(news.Records)
		}
		if h.fetched != nil {
			h.fetched(q, &news)
		}
		return news, err
	})
}

func (h *hooked) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	h.name("Read", session)
	return through(ctx, h, "Read", func(b backend.Backend) ([]backend.Record, error) {
		if h.maxRecords > 0 {
			seqs = seqs[:min(len(seqs), h.maxRecords)]
		}
		records, err := b.Read(ctx, session, creation, seqs, maxBytes)
		if h.read != nil {
			records = h.read(records)
		}
		return records, err
	})
}

func (h *hooked) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	h.name("Lookup", session)
	return through(ctx, h, "Lookup", func(b backend.Backend) ([]uint64, error) {
		seqs, err := b.Lookup(ctx, session, creation, ids)
		if h.found != nil && err == nil {
			h.found(ids, seqs)
		}
		return seqs, err
	})
}

func (h *hooked) PutSnapshot(ctx context.Context, session, creation string, kept backend.Snapshot) error {
	return errOf(through(ctx, h, "PutSnapshot", only(func(b backend.Backend) error {
		err := b.PutSnapshot(ctx, session, creation, kept)
		if h.put != nil {
			h.put()
		}
		return err
	})))
}

func (h *hooked) Fence(ctx context.Context, session, creation string, seen, next backend.Token) (bool, error) {
	return through(ctx, h, "Fence", func(b backend.Backend) (bool, error) { return b.Fence(ctx, session, creation, seen, next) })
}

func (h *hooked) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	return errOf(through(ctx, h, "Delete", only(func(b backend.Backend) error { return b.Delete(ctx, session, creation, seen) })))
}

// checkAll checks that the view of each session is the fold of its log. It also checks that the index contains
// exactly the ids of the session's records.
func (e *env) checkAll() {
	e.Helper()
	if e.Failed() {
		return
	}
	shown := map[store.Key]string{}
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		if errors.Is(err, store.ErrClosed) {
			break
		}
		e.no(err)
		session := sessionOf(e, e.store, info.Key)
		shown[info.Key] = e.viewText(session.View)
	}
	e.reopen()
	e.same("problems", fmt.Sprint(e.verify(store.VerifyOptions{})), "[]")
	ids := 0
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		session := sessionOf(e, e.store, info.Key)
		if before, ok := shown[info.Key]; ok {
			e.same("view of "+info.Key.String()+" read anew", e.viewText(session.View), before)
		}
		ids += e.checkSession(info, session.View)
	}
	e.no(e.store.Close())
	if e.path == "" {
		return
	}
	b := openBoltAt(e.T, e.path)
	testlog.WantNil(e, b.(*bolt.Backend).Check(ctx))
	e.no(b.Close())
	testlog.Equal(e, "ids that the index holds", countIDs(e.T, e.path), ids)
}

// checkSession checks one session and returns the number of ids of its records.
func (e *env) checkSession(info store.Info, v fold.View) int {
	e.Helper()
	records := e.records(info.Key)
	if n := uint64(len(records)); n != info.Seq || n != v.Seq() {
		e.Errorf("session %s: %d records, but the listing says %d and the view %d", info.Key, n, info.Seq, v.Seq())
	}
	e.same("view of "+info.Key.String(), e.viewText(v), e.viewText(e.refoldOf(info, records)))
	taken := map[string]bool{}
	for _, r := range records {
		for id := range r.IDs() {
			taken[id] = true
		}
		if r.Event != nil && r.Event.InvocationID() != "" {
			taken["invocation "+r.Event.InvocationID()] = true
		}
		if r.Patch != nil && r.Patch.Group() != "" {
			taken[strings.Repeat("\x00", patch.MaxIDBytes+1)+r.Patch.Group()] = true
		}
	}
	return len(taken)
}

// refold folds the session's log from its first record.
func (e *env) refold(records []patch.Record) fold.View {
	e.Helper()
	return e.refoldOf(infoOf(e, e.store, key), records)
}

func (e *env) refoldOf(info store.Info, records []patch.Record) fold.View {
	e.Helper()
	start := testlog.Must(e.store.ViewAt(ctx, info.Key, 0))(e)
	return testlog.Must(fold.New(info.Creation, maps.Collect(start.Values())).Apply(records...))(e)
}

// nameOf returns the session's name in the backend.
func (e *env) nameOf(info store.Info) string {
	e.Helper()
	listed, err := e.backend.List(ctx, "", "", 1<<20)
	e.no(err)
	for _, l := range listed {
		if l.Creation == info.Creation {
			return l.Session
		}
	}
	e.Fatalf("session %s is not in the backend", info.Key)
	return ""
}

func countIDs(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true})
	testlog.NoError(t, err)
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("records")).ForEach(func(k, row []byte) error {
			if binary.BigEndian.Uint64(k[8:]) > 0 { // the number of ids is in the four bytes before the last checksum
				n += int(binary.BigEndian.Uint32(row[len(row)-8:]))
			}
			return nil
		})
	})
	testlog.NoError(t, err)
	return n
}
