package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
)

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
