package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

func resultEvent(t *testing.T, id, call, text string) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent(fmt.Appendf(nil, `{"id":%q,"author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":%q,"name":"f","response":{"out":%q}}}]},"actions":{"stateDelta":{"k":%q,"app:k":1}}}`, id, call, text, id))
	no(t, err)
	return e
}

func twoCalls(t *testing.T) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent([]byte(`{"id":"call","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f"}},{"functionCall":{"id":"c2","name":"f"}}]}}`))
	no(t, err)
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
			no(t, err)
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
