package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/google/uuid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
)

func TestExpectedSeq(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		seq := func(n uint64) store.AppendOptions { return store.AppendOptions{IfSeq: &n} }
		e.must(e.store.AppendEvents(ctx, key, []*patch.Event{say("a1"), say("a2")}, seq(0)))
		e.must(e.store.AppendEvents(ctx, key, []*patch.Event{say("a3")}, seq(2)))
		for _, n := range []uint64{0, 2, 4} {
			stored := e.dump()
			_, err := e.store.AppendEvents(ctx, key, []*patch.Event{say("a4")}, seq(n))
			e.is(err, store.ErrConflict, "3", string(rune('0'+n)), key.String())
			testlog.Equal(e, "expected and last", *as[*store.SeqError](e, err), store.SeqError{Expected: n, Last: 3})
			e.same("stored", e.dump(), stored)
		}
		// A patch counts as a record in the expected seq.
		e.apply(patch.NewSplice(0, 1))
		e.is(testlog.ErrorOf(e.store.AppendEvents(ctx, key, []*patch.Event{say("a4")}, seq(3))), store.ErrConflict)
		e.must(e.store.AppendEvents(ctx, key, []*patch.Event{say("a4")}, seq(4)))
		// A retry succeeds even if the expected seq is no longer the last seq.
		c := testlog.Must(e.store.AppendEvents(ctx, key, []*patch.Event{say("a4")}, seq(4)))(e)
		if c.Records[0].Seq != 5 || c.View.Seq() != 5 {
			e.Errorf("the retry gave record %d and a view at %d, want 5 and 5", c.Records[0].Seq, c.View.Seq())
		}
		e.must(e.store.AppendEvents(ctx, key, []*patch.Event{event(`{"id":"piece","partial":true}`)}, seq(1)))
	})
}

func visibleIDs(events []fold.Entry) string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.Event.ID())
	}
	return strings.Join(ids, " ")
}

// Preview writes nothing. The preview of a patch that is already logged shows no change.
func TestPreview(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		stored, seen := e.dump(), e.view()
		p := testlog.Must(e.store.Preview(ctx, key, []*patch.PatchEvent{patch.NewSplice(1, 2, say("r")).WithID("p")}, store.PatchOptions{On: seen}))(e)
		e.same("removed, added, visible and where", fmt.Sprint(visibleIDs(p.Removed), "; ", visibleIDs(p.Added), "; ", ids(p.After), "; ", p.FirstChanged), "a2 a3; r; a1 r a4; 1")
		e.same("stored", e.dump(), stored)
		e.same("view", e.viewText(e.view()), e.viewText(seen))
		e.apply(p.Patches[0])
		p = testlog.Must(e.store.Preview(ctx, key, []*patch.PatchEvent{p.Patches[0]}, asOfNow))(e)
		e.same("preview of a retry", e.viewText(p.After), e.viewText(e.view()))
		testlog.Equal(e, "events that a retry would remove and add", len(p.Removed)+len(p.Added), 0)
	})
}

// asOfNow contains the options of a patch whose indices refer to the newest view.
var asOfNow = store.PatchOptions{AsOfNow: true}

// refuse applies patches that the store must refuse. It checks that the error matches target and contains each of
// the names, that nothing is written, and that Preview returns the same error.
func (e *env) refuse(opts store.PatchOptions, patches []*patch.PatchEvent, target error, names ...string) error {
	e.Helper()
	stored, view := e.dump(), e.viewText(e.view())
	taken := e.taken(patches)
	c, err := e.store.ApplyPatch(ctx, key, patches, opts)
	e.is(err, target, append(names, key.String())...)
	if errors.Is(err, store.ErrOutcomeUnknown) || len(c.Records) > 0 || c.View.Seq() != 0 {
		e.Errorf("a refusal returned %d records and a view at %d, and the error %v", len(c.Records), c.View.Seq(), err)
	}
	e.same("stored after a refusal", e.dump(), stored)
	e.same("view after a refusal", e.viewText(e.view()), view)
	e.same("ids after a refusal", e.taken(patches), taken)
	if len(patches) == 1 {
		_, previewErr := e.store.Preview(ctx, key, []*patch.PatchEvent{patches[0]}, opts)
		if previewErr == nil || err != nil && previewErr.Error() != err.Error() {
			e.Errorf("Preview: %v, but ApplyPatch: %v", previewErr, err)
		}
	}
	return err
}

// taken describes which of the patches' ids are in the log, and in which records.
func (e *env) taken(patches []*patch.PatchEvent) string {
	e.Helper()
	var ids []string
	for _, p := range patches {
		for id := range (patch.Record{Patch: p}).IDs() {
			ids = append(ids, id)
		}
	}
	for info, err := range e.store.List(ctx, store.ListOptions{}) {
		e.no(err)
		if info.Key != key {
			continue
		}
		seqs := testlog.Must(e.backend.Lookup(ctx, e.nameOf(info), info.Creation, ids))(e)
		var b strings.Builder
		for i, id := range ids {
			b.WriteString(id + " " + string(rune('0'+seqs[i])) + ", ")
		}
		return b.String()
	}
	return ""
}

func one(p *patch.PatchEvent) []*patch.PatchEvent { return []*patch.PatchEvent{p} }

func TestRefusesTooLarge(t *testing.T) {
	long := event(`{"id":"big","content":{"parts":[{"text":%q}]}}`, strings.Repeat("x", 3000))
	onEachWith(t, store.Options{MaxRecordBytes: 2000}, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.refuse(asOfNow, one(patch.NewSummarise(0, 1, long).WithID("p")), store.ErrTooLarge, "p", "2000")
		// If one record of a call is too large, the call writes nothing.
		e.refuse(asOfNow, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("small"), patch.NewSplice(0, 1, long).WithID("p")}, store.ErrTooLarge, "p")
		stored := e.dump()
		e.is(e.try(say("b1"), long), store.ErrTooLarge, "big", "2000", key.String())
		for k, names := range map[string]string{"k": "2000", "app:k": "app:k"} {
			e.is(testlog.ErrorOf(e.store.Create(ctx, elsewhere, map[string]any{k: strings.Repeat("x", 3000)}, store.CreateOptions{})), store.ErrTooLarge, names)
		}
		e.same("stored", e.dump(), stored)
	})
}

// A record of exactly the maximum size can be stored, exported and imported.
func TestLargestRecord(t *testing.T) {
	largest := event(`{"id":"e","timestamp":"2025-11-20T10:30:00Z","author":"a","content":{"parts":[{"text":%q}]}}`, strings.Repeat("x", 1000))
	form := testlog.Must(patch.AppendRecord(nil, patch.Record{Seq: 1, Event: largest}))(t)
	onEachWith(t, store.Options{MaxRecordBytes: len(form)}, func(e *env) {
		e.create(nil)
		e.append(largest)
		text := e.export()
		view := e.viewText(e.view())
		e.no(e.store.Delete(ctx, key))
		e.importText("f", text)
		e.same("view", withoutCreation(e.viewText(e.view())), withoutCreation(view))
	})
	onEachWith(t, store.Options{MaxRecordBytes: len(form) - 1}, func(e *env) {
		e.create(nil)
		e.is(testlog.ErrorOf(e.store.AppendEvents(ctx, key, []*patch.Event{largest}, store.AppendOptions{})), store.ErrTooLarge)
		e.is(testlog.ErrorOf(e.store.Import(ctx, key, strings.NewReader(largest.String()+"\n"), store.ImportOptions{Name: "f"})), store.ErrTooLarge, "f:1")
	})
}

func TestOrderOfJudgement(t *testing.T) {
	onEachWith(t, store.Options{MaxRecordBytes: 2000}, func(e *env) {
		e.create(nil)
		e.append(say("a1"), call("c", "inv1", "id1"), answer("r", "inv1", "id1"), say("a2"))
		e.apply(patch.NewSplice(3, 1).WithID("p1")) // record 5
		long := strings.Repeat("x", 3000)
		// Every field of the patch is wrong at first. Each step corrects the field that the error names.
		fields := map[string]string{
			"id": `"a1"`, "base": "0", "state": `"hold"`, "start": "77", "count": "1",
			"replacement": `[{"id":"new","content":{"parts":[{"text":"` + long + `"}]}}]`,
		}
		opts := store.PatchOptions{}
		build := func() []*patch.PatchEvent {
			text := `{"patchType":"splice"`
			for k, v := range fields {
				text += `,"` + k + `":` + v
			}
			return one(parsePatch("%s}", text))
		}
		e.refuse(opts, build(), store.ErrDuplicateID, `"a1"`)
		fields["id"] = `"p2"`
		e.refuse(opts, build(), store.ErrConflict, "0", "5")
		fields["base"] = "6"
		e.refuse(opts, build(), store.ErrInvalid, "base", "6", "5")
		fields["base"] = "5"
		e.refuse(opts, build(), store.ErrInvalid, `"hold"`)
		fields["state"] = `"keep"`
		e.refuse(opts, build(), fold.ErrOutOfRange, "77")
		fields["start"] = "1"
		e.refuse(opts, build(), fold.ErrOrphanedCall, `"id1"`)
		opts.AllowOrphans = true
		e.refuse(opts, build(), store.ErrTooLarge, "p2")
		fields["replacement"] = `[{"id":"new"}]`
		e.must(e.store.ApplyPatch(ctx, key, build(), opts))
		e.same("visible", ids(e.view()), "a1 new r")
	})
}

func TestDuplicateIDsOfEvents(t *testing.T) {
	cases := []struct {
		name   string
		events []*patch.Event
		id     string
		seq    uint64
	}{
		{"other content", []*patch.Event{event(`{"id":"a1","author":"x"}`)}, "a1", 1},
		{"a patch's", []*patch.Event{say("p1")}, "p1", 4},
		{"a replacement's with its content", []*patch.Event{say("r1")}, "r1", 4},
		{"twice", []*patch.Event{say("b1"), say("b1")}, "b1", 0},
		{"twice, of one that is there", []*patch.Event{say("a1"), say("a1")}, "a1", 0},
		{"after others", []*patch.Event{say("b1"), say("a1"), say("p1")}, "p1", 4},
	}
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 3)...)
		e.apply(patch.NewSplice(0, 1, say("r1")).WithID("p1"))
		stored, view := e.dump(), e.viewText(e.view())
		for _, c := range cases {
			_, err := e.store.AppendEvents(ctx, key, c.events, store.AppendOptions{})
			e.is(err, store.ErrDuplicateID, c.id, key.String())
			testlog.Equal(e, c.name, *as[*store.DuplicateIDError](e, err), store.DuplicateIDError{ID: c.id, Seq: c.seq})
			e.same(c.name+": stored", e.dump(), stored)
			e.same(c.name+": view", e.viewText(e.view()), view)
		}
		e.append(say("b1")) // the log accepts an id of a refused call
	})
}

func seqsOf(records []patch.Record) (seqs []uint64) {
	for _, r := range records {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// retry applies patches that are already in the log. It checks that nothing is written and that the records with
// the given seqs are returned.
func (e *env) retry(opts store.PatchOptions, patches []*patch.PatchEvent, seqs ...uint64) {
	e.Helper()
	before := e.dump()
	c := testlog.Must(e.store.ApplyPatch(ctx, key, patches, opts))(e)
	testlog.Equal(e, "records of a retry", seqsOf(c.Records), seqs)
	e.same("stored after a retry", e.dump(), before)
	e.same("view after a retry", e.viewText(c.View), e.viewText(e.view()))
}

// A retry may contain more patches than the first attempt. Patches that the first attempt logged are not a
// conflict.
func TestRetryOfPatchesWithMore(t *testing.T) {
	p := func(id string) *patch.PatchEvent { return patch.NewSplice(0, 1).WithID(id) }
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(says("a", 8)...)
		seen := e.view()
		e.must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p("p1"), p("p2")}, store.PatchOptions{On: seen}))
		c := testlog.Must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p("p1"), p("p2"), p("p3"), p("p4")}, store.PatchOptions{On: seen}))(e)
		testlog.Equal(e, "record", c.Records[3].Seq, 12)
		// A patch of another caller is a conflict.
		e.apply(p("x"))
		e.is(testlog.ErrorOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p("p1"), p("p2"), p("p3"), p("p4"), p("p5")}, store.PatchOptions{On: seen})), store.ErrConflict, "0", "13")
		between := e.view()
		e.apply(p("y"))
		e.must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p("y"), p("p5")}, store.PatchOptions{On: between}))
		e.is(testlog.ErrorOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{p("y"), p("p6")}, store.PatchOptions{On: seen})), store.ErrConflict)
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
		// Applying the returned patches again adds nothing.
		e.retry(store.PatchOptions{}, []*patch.PatchEvent{c.Records[0].Patch, c.Records[1].Patch}, 4, 5)
	})
}

func TestNewIDs(t *testing.T) {
	onEachWith(t, store.Options{NewID: func() string { return "same" }}, func(e *env) {
		e.create(nil)
		e.is(testlog.ErrorOf(e.store.AppendEvents(ctx, key, []*patch.Event{event(`{}`), event(`{}`)}, store.AppendOptions{})), store.ErrDuplicateID, "same")
		e.append(event(`{"author":"a"}`))
		e.is(testlog.ErrorOf(e.store.AppendEvents(ctx, key, []*patch.Event{event(`{"author":"b"}`)}, store.AppendOptions{})), store.ErrDuplicateID, "same")
	})
	onEach(t, func(e *env) { // by default, new ids are UUIDs
		e.create(nil)
		c := e.append(event(`{}`), event(`{}`))
		a, b := c.Records[0].Event.ID(), c.Records[1].Event.ID()
		if len(a) != 36 || len(b) != 36 || a == b {
			e.Errorf("ids %q and %q", a, b)
		}
	})
}

func resultEvent(id, call, text string) *patch.Event {
	return event(`{"id":%q,"author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":%q,"name":"f","response":{"out":%q}}}]},"actions":{"stateDelta":{"k":%q,"app:k":1}}}`, id, call, text, id)
}

var twoCalls = event(`{"id":"call","author":"agent","content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f"}},{"functionCall":{"id":"c2","name":"f"}}]}}`)

var shortening = store.AppendOptions{Follow: recall.Shortener(500, uuid.NewString, func(r patch.Record) string { return strconv.FormatUint(r.Seq, 10) })}

// AppendOptions.Follow can shorten a long result in the commit that logs the result. The log keeps the whole
// result.
func TestAppendShortens(t *testing.T) {
	onEach(t, func(e *env) {
		t, s := e.T, e.store
		must(t)(s.Create(ctx, key, nil, store.CreateOptions{}))
		long := strings.Repeat("a long result, ", 1000)
		opts := shortening
		batch := []*patch.Event{twoCalls, resultEvent("r1", "c1", long), resultEvent("r2", "c2", "short")}
		done := testlog.Must(s.AppendEvents(ctx, key, batch, opts))(t)
		testlog.Equal(t, "seqs of the records, and of the view", append(seqsOf(done.Records), done.View.Seq()), []uint64{1, 2, 4, 4})
		testlog.Equal(t, "visible events", done.View.Len(), 3)
		shown := done.View.At(1)
		if n := shown.EstimatedTokens(); n > 500 || shown.ID() == "r1" {
			t.Errorf("%d tokens of %s", n, shown.ID())
		}
		for _, c := range done.View.Calls() {
			testlog.Equal(t, "responses of "+c.ID, len(c.Responses), 1)
		}
		testlog.Equal(t, "k", done.View.State()["k"], "r2")
		// A retry writes nothing, with or without Follow.
		for _, opts := range []store.AppendOptions{opts, {}} {
			testlog.Equal(t, "a retry", testlog.Must(s.AppendEvents(ctx, key, batch, opts))(t).View.Seq(), 4)
		}
		records := e.records(key)
		whole, short := records[1], records[2]
		if short.Patch == nil || short.Patch.Author() != recall.Author {
			t.Fatalf("%v", short)
		}
		for _, p := range whole.Event.Content().Parts() {
			testlog.Equal(t, "the result in the log", recall.Original(p), long)
		}
		// A search finds the hidden text once, at the record that logged it.
		hits, err := recall.NewFinder(s, 0).Search(ctx, key, recall.Search{Query: "long result"})
		if err != nil || len(hits) == 0 || hits[0].Seq != 2 || hits[0].Place.HiddenBy != short.Patch.ID() {
			t.Errorf("%v, %v", hits, err)
		}
		history := testlog.Must(s.History(ctx, key, done.View))(t)
		testlog.Equal(t, "ids in the history", []string{history[0].Event.ID(), history[1].Event.ID(), history[2].Event.ID()}, []string{"call", "r1", "r2"})
		back := testlog.Must(s.Revert(ctx, key, short.Patch.ID(), store.UndoOptions{}))(t)
		testlog.Equal(t, "taken back", fmt.Sprint(ids(back.View), back.View.State()["k"]), "call r1 r2r2")
		// If a result answers no visible call, it is shortened too, and a revert restores it.
		done = testlog.Must(s.AppendEvents(ctx, key, []*patch.Event{resultEvent("r4", "c9", long)}, opts))(t)
		testlog.Equal(t, "it is visible", strings.HasSuffix(ids(done.View), "r4"), false)
		records = e.records(key)
		back = testlog.Must(s.Revert(ctx, key, records[len(records)-1].ID(), store.UndoOptions{}))(t)
		testlog.Equal(t, "taken back without its call", back.View.At(back.View.Len()-1).ID(), "r4")
	})
}

// If the log has a patch of unknown type, an append succeeds without the patches of Follow.
func TestAppendShortensNotBehindUnknown(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	must(t)(s.Import(ctx, key, strings.NewReader(`{"id":"p","patchType":"from the future"}`+"\n"), store.ImportOptions{}))
	done := testlog.Must(s.AppendEvents(ctx, key, []*patch.Event{twoCalls, resultEvent("r1", "c1", strings.Repeat("long ", 1000))}, shortening))(t)
	testlog.Equal(t, "visible", ids(done.View), "call r1")
}

// turn returns the events of invocation n: a user message, a call, its response, and an answer. The response sets
// the key "last".
func turn(n int) []*patch.Event {
	inv := fmt.Sprint("inv", n)
	return []*patch.Event{
		event(`{"id":"q%d","invocationId":%q,"author":"user","content":{"role":"user","parts":[{"text":"?"}]}}`, n, inv),
		call(fmt.Sprint("c", n), inv, fmt.Sprint("call", n)),
		event(`{"id":"r%d","invocationId":%q,"author":"agent","content":{"role":"user","parts":[{"functionResponse":{"id":"call%d","name":"tool"}}]},"actions":{"stateDelta":{"last":%d}}}`, n, inv, n, n),
		event(`{"id":"a%d","invocationId":%q,"author":"agent","content":{"role":"model","parts":[{"text":"!"}]}}`, n, inv),
	}
}

// If a revert restores a record that cannot be read, calls fail. Nothing is written, and no view omits the revert.
func TestRevertOfUnreadableRecords(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.create(nil)
		e.append(says("a", 4)...)
		e.apply(patch.NewSplice(0, 2).WithID("p1"))
		e.append(says("b", 2)...)
		stored := e.dump()
		whole := e.backend.Backend
		broken := errors.New("no such sector")
		e.backend.Backend = &hooked{Backend: whole, serve: failing("Read", broken)}
		e.is(errOf(e.store.Revert(ctx, key, "p1", store.UndoOptions{})), broken)
		e.backend.Backend = whole
		e.same("stored", e.dump(), stored)
		e.must(e.store.Revert(ctx, key, "p1", store.UndoOptions{}))
		e.same("visible", ids(e.view()), "a1 a2 a3 a4 b1 b2")
	})
}

func TestRewind(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"last": 0})
		for n := range 4 {
			e.append(turn(n + 1)...)
		}
		e.apply(patch.NewSummarise(0, 4, summary("s1")).WithID("p1"))       // summary of events before the rewound invocation
		e.apply(patch.NewSummarise(1, 8, summary("s2")).WithID("p2"))       // summary of events before and in the rewound invocation
		e.append(event(`{"id":"x","invocationId":"inv3","author":"user"}`)) // inv3 continues
		e.append(event(`{"id":"y","invocationId":"inv5","author":"user"}`), call("z", "inv5", "open"))
		before := e.view()

		preview := testlog.Must(e.store.Rewind(ctx, key, "inv3", store.UndoOptions{DryRun: true}))(e)
		e.same("previewed", ids(preview.View), "s1 q2 c2 r2 a2")
		e.same("visible after a preview", ids(e.view()), ids(before))

		e.is(testlog.ErrorOf(e.store.Rewind(ctx, key, "inv9", store.UndoOptions{})), fold.ErrEventNotFound, "inv9", key.String())
		e.is(testlog.ErrorOf(e.store.Rewind(ctx, key, "", store.UndoOptions{})), store.ErrInvalid)
		e.is(testlog.ErrorOf(e.store.Rewind(ctx, elsewhere, "inv3", store.UndoOptions{})), store.ErrNotFound)
		older := testlog.Must(e.store.ViewAt(ctx, key, 17))(e)
		e.is(testlog.ErrorOf(e.store.Rewind(ctx, key, "inv3", store.UndoOptions{On: older})), store.ErrConflict, "17", "18")

		c := testlog.Must(e.store.Rewind(ctx, key, "inv3", store.UndoOptions{On: before, Author: "ann"}))(e)
		e.same("visible", ids(e.view()), "s1 q2 c2 r2 a2")
		e.same("state", e.state(), `{"last":2}`)
		if len(c.Records) != len(preview.Records) || c.View.Seq() != e.view().Seq() {
			e.Errorf("%d patches at seq %d, previewed were %d", len(c.Records), c.View.Seq(), len(preview.Records))
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
		again := testlog.Must(e.store.Rewind(ctx, key, "inv3", store.UndoOptions{}))(e)
		if len(again.Records) > 0 || again.View.Seq() != c.View.Seq() {
			e.Errorf("a second rewind logs %v", again.Records)
		}
		back := testlog.Must(e.store.Revert(ctx, key, c.Records[0].ID(), store.UndoOptions{AllowOrphans: true}))(e)
		testlog.Equal(e, "patches that take back", len(back.Records), len(c.Records))
		e.same("taken back", ids(e.view()), ids(before))
	})
}

// A fork ends at the requested record. It sees the current shared values and does not depend on its origin.
func TestFork(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"last": 0, "app:x": 1})
		e.append(turn(1)...)
		e.apply(patch.NewSummarise(0, 4, summary("s1")).WithID("p1")) // record 5
		at, five, none, beyond := e.view(), uint64(5), uint64(0), uint64(99)
		e.append(sets("t", `{"app:x":3}`))
		session := testlog.Must(e.store.Fork(ctx, key, forkKey, store.ForkOptions{At: &five}))(e)
		e.same("the fork", withoutCreation(e.viewText(session.View)), withoutCreation(e.viewText(at)))
		if x, _ := session.Value("app:x"); fmt.Sprint(x) != "3" || session.View.Creation() == at.Creation() || session.Key != forkKey {
			e.Errorf("the fork is %s, created as %s, with app:x %v", session.Key, session.View.Creation(), x)
		}
		for _, c := range []struct {
			from, to store.Key
			at       *uint64
			want     error
		}{
			{key, forkKey, nil, store.ErrExists}, {key, key, nil, store.ErrExists},
			{elsewhere, store.Key{App: "a", User: "b", Session: "c"}, nil, store.ErrNotFound},
			{key, elsewhere, &beyond, store.ErrNotFound},
			{key, store.Key{}, nil, store.ErrInvalid}, {store.Key{}, elsewhere, nil, store.ErrInvalid},
		} {
			e.is(testlog.ErrorOf(e.store.Fork(ctx, c.from, c.to, store.ForkOptions{At: c.at})), c.want)
		}
		whole := e.viewText(e.view())
		e.must(e.store.Revert(ctx, forkKey, "p1", store.UndoOptions{}))
		e.must(e.store.AppendEvents(ctx, forkKey, []*patch.Event{sets("t", `{}`)}, store.AppendOptions{})) // appends an event whose id the origin also contains
		e.same("the session after changes of its fork", e.viewText(e.view()), whole)
		e.no(e.store.Delete(ctx, key))
		e.same("the fork without its origin", ids(viewOf(e, e.store, forkKey)), "q1 c1 r1 a1 t")
		e.must(e.store.Fork(ctx, forkKey, key, store.ForkOptions{At: &none}))
		if v := e.view(); v.Seq() != 0 || fmt.Sprint(v.State()) != "map[last:0]" {
			e.Errorf("a fork at 0: seq %d, %v", v.Seq(), v.State())
		}
	})
}

// If the log already has a group with the given id, every call that adds another group with this id is refused. A
// retry of the first group adds nothing.
func TestGroupIsNew(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(nil)
		for n := range 3 {
			e.append(turn(n + 1)...)
		}
		done := e.apply(
			patch.NewSummarise(4, 4, summary("s2")).WithID("w1").WithGroup("w"),
			patch.NewSplice(0, 4).WithState(patch.Keep).WithID("w2").WithGroup("w"))
		stored := e.dump()
		for _, again := range []bool{false, true} {
			if again {
				e.reopen()
			}
			e.is(testlog.ErrorOf(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1).WithGroup("w")}, store.PatchOptions{On: e.view()})), store.ErrInvalid, "group", "w")
			e.is(testlog.ErrorOf(e.store.Preview(ctx, key, []*patch.PatchEvent{patch.NewPin("s2").WithGroup("w")}, store.PatchOptions{On: e.view()})), store.ErrInvalid, "group", "w")
			retry := testlog.Must(e.store.ApplyPatch(ctx, key, []*patch.PatchEvent{done.Records[0].Patch, done.Records[1].Patch}, store.PatchOptions{}))(e)
			if len(retry.Records) != 2 || retry.Records[1].Seq != done.Records[1].Seq {
				e.Errorf("a retry gives %v", retry.Records)
			}
			e.same("stored", e.dump(), stored)
		}
		// An event may have the same id as a group.
		e.append(event(`{"id":"g","author":"user"}`))
		e.apply(patch.NewPin("s2").WithGroup("g"))
	})
}

// A revert reads the records that it needs under its caller's context, while other goroutines write. If the
// context ends, the revert reads no further record and writes nothing.
func TestRevertReadsOutsideTheLock(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: snapshot.Policy{Every: -1}}, func(e *env) {
		e.create(nil)
		e.append(says("a", 1500)...)
		e.apply(patch.NewSplice(0, 1400).WithID("p"))
		whole := e.backend.Backend
		reading, free, reads := make(chan struct{}, 1), make(chan struct{}), 0
		slow := &hooked{Backend: whole, serve: func(ctx context.Context, call string) (backend.Backend, error) {
			if call != "Read" {
				return nil, nil
			}
			reads++
			select {
			case reading <- struct{}{}:
			default:
			}
			select {
			case <-free:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		e.backend.Backend = slow
		short, cancel := context.WithCancel(ctx)
		result := make(chan error)
		revert := func(ctx context.Context) {
			_, err := e.store.Revert(ctx, key, "p", store.UndoOptions{})
			result <- err
		}
		go revert(short)
		<-reading
		e.append(say("meanwhile")) // this append does not wait for the revert
		cancel()
		e.is(<-result, context.Canceled)
		testlog.Equal(e, "reads", reads, 1)
		e.backend.Backend = whole
		if records := e.records(key); len(records) != 1502 || records[1501].ID() != "meanwhile" {
			e.Errorf("a cancelled revert has written: %d records", len(records))
		}
		e.backend.Backend = slow
		go revert(ctx)
		<-reading
		e.append(say("and again"))
		close(free)
		e.no(<-result)
		v := e.view()
		if v.Len() != 1502 || v.At(0).ID() != "a1" || v.At(1501).ID() != "and again" {
			e.Errorf("%d visible", v.Len())
		}
		e.backend.Backend = whole
	})
}

// If a session was restored from a snapshot, a revert reads the records that it restores, not the whole log.
func TestRevertAfterSnapshot(t *testing.T) {
	onEachWith(t, store.Options{Snapshots: eager}, func(e *env) {
		e.create(map[string]any{"k": 1})
		e.append(says("a", 700)...)
		e.apply(patch.NewSplice(0, 600).WithID("p"))
		e.append(says("b", 20)...)
		e.reopen()
		e.view()
		whole := e.backend.Backend
		read := 0
		e.backend.Backend = &hooked{Backend: whole, read: func(records []backend.Record) []backend.Record { read += len(records); return records }}
		e.must(e.store.Revert(ctx, key, "p", store.UndoOptions{}))
		if read > 600 {
			e.Errorf("%d records were read, 600 come back", read)
		}
		if v := e.view(); !strings.HasSuffix(ids(v), "b20") || v.Len() != 720 {
			e.Errorf("%d visible, up to %s", v.Len(), v.At(v.Len()-1).ID())
		}
		e.backend.Backend = whole
	})
}

func TestLawRevertWhatErrorsName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStore(t, &memory.Backend{}, store.Options{Snapshots: snapshot.Policy{Every: -1}, Logger: slog.New(slog.DiscardHandler)})
		defer s.Close()
		l := &revertLaw{t, s}
		records := fuzz.Records(fuzz.Options{Max: 25, Accepted: true}).Draw(t, "records")
		must(t)(s.Import(ctx, key, strings.NewReader(fuzz.Text(records, nil)), store.ImportOptions{}))
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			l.step()
		}
		if ids := l.standing(); len(ids) > 0 {
			l.free(rapid.SampledFrom(ids).Draw(t, "patch to take back"))
		}
	})
}

// The error of a blocked revert names the blocking patch. It does not name a member of the group of reverts that
// restored this patch, because a revert of that member would repeat the rewind.
func TestRevertAfterARewindWasTakenBack(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(turn(1)...)
		e.append(turn(2)...)
		e.apply(patch.NewSummarise(0, 8, summary("s")).WithID("p"))
		e.apply(patch.NewSplice(0, 1).WithID("q"))
		rewound := testlog.Must(e.store.Rewind(ctx, key, "inv2", store.UndoOptions{}))(e)
		e.must(e.store.Revert(ctx, key, rewound.Records[0].ID(), store.UndoOptions{AllowOrphans: true}))
		_, err := e.store.Revert(ctx, key, "p", store.UndoOptions{})
		e.is(err, fold.ErrBlocked)
		testlog.Equal(e, "blocked by", as[*fold.BlockedError](e, err).Blocking, "q")
		for _, id := range []string{"q", "p"} {
			e.must(e.store.Revert(ctx, key, id, store.UndoOptions{}))
		}
		e.same("visible", ids(e.view()), "q1 c1 r1 a1 q2 c2 r2 a2")
	})
}

// The error of a blocked revert also names the blocking patch if that patch removed the marker of a revert.
func TestRevertOfRevertAfterGroupWasTakenBack(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		e.append(say("e1"), say("e2"))
		e.apply(patch.NewSplice(0, 1).WithID("p"))
		e.apply(patch.NewRevert("p").WithID("back").WithGroup("g"), patch.NewPin("e2").WithID("pin").WithGroup("g"))
		e.apply(patch.NewTruncateBefore("e2").WithID("q"))
		e.apply(patch.NewRevert("q").WithID("undo").WithGroup("h"), patch.NewSplice(0, 1).WithID("cut").WithGroup("h"))
		e.must(e.store.Revert(ctx, key, "cut", store.UndoOptions{}))
		_, err := e.store.Revert(ctx, key, "pin", store.UndoOptions{})
		e.is(err, fold.ErrBlocked)
		testlog.Equal(e, "blocked by", as[*fold.BlockedError](e, err).Blocking, "q")
		for _, id := range []string{"q", "pin"} {
			e.must(e.store.Revert(ctx, key, id, store.UndoOptions{}))
		}
		e.same("visible", ids(e.view()), "e2")
	})
}

// If the reverts of one call need different hidden records, the store keeps the records of the first revert while
// it reads the records of the next.
func TestRevertsThatNeedDifferentRecords(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		for n := range 6 {
			e.append(say(fmt.Sprint("e", n)))
		}
		e.apply(patch.NewSplice(0, 2).WithID("p"))
		e.apply(patch.NewSplice(0, 2).WithID("q"))
		both := []*patch.PatchEvent{patch.NewRevert("q").WithID("undo q"), patch.NewRevert("p").WithID("undo p")}
		would, err := e.store.Preview(ctx, key, both, store.PatchOptions{AsOfNow: true})
		e.no(err)
		e.same("preview", fmt.Sprint(would.After.Len()), "6")
		e.apply(both...)
		e.same("visible", ids(e.view()), "e0 e1 e2 e3 e4 e5")

		// An import of these reverts needs the same records.
		text := exportOf(e, e.store, key, store.ExportOptions{})
		grown := store.Key{App: "a", User: "u", Session: "grown"}
		lines := strings.SplitAfter(text, "\n")
		for _, upTo := range []int{len(lines) - 3, len(lines)} {
			e.must(e.store.Import(ctx, grown, strings.NewReader(strings.Join(lines[:upTo], "")), store.ImportOptions{}))
		}
		e.same("imported", ids(sessionOf(e, e.store, grown).View), "e0 e1 e2 e3 e4 e5")
	})
}

type revertLaw struct {
	*rapid.T
	store *store.Store
}

// step reverts a patch or rewinds the session. The store may refuse the call.
func (l *revertLaw) step() {
	records := recordsOf(l, l.store, key)
	if len(records) == 0 {
		return
	}
	var err error
	if r := rapid.SampledFrom(records).Draw(l.T, "record"); r.Patch != nil {
		err = l.revert(r.ID())
	} else {
		_, err = l.store.Rewind(ctx, key, r.Event.InvocationID(), store.UndoOptions{})
	}
	var blocked *fold.BlockedError
	if err != nil && !errors.As(err, &blocked) && !errors.Is(err, store.ErrInvalid) && !errors.Is(err, fold.ErrUnknownPatch) {
		l.Fatalf("%v\n%s", err, l.log())
	}
}

func (l *revertLaw) revert(id string) error {
	_, err := l.store.Revert(ctx, key, id, store.UndoOptions{AllowOrphans: true})
	return err
}

func (l *revertLaw) patches() (all []*patch.PatchEvent) {
	for _, r := range recordsOf(l, l.store, key) {
		if r.Patch != nil {
			all = append(all, r.Patch)
		}
	}
	return all
}

// standing returns the ids of the active patches that are not reverts.
func (l *revertLaw) standing() (ids []string) {
	undone := map[string]bool{}
	for _, p := range slices.Backward(l.patches()) {
		switch {
		case undone[p.ID()]:
		case p.Type() == patch.Revert:
			undone[p.PatchID()] = true
		default:
			ids = append(ids, p.ID())
		}
	}
	return ids
}

// free reverts a patch. While the revert is blocked, free first reverts the patch that the error names.
func (l *revertLaw) free(id string) {
	calls, most := 0, 0
	for _, p := range l.patches() {
		if p.Type() != patch.Revert {
			most++
		}
	}
	var said []string
	for next := id; slices.Contains(l.standing(), id); {
		err := l.revert(next)
		var blocked *fold.BlockedError
		said = append(said, fmt.Sprintf("%q: %v", next, err))
		switch {
		case err == nil && calls < most:
			calls, next = calls+1, id
		case !errors.As(err, &blocked) || blocked.AlreadyReverted || len(said) > 100:
			l.Fatalf("to free %q, with %d patches at first:\n%s\n%s", id, most, strings.Join(said, "\n"), l.log())
		default:
			next = blocked.Blocking
		}
	}
}

func (l *revertLaw) log() string { return fmt.Sprint(recordsOf(l, l.store, key)) }
