package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// retried checks that a call wrote nothing and returned the records of the given seqs.
func (e *env) retried(before string, c store.Committed, err error, seqs ...uint64) {
	e.Helper()
	e.no(err)
	var got []uint64
	for _, r := range c.Records {
		got = append(got, r.Seq)
	}
	e.same("records of a retry", fmt.Sprint(got), fmt.Sprint(seqs))
	e.same("stored after a retry", e.dump(), before)
	e.same("view after a retry", e.viewText(c.View), e.viewText(e.view()))
}

func TestRetryOfEvents(t *testing.T) {
	logged := `{"id":"e","invocationId":"i","author":"a","timestamp":"2025-11-20T10:30:00.5Z",
		"content":{"role":"user","parts":[{"text":"x"}]},
		"actions":{"stateDelta":{"n":100,"f":1e2,"temp:t":1,"m":{"a":1,"b":[1,2.50]},"app:x":1},"artifactDelta":{}},"other":{"k":null}}`
	cases := []struct{ name, text string }{
		{"as it was", logged},
		{"temp: keys differ", `{"id":"e","invocationId":"i","author":"a","timestamp":"2025-11-20T10:30:00.5Z",
			"content":{"role":"user","parts":[{"text":"x"}]},
			"actions":{"stateDelta":{"n":100,"f":1e2,"temp:u":[2],"m":{"a":1,"b":[1,2.50]},"app:x":1},"artifactDelta":{}},"other":{"k":null}}`},
		{"no time", `{"id":"e","invocationId":"i","author":"a",
			"content":{"role":"user","parts":[{"text":"x"}]},
			"actions":{"stateDelta":{"n":100,"f":1e2,"m":{"a":1,"b":[1,2.50]},"app:x":1},"artifactDelta":{}},"other":{"k":null}}`},
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), event("%s", logged), say("a2"))
		// The retry is later: the shared scope has moved on, and stays.
		e.append(sets("a3", `{"app:x":2}`))
		before := e.dump()
		for _, c := range cases {
			e.Run(c.name, func(t *testing.T) {
				e := e.with(t)
				c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, event("%s", c.text))
				e.retried(before, c, err, 2)
			})
		}
		e.reopen()
		c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, event("%s", logged))
		e.retried(before, c, err, 2)
	})
}

func TestRetryOfBatches(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("a1"), say("a2"))
		c := e.append(say("a2"), say("b1"), say("a1"), event(`{"id":"piece","partial":true}`), say("b2"))
		var got []string
		for _, r := range c.Records {
			got = append(got, fmt.Sprint(r.ID(), " ", r.Seq))
		}
		e.same("records", fmt.Sprint(got), "[a2 2 b1 3 a1 1 b2 4]")
		e.same("visible", ids(c.View), "a1 a2 b1 b2")
		before := e.dump()
		c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("a2"), say("b1"), say("a1"), say("b2"))
		e.retried(before, c, err, 2, 3, 1, 4)
		c, err = e.store.AppendEvents(ctx, key, store.AppendOptions{})
		e.retried(before, c, err)
		c, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"partial":true}`))
		e.retried(before, c, err)
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, say("a1"), nil)
		e.is(err, store.ErrInvalid, "1")
		_, err = e.store.ApplyPatch(ctx, key, asOfNow, nil)
		e.is(err, store.ErrInvalid, "0")
	})
}

func TestRetryOfPatches(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 6)...)
		seen := e.view()
		// Ids inside are left to the engine.
		p1 := patch.NewSplice(0, 2, event(`{"author":"r"}`), sets("r2", `{"app:x":1,"temp:y":2,"k":3}`)).WithID("p1")
		p2 := patch.NewSummarise(1, 3, event(`{"content":{"parts":[{"text":"s"}]}}`)).WithID("p2")
		c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p1, p2)
		e.no(err)
		if seq := c.Records[1].Seq; seq != 8 {
			e.Fatalf("record %d, want 8", seq)
		}
		e.append(sets("a7", `{"app:x":2}`))
		e.apply(patch.NewSplice(0, 3)) // p1 and p2 would be out of range now
		before := e.dump()

		for _, opts := range []store.PatchOptions{{On: seen}, {On: e.view()}, asOfNow, {}} {
			c, err := e.store.ApplyPatch(ctx, key, opts, p1)
			e.retried(before, c, err, 7)
			c, err = e.store.ApplyPatch(ctx, key, opts, p1, p2)
			e.retried(before, c, err, 7, 8)
			c, err = e.store.ApplyPatch(ctx, key, opts, p2, p1)
			e.retried(before, c, err, 8, 7)
		}
		// What the engine filled may be offered, as it was.
		c, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{}, p1.WithBase(0).WithTimestamp(now))
		e.retried(before, c, err, 7)
		logged := e.records(key)[6].Patch
		c, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{}, logged)
		e.retried(before, c, err, 7)
		// The default policy may be spelled out.
		c, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{}, p1.WithState(patch.Drop), p2.WithState(patch.Keep))
		e.retried(before, c, err, 7, 8)
		for _, p := range []*patch.PatchEvent{
			p1.WithBase(7), p1.WithTimestamp(now.Add(1)), p1.WithState(patch.Keep),
			patch.NewSplice(0, 2, event(`{"id":"r1","author":"r"}`), sets("r2", `{"app:x":1,"k":3}`)).WithID("p1"),
			patch.NewSplice(0, 2, event(`{"author":"r"}`), sets("r2", `{"app:x":2,"k":3}`)).WithID("p1"),
		} {
			_, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{}, p)
			e.is(err, store.ErrDuplicateID)
		}
		e.same("stored", e.dump(), before)
	})
}

// A batch is tried again with more to it: its own patches, logged by the first try,
// count as seen.
func TestRetryOfPatchesWithMore(t *testing.T) {
	p := func(id string) *patch.PatchEvent { return patch.NewSplice(0, 1).WithID(id) }
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 8)...)
		seen := e.view()
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p("p1"), p("p2")))
		c, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p("p1"), p("p2"), p("p3"), p("p4"))
		e.no(err)
		if got := c.Records[3].Seq; got != 12 {
			e.Errorf("record %d, want 12", got)
		}
		// Someone else's patch does not.
		e.apply(p("x"))
		_, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p("p1"), p("p2"), p("p3"), p("p4"), p("p5"))
		e.is(err, store.ErrConflict, "0", "13")
		between := e.view()
		e.apply(p("y"))
		e.must(e.store.ApplyPatch(ctx, key, store.PatchOptions{On: between}, p("y"), p("p5")))
		_, err = e.store.ApplyPatch(ctx, key, store.PatchOptions{On: seen}, p("y"), p("p6"))
		e.is(err, store.ErrConflict)
		e.same("visible", ids(e.view()), "a8")
	})
}

func TestFillsIDsAndTimes(t *testing.T) {
	var n, calls atomic.Int32
	opts := store.Options{
		NewID: func() string { return fmt.Sprint("new", n.Add(1)) },
		Now:   func() time.Time { return now.Add(time.Duration(calls.Add(1)) * time.Minute) },
	}
	onEachWith(t, opts, func(e *env) {
		n.Store(0)
		e.create(nil)
		calls.Store(0)
		offered := event(`{"author":"a"}`)
		c := e.append(offered, event(`{"id":"own","timestamp":"2020-01-01T00:00:00Z"}`), event(`{"author":"b"}`))
		e.same("first", c.Records[0].Event.String(), `{"id":"new1","author":"a","timestamp":"2025-11-20T10:31:00.123456789Z"}`)
		e.same("second", c.Records[1].Event.String(), `{"id":"own","timestamp":"2020-01-01T00:00:00Z"}`)
		e.same("third", c.Records[2].Event.String(), `{"id":"new2","author":"b","timestamp":"2025-11-20T10:31:00.123456789Z"}`)
		e.same("the caller's", offered.String(), `{"author":"a"}`)
		c = e.apply(patch.NewSplice(0, 1, event(`{"author":"r"}`)), patch.NewSummarise(0, 1, event(`{"content":{"parts":[{"text":"s"}]}}`)))
		e.same("patch", c.Records[0].Patch.ID()+" "+c.Records[0].Patch.NewEvents()[0].ID(), "new3 new4")
		e.same("summary", c.Records[1].Patch.ID()+" "+c.Records[1].Patch.NewEvents()[0].ID(), "new5 new6")
		for _, r := range c.Records {
			for _, ev := range r.Patch.NewEvents() {
				if want := now.Add(2 * time.Minute); !ev.Timestamp().Equal(want) || !r.Patch.Timestamp().Equal(want) {
					e.Errorf("times %v and %v, want %v", ev.Timestamp(), r.Patch.Timestamp(), want)
				}
			}
		}
		for i, r := range e.records(key)[3:] {
			e.same("logged", r.Patch.String(), c.Records[i].Patch.String())
		}
		// A retry of what was returned.
		before := e.dump()
		c2, err := e.store.ApplyPatch(ctx, key, store.PatchOptions{}, c.Records[0].Patch, c.Records[1].Patch)
		e.retried(before, c2, err, 4, 5)
	})
}

func TestNewIDThatIsTaken(t *testing.T) {
	onEachWith(t, store.Options{NewID: func() string { return "same" }}, func(e *env) {
		e.create(nil)
		_, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{}`), event(`{}`))
		e.is(err, store.ErrDuplicateID, "same")
		e.append(event(`{"author":"a"}`))
		_, err = e.store.AppendEvents(ctx, key, store.AppendOptions{}, event(`{"author":"b"}`))
		e.is(err, store.ErrDuplicateID, "same")
	})
}

func TestDefaultIDsAreUUIDs(t *testing.T) {
	onEachWith(t, store.Options{Now: time.Now}, func(e *env) {
		e.create(nil)
		from := time.Now()
		c := e.append(event(`{}`), event(`{}`))
		a, b := c.Records[0].Event, c.Records[1].Event
		if len(a.ID()) != 36 || len(b.ID()) != 36 || a.ID() == b.ID() {
			e.Errorf("ids %q and %q", a.ID(), b.ID())
		}
		if at := a.Timestamp(); at.Before(from.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			e.Errorf("time %v, called at %v", at, from)
		}
	})
}

func resultEvent(t *testing.T, id, call, text string) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":%q,"author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":%q,"name":"f","response":{"out":%q}}}]},"actions":{"stateDelta":{"k":%q,"app:k":1}}}`, id, call, text, id))
	testlog.NoError(t, err)
	return e
}

func twoCalls(t *testing.T) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent([]byte(`{"id":"call","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f"}},{"functionCall":{"id":"c2","name":"f"}}]}}`))
	testlog.NoError(t, err)
	return e
}

// A long result is shown in short from the commit on that logs it; the log has it whole.
func TestAppendShortens(t *testing.T) {
	onEach(t, func(e *env) {
		t, s := e.T, e.store
		must(t)(s.Create(ctx, key, nil))
		long := strings.Repeat("a long result, ", 1000)
		opts := store.AppendOptions{MaxResultTokens: 500}
		batch := []*patch.Event{twoCalls(t), resultEvent(t, "r1", "c1", long), resultEvent(t, "r2", "c2", "short")}
		done, err := s.AppendEvents(ctx, key, opts, batch...)
		if err != nil || len(done.Records) != 3 || done.View.Seq() != 4 || done.View.Len() != 3 {
			t.Fatalf("%d records, %d visible at %d: %v", len(done.Records), done.View.Len(), done.View.Seq(), err)
		}
		if seqs := []uint64{done.Records[0].Seq, done.Records[1].Seq, done.Records[2].Seq}; fmt.Sprint(seqs) != "[1 2 4]" {
			t.Errorf("seqs %v", seqs)
		}
		shown := done.View.At(1)
		if n := shown.EstimatedTokens(); n > 500 || shown.ID() == "r1" {
			t.Errorf("%d tokens of %s", n, shown.ID())
		}
		for _, c := range done.View.Calls() {
			if len(c.Responses) != 1 {
				t.Errorf("call %s has responses %v", c.ID, c.Responses)
			}
		}
		if v := done.View.State(); v["k"] != "r2" {
			t.Errorf("state %v", v)
		}
		// A retry changes nothing, with and without the option.
		for _, opts := range []store.AppendOptions{opts, {}} {
			if again, err := s.AppendEvents(ctx, key, opts, batch...); err != nil || again.View.Seq() != 4 {
				t.Errorf("a retry: at %d, %v", again.View.Seq(), err)
			}
		}
		var whole, short patch.Record
		for r, err := range s.RawEvents(ctx, key, 1) {
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Seq == 2:
				whole = r
			case r.Seq == 3:
				short = r
			}
		}
		if short.Patch == nil || short.Patch.Author() != recall.Author {
			t.Fatalf("%v", short)
		}
		for _, p := range whole.Event.Content().Parts() {
			if recall.Original(p) != long {
				t.Error("the log has another result")
			}
		}
		// The text inside is found, once, where it was logged.
		hits, err := s.Search(ctx, key, recall.Search{Query: "long result"})
		if err != nil || len(hits) == 0 || hits[0].Seq != 2 || hits[0].Place.HiddenBy != short.Patch.ID() {
			t.Errorf("%v, %v", hits, err)
		}
		history, err := s.History(ctx, key, done.View)
		if err != nil || len(history) != 3 || history[1].Event.ID() != "r1" {
			t.Errorf("history %v, %v", history, err)
		}
		back, err := s.Revert(ctx, key, store.UndoOptions{}, short.Patch.ID())
		if err != nil || back.View.At(1).ID() != "r1" || back.View.State()["k"] != "r2" {
			t.Errorf("taken back: %v", err)
		}
		if _, err := s.AppendEvents(ctx, key, store.AppendOptions{MaxResultTokens: 7}, resultEvent(t, "r3", "c3", "x")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a limit that is too low: %v", err)
		}
		// One that answers no visible call is shortened too, and comes back.
		done, err = s.AppendEvents(ctx, key, opts, resultEvent(t, "r4", "c9", long))
		if last := done.View.Len() - 1; err != nil || done.View.At(last).ID() == "r4" {
			t.Errorf("without its call: %v", err)
		}
		for r, err := range s.RawEvents(ctx, key, done.View.Seq()) {
			testlog.NoError(t, err)
			if back, err := s.Revert(ctx, key, store.UndoOptions{}, r.ID()); err != nil || back.View.At(back.View.Len()-1).ID() != "r4" {
				t.Errorf("taken back without its call: %v", err)
			}
		}
	})
}

// On a log with patches of a type that is not known, events are appended as they are.
func TestAppendShortensNotBehindUnknown(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	must(t)(s.Import(ctx, key, strings.NewReader(`{"id":"p","patchType":"from the future"}`+"\n"), store.ImportOptions{}))
	done, err := s.AppendEvents(ctx, key, store.AppendOptions{MaxResultTokens: 500}, twoCalls(t), resultEvent(t, "r1", "c1", strings.Repeat("long ", 1000)))
	if err != nil || done.View.Seq() != 3 || done.View.At(1).ID() != "r1" {
		t.Errorf("at %d, %v", done.View.Seq(), err)
	}
}
