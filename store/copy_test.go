package store_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// source returns a store in memory with the session that tests copy, made an hour ago. It
// has patches, one of which does not apply, Go types and shared values.
func source(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.OpenMemory(store.Options{Now: func() time.Time { return now.Add(-time.Hour) }})
	no(t, err)
	t.Cleanup(func() { _ = s.Close() })
	add(t, s, key, map[string]any{"cart": 1, "app:motd": "hi", "user:lang": "en"}, 5)
	typed, err := patch.NewEvent(patch.Fields{ID: "typed", Author: "user", Actions: patch.Actions{StateDelta: map[string]any{"n": int32(7), "user:lang": "de"}}})
	if err == nil {
		_, err = s.AppendEvents(ctx, key, store.AppendOptions{}, typed)
	}
	if err == nil {
		_, err = s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true}, patch.NewSplice(1, 2))
	}
	no(t, err)
	return s
}

func add(t *testing.T, s *store.Store, key store.Key, state map[string]any, n int) {
	t.Helper()
	must(t)(s.Create(ctx, key, state))
	must(t)(s.AppendEvents(ctx, key, store.AppendOptions{}, says("e", n)...))
}

func raw(t *testing.T, s *store.Store, key store.Key) []string {
	t.Helper()
	var all []string
	for r, err := range s.RawEvents(ctx, key, 0) {
		no(t, err)
		data, err := patch.AppendRecord(nil, r) // with the Go types
		no(t, err)
		all = append(all, fmt.Sprint(r.Seq, " ", string(data)))
	}
	return all
}

func TestCopy(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		copies := func(want store.Copied) {
			e.Helper()
			would, err := e.store.CopyFrom(ctx, from, key, store.CopyOptions{DryRun: true})
			e.no(err)
			got, err := e.store.CopyFrom(ctx, from, key, store.CopyOptions{})
			e.no(err)
			if got != want || would != want {
				e.Errorf("got %+v, a dry run %+v, want %+v", got, would, want)
			}
			if want.Seq != uint64(want.Added+want.Present) {
				return
			}
			if a, b := raw(e.T, from, key), raw(e.T, e.store, key); !reflect.DeepEqual(a, b) {
				e.Errorf("the logs differ:\n%q\n%q", a, b)
			}
		}
		copies(store.Copied{Created: true, Added: 7, Seq: 7})
		copies(store.Copied{Present: 7, Seq: 7})
		there := infoOf(e, from, key)
		info := infoOf(e, e.store, key)
		if !info.Created.Equal(there.Created) {
			e.Errorf("created %v, want %v", info.Created, there.Created)
		}
		theirs := sessionOf(e, from, key)
		e.same("state", fmt.Sprint(e.get().State()), fmt.Sprint(theirs.State()))

		// The source grows, by a change of a shared value too.
		e.must(from.AppendEvents(ctx, key, store.AppendOptions{}, sets("more", `{"app:motd":"bye"}`)))
		copies(store.Copied{Added: 1, Present: 7, Seq: 8})
		if v, _ := e.get().Value("app:motd"); v.Any() != "bye" {
			e.Errorf("the shared value is %v", v.Any())
		}
		// The copy goes on by itself.
		e.append(says("own", 1)...)
		copies(store.Copied{Present: 8, Seq: 9})
		// Then the source does too, otherwise.
		e.must(from.AppendEvents(ctx, key, store.AppendOptions{}, says("other", 1)...))
		before := e.dump()
		for _, opts := range []store.CopyOptions{{}, {DryRun: true}} {
			_, err := e.store.CopyFrom(ctx, from, key, opts)
			e.is(err, store.ErrConflict, "record 9")
		}
		e.same("the log", e.dump(), before)
	})
}

// A log longer than a commit, which is staged in part, arrives as a whole.
func TestCopyOfLongLog(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		long := store.Key{App: "app", User: "user", Session: "long"}
		add(e.T, from, long, nil, 2000)
		got, err := e.store.CopyFrom(ctx, from, long, store.CopyOptions{})
		e.no(err)
		if want := (store.Copied{Created: true, Added: 2000, Seq: 2000}); got != want {
			e.Errorf("got %+v, want %+v", got, want)
		}
		if a, b := raw(e.T, from, long), raw(e.T, e.store, long); !reflect.DeepEqual(a, b) {
			e.Error("the logs differ")
		}
	})
}

func TestCopyRefuses(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		_, err := e.store.CopyFrom(ctx, nil, key, store.CopyOptions{})
		e.is(err, store.ErrInvalid)
		_, err = e.store.CopyShared(ctx, nil, store.CopyOptions{})
		e.is(err, store.ErrInvalid)
		_, err = e.store.CopyFrom(ctx, from, store.Key{App: "app", User: "user", Session: "none"}, store.CopyOptions{})
		e.is(err, store.ErrNotFound, "app/user/none")
		e.create(map[string]any{"cart": 2})
		_, err = e.store.CopyFrom(ctx, from, key, store.CopyOptions{})
		e.is(err, store.ErrConflict, "initial state")
	})
}

func TestCopyShared(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		alone := store.Key{App: "app", User: "gone", Session: "s"}
		add(e.T, from, alone, map[string]any{"user:lang": "fr"}, 1)
		e.no(from.Delete(ctx, alone))
		e.create(map[string]any{"app:motd": "mine"})
		e.append(says("own", 3)...)
		for i, want := range []store.CopiedShared{{Added: 2}, {Added: 2}, {}} {
			want.Different = []string{"app/app/app:motd"}
			got, err := e.store.CopyShared(ctx, from, store.CopyOptions{DryRun: i == 0})
			e.no(err)
			if !reflect.DeepEqual(got, want) {
				e.Errorf("%d: got %+v, want %+v", i, got, want)
			}
		}
		e.same("state", fmt.Sprint(e.get().State()), "map[app:motd:mine user:lang:de]")
		e.append(says("later", 1)...) // the log goes on where it was
		s, err := e.store.Create(ctx, alone, nil)
		e.no(err)
		e.same("state", fmt.Sprint(s.State()), "map[app:motd:mine user:lang:fr]")
	})
}

// A copy may leave the shared scopes alone, whether it creates the session or adds to it, and
// shared values that differ may be written.
func TestCopyOfSharedByChoice(t *testing.T) {
	onEach(t, func(e *env) {
		from, alone := source(e.T), store.CopyOptions{NoShared: true}
		e.must(e.store.CopyFrom(ctx, from, key, alone))
		e.same("a new session's state", fmt.Sprint(e.get().State()), "map[cart:1 n:7]")
		e.must(from.AppendEvents(ctx, key, store.AppendOptions{}, sets("more", `{"app:motd":"bye"}`)))
		e.must(e.store.CopyFrom(ctx, from, key, alone))
		e.same("a longer session's state", fmt.Sprint(e.get().State()), "map[cart:1 n:7]")
		e.append(sets("own", `{"app:motd":"mine","app:other":1}`))
		for _, c := range []struct {
			opts             store.CopyOptions
			added, different int
			state            string
		}{
			{store.CopyOptions{OverwriteShared: true, DryRun: true}, 1, 1, "map[app:motd:mine app:other:1 cart:1 n:7]"},
			{store.CopyOptions{}, 1, 1, "map[app:motd:mine app:other:1 cart:1 n:7 user:lang:de]"},
			{store.CopyOptions{OverwriteShared: true}, 0, 1, "map[app:motd:bye app:other:1 cart:1 n:7 user:lang:de]"},
			{store.CopyOptions{OverwriteShared: true}, 0, 0, "map[app:motd:bye app:other:1 cart:1 n:7 user:lang:de]"},
		} {
			done, err := e.store.CopyShared(ctx, from, c.opts)
			e.no(err)
			if done.Added != c.added || len(done.Different) != c.different {
				e.Errorf("%+v: %+v", c.opts, done)
			}
			e.same("state", fmt.Sprint(e.get().State()), c.state)
		}
	})
}
