package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/bolt"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func TestCreateRefusesState(t *testing.T) {
	onEach(t, func(e *env) {
		for k, v := range map[string]any{
			"nan": math.NaN(), "app:inf": math.Inf(1), "chan": make(chan int), "map": map[int]int{1: 1},
			"text": "\xff", "error": errors.New("x"), "struct": struct{ A int }{1}, "deep": map[string]any{"in": []any{math.NaN()}},
		} {
			_, err := e.store.Create(ctx, key, map[string]any{"fine": 1, k: v})
			e.is(err, store.ErrInvalid, k)
		}
		_, err := e.store.Create(ctx, key, map[string]any{"k\xff": 1})
		e.is(err, store.ErrInvalid, `k\xff`)
		_, err = e.store.Get(ctx, key)
		e.is(err, store.ErrNotFound)
		// What temp: keys hold does not matter, but it must not come by unseen.
		e.must(e.store.Create(ctx, key, map[string]any{"temp:x": 1, "v": mustValue(`{"a":1.0}`)}))
		e.same("state", e.state(), `{"v":{"a":1.0}}`)
	})
}

func mustValue(text string) patch.Value {
	v, err := patch.ParseValue([]byte(text))
	if err != nil {
		panic(err)
	}
	return v
}

func TestNotFound(t *testing.T) {
	onEach(t, func(e *env) {
		for name, err := range e.everyCall(key) {
			if name != "Create" && name != "Import" && name != "List" {
				e.is(err, store.ErrNotFound, key.String())
			}
		}
	})
}

// everyCall calls each method of the store and returns the errors.
func (e *env) everyCall(key store.Key) map[string]error {
	return e.everyCallWith(ctx, key)
}

func (e *env) everyCallWith(ctx context.Context, key store.Key) map[string]error {
	errs := map[string]error{}
	_, errs["Get"] = e.store.Get(ctx, key)
	_, errs["ViewAt"] = e.store.ViewAt(ctx, key, 0)
	_, errs["InitialState"] = e.store.InitialState(ctx, key)
	_, errs["AppendEvents"] = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("x"))
	_, errs["AppendEvents of nothing"] = e.store.AppendEvents(ctx, key, store.AppendOptions{})
	_, errs["AppendEvents of a partial event"] = e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"partial":true}`))
	_, errs["ApplyPatch"] = e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 0, say("y")))
	_, errs["ApplyPatch of nothing"] = e.store.ApplyPatch(ctx, key, asOfNow)
	_, errs["Preview"] = e.store.Preview(ctx, key, asOfNow, patch.NewSplice(0, 0, say("y")))
	errs["Export"] = e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{})
	errs["Export of the visible"] = e.store.Export(ctx, key, new(bytes.Buffer), store.ExportOptions{Visible: true})
	for _, err := range e.store.RawEvents(ctx, key, 1) {
		errs["RawEvents"] = err
	}
	errs["List"] = nil
	for _, err := range e.store.List(ctx, store.ListOptions{App: key.App}) {
		errs["List"] = err
	}
	errs["Delete"] = e.store.Delete(ctx, key)
	_, errs["Create"] = e.store.Create(ctx, key, nil)
	_, errs["Import"] = e.store.Import(ctx, key, strings.NewReader(`{"id":"z"}`), store.ImportOptions{})
	return errs
}

func TestClosed(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		v := e.view() // also: it is in memory now
		if e.path == "" {
			// The backend in memory outlives its store here, so close it itself.
			b := e.backend.Backend.(unclosed).Backend
			e.no(b.Close())
			e.backend.Backend = b
		} else {
			e.no(e.store.Close())
		}
		for name, err := range e.everyCall(key) {
			if !errors.Is(err, store.ErrClosed) {
				e.Errorf("%s after Close: %v", name, err)
			}
		}
		e.is(e.store.Close(), store.ErrClosed)
		e.same("view", ids(v), "a1 a2 a3") // views stay usable
		if e.path == "" {
			e.engine = unclosed{&memory.Backend{}}
		}
	})
}

func TestCancelled(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		stored := e.dump()
		for name, err := range e.everyCallWith(cancelled, key) {
			if !errors.Is(err, context.Canceled) {
				e.Errorf("%s: %v", name, err)
			}
		}
		e.same("stored", e.dump(), stored)
	})
}

// A caller that is gone when the commit fails does not keep the store from finding out
// what became of it.
func TestCancelledWhileCommitting(t *testing.T) {
	onEach(t, func(e *env) {
		during := func(call func(ctx context.Context) error) {
			e.Helper()
			c, cancel := context.WithCancel(ctx)
			defer cancel()
			e.backend.Plan(storetest.Plan{Write: 1, Failure: storetest.Landed, During: cancel})
			err := call(c)
			if err == nil {
				e.no(err)
				return
			}
			// Asking may take long there: a caller who is gone is told so.
			e.is(err, store.ErrOutcomeUnknown)
			e.is(err, context.Canceled)
		}
		during(func(c context.Context) error {
			s, err := e.store.Create(c, key, map[string]any{"k": 1, "app:x": 1})
			if v, ok := s.Value("app:x"); err == nil && (!ok || v.String() != "1") {
				e.Error("app:x is not there")
			}
			return err
		})
		during(func(c context.Context) error {
			_, err := e.store.AppendEvents(c, key, store.AppendOptions{}, say("a1"))
			return err
		})
		during(func(c context.Context) error {
			_, err := e.store.Import(c, key, strings.NewReader(`{"id":"a2"}`), store.ImportOptions{})
			return err
		})
		e.same("visible", ids(e.view()), "a1 a2")
		during(func(c context.Context) error { return e.store.Delete(c, key) })
	})
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		opts  store.Options
		field string
	}{
		{store.Options{MaxRecordBytes: -1}, "MaxRecordBytes"},
		{store.Options{MaxRecordBytes: patch.MaxRecordBytes + 1}, "MaxRecordBytes"},
		{store.Options{LockTimeout: -time.Second}, "LockTimeout"},
	} {
		for _, open := range []func() (*store.Store, error){
			func() (*store.Store, error) { return store.OpenMemory(c.opts) },
			func() (*store.Store, error) { return store.Open(t.TempDir()+"/log.db", c.opts) },
		} {
			_, err := open()
			var field *patch.FieldError
			if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &field) || field.Field != "Options."+c.field {
				t.Errorf("%+v: %v", c.opts, err)
			}
		}
	}
}

func TestLogsSettledOutcome(t *testing.T) {
	var b bytes.Buffer
	onEachWith(t, store.Options{Logger: slog.New(slog.NewTextHandler(&b, nil))}, func(e *env) {
		e.create(nil)
		e.backend.Plan(storetest.Plan{Write: 1, Failure: storetest.Landed})
		e.append(say("a1"))
		if !strings.Contains(b.String(), key.String()) || !strings.Contains(b.String(), "injected failure") {
			e.Errorf("the log says %q", b.String())
		}
		b.Reset()
	})
}

// TestNil checks that what is not there is refused at once, by name, and that nothing is
// written then.
func TestNil(t *testing.T) {
	ctx, key := t.Context(), store.Key{App: "a", User: "u", Session: "s"}
	s := teststore.Memory(t, store.Options{})
	must(t)(s.Create(ctx, key, nil))
	e, err := patch.ParseEvent([]byte(`{"author":"user"}`))
	testlog.NoError(t, err)
	opts := store.PatchOptions{AsOfNow: true}
	splice := patch.NewSplice(0, 0, e)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"backend":          {func() error { _, err := store.New(nil, store.Options{}); return err }, "backend"},
		"bolt backend":     {func() error { _, err := store.New((*bolt.Backend)(nil), store.Options{}); return err }, "backend"},
		"memory backend":   {func() error { _, err := store.New((*memory.Backend)(nil), store.Options{}); return err }, "backend"},
		"event":            {func() error { _, err := s.AppendEvents(ctx, key, store.AppendOptions{}, e, nil); return err }, "event 1"},
		"patch":            {func() error { _, err := s.ApplyPatch(ctx, key, opts, splice, nil); return err }, "patch 1"},
		"patch on a view":  {func() error { _, err := s.ApplyOn(ctx, key, fold.View{}, fold.CheckOptions{}, nil); return err }, "patch 0"},
		"preview":          {func() error { _, err := s.Preview(ctx, key, opts, nil); return err }, "patch"},
		"replacement":      {func() error { _, err := s.ApplyPatch(ctx, key, opts, patch.NewSplice(0, 0, nil)); return err }, "replacement/0"},
		"summary":          {func() error { _, err := s.ApplyPatch(ctx, key, opts, patch.NewSummarise(0, 1, nil)); return err }, "summaryEvent"},
		"view of a splice": {func() error { _, err := s.ApplyPatch(ctx, key, store.PatchOptions{}, splice); return err }, "base"},
		"view of a look":   {func() error { _, err := s.Preview(ctx, key, store.PatchOptions{}, splice); return err }, "base"},
		"reader":           {func() error { _, err := s.Import(ctx, key, nil, store.ImportOptions{}); return err }, "reader"},
		"writer":           {func() error { return s.Export(ctx, key, nil, store.ExportOptions{}) }, "writer"},
	} {
		if err := c.do(); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := s.Info(ctx, key); err != nil || info.Seq != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

func (e *env) list(opts store.ListOptions) string {
	e.Helper()
	var out []string
	for info, err := range e.store.List(ctx, opts) {
		e.no(err)
		out = append(out, fmt.Sprint(info.Key, " ", info.Seq))
	}
	return strings.Join(out, ", ")
}

func TestList(t *testing.T) {
	onEach(t, func(e *env) {
		e.same("none", e.list(store.ListOptions{}), "")
		for i, k := range []store.Key{
			{App: "b", User: "u", Session: "1"}, {App: "a", User: "u2", Session: "1"}, {App: "a", User: "u", Session: "2"},
			{App: "a", User: "u", Session: "1"}, {App: "ab", User: "u", Session: "1"}, {App: "a", User: "u", Session: "10"},
		} {
			e.must(e.store.Create(ctx, k, nil))
			e.must(e.store.AppendEvents(ctx, k, store.AppendOptions{}, says("e", i)...))
		}
		for _, c := range []struct {
			opts store.ListOptions
			want string
		}{
			{store.ListOptions{}, "a/u/1 3, a/u/10 5, a/u/2 2, a/u2/1 1, ab/u/1 4, b/u/1 0"},
			{store.ListOptions{App: "a"}, "a/u/1 3, a/u/10 5, a/u/2 2, a/u2/1 1"},
			{store.ListOptions{App: "a", User: "u"}, "a/u/1 3, a/u/10 5, a/u/2 2"},
			{store.ListOptions{App: "a", User: "u2"}, "a/u2/1 1"},
			{store.ListOptions{User: "u"}, "a/u/1 3, a/u/10 5, a/u/2 2, ab/u/1 4, b/u/1 0"},
			{store.ListOptions{App: "ab"}, "ab/u/1 4"},
			{store.ListOptions{App: "abc"}, ""},
			{store.ListOptions{App: "a", User: "none"}, ""},
			{store.ListOptions{User: "none"}, ""},
		} {
			e.same(fmt.Sprintf("list of %+v", c.opts), e.list(c.opts), c.want)
		}
		for info, err := range e.store.List(ctx, store.ListOptions{App: "b"}) {
			e.no(err)
			s := sessionOf(e, e.store, info.Key)
			if info.Creation != s.View.Creation() || !info.Created.Equal(now) {
				e.Errorf("created at %v as %q; the view says %q", info.Created, info.Creation, s.View.Creation())
			}
		}
		for range e.store.List(ctx, store.ListOptions{}) {
			break
		}
	})
}

func TestListPageByPage(t *testing.T) {
	onEach(t, func(e *env) {
		const n = 600 // more than two pages
		var want []string
		for i := range n {
			k := store.Key{App: "app", User: fmt.Sprint("u", i%2), Session: fmt.Sprintf("%04d", i)}
			e.must(e.store.Create(ctx, k, nil))
			want = append(want, fmt.Sprint(k, " 0"))
		}
		slices.Sort(want)
		e.same("all", e.list(store.ListOptions{}), strings.Join(want, ", "))
		e.same("of a user", e.list(store.ListOptions{App: "app", User: "u0"}), strings.Join(want[:n/2], ", "))
		e.same("of a user of any app", e.list(store.ListOptions{User: "u1"}), strings.Join(want[n/2:], ", "))
		// The body may write, and deleting what is listed does not lose any.
		seen := 0
		for info, err := range e.store.List(ctx, store.ListOptions{}) {
			e.no(err)
			seen++
			if seen > 5 {
				e.no(e.store.Delete(ctx, info.Key))
			}
		}
		if seen != n {
			e.Errorf("%d sessions were listed, want %d", seen, n)
		}
	})
}

// Parts of keys may hold anything that is text, and are never taken for each other.
func TestOddKeys(t *testing.T) {
	odd := []string{
		"a", "a/b", "/", "a%2Fb", "%", "..", " ", "\n", "\x00", "\x00\x00", "a\x00", "a\x00b", "\x00a", "\x01", "a\x00\x01b", "\x00\x01",
		"ÿ", "\U0010ffff", "日本", "😀", "\u2028", strings.Repeat("k", store.MaxKeyPartBytes), strings.Repeat("\x00", store.MaxKeyPartBytes),
		"a\x00\u00ff", "user", "app", "temp:", `"`,
	}
	onEach(t, func(e *env) {
		var keys []store.Key
		for i, p := range odd {
			keys = append(keys, store.Key{App: p, User: "u", Session: "s"}, store.Key{App: "x", User: p, Session: "s"},
				store.Key{App: "x", User: "u", Session: p}, store.Key{App: p, User: p, Session: odd[(i+1)%len(odd)]})
		}
		for i, k := range keys {
			e.must(e.store.Create(ctx, k, map[string]any{"n": i, "app:of": k.App, "user:of": k.App + "/" + k.User}))
		}
		for i, k := range keys {
			s := sessionOf(e, e.store, k)
			if n, _ := s.Value("n"); n.Any() != i {
				e.Errorf("session %q has n = %v, want %d", k, n.Any(), i)
			}
			if of, _ := s.Value("app:of"); of.Any() != k.App {
				e.Errorf("session %q has app:of = %q", k, of.Any())
			}
			if of, _ := s.Value("user:of"); of.Any() != k.App+"/"+k.User {
				e.Errorf("session %q has user:of = %q", k, of.Any())
			}
			parsed, err := store.ParseKey(k.String())
			if err != nil || parsed != k {
				e.Errorf("%q was read as %q: %v", k.String(), parsed, err)
			}
			if strings.Count(k.String(), "/") != 2 {
				e.Errorf("key %q", k.String())
			}
		}
		for _, p := range odd {
			var got, want int
			for info, err := range e.store.List(ctx, store.ListOptions{App: p}) {
				e.no(err)
				got++
				if info.Key.App != p {
					e.Errorf("list of app %q has %q", p, info.Key)
				}
			}
			for _, k := range keys {
				if k.App == p {
					want++
				}
			}
			if got != want {
				e.Errorf("list of app %q has %d sessions, want %d", p, got, want)
			}
		}
		// In the order of their parts.
		var before store.Key
		for info, err := range e.store.List(ctx, store.ListOptions{}) {
			e.no(err)
			if k := info.Key; slices.Compare([]string{before.App, before.User, before.Session}, []string{k.App, k.User, k.Session}) >= 0 {
				e.Errorf("key %q after %q", k, before)
			}
			before = info.Key
		}
		for i, k := range keys {
			if i%2 == 0 {
				e.no(e.store.Delete(ctx, k))
			}
		}
		if n := strings.Count(e.list(store.ListOptions{}), ", ") + 1; n != len(keys)/2 {
			e.Errorf("%d sessions are left, want %d", n, len(keys)/2)
		}
	})
}

func TestInvalidKeys(t *testing.T) {
	long := strings.Repeat("k", store.MaxKeyPartBytes+1)
	onEach(t, func(e *env) {
		for _, c := range []struct {
			key  store.Key
			says string
		}{
			{store.Key{}, "app"},
			{store.Key{User: "u", Session: "s"}, "app"},
			{store.Key{App: "a", Session: "s"}, "user"},
			{store.Key{App: "a", User: "u"}, "session"},
			{store.Key{App: long, User: "u", Session: "s"}, "1025"},
			{store.Key{App: "a", User: "u", Session: long}, "session"},
			{store.Key{App: "a", User: "\xff", Session: "s"}, `\xff`},
		} {
			for name, err := range e.everyCall(c.key) {
				if name != "List" {
					e.is(err, store.ErrInvalid, c.says)
				}
			}
		}
		for _, text := range []string{"", "a", "a/b", "a/b/c/d", "a//c", "/b/c", "a/b/", "a/%zz/c", "a/b/%ff"} {
			k, err := store.ParseKey(text)
			e.is(err, store.ErrInvalid)
			if text == "a/%zz/c" && k != (store.Key{}) {
				e.Errorf("key %q", k)
			}
		}
	})
}

// counted checks what the head says of a session against its log. An erase leaves the tokens of what was logged.
func (e *env) counted(key store.Key, erased bool) {
	e.Helper()
	info := infoOf(e, e.store, key)
	var want store.Info
	want.Key, want.Creation, want.Created, want.Seq = info.Key, info.Creation, info.Created, info.Seq
	later := func(t *time.Time, at time.Time) {
		if at.After(*t) {
			*t = at
		}
	}
	for _, r := range e.records(key) {
		switch {
		case r.Event != nil:
			want.Tokens += r.Event.EstimatedTokens()
			later(&want.Active, r.Event.Timestamp())
		case r.Patch.Type() != patch.Erase:
			later(&want.Active, r.Patch.Timestamp())
		}
		if r.Patch != nil && r.Patch.Author() == patch.CompactionAuthor {
			later(&want.Compacted, r.Patch.Timestamp())
		}
	}
	v := viewOf(e, e.store, key)
	want.Visible = v.Len()
	for _, event := range v.Events() {
		want.VisibleTokens += event.EstimatedTokens()
	}
	if erased && info.Tokens > want.Tokens {
		want.Tokens = info.Tokens
	}
	want.Active, want.Compacted = want.Active.UTC(), want.Compacted.UTC()
	if info != want {
		e.Errorf("session %s: %+v, want %+v", key, info, want)
	}
	for listed, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if listed.Key == key && listed != info {
			e.Errorf("listed as %+v, and Info says %+v", listed, info)
		}
	}
}

func TestCounts(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"k": 1})
		e.counted(key, false)
		e.append(event(`{"id":"a1","author":"user","content":{"parts":[{"text":"some words that take tokens"}]},"timestamp":"2031-01-01T00:00:00Z"}`), say("a2"), say("a3"))
		e.counted(key, false)
		e.apply(patch.NewSplice(1, 1).WithID("cut"))
		e.append(says("b", 600)...)
		e.counted(key, false)
		e.apply(patch.NewSummarise(0, 20, summary("s1")).WithAuthor(patch.CompactionAuthor).WithID("sum"))
		e.counted(key, false)
		e.apply(patch.NewPin("b100"))
		_, err := e.store.Revert(ctx, key, store.UndoOptions{}, "cut")
		e.is(err, fold.ErrBlocked)
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "sum"))
		e.counted(key, false)
		e.reopen()
		e.append(say("c1")) // on what was read
		e.counted(key, false)
		e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
		e.counted(forkKey, false)
		e.must(e.store.Import(ctx, elsewhere, strings.NewReader(e.export()), store.ImportOptions{}))
		e.counted(elsewhere, false)
		e.must(e.store.Erase(ctx, key, store.EraseSelection{EventIDs: []string{"a1", "b3"}}, store.EraseOptions{}))
		e.counted(key, true)
	})
}

// shared returns the app: and user: keys that a session of the given key sees, as JSON.
func (e *env) shared(key store.Key) string {
	e.Helper()
	s := sessionOf(e, e.store, key)
	var b strings.Builder
	for _, k := range []string{"app:x", "app:y", "app:z", "user:x", "user:y", "user:z"} {
		if v, ok := s.Value(k); ok {
			b.WriteString(k + "=" + v.String() + " ")
		}
	}
	return strings.TrimSpace(b.String())
}

func TestScopesOfInitialState(t *testing.T) {
	onEach(t, func(e *env) {
		s, err := e.store.Create(ctx, key, map[string]any{"k": 1, "app:x": "a", "user:x": nil, "temp:t": 1, "temp": 2, "App:x": 3})
		e.no(err)
		want := `{"App:x":3,"app:x":"a","k":1,"temp":2,"user:x":null}`
		e.same("state", e.state(), want)
		if got := s.State(); len(got) != 5 || got["app:x"] != "a" || got["k"] != 1 || got["user:x"] != nil {
			e.Errorf("state of the new session %v", got)
		}
		e.reopen()
		e.same("state", e.state(), want)
		// The fold knows the session's own keys alone.
		if got := e.view().State(); len(got) != 3 || got["k"] != 1 || got["temp"] != 2 || got["App:x"] != 3 {
			e.Errorf("state of the view %v", got)
		}
		initial, err := e.store.InitialState(ctx, key)
		e.no(err)
		if len(initial) != 3 || initial["k"].String() != "1" {
			e.Errorf("initial state %v", initial)
		}
		// Who else sees them.
		for _, c := range []struct {
			key  store.Key
			want string
		}{
			{store.Key{App: "app", User: "user", Session: "s2"}, `app:x="a" user:x=null`},
			{store.Key{App: "app", User: "other", Session: "s2"}, `app:x="a"`},
			{store.Key{App: "app2", User: "user", Session: "s2"}, ""},
			{store.Key{App: "ap", User: "puser", Session: "s2"}, ""},
		} {
			e.must(e.store.Create(ctx, c.key, nil))
			e.same("shared with "+c.key.String(), e.shared(c.key), c.want)
		}
		// A second session's initial state overwrites.
		e.must(e.store.Create(ctx, store.Key{App: "app", User: "user", Session: "s3"}, map[string]any{"user:x": 7}))
		e.same("shared", e.shared(key), `app:x="a" user:x=7`)
	})
}

func TestScopesOfEvents(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"app:x": 0})
		offered := sets("e1", `{"k":1,"app:x":1,"user:y":[1],"temp:t":{"a":1}}`)
		c := e.append(offered, sets("e2", `{"app:x":1.0,"app:z":null}`))
		e.same("shared", e.shared(key), "app:x=1.0 app:z=null user:y=[1]")
		e.same("state", e.state(), `{"app:x":1.0,"app:z":null,"k":1,"user:y":[1]}`)
		// temp: keys are removed from the stored copy, not from the caller's.
		if d := c.Records[0].Event.StateDelta(); len(d) != 3 {
			e.Errorf("logged delta %v", d)
		}
		if d := offered.StateDelta(); len(d) != 4 {
			e.Errorf("the caller's delta %v", d)
		}
		if d := e.records(key)[0].Event.StateDelta(); len(d) != 3 || d["temp:t"] != nil {
			e.Errorf("stored delta %v", d)
		}
		// ViewAt does not merge, Get does.
		v, err := e.store.ViewAt(ctx, key, 2)
		e.no(err)
		if got := v.State(); len(got) != 1 {
			e.Errorf("state of ViewAt %v", got)
		}
		s := e.get()
		if _, ok := s.Value("app:z"); !ok {
			e.Error("app:z is null, and there")
		}
		if _, ok := s.Value("user:z"); ok {
			e.Error("user:z is not there")
		}
		if v, ok := s.Value("k"); !ok || v.String() != "1" {
			e.Error("k is not there")
		}
		// What is returned is the caller's own.
		s.State()["app:x"] = "changed"
		s.Values()["app:x"] = patch.Value{}
		e.same("state", e.state(), `{"app:x":1.0,"app:z":null,"k":1,"user:y":[1]}`)
	})
}

// Shared keys are written once, in the commit that first logs them: not by patches,
// retries, imports or deletes.
func TestScopesAreWrittenOnce(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"app:x": 0})
		first := sets("e1", `{"app:x":1,"user:x":1}`)
		e.append(say("a1"), first, say("a2"))
		p := patch.NewSplice(0, 1, sets("r1", `{"app:y":1,"temp:t":1}`), sets("r2", `{"user:y":1,"app:y":2}`)).WithID("p1")
		e.apply(p)
		e.same("shared", e.shared(key), "app:x=1 app:y=2 user:x=1 user:y=1")

		// Another session moves on.
		other := store.Key{App: "app", User: "user", Session: "other"}
		e.must(e.store.Create(ctx, other, map[string]any{"app:x": "new", "app:y": "new", "user:x": "new", "user:y": "new"}))
		const want = `app:x="new" app:y="new" user:x="new" user:y="new"`

		e.append(first) // a retry
		e.must(e.store.ApplyPatch(ctx, key, asOfNow, p))
		e.same("shared after retries", e.shared(key), want)
		e.apply(patch.NewSplice(0, 3), patch.NewTruncateBefore("a2")) // takes all out
		e.apply(patch.NewSummarise(0, 1, summary("s")))
		e.same("shared after patches", e.shared(key), want)
		e.must(e.store.Preview(ctx, key, asOfNow, patch.NewSplice(0, 1, sets("r3", `{"app:x":3}`))))
		e.same("shared after a preview", e.shared(key), want)

		text := e.export()
		e.importText("again", text)
		e.no(e.store.Delete(ctx, key))
		e.same("shared after a delete", e.shared(other), want)
		e.importText("anew", text)
		e.same("shared after an import", e.shared(other), want)
		e.no(e.store.Delete(ctx, key))
		e.must(e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{State: map[string]any{"app:x": 0, "k": 1}}))
		e.same("shared after an import with state", e.shared(other), want)
		if k, _ := e.view().Value("k"); k.String() != "1" {
			e.Errorf("k is %s", k)
		}

		// Unless the import is asked to.
		e.no(e.store.Delete(ctx, key))
		write := store.ImportOptions{State: map[string]any{"app:z": 5}, WriteShared: true}
		e.must(e.store.Import(ctx, key, strings.NewReader(text), write))
		e.same("shared after an import that writes", e.shared(other), "app:x=1 app:y=2 app:z=5 user:x=1 user:y=1")
		e.must(e.store.Create(ctx, store.Key{App: "app", User: "user", Session: "third"}, map[string]any{"app:x": "newer"}))
		e.must(e.store.Import(ctx, key, strings.NewReader(text), write))
		e.same("shared after a second one", e.shared(other), `app:x="newer" app:y=2 app:z=5 user:x=1 user:y=1`)
	})
}

// Refused calls write no shared scope either.
func TestScopesOfRefusedCalls(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"))
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, sets("e1", `{"app:x":1}`), event(`{"id":"a1"}`))
		e.is(err, store.ErrDuplicateID)
		_, err = e.store.Create(ctx, key, map[string]any{"app:x": 1})
		e.is(err, store.ErrExists)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = e.store.AppendEvents(cancelled, key, store.AppendOptions{}, sets("e1", `{"app:x":1}`))
		e.is(err, context.Canceled)
		e.refuse(asOfNow, one(patch.NewSplice(0, 7, sets("r1", `{"app:x":1}`)).WithID("p")), fold.ErrOutOfRange)
		e.same("shared", e.shared(key), "")
	})
}

// A key that no backend need take is refused by name, on every engine alike.
func TestScopeKeyTooLong(t *testing.T) {
	long := "app:" + strings.Repeat("k", 40_000)
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(sets("e0", `{"`+strings.Repeat("k", 40_000)+`":1}`)) // the session's own may
		stored := e.dump()
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, sets("e1", `{"`+long+`":1}`))
		e.is(err, store.ErrTooLarge, "app:kkk", "40004")
		_, err = e.store.Create(ctx, store.Key{App: "a", User: "u", Session: "s"}, map[string]any{long: 1})
		e.is(err, store.ErrTooLarge, "app:kkk")
		e.same("stored", e.dump(), stored)
		e.append(sets("e2", `{"app:`+strings.Repeat("k", 20_000)+`":1}`))
		if errors.Is(err, store.ErrOutcomeUnknown) {
			e.Error(err)
		}
	})
}
