package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

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
