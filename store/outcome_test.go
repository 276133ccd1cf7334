package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// beforeRead is a backend that does something before its next Read.
type beforeRead struct {
	backend.Backend
	do func()
}

func (b *beforeRead) Read(ctx context.Context, session, creation string, seqs []uint64, maxBytes int) ([]backend.Record, error) {
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return b.Backend.Read(ctx, session, creation, seqs, maxBytes)
}

// An append has landed, and its session is deleted while the store looks for it: that the session is gone says
// nothing of the append, which is not made again either.
func TestUnknownOutcomeOfDeletedSession(t *testing.T) {
	for _, again := range []bool{true, false} {
		onPeers(t, func(e, other *env, mine *counted) {
			mine.late = func(do func() error) {
				e.no(do())
				other.append(say("o1"))
			}
			mine.Backend = &beforeRead{mine.Backend, func() {
				e.no(other.store.Delete(ctx, key))
				if again {
					other.create(nil)
				}
			}}
			_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
			e.is(err, store.ErrOutcomeUnknown)
			if errors.Is(err, store.ErrNotFound) {
				e.Errorf("%v says two things", err)
			}
			if !again {
				other.create(nil)
			}
			e.same("visible", ids(e.view()), "")
		})
	}
}

// Records have landed, and are erased before the store looks for them. A session that is there was created with
// them; of records in a session that was there before it is not known.
func TestUnknownOutcomeOfErasedRecords(t *testing.T) {
	onPeers(t, func(e, other *env, mine *counted) {
		erased := func(k store.Key, id string) func(do func() error) {
			return func(do func() error) {
				e.no(do())
				e.must(other.store.Erase(ctx, k, store.EraseSelection{EventIDs: []string{id}}, store.EraseOptions{ID: "receipt", Salt: []byte("salt")}))
			}
		}
		mine.late = erased(elsewhere, "i1")
		imported, err := e.importInto(elsewhere, importedText, store.ImportOptions{})
		e.no(err)
		if !imported.Created {
			e.Error("an import that landed has not created the session")
		}
		mine.late = erased(key, "m1")
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("m1"))
		e.is(err, store.ErrOutcomeUnknown, "erased")
	})
}

// What became of a commit of shared values is found out.
func TestUnknownOutcomeOfSharedValues(t *testing.T) {
	beside := store.Key{App: key.App, User: key.User, Session: "beside"}
	for _, c := range []struct {
		plan    storetest.Plan
		written bool // by another, meanwhile
		want    error
		state   string
	}{
		{storetest.Plan{Failure: storetest.Lost}, false, nil, "map[app:motd:hi user:lang:de]"},
		{storetest.Plan{Failure: storetest.Landed}, false, nil, "map[app:motd:hi user:lang:de]"},
		{storetest.Plan{Failure: storetest.Lost}, true, store.ErrConflict, "map[app:motd:other]"},
		{storetest.Plan{Failure: storetest.Landed}, true, store.ErrOutcomeUnknown, "map[app:motd:other user:lang:de]"},
		{storetest.Plan{Failure: storetest.Lost, Then: 1}, false, store.ErrOutcomeUnknown, "map[app:motd:mine]"},
		{storetest.Plan{Failure: storetest.Landed, Then: 1}, false, store.ErrOutcomeUnknown, "map[app:motd:hi user:lang:de]"},
	} {
		t.Run(fmt.Sprint(c.plan.Failure, "/", c.written, "/", c.plan.Then), func(t *testing.T) {
			onEach(t, func(e *env) {
				from := source(e.T)
				e.create(map[string]any{"app:motd": "mine"})
				other := newStore(e, e.backend.Backend, e.opts)
				c.plan.Write = 1
				if c.written {
					c.plan.During = func() {
						e.must(other.AppendEvents(ctx, beside, store.AppendOptions{}, sets("x", `{"app:motd":"other"}`)))
					}
					e.must(other.Create(ctx, beside, nil))
				}
				e.backend.Plan(c.plan)
				_, err := e.store.CopyShared(ctx, from, store.CopyOptions{OverwriteShared: true})
				e.backend.Plan(storetest.Plan{})
				if c.want == nil {
					e.no(err)
				} else {
					e.is(err, c.want)
				}
				e.same("state", fmt.Sprint(e.get().State()), c.state)
			})
		})
	}
}

// A copy of shared values that are there already is confirmed by a commit, also where there is no session.
func TestCopySharedConfirms(t *testing.T) {
	onEach(t, func(e *env) {
		from := source(e.T)
		for range 2 {
			e.backend.Plan(storetest.Plan{})
			e.must(e.store.CopyShared(ctx, from, store.CopyOptions{}))
			if n := e.backend.Writes(); n != 1 {
				e.Errorf("%d writes, want 1", n)
			}
		}
	})
}
