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
			e.is(errOf(e.store.Create(ctx, key, map[string]any{"fine": 1, k: v}, store.CreateOptions{})), store.ErrInvalid, k)
		}
		e.is(errOf(e.store.Create(ctx, key, map[string]any{"k\xff": 1}, store.CreateOptions{})), store.ErrInvalid, `k\xff`)
		e.is(errOf(e.store.Get(ctx, key)), store.ErrNotFound)
		// The values of "temp:" keys are not stored, but an invalid value is still refused.
		e.must(e.store.Create(ctx, key, map[string]any{"temp:x": 1, "v": testlog.Must(patch.ParseValue([]byte(`{"a":1.0}`)))(e)}, store.CreateOptions{}))
		e.same("state", e.state(), `{"v":{"a":1.0}}`)
	})
}

func TestNotFound(t *testing.T) {
	onEach(t, func(e *env) {
		for name, err := range e.everyCall(ctx, key) {
			if name != "Create" && name != "Import" && name != "List" {
				e.is(err, store.ErrNotFound, key.String())
			}
		}
	})
}

// everyCall calls each method of the store and returns the errors by method name.
func (e *env) everyCall(ctx context.Context, key store.Key) map[string]error {
	errs := map[string]error{}
	_, errs["Get"] = e.store.Get(ctx, key)
	_, errs["ViewAt"] = e.store.ViewAt(ctx, key, 0)
	_, errs["AppendEvents"] = e.store.AppendEvents(ctx, key, []*patch.Event{say("x")}, store.AppendOptions{})
	_, errs["AppendEvents of nothing"] = e.store.AppendEvents(ctx, key, nil, store.AppendOptions{})
	_, errs["AppendEvents of a partial event"] = e.store.AppendEvents(ctx, key, []*patch.Event{event(`{"partial":true}`)}, store.AppendOptions{})
	_, errs["ApplyPatch"] = e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 0, say("y"))}, asOfNow)
	_, errs["ApplyPatch of nothing"] = e.store.ApplyPatch(ctx, key, nil, asOfNow)
	_, errs["Preview"] = e.store.Preview(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 0, say("y"))}, asOfNow)
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
	_, errs["Create"] = e.store.Create(ctx, key, nil, store.CreateOptions{})
	_, errs["Import"] = e.store.Import(ctx, key, strings.NewReader(`{"id":"z"}`), store.ImportOptions{})
	return errs
}

func TestClosed(t *testing.T) {
	for _, s := range []*store.Store{openStore(t, t.TempDir()+"/log.db", store.Options{}), inMemory(t)} {
		e := &env{T: t, store: s}
		e.create(nil)
		e.append(says("a", 3)...)
		v := e.view() // also loads the view into memory
		e.no(s.Close())
		for name, err := range e.everyCall(ctx, key) {
			if !errors.Is(err, store.ErrClosed) {
				e.Errorf("%s after Close: %v", name, err)
			}
		}
		e.is(s.Close(), store.ErrClosed)
		e.same("view", ids(v), "a1 a2 a3") // a view can still be used after Close
	}
}

func TestCancelled(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		stored := e.dump()
		for name, err := range e.everyCall(cancelled, key) {
			if !errors.Is(err, context.Canceled) {
				e.Errorf("%s: %v", name, err)
			}
		}
		e.same("stored", e.dump(), stored)
	})
}

// If a caller's context ends while its commit fails, the store still determines whether the commit took effect.
func TestCancelledWhileCommitting(t *testing.T) {
	onEach(t, func(e *env) {
		during := func(call func(ctx context.Context) error) {
			e.Helper()
			c, cancel := context.WithCancel(ctx)
			defer cancel()
			e.backend.Plan(storetest.Plan{Write: 1, Failure: storetest.Applied, During: cancel})
			e.wantUnchanged(call(c))
		}
		during(func(c context.Context) error {
			s, err := e.store.Create(c, key, map[string]any{"k": 1, "app:x": 1}, store.CreateOptions{})
			if v, ok := s.Value("app:x"); err == nil && (!ok || v.String() != "1") {
				e.Error("app:x is not there")
			}
			return err
		})
		during(func(c context.Context) error {
			return errOf(e.store.AppendEvents(c, key, []*patch.Event{say("a1")}, store.AppendOptions{}))
		})
		during(func(c context.Context) error {
			return errOf(e.store.Import(c, key, strings.NewReader(`{"id":"a2"}`), store.ImportOptions{}))
		})
		e.same("visible", ids(e.view()), "a1 a2")
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
		e.backend.Plan(storetest.Plan{Write: 1, Failure: storetest.Applied})
		e.append(say("a1"))
		if !strings.Contains(b.String(), key.String()) || !strings.Contains(b.String(), "injected failure") {
			e.Errorf("the log says %q", b.String())
		}
		b.Reset()
	})
}

// TestNil checks that the store refuses a nil or missing argument with an error that names it, and writes nothing.
func TestNil(t *testing.T) {
	ctx, key := t.Context(), store.Key{App: "a", User: "u", Session: "s"}
	s := teststore.Memory(t, store.Options{})
	must(t)(s.Create(ctx, key, nil, store.CreateOptions{}))
	e, err := patch.ParseEvent([]byte(`{"author":"user"}`))
	testlog.NoError(t, err)
	opts := store.PatchOptions{AsOfNow: true}
	splice := patch.NewSplice(0, 0, e)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"backend":        {func() error { return errOf(store.New(nil, store.Options{})) }, "backend"},
		"bolt backend":   {func() error { return errOf(store.New((*bolt.Backend)(nil), store.Options{})) }, "backend"},
		"memory backend": {func() error { return errOf(store.New((*memory.Backend)(nil), store.Options{})) }, "backend"},
		"event":          {func() error { return errOf(s.AppendEvents(ctx, key, []*patch.Event{e, nil}, store.AppendOptions{})) }, "event 1"},
		"patch":          {func() error { return errOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{splice, nil}, opts)) }, "patch 1"},
		"preview":        {func() error { return errOf(s.Preview(ctx, key, []*patch.PatchEvent{nil}, opts)) }, "patch"},
		"replacement": {func() error {
			return errOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 0, nil)}, opts))
		}, "replacement/0"},
		"summary": {func() error {
			return errOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSummarise(0, 1, nil)}, opts))
		}, "summaryEvent"},
		"view of a splice": {func() error { return errOf(s.ApplyPatch(ctx, key, []*patch.PatchEvent{splice}, store.PatchOptions{})) }, "base"},
		"view of a look":   {func() error { return errOf(s.Preview(ctx, key, []*patch.PatchEvent{splice}, store.PatchOptions{})) }, "base"},
		"reader":           {func() error { return errOf(s.Import(ctx, key, nil, store.ImportOptions{})) }, "reader"},
		"writer":           {func() error { return s.Export(ctx, key, nil, store.ExportOptions{}) }, "writer"},
	} {
		if err := c.do(); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	testlog.Equal(t, "records", infoOf(t, s, key).Seq, 0)
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
			e.must(e.store.Create(ctx, k, nil, store.CreateOptions{}))
			e.must(e.store.AppendEvents(ctx, k, says("e", i), store.AppendOptions{}))
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
		const n = 600 // number of sessions, more than two pages of a listing
		var want []string
		for i := range n {
			k := store.Key{App: "app", User: fmt.Sprint("u", i%2), Session: fmt.Sprintf("%04d", i)}
			e.must(e.store.Create(ctx, k, nil, store.CreateOptions{}))
			want = append(want, fmt.Sprint(k, " 0"))
		}
		slices.Sort(want)
		e.same("all", e.list(store.ListOptions{}), strings.Join(want, ", "))
		e.same("of a user", e.list(store.ListOptions{App: "app", User: "u0"}), strings.Join(want[:n/2], ", "))
		e.same("of a user of any app", e.list(store.ListOptions{User: "u1"}), strings.Join(want[n/2:], ", "))
		// The loop's body may write. If it deletes the listed sessions, List still omits no session.
		seen := 0
		for info, err := range e.store.List(ctx, store.ListOptions{}) {
			e.no(err)
			seen++
			if seen > 5 {
				e.no(e.store.Delete(ctx, info.Key))
			}
		}
		testlog.Equal(e, "sessions listed", seen, n)
	})
}

// Each part of a key may be any text. Different keys refer to different sessions.
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
			e.must(e.store.Create(ctx, k, map[string]any{"n": i, "app:of": k.App, "user:of": k.App + "/" + k.User}, store.CreateOptions{}))
		}
		for i, k := range keys {
			state := sessionOf(e, e.store, k).State()
			testlog.Equal(e, "state of "+k.String(), state, map[string]any{"n": i, "app:of": k.App, "user:of": k.App + "/" + k.User})
			testlog.Equal(e, "what was read of "+k.String(), testlog.Must(store.ParseKey(k.String()))(e), k)
			testlog.Equal(e, "slashes of "+k.String(), strings.Count(k.String(), "/"), 2)
		}
		// List yields the keys ordered by app, then user, then session.
		var before store.Key
		for info, err := range e.store.List(ctx, store.ListOptions{}) {
			e.no(err)
			if k := info.Key; slices.Compare([]string{before.App, before.User, before.Session}, []string{k.App, k.User, k.Session}) >= 0 {
				e.Errorf("key %q after %q", k, before)
			}
			before = info.Key
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
			for name, err := range e.everyCall(ctx, c.key) {
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

// counted compares the counts in a session's head with its log. After an erase, the token count of all logged
// events must not have changed.
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
	testlog.Equal(e, "session "+key.String(), info, want)
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
		e.is(errOf(e.store.Revert(ctx, key, "cut", store.UndoOptions{})), fold.ErrBlocked)
		e.must(e.store.Revert(ctx, key, "sum", store.UndoOptions{}))
		e.counted(key, false)
		e.reopen()
		e.append(say("c1")) // appends after the view was read from storage
		e.counted(key, false)
		e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
		e.counted(forkKey, false)
		e.must(e.store.Import(ctx, elsewhere, strings.NewReader(e.export()), store.ImportOptions{}))
		e.counted(elsewhere, false)
		e.must(e.store.Erase(ctx, key, store.EraseSelection{EventIDs: []string{"a1", "b3"}}, store.EraseOptions{}))
		e.counted(key, true)
	})
}

// shared returns the "app:" and "user:" keys that a session with the given key sees, as JSON.
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

// A shared value is written once, in the commit that first logs its event. Patches, retries, imports and deletes
// do not write it.
func TestScopesAreWrittenOnce(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"app:x": 0})
		first := sets("e1", `{"app:x":1,"user:x":1}`)
		e.append(say("a1"), first, say("a2"))
		p := patch.NewSplice(0, 1, sets("r1", `{"app:y":1,"temp:t":1}`), sets("r2", `{"user:y":1,"app:y":2}`)).WithID("p1")
		e.apply(p)
		e.same("shared", e.shared(key), "app:x=1 app:y=2 user:x=1 user:y=1")

		// Another session changes the shared values.
		other := store.Key{App: "app", User: "user", Session: "other"}
		e.must(e.store.Create(ctx, other, map[string]any{"app:x": "new", "app:y": "new", "user:x": "new", "user:y": "new"}, store.CreateOptions{}))
		const want = `app:x="new" app:y="new" user:x="new" user:y="new"`

		e.append(first) // a retry
		e.must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p}, asOfNow))
		e.apply(patch.NewSplice(0, 3), patch.NewTruncateBefore("a2")) // removes all events
		e.same("shared after retries and patches", e.shared(key), want)
		e.must(e.store.Preview(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1, sets("r3", `{"app:x":3}`))}, asOfNow))
		e.same("shared after a preview", e.shared(key), want)

		text := e.export()
		e.importText("again", text)
		e.no(e.store.Delete(ctx, key))
		e.same("shared after a delete", e.shared(other), want)
		e.importText("anew", text)
		e.same("shared after an import", e.shared(other), want)
	})
}

// If a shared key is too long for some backend, every engine refuses it, and the error names the key.
func TestScopeKeyTooLong(t *testing.T) {
	long := "app:" + strings.Repeat("k", 40_000)
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(sets("e0", `{"`+strings.Repeat("k", 40_000)+`":1}`)) // a key of the session itself may be this long
		stored := e.dump()
		e.is(errOf(e.store.AppendEvents(ctx, key, []*patch.Event{sets("e1", `{"`+long+`":1}`)}, store.AppendOptions{})), store.ErrTooLarge, "app:kkk", "40004")
		e.is(errOf(e.store.Create(ctx, store.Key{App: "a", User: "u", Session: "s"}, map[string]any{long: 1}, store.CreateOptions{})), store.ErrTooLarge, "app:kkk")
		e.same("stored", e.dump(), stored)
		e.append(sets("e2", `{"app:`+strings.Repeat("k", 20_000)+`":1}`))
	})
}

// List returns times of any year.
func TestListedTimes(t *testing.T) {
	for _, at := range []time.Time{
		time.Date(1925, 3, 4, 5, 6, 7, 8, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Unix(0, 0).UTC(),
		time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 1, time.UTC),
	} {
		onEach(t, func(e *env) {
			e.must(e.store.Create(ctx, key, nil, store.CreateOptions{Created: at}))
			e.append(testlog.Must(patch.NewEvent(patch.Fields{ID: "e", Author: "user", Timestamp: at}))(e))
			testlog.Equal(e, "created", infoOf(e, e.store, key).Created, at)
			testlog.Equal(e, "active", infoOf(e, e.store, key).Active, at)
			e.reopen()
			testlog.Equal(e, "active", infoOf(e, e.store, key).Active, at)
		})
	}
}
