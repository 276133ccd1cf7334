package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// counted checks what the head says of a session against its log. An erase leaves the tokens of what was logged.
func (e *env) counted(key store.Key, erased bool) {
	e.Helper()
	info := infoOf(e, e.store, key)
	var want store.Info
	want.Key, want.Creation, want.Created, want.Seq = info.Key, info.Creation, info.Created, info.Seq
	later := func(t *time.Time, at time.Time) {
		if at.After(*t) {
			*t = at
		}
	}
	for _, r := range e.records(key) {
		switch {
		case r.Event != nil:
			want.Tokens += r.Event.EstimatedTokens()
			later(&want.Active, r.Event.Timestamp())
		case r.Patch.Type() != patch.Erase:
			later(&want.Active, r.Patch.Timestamp())
		}
		if r.Patch != nil && r.Patch.Author() == patch.CompactionAuthor {
			later(&want.Compacted, r.Patch.Timestamp())
		}
	}
	v := viewOf(e, e.store, key)
	want.Visible = v.Len()
	for _, event := range v.Events() {
		want.VisibleTokens += event.EstimatedTokens()
	}
	if erased && info.Tokens > want.Tokens {
		want.Tokens = info.Tokens
	}
	want.Active, want.Compacted = want.Active.UTC(), want.Compacted.UTC()
	if info != want {
		e.Errorf("session %s: %+v, want %+v", key, info, want)
	}
	for listed, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if listed.Key == key && listed != info {
			e.Errorf("listed as %+v, and Info says %+v", listed, info)
		}
	}
}

func TestCounts(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(map[string]any{"k": 1})
		e.counted(key, false)
		e.append(event(`{"id":"a1","author":"user","content":{"parts":[{"text":"some words that take tokens"}]},"timestamp":"2031-01-01T00:00:00Z"}`), say("a2"), say("a3"))
		e.counted(key, false)
		e.apply(patch.NewSplice(1, 1).WithID("cut"))
		e.append(says("b", 600)...)
		e.counted(key, false)
		e.apply(patch.NewSummarise(0, 20, summary("s1")).WithAuthor(patch.CompactionAuthor).WithID("sum"))
		e.counted(key, false)
		e.apply(patch.NewPin("b100"))
		_, err := e.store.Revert(ctx, key, store.UndoOptions{}, "cut")
		e.is(err, fold.ErrBlocked)
		e.must(e.store.Revert(ctx, key, store.UndoOptions{}, "sum"))
		e.counted(key, false)
		e.reopen()
		e.append(say("c1")) // on what was read
		e.counted(key, false)
		e.must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{}))
		e.counted(forkKey, false)
		e.must(e.store.Import(ctx, elsewhere, strings.NewReader(e.export()), store.ImportOptions{}))
		e.counted(elsewhere, false)
		e.must(e.store.Erase(ctx, key, store.EraseSelection{EventIDs: []string{"a1", "b3"}}, store.EraseOptions{}))
		e.counted(key, true)
	})
}
