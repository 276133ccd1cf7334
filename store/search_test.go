package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func (e *env) say(key store.Key, texts ...string) {
	e.Helper()
	if _, err := e.store.Create(ctx, key, nil); err != nil && !errors.Is(err, store.ErrExists) {
		e.Fatal(err)
	}
	for _, text := range texts {
		event, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", text)})
		e.no(err)
		must(e)(e.store.AppendEvents(ctx, key, store.AppendOptions{}, event))
	}
}

func (e *env) find(key store.Key, s recall.Search) string {
	e.Helper()
	hits, err := e.store.Search(ctx, key, s)
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, h := range hits {
		all = append(all, fmt.Sprint(h.Key.Session, h.Seq))
	}
	return strings.Join(all, " ")
}

// A search never finds what is of another session, another user or another app, nor what a session
// was that is deleted, and finds what a fork has.
func TestSearchKeepsApart(t *testing.T) {
	onEach(t, func(e *env) {
		keys := []store.Key{{App: "a", User: "u", Session: "s"}, {App: "a", User: "u", Session: "s2"}, {App: "a", User: "u/s", Session: "x"}, {App: "a", User: "v", Session: "s"}, {App: "b", User: "u", Session: "s"}}
		for i, k := range keys {
			e.say(k, "the needle", fmt.Sprintf("hay%d", i))
		}
		for i, k := range keys {
			hits, err := e.store.Search(ctx, k, recall.Search{Query: "needle hay0 hay1 hay2 hay3 hay4", Limit: 100})
			if err != nil || len(hits) != 2 {
				t.Errorf("%v: %d hits, %v", k, len(hits), err)
			}
			for _, h := range hits {
				if h.Key != k {
					t.Errorf("in %v: %v", k, h.Key)
				}
			}
			all, err := e.store.SearchUser(ctx, k.App, k.User, recall.Search{Query: "needle", Limit: 100}, store.SearchUserOptions{})
			want := 2
			if i < 2 {
				want = 4
			}
			if err != nil || len(all) != want {
				t.Errorf("%v: %d hits over the user's sessions, %v", k, len(all), err)
			}
			for _, h := range all {
				if h.Key.App != k.App || h.Key.User != k.User {
					t.Errorf("of %v: %v", k, h.Key)
				}
			}
		}
		k := keys[0]
		if rest, err := e.store.SearchUser(ctx, k.App, k.User, recall.Search{Query: "needle"}, store.SearchUserOptions{Except: []store.Key{k}}); err != nil || len(rest) != 2 || rest[0].Key != keys[1] {
			t.Errorf("without one of two: %v, %v", rest, err)
		}
		fork := store.Key{App: "a", User: "u", Session: "fork"}
		must(t)(e.store.Fork(ctx, k, fork, store.ForkOptions{At: new(uint64(1))}))
		e.say(fork, "fork alone")
		if got := e.find(fork, recall.Search{Query: "needle hay0 alone"}); got != "fork2 fork1" {
			t.Errorf("in the fork: %s", got)
		}
		if got := e.find(k, recall.Search{Query: "alone"}); got != "" {
			t.Errorf("of the fork: %s", got)
		}
		testlog.NoError(t, e.store.Delete(ctx, k))
		if _, err := e.store.Search(ctx, k, recall.Search{Query: "needle"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
		e.say(k, "reborn")
		if got := e.find(k, recall.Search{Query: "needle reborn"}); got != "s1" {
			t.Errorf("created again: %s", got)
		}
		// On a view of the session that is gone.
		v := viewOf(t, e.store, k)
		testlog.NoError(t, e.store.Delete(ctx, k))
		e.say(k, "again")
		if _, err := e.store.Search(ctx, k, recall.Search{Query: "reborn", On: &v}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("on the view of another creation: %v", err)
		}
	})
}

// What a session is searched as of needs no more than its view, one from a snapshot too.
func TestSearchHidden(t *testing.T) {
	onEachWith(t, store.Options{CacheBytes: -1}, func(e *env) {
		e.say(key, "alpha one", "beta two", "gamma three", "delta four")
		cut, err := e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(1, 1).WithID("cut"))
		testlog.NoError(t, err)
		summary, err := patch.NewEvent(patch.Fields{Content: patch.Text("user", "epsilon")})
		testlog.NoError(t, err)
		must(t)(e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSummarise(0, 2, summary).WithID("sum")))
		query := recall.Search{Query: "alpha beta gamma delta", Hidden: true}
		hits, err := e.store.Search(ctx, key, query)
		testlog.NoError(t, err)
		by := map[uint64]string{}
		for _, h := range hits {
			by[h.Seq] = h.Place.HiddenBy
		}
		if fmt.Sprint(by) != "map[1:sum 2:cut 3:sum]" {
			t.Errorf("%v", by)
		}
		query.Told = true
		if got := e.find(key, query); got != "session3 session1" && got != "session1 session3" {
			t.Errorf("told of: %s", got)
		}
		query.Told, query.On = false, &cut.View
		if got := e.find(key, query); got != "session2" {
			t.Errorf("before the summary: %s", got)
		}
	})
}

func TestSearchErrors(t *testing.T) {
	onEach(t, func(e *env) {
		e.say(key, "needle")
		v := viewOf(t, e.store, key)
		for name, err := range map[string]error{
			"no app":           second(e.store.SearchUser(ctx, "", "u", recall.Search{Query: "x"}, store.SearchUserOptions{})),
			"no user":          second(e.store.SearchUser(ctx, "a", "", recall.Search{Query: "x"}, store.SearchUserOptions{})),
			"a view of one":    second(e.store.SearchUser(ctx, "a", "u", recall.Search{Query: "x", On: &v}, store.SearchUserOptions{})),
			"a limit below 0":  second(e.store.Search(ctx, key, recall.Search{Query: "x", Limit: -1})),
			"a key that is no": second(e.store.Search(ctx, store.Key{}, recall.Search{Query: "x"})),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := e.store.Search(ctx, store.Key{App: "a", User: "u", Session: "none"}, recall.Search{Query: "x"}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a session that is not there: %v", err)
		}
	})
}

// What is damaged is said of a session that is searched by itself, and left out, with a warning,
// where several are.
func TestSearchDamaged(t *testing.T) {
	var log bytes.Buffer
	b, path := openBolt(t)
	e := &env{T: t, backend: &storetest.Faulty{Backend: b}, engine: b, path: path, opts: store.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	e.open()
	defer e.store.Close()
	other := store.Key{App: key.App, User: key.User, Session: "z, listed after it"}
	e.say(key, "needle one", "needle two")
	e.say(other, "needle three")
	e.damageFile(flip(e.storedForm(key, 2)))
	if _, err := e.store.Search(ctx, key, recall.Search{Query: "needle"}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("of a damaged session: %v", err)
	}
	hits, err := e.store.SearchUser(ctx, key.App, key.User, recall.Search{Query: "needle"}, store.SearchUserOptions{})
	if err != nil || len(hits) != 1 || hits[0].Key != other || !strings.Contains(log.String(), key.String()) {
		t.Errorf("%v, %v, log %s", hits, err, &log)
	}
	var left []store.Key
	hits, err = e.store.SearchUser(ctx, key.App, key.User, recall.Search{Query: "needle"}, store.SearchUserOptions{LeftOut: func(key store.Key, err error) {
		if errors.Is(err, store.ErrCorrupt) {
			left = append(left, key)
		}
	}})
	if err != nil || len(hits) != 1 || len(left) != 1 || left[0] != key {
		t.Errorf("%v, %v, left out %v", hits, err, left)
	}
}

func second[T any](_ T, err error) error { return err }
