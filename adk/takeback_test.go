package adk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// sets gives an event a state delta.
func sets(key string, value any) func(*session.Event) {
	return func(e *session.Event) { e.Actions.StateDelta = map[string]any{key: value} }
}

func stored(t *testing.T, sess session.Session, key string) any {
	t.Helper()
	v, err := sess.State().Get(key)
	if errors.Is(err, session.ErrStateKeyNotExist) {
		return nil
	}
	no(t, err)
	return v
}

func TestRevertAndRewind(t *testing.T) {
	sessions := newService(t, opened(t)(store.OpenMemory(store.Options{})))
	sess := create(t, sessions, "s", nil)
	for i := range 3 {
		inv := fmt.Sprint("inv", i)
		no(t, sessions.AppendEvent(t.Context(), sess, said("u"+inv, inv, "user")))
		no(t, sessions.AppendEvent(t.Context(), sess, said("a"+inv, inv, "app", sets("step", inv))))
	}
	all := ids(sess)
	cut, err := sessions.ApplyPatch(t.Context(), sess, patch.NewSplice(0, 4))
	no(t, err)
	equal(t, "after a cut", ids(sess), []string{"uinv2", "ainv2"})

	// The session goes on, and days later the cut is taken back.
	no(t, sessions.AppendEvent(t.Context(), sess, said("uinv3", "inv3", "user")))
	later := get(t, sessions, "s")
	back, err := sessions.Revert(t.Context(), later, cut.Records[0].ID())
	no(t, err)
	equal(t, "after the revert", ids(later), append(slices.Clone(all), "uinv3"))

	// A handle that has not seen it conflicts, and nothing is written.
	if _, err := sessions.Rewind(t.Context(), sess, "inv1"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a rewind from before the revert: %v", err)
	}
	no(t, errOf(sessions.Rewind(t.Context(), later, "inv1")))
	equal(t, "after the rewind", ids(later), []string{"uinv0", "ainv0"})
	equal(t, "state after the rewind", stored(t, later, "step"), any("inv0"))
	equal(t, "as others see it", ids(get(t, sessions, "s")), ids(later))
	no(t, sessions.AppendEvent(t.Context(), later, said("again", "inv4", "user")))
	equal(t, "it goes on from there", ids(later), []string{"uinv0", "ainv0", "again"})

	events := 0
	for r, err := range sessions.RawEvents(t.Context(), later, 1) {
		no(t, err)
		if r.Event != nil {
			events++
		}
	}
	equal(t, "events in the audit log", events, 8)

	for _, c := range []struct {
		name string
		do   func(session.Session) error
		want error
	}{
		{"revert of no patch", func(s session.Session) error {
			_, err := sessions.Revert(t.Context(), s, "no such patch")
			return err
		}, store.ErrInvalid},
		{"revert of what stands under a rewind", func(s session.Session) error {
			_, err := sessions.Revert(t.Context(), s, back.Records[0].ID())
			return err
		}, fold.ErrBlocked},
		{"rewind to no invocation", func(s session.Session) error {
			_, err := sessions.Rewind(t.Context(), s, "inv99")
			return err
		}, fold.ErrEventNotFound},
		{"revert through another service's session", func(session.Session) error {
			_, err := sessions.Revert(t.Context(), nil, "x")
			return err
		}, store.ErrInvalid},
		{"rewind through another service's session", func(session.Session) error {
			_, err := sessions.Rewind(t.Context(), nil, "x")
			return err
		}, store.ErrInvalid},
	} {
		before := later.(*adk.Session).View().Seq()
		if err := c.do(later); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if after := get(t, sessions, "s").(*adk.Session).View().Seq(); after != before {
			t.Errorf("%s: record %d was written", c.name, after)
		}
	}
}

func ExampleService_Revert() {
	sessions, sess := chat()
	ctx := context.Background()
	cut, err := sessions.ApplyPatch(ctx, sess, patch.NewTruncateBefore("e3"))
	check(err)
	fmt.Println("visible after the cut:", sess.Events().Len())
	_, err = sessions.Revert(ctx, sess, cut.Records[0].ID())
	check(err)
	fmt.Println("after taking it back:", sess.Events().Len())
	// Output:
	// visible after the cut: 1
	// after taking it back: 3
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
