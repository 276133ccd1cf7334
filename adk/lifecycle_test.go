package adk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

func TestFork(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		sess := create(t, s, "s", map[string]any{"k": "initial", "user:u": "then"})
		for i := range 4 {
			e := timedEvent(i, fmt.Sprint("e", i), "agent")
			e.Actions.StateDelta = map[string]any{"k": fmt.Sprint("v", i), "user:u": fmt.Sprint("u", i)}
			noError(t, s.AppendEvent(t.Context(), sess, e))
		}
		done, err := s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(1, 2)}, store.PatchOptions{})
		noError(t, err)
		e := deltaEvent("now", map[string]any{"user:u": "now"})
		e.Timestamp = timedEvent(8, "", "").Timestamp
		noError(t, s.AppendEvent(t.Context(), sess, e))
		at := func(n uint64) *uint64 { return &n }
		for name, c := range map[string]struct {
			at    *uint64
			want  []string
			state any
		}{
			"all":              {nil, []string{"e0", "e3", "now"}, "v3"},
			"after the patch":  {at(5), []string{"e0", "e3"}, "v3"},
			"before the patch": {at(3), []string{"e0", "e1", "e2"}, "v2"},
			"the beginning":    {at(0), []string{}, "initial"},
		} {
			fork, err := s.Fork(t.Context(), sess, adk.ForkOptions{SessionID: name, At: c.at})
			noError(t, err)
			equal(t, name, ids(fork), c.want)
			again := get(t, s, name)
			equal(t, name, ids(again), c.want)
			equal(t, name, stateOf(again)["k"], c.state)
			equal(t, "shared state", stateOf(again)["user:u"], any("now"))
			noError(t, s.AppendEvent(t.Context(), again, timedEvent(9, "own", "user")))
		}
		noError(t, errOf(s.Revert(t.Context(), get(t, s, "all"), done.Records[0].ID())))
		equal(t, "reverted in the fork", ids(get(t, s, "all")), []string{"e0", "e1", "e2", "e3", "now", "own"})
		equal(t, "the other", ids(get(t, s, "s")), []string{"e0", "e3", "now"})

		wantError(t, errOf(s.Fork(t.Context(), sess, adk.ForkOptions{SessionID: "all"})), store.ErrExists)
		wantError(t, errOf(s.Fork(t.Context(), sess, adk.ForkOptions{At: at(99)})), store.ErrNotFound)
		wantError(t, errOf(s.Fork(t.Context(), sess, adk.ForkOptions{At: at(1), BeforeInvocation: "inv-e1"})), store.ErrInvalid)
		fork, err := s.Fork(t.Context(), sess, adk.ForkOptions{})
		noError(t, err)
		equal(t, "with an id of its own", ids(get(t, s, fork.ID())), ids(sess))
	})
}

func TestForkFailure(t *testing.T) {
	base := &flakyService{}
	s := wrap(t, base, adk.Options{})
	sess := create(t, s, "s", nil)
	appendAll(t, s, sess, timedEvent(1, "e1", "user"), timedEvent(2, "e2", "user"))
	base.failures = []failure{noFailure, failBefore}
	wantError(t, errOf(s.Fork(t.Context(), sess, adk.ForkOptions{SessionID: "fork"})), errFlaky)
	equal(t, "sessions", len(base.sessions), 1)
}

func TestErase(t *testing.T) {
	s := inMemory(t)
	sess := create(t, s, "s", nil)
	appendAll(t, s, sess, userMessages(3)...)
	noError(t, errOf(s.Erase(t.Context(), sess, store.EraseSelection{EventIDs: []string{"e1"}}, store.EraseOptions{})))
	for _, one := range []session.Session{sess, get(t, s, "s")} {
		equal(t, "erased", one.Events().At(1).Content.Parts[0].Text, "[erased]")
		equal(t, "kept", one.Events().At(2).Content.Parts[0].Text, "this is e2")
	}
	noError(t, errOf(s.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})))
	noError(t, s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}))
	wantError(t, errOf(s.Erase(t.Context(), sess, store.EraseSelection{All: true}, store.EraseOptions{})), store.ErrNotFound)

	wrapped := wrap(t, session.InMemoryService(), adk.Options{})
	wantError(t, errOf(wrapped.Erase(t.Context(), create(t, wrapped, "s", nil), store.EraseSelection{All: true}, store.EraseOptions{})), errors.ErrUnsupported)
	if err := errOf(wrapped.Erase(t.Context(), get(t, wrapped, "s"), store.EraseSelection{All: true}, store.EraseOptions{})); strings.Contains(err.Error(), "age") {
		t.Errorf("the error of an erase without an age mentions an age: %q", err)
	}
}

func TestListPage(t *testing.T) {
	onStoreAndBases(t, bases, adk.Options{}, func(t *testing.T, s *adk.Service) {
		var want []string
		for i := range 7 {
			key := session.CreateRequest{AppName: "app", UserID: fmt.Sprint("u/", i%2), SessionID: fmt.Sprint("s ", i)}
			noError(t, errOf(s.Create(t.Context(), &key)))
		}
		for _, u := range []int{0, 1} {
			for i := u; i < 7; i += 2 {
				want = append(want, fmt.Sprintf("u/%d s %d", u, i))
			}
		}
		for _, size := range []int{0, 1, 3, 7} {
			var got []string
			req := &adk.ListPageRequest{AppName: "app", PageSize: size}
			for {
				page, err := s.ListPage(t.Context(), req)
				noError(t, err)
				for _, info := range page.Sessions {
					got = append(got, info.Key.User+" "+info.Key.Session)
				}
				if req.PageToken = page.NextPageToken; req.PageToken == "" {
					break
				}
			}
			equal(t, fmt.Sprint("pages of ", size), got, want)
		}
		page, err := s.ListPage(t.Context(), &adk.ListPageRequest{AppName: "app", UserID: "u/1"})
		noError(t, err)
		equal(t, "of one user", len(page.Sessions), 3)
		for _, req := range []*adk.ListPageRequest{nil, {}, {AppName: "app", PageSize: -1}, {AppName: "app", PageToken: "?"}} {
			wantError(t, errOf(s.ListPage(context.Background(), req)), patch.ErrInvalid)
		}
	})
}

// The cost of a page of ListPage does not depend on its position.
func TestListPageCost(t *testing.T) {
	b := &listCounter{Backend: &memory.Backend{}}
	s := newService(t, mustOpen(t)(store.New(b, store.Options{})))
	for i := range 700 {
		create(t, s, fmt.Sprintf("s%03d", i), nil)
	}
	last := (&store.Key{App: "app", User: "user", Session: "s689"}).String()
	page, err := s.ListPage(t.Context(), &adk.ListPageRequest{AppName: "app", PageSize: 10, PageToken: last})
	noError(t, err)
	equal(t, "sessions", len(page.Sessions), 10)
	equal(t, "rows of the last page", b.rows, 10)
}

type listCounter struct {
	*memory.Backend
	rows int
}

func (b *listCounter) List(ctx context.Context, prefix, after string, limit int) ([]backend.Listed, error) {
	list, err := b.Backend.List(ctx, prefix, after, limit)
	b.rows += len(list)
	return list, err
}

// withState returns a function that adds a key to an event's state delta.
func withState(key string, value any) func(*session.Event) {
	return func(e *session.Event) { e.Actions.StateDelta = map[string]any{key: value} }
}

func TestRevertAndRewind(t *testing.T) {
	sessions := newService(t, inMemoryStore(t))
	sess := create(t, sessions, "s", nil)
	for i := range 3 {
		inv := fmt.Sprint("inv", i)
		appendAll(t, sessions, sess, newEvent("u"+inv, inv, "user"), newEvent("a"+inv, inv, "app", withState("step", inv)))
	}
	all := ids(sess)
	cut, err := sessions.ApplyPatch(t.Context(), sess, []*patch.PatchEvent{patch.NewSplice(0, 4)}, store.PatchOptions{})
	noError(t, err)
	equal(t, "after a cut", ids(sess), []string{"uinv2", "ainv2"})

	// More events are appended, and later the cut is reverted.
	noError(t, sessions.AppendEvent(t.Context(), sess, newEvent("uinv3", "inv3", "user")))
	later := get(t, sessions, "s")
	back, err := sessions.Revert(t.Context(), later, cut.Records[0].ID())
	noError(t, err)
	equal(t, "after the revert", ids(later), append(slices.Clone(all), "uinv3"))

	// A rewind through an older handle fails with a conflict and writes nothing.
	wantError(t, errOf(sessions.Rewind(t.Context(), sess, "inv1")), store.ErrConflict)
	noError(t, errOf(sessions.Rewind(t.Context(), later, "inv1")))
	equal(t, "after the rewind", ids(later), []string{"uinv0", "ainv0"})
	equal(t, "state after the rewind", stateOf(later)["step"], any("inv0"))
	equal(t, "as others see it", ids(get(t, sessions, "s")), ids(later))
	noError(t, sessions.AppendEvent(t.Context(), later, newEvent("again", "inv4", "user")))
	equal(t, "it goes on from there", ids(later), []string{"uinv0", "ainv0", "again"})

	equal(t, "events in the audit log", loggedEvents(t, sessions, later), 8)

	before := later.(*adk.Session).View().Seq()
	wantError(t, errOf(sessions.Revert(t.Context(), later, "no such patch")), store.ErrInvalid)
	wantError(t, errOf(sessions.Revert(t.Context(), later, back.Records[0].ID())), fold.ErrBlocked)
	wantError(t, errOf(sessions.Rewind(t.Context(), later, "inv99")), fold.ErrEventNotFound)
	equal(t, "records", get(t, sessions, "s").(*adk.Session).View().Seq(), before)
}

func ExampleService_Revert() {
	sessions, sess := chat()
	ctx := context.Background()
	cut, err := sessions.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewTruncateBefore("e3")}, store.PatchOptions{})
	check(err)
	fmt.Println("visible after the cut:", sess.Events().Len())
	_, err = sessions.Revert(ctx, sess, cut.Records[0].ID())
	check(err)
	fmt.Println("after the revert:", sess.Events().Len())
	// Output:
	// visible after the cut: 1
	// after the revert: 3
}

func ExampleService_Rewind() {
	sessions, sess := chat()
	_, err := sessions.Rewind(context.Background(), sess, "inv1")
	check(err)
	for e := range sess.Events().All() {
		fmt.Println(e.ID, e.Content.Parts[0].Text)
	}
	// Output:
	// e1 My password is 1234.
	// e2 Noted!
}
