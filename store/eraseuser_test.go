package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// What a user has said is gone from all sessions of the user and what others have of them, and
// nothing else is. Whatever fails on the way, once more finishes it, with one receipt each.
func TestEraseUser(t *testing.T) {
	for write := 0; write < 14; write += 2 {
		erasable(t, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
			ctx := t.Context()
			key := func(user, session string) store.Key { return store.Key{App: "a", User: user, Session: session} }
			state := map[string]any{"k": "secret", "user:k": "secret", "app:k": "shared"}
			for _, name := range []string{"s1", "s2"} {
				must(t)(s.Create(ctx, key("ann", name), state))
				events := append(lines(t, `{"id":"first","author":"user","content":{"parts":[{"text":"the secret of `+name+`"}]},"actions":{"stateDelta":{"x":"secret","user:x":"secret"}}}`), said(t, "second", "secret too"))
				must(t)(s.AppendEvents(ctx, key("ann", name), store.AppendOptions{}, events...))
			}
			at := uint64(1)
			must(t)(s.Fork(ctx, key("ann", "s1"), key("bob", "of ann"), store.ForkOptions{At: &at}))
			must(t)(s.AppendEvents(ctx, key("bob", "of ann"), store.AppendOptions{}, said(t, "own", "of bob")))
			createWith(t, s, key("bob", "own"), said(t, "first", "of bob"), said(t, "second", "secret of bob"))
			must(t)(s.Create(ctx, key("ann", "empty"), nil))

			opts := store.EraseOptions{ID: "r", Salt: []byte("salt")}
			dry := opts
			dry.DryRun = true
			planned, err := s.EraseUser(ctx, "a", "ann", dry)
			if err != nil || len(has(t, s, key("ann", "s1"), "secret")) != 2 {
				t.Fatalf("planning erased: %v", err)
			}
			faulty.Plan(storetest.Plan{Write: write, Failure: []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}[write%3]})
			done, err := s.EraseUser(ctx, "a", "ann", opts)
			if failed := faulty.Writes() >= write && write%3 == 0 && write > 0; failed != (err != nil) && write%3 != 1 {
				t.Errorf("write %d fails: %v", write, err)
			}
			faulty.Plan(storetest.Plan{})
			if write == 0 {
				if got, want := whys(done), whys(planned); !slices.Equal(got, want) || len(got) != 5 {
					t.Errorf("erased %q, planned %q", got, want)
				}
				if fmt.Sprint(done.Shared) != "[user:k user:x]" || fmt.Sprint(planned.Shared) != "[user:k user:x]" {
					t.Errorf("shared %q, planned %q", done.Shared, planned.Shared)
				}
			}
			must(t)(s.EraseUser(ctx, "a", "ann", opts))
			for _, k := range []store.Key{key("ann", "s1"), key("ann", "s2"), key("bob", "of ann")} {
				if got := has(t, s, k, "secret"); len(got) != 0 {
					t.Errorf("write %d: %s has it in %v", write, k, got)
				}
				if receipts, err := s.Receipts(ctx, k); err != nil || len(receipts) != 1 || receipts[0].ID() != "r" {
					t.Errorf("write %d: %s has receipts %v, %v", write, k, receipts, err)
				}
				if initial, err := s.InitialState(ctx, k); err != nil || initial["k"].Any() != nil {
					t.Errorf("write %d: %s has the initial state %v, %v", write, k, initial, err)
				}
			}
			for k, want := range map[store.Key][]uint64{key("bob", "own"): {2}, key("bob", "of ann"): nil} {
				if got := has(t, s, k, "secret of bob"); !slices.Equal(got, want) {
					t.Errorf("write %d: %s has what bob said in %v", write, k, got)
				}
			}
			if got := has(t, s, key("bob", "of ann"), "of bob"); !slices.Equal(got, []uint64{2}) {
				t.Errorf("write %d: what bob said in the fork is in %v", write, got)
			}
			session := sessionOf(t, s, key("ann", "s1"))
			for name, want := range map[string]any{"user:k": nil, "user:x": nil, "app:k": "shared", "x": nil, "k": nil} {
				if v, ok := session.Value(name); !ok || v.Any() != want {
					t.Errorf("write %d: %s is %v, %v", write, name, v, ok)
				}
			}
			verified(t, s)
		})
	}
	s := inMemory(t)
	if _, err := s.EraseUser(t.Context(), "a", "", store.EraseOptions{}); err == nil {
		t.Error("no user was erased")
	}
	createWith(t, s, eraseKey, said(t, "e", "kept"))
	if _, err := s.EraseUser(t.Context(), "a", "u", store.EraseOptions{Values: patch.KeepValues, ID: "e"}); err == nil {
		t.Error("the receipt took an event's id")
	}
}
