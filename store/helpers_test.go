package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// env is a store under test, on one of the engines.
type env struct {
	*testing.T
	store   *store.Store
	backend *storetest.Faulty // what it runs on
	engine  backend.Backend   // in the end
	path    string            // of the file; "" in memory
	opts    store.Options
}

// onEach runs a test on bbolt and in memory. The store's clock stands at now. In the
// end it checks that all that is stored fits together.
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
	// Durability has tests of its own.
	b, err := bolt.Open(path, bolt.Options{NoSync: true})
	testlog.NoError(t, err)
	return b
}

// unclosed is a backend in memory that outlives its store.
type unclosed struct{ backend.Backend }

func (unclosed) Close() error { return nil }

func (e *env) open() {
	e.Helper()
	e.store = newStore(e, e.backend, e.opts)
}

// with returns the env for a part of the test.
func (e *env) with(t *testing.T) *env {
	part := *e
	part.T = t
	return &part
}

// reopen closes the store and opens anew what it has stored.
func (e *env) reopen() {
	e.Helper()
	e.reopenOn(func(b backend.Backend) backend.Backend { return b })
}

// reopenOn is reopen with something between the store and the engine.
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

// dump returns all that the backend holds, ids of records apart.
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
	values, err := backend.SharedOf(ctx, e.backend, "")
	e.no(err)
	for _, v := range values {
		fmt.Fprintf(&b, "shared %q %x\n", v.Name, v.Data)
	}
	return b.String()
}

// viewText says all that a view shows.
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
	out, err := v.Skipped()
	e.no(err)
	return out
}

// withoutCreation leaves out what differs between two sessions with the same log.
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

// must ends the test if a call fails whose other result is of no interest.
func must(t testlog.Failer) func(result any, err error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		testlog.NoError(t, err)
	}
}

// newStore opens a store on a backend.
func newStore(t testlog.Failer, b backend.Backend, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.New(b, opts)
	testlog.NoError(t, err)
	return s
}

// openStore opens a file.
func openStore(t testlog.Failer, path string, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(path, opts)
	testlog.NoError(t, err)
	return s
}

func sessionOf(t testlog.Failer, s *store.Store, key store.Key) store.Session {
	t.Helper()
	session, err := s.Get(ctx, key)
	testlog.NoError(t, err)
	return session
}

func viewOf(t testlog.Failer, s *store.Store, key store.Key) fold.View {
	t.Helper()
	return sessionOf(t, s, key).View
}

func infoOf(t testlog.Failer, s *store.Store, key store.Key) store.Info {
	t.Helper()
	info, err := s.Info(ctx, key)
	testlog.NoError(t, err)
	return info
}

func readFile(t testlog.Failer, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	testlog.NoError(t, err)
	return data
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

// is checks that an error matches target and that its text names what is at fault.
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
	_, err := e.store.Create(ctx, key, state)
	e.no(err)
}

func (e *env) append(events ...*patch.Event) store.Committed {
	e.Helper()
	c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, events...)
	e.no(err)
	return c
}

func (e *env) apply(patches ...*patch.PatchEvent) store.Committed {
	e.Helper()
	c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: e.view()}, patches...)
	e.no(err)
	return c
}

func (e *env) importText(name, text string) store.Imported {
	e.Helper()
	imported, err := e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{Name: name})
	e.no(err)
	return imported
}

func (e *env) export() string {
	e.Helper()
	var b strings.Builder
	e.no(e.store.Export(ctx, key, &b, store.ExportOptions{}))
	return b.String()
}

func (e *env) get() store.Session {
	e.Helper()
	s, err := e.store.Get(ctx, key)
	e.no(err)
	return s
}

func (e *env) view() fold.View {
	e.Helper()
	return e.get().View
}

func (e *env) records(key store.Key) []patch.Record {
	e.Helper()
	var out []patch.Record
	for r, err := range e.store.RawEvents(ctx, key, 1) {
		e.no(err)
		out = append(out, r)
	}
	return out
}

// state returns the session's whole state as JSON.
func (e *env) state() string {
	e.Helper()
	text, err := json.Marshal(e.get().Values())
	e.no(err)
	return string(text)
}

// event makes an event from JSON.
func event(format string, args ...any) *patch.Event { return testlog.Event(format, args...) }

// parsePatch makes a patch from JSON, which may be malformed as a patch.
func parsePatch(format string, args ...any) *patch.PatchEvent {
	return testlog.Record(format, args...).Patch
}

func say(id string) *patch.Event {
	return event(`{"id":%q,"invocationId":"inv1","author":"user","content":{"role":"user","parts":[{"text":"this is %s"}]}}`, id, id)
}

// says returns events a1, a2, … for prefix a.
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

// sets returns an event that sets state: delta is JSON.
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

// onRead is a backend with another Read, which may call the backend's.
type onRead struct {
	backend.Backend
	read func(ctx context.Context, next func() ([]backend.Record, error)) ([]backend.Record, error)
}

func (b *onRead) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	return b.read(ctx, func() ([]backend.Record, error) { return b.Backend.Read(ctx, session, creation, seqs, maxBytes) })
}

// beforeRead returns a backend that does something before the first Read.
func beforeRead(b backend.Backend, do func()) *onRead {
	var begun atomic.Bool
	return &onRead{b, func(_ context.Context, next func() ([]backend.Record, error)) ([]backend.Record, error) {
		if begun.CompareAndSwap(false, true) {
			do()
		}
		return next()
	}}
}
