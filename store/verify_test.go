package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

func (e *env) verify(opts store.VerifyOptions) (found []store.Problem) {
	e.Helper()
	for p, err := range e.store.Verify(ctx, opts) {
		e.no(err)
		found = append(found, p)
	}
	return found
}

// forgetful is a backend whose index does not know an id.
type forgetful struct {
	backend.Backend
	id string
}

func (f *forgetful) Lookup(ctx context.Context, session, creation string, ids []string) ([]uint64, error) {
	seqs, err := f.Backend.Lookup(ctx, session, creation, ids)
	if i := slices.Index(ids, f.id); i >= 0 && err == nil {
		seqs[i] = 0
	}
	return seqs, err
}

func TestVerify(t *testing.T) {
	keys := []store.Key{{App: "a", User: "u", Session: "1"}, {App: "a", User: "u", Session: "2"}}
	for _, c := range []struct {
		name   string
		damage func(e *env, engine backend.Backend) backend.Backend
		want   []string // key and seq of each problem, and what it says
	}{
		{"nothing", func(e *env, engine backend.Backend) backend.Backend { return engine }, nil},
		{"record", func(e *env, engine backend.Backend) backend.Backend {
			return &damaged{Backend: engine, seq: 3, change: func(r *backend.Record) { r.Data[9] ^= 1 }}
		}, []string{"a/u/1 3 checksum", "a/u/2 3 checksum"}},
		{"record in another's place", func(e *env, engine backend.Backend) backend.Backend {
			return &damaged{Backend: engine, seq: 5, change: func(r *backend.Record) {
				r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 4, Event: say("x")})
			}}
		}, []string{"a/u/1 5 place", "a/u/2 5 place"}},
		{"two damages", func(e *env, engine backend.Backend) backend.Backend {
			return &damaged{Backend: &damaged{Backend: engine, seq: 1, change: func(r *backend.Record) { r.Data = nil }},
				seq: 4, change: func(r *backend.Record) { r.Data[0] = 99 }}
		}, []string{"a/u/1 1 ", "a/u/1 4 form 99", "a/u/2 1 ", "a/u/2 4 form 99"}},
		{"id not known", func(e *env, engine backend.Backend) backend.Backend {
			return &forgetful{engine, "e2"}
		}, []string{"a/u/1 2 e2", "a/u/2 2 e2"}},
		{"nested id not known", func(e *env, engine backend.Backend) backend.Backend {
			return &forgetful{engine, "r"}
		}, []string{"a/u/1 6 r", "a/u/2 6 r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(e *env) {
				for _, k := range keys {
					e.must(e.store.Create(ctx, k, map[string]any{"tenant": "t1"}))
					e.must(e.store.AppendEvents(ctx, k, store.AppendOptions{}, says("e", 5)...))
					e.must(e.store.ApplyPatch(ctx, k, asOfNow, patch.NewSplice(0, 1, say("r")).WithID("p")))
				}
				e.backend.Backend = c.damage(e, e.engine)
				e.open()
				var seen []string
				found := e.verify(store.VerifyOptions{Progress: func(k store.Key) { seen = append(seen, k.String()) }})
				e.problems(found, c.want)
				e.same("progress", strings.Join(seen, " "), "a/u/1 a/u/2")
				// One session alone.
				e.problems(e.verify(store.VerifyOptions{Key: keys[1]}),
					slices.DeleteFunc(slices.Clone(c.want), func(w string) bool { return !strings.HasPrefix(w, "a/u/2") }))
				for range e.store.Verify(ctx, store.VerifyOptions{}) {
					break // it can be left
				}
				e.reopen()
				for _, k := range keys {
					e.no(e.store.Delete(ctx, k)) // with what was damaged for good
				}
			})
		})
	}
}

func (e *env) problems(found []store.Problem, want []string) {
	e.Helper()
	if len(found) != len(want) {
		e.Errorf("problems %v, want %q", found, want)
		return
	}
	for i, p := range found {
		place, says := want[i][:strings.LastIndex(want[i][:len("a/u/1 0 ")], " ")], want[i][len("a/u/1 0 "):]
		if got := fmt.Sprint(p.Key, " ", p.Seq); got != place {
			e.Errorf("problem at %s, want %s", got, place)
		}
		if !strings.Contains(p.String(), says) || !strings.Contains(p.String(), p.Key.String()) {
			e.Errorf("problem %q does not say %q", p, says)
		}
	}
}

// A view in memory that is not what is stored: someone changed what was logged.
func TestVerifyCachedViews(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.view()
		e.backend.Backend = &damaged{Backend: e.engine, seq: 2, change: func(r *backend.Record) {
			r.Data, _ = patch.AppendRecord(nil, patch.Record{Seq: 2, Event: sets("a2", `{"k":1}`)})
		}}
		found := e.verify(store.VerifyOptions{})
		if len(found) != 2 || found[0].Key != key || !strings.Contains(found[0].String(), "view in memory") {
			e.Errorf("problems %v, want one of the view in memory and one of the chain", found)
		}
	})
}
