package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// turn returns an invocation's events: what the user says, a call, its response, which
// sets the key last, and an answer.
func turn(n int) []*patch.Event {
	inv := fmt.Sprint("inv", n)
	return []*patch.Event{
		event(`{"id":"q%d","invocationId":%q,"author":"user","content":{"role":"user","parts":[{"text":"?"}]}}`, n, inv),
		call(fmt.Sprint("c", n), inv, fmt.Sprint("call", n)),
		event(`{"id":"r%d","invocationId":%q,"author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"call%d","name":"tool"}}]},"actions":{"stateDelta":{"last":%d}}}`, n, inv, n, n),
		event(`{"id":"a%d","invocationId":%q,"author":"agent","content":{"role":"model","parts":[{"text":"!"}]}}`, n, inv),
	}
}

// What a revert needs and cannot read is a failure to read: nothing is written, and no
// view leaves the revert out.
func TestRevertOfUnreadableRecords(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		e.apply(patch.NewSplice(0, 2).WithID("p1"))
		e.append(says("b", 2)...)
		stored := e.dump()
		whole := e.backend.Backend
		e.backend.Backend = unpickable{whole}
		_, err := e.store.Revert(ctx, key, store.UndoOptions{}, "p1")
		e.backend.Backend = whole
		if err == nil || !strings.Contains(err.Error(), "no such sector") {
			e.Errorf("reverted what cannot be read: %v", err)
		}
		e.same("stored", e.dump(), stored)
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "p1"))
		e.same("visible", ids(e.view()), "a1 a2 a3 a4 b1 b2")
	})
}

// unpickable is a backend that cannot read single records.
type unpickable struct{ backend.Backend }

func (unpickable) Read(context.Context, string, string, []uint64, int) ([]backend.Record, error) {
	return nil, errors.New("no such sector")
}

func TestRewind(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"last": 0})
		for n := range 4 {
			e.append(turn(n + 1)...)
		}
		e.apply(patch.NewSummarise(0, 4, summary("s1")).WithID("p1"))       // older than the rewind
		e.apply(patch.NewSummarise(1, 8, summary("s2")).WithID("p2"))       // across
		e.append(event(`{"id":"x","invocationId":"inv3","author":"user"}`)) // inv3 goes on
		e.append(event(`{"id":"y","invocationId":"inv5","author":"user"}`), call("z", "inv5", "open"))
		before := e.view()

		preview, err := e.store.PreviewRewind(ctx, key, store.UndoOptions{}, "inv3")
		e.no(err)
		e.same("previewed", ids(preview.After), "s1 q2 c2 r2 a2")
		e.same("visible after a preview", ids(e.view()), ids(before))

		_, err = e.store.Rewind(ctx, key, store.UndoOptions{}, "inv9")
		e.is(err, fold.ErrEventNotFound, "inv9", key.String())
		_, err = e.store.Rewind(ctx, key, store.UndoOptions{}, "")
		e.is(err, store.ErrInvalid)
		_, err = e.store.Rewind(ctx, elsewhere, store.UndoOptions{}, "inv3")
		e.is(err, store.ErrNotFound)
		older, err := e.store.ViewAt(ctx, key, 17)
		e.no(err)
		_, err = e.store.Rewind(ctx, key, store.UndoOptions{On: older}, "inv3")
		e.is(err, store.ErrConflict, "17", "18")

		c, err := e.store.Rewind(ctx, key, store.UndoOptions{On: before, Author: "ann"}, "inv3")
		e.no(err)
		e.same("visible", ids(e.view()), "s1 q2 c2 r2 a2")
		e.same("state", e.state(), `{"last":2}`)
		if len(c.Records) != len(preview.Patches) || c.View.Seq() != e.view().Seq() {
			e.Errorf("%d patches at seq %d, previewed were %d", len(c.Records), c.View.Seq(), len(preview.Patches))
		}
		seen := before.PatchSeq()
		for _, r := range c.Records {
			if base, ok := r.Patch.Base(); !ok || base != seen || r.Patch.Author() != "ann" {
				e.Errorf("logged %v, want base %d", r, seen)
			}
			seen = r.Seq
		}
		e.reopen()
		e.same("visible", ids(e.view()), "s1 q2 c2 r2 a2")
		again, err := e.store.Rewind(ctx, key, store.UndoOptions{}, "inv3")
		e.no(err)
		if len(again.Records) > 0 || again.View.Seq() != c.View.Seq() {
			e.Errorf("a second rewind logs %v", again.Records)
		}
		back, err := e.store.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, c.Records[0].ID())
		e.no(err)
		if len(back.Records) != len(c.Records) {
			e.Errorf("%d patches are taken back with %d", len(c.Records), len(back.Records))
		}
		e.same("taken back", ids(e.view()), ids(before))
	})
}

// A fork ends where it is asked to, shares what other sessions of the user share now, and goes its own way.
func TestFork(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"last": 0, "app:x": 1})
		e.append(turn(1)...)
		e.apply(patch.NewSummarise(0, 4, summary("s1")).WithID("p1")) // record 5
		at, five, none, beyond := e.view(), uint64(5), uint64(0), uint64(99)
		e.append(sets("t", `{"app:x":3}`))
		session, err := e.store.Fork(ctx, key, forkKey, store.ForkOptions{At: &five})
		e.no(err)
		e.same("the fork", withoutCreation(e.viewText(session.View)), withoutCreation(e.viewText(at)))
		if x, _ := session.Value("app:x"); fmt.Sprint(x) != "3" || session.View.Creation() == at.Creation() || session.Key != forkKey {
			e.Errorf("the fork is %s, created as %s, with app:x %v", session.Key, session.View.Creation(), x)
		}
		for _, c := range []struct {
			from, to store.Key
			opts     store.ForkOptions
			want     error
		}{
			{key, forkKey, store.ForkOptions{}, store.ErrExists}, {key, key, store.ForkOptions{}, store.ErrExists},
			{elsewhere, store.Key{App: "a", User: "b", Session: "c"}, store.ForkOptions{}, store.ErrNotFound},
			{key, elsewhere, store.ForkOptions{At: &beyond}, store.ErrNotFound},
			{key, store.Key{}, store.ForkOptions{}, store.ErrInvalid}, {store.Key{}, elsewhere, store.ForkOptions{}, store.ErrInvalid},
		} {
			_, err := e.store.Fork(ctx, c.from, c.to, c.opts)
			e.is(err, c.want)
		}
		whole := e.viewText(e.view())
		e.must(e.store.Revert(ctx, forkKey, store.UndoOptions{}, "p1"))
		e.must(e.store.AppendEvents(ctx, forkKey, store.AppendOptions{}, sets("t", `{}`))) // an id of the other's
		e.same("the session after changes of its fork", e.viewText(e.view()), whole)
		e.no(e.store.Delete(ctx, key))
		e.same("the fork without its origin", ids(viewOf(e, e.store, forkKey)), "q1 c1 r1 a1 t")
		e.must(e.store.Fork(ctx, forkKey, key, store.ForkOptions{At: &none}))
		if v := e.view(); v.Seq() != 0 || fmt.Sprint(v.State()) != "map[last:0]" {
			e.Errorf("a fork at 0: seq %d, %v", v.Seq(), v.State())
		}
	})
}
