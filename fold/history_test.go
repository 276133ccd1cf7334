package fold_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// checkPages checks that each page of a history equals the same range of the whole history.
func checkPages(t *testing.T, entries []fold.Entry, page func(before string, seq uint64, limit int) ([]fold.Entry, error)) {
	t.Helper()
	for end := range len(entries) + 1 {
		before, seq := "", uint64(0)
		if end < len(entries) {
			before, seq = entries[end].Event.ID(), entries[end].Seq
		}
		for n := range end + 1 {
			if got := testlog.Must(page(before, seq, n))(t); !slices.Equal(got, entries[end-n:end]) {
				t.Errorf("the last %d entries before %q are %v, not %v", n, before, got, entries[end-n:end])
			}
		}
	}
}

// historyOf returns the ids of the events in a view's history.
func historyOf(t *testing.T, v fold.View) string {
	t.Helper()
	entries := testlog.Must(v.History())(t)
	checkPages(t, entries, v.HistoryPage)
	var ids []string
	for _, e := range entries {
		id := e.Event.ID()
		if e.Summary {
			id += "(summary)"
		}
		if e.Pinned {
			id += "(pinned)"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func TestHistory(t *testing.T) {
	raw := []string{"e0", "e1 #a", "e2 #b", "e3 #a", "e4 #b", "e5"}
	summarise := func(start, count int, id string) *patch.PatchEvent {
		return patch.NewSummarise(start, count, event(id, "text:s")).WithID("p" + id)
	}
	splice := func(start, count int, lines ...string) *patch.PatchEvent {
		return patch.NewSplice(start, count, events(lines...)...)
	}
	keep := func(p *patch.PatchEvent) *patch.PatchEvent { return p.WithState(patch.Keep) }
	for _, c := range []struct {
		name    string
		patches []*patch.PatchEvent
		want    string
	}{
		{"nothing is hidden", nil, "e0 e1 e2 e3 e4 e5"},
		{"a summary", []*patch.PatchEvent{summarise(1, 3, "s")}, "e0 e1 e2 e3 e4 e5"},
		{"a summary of summaries", []*patch.PatchEvent{summarise(0, 2, "s"), summarise(1, 2, "t"), summarise(0, 2, "u")}, "e0 e1 e2 e3 e4 e5"},
		{"a cut stays", []*patch.PatchEvent{splice(1, 2)}, "e0 e3 e4 e5"},
		{"a cut that keeps the state stays", []*patch.PatchEvent{keep(splice(1, 2))}, "e0 e3 e4 e5"},
		{"events cut before they were summarised stay hidden", []*patch.PatchEvent{splice(1, 2), summarise(0, 3, "s")}, "e0 e3 e4 e5"},
		{"a summary that was cut stays out", []*patch.PatchEvent{summarise(1, 3, "s"), splice(1, 1)}, "e0 e4 e5"},
		{"a replacement", []*patch.PatchEvent{splice(1, 2, "r"), summarise(0, 3, "s")}, "e0 r e3 e4 e5"},
		{"a truncation", []*patch.PatchEvent{summarise(0, 2, "s"), patch.NewTruncateBefore("e3")}, "e3 e4 e5"},
		{"a summary taken back", []*patch.PatchEvent{summarise(1, 3, "s"), patch.NewRevert("ps")}, "e0 e1 e2 e3 e4 e5"},
		{"a reverted summary of a summary", []*patch.PatchEvent{summarise(1, 3, "s"), summarise(0, 2, "t").WithID("q"), patch.NewRevert("q")}, "e0 e1 e2 e3 e4 e5"},
		{"summaries of two branches", []*patch.PatchEvent{keep(splice(1, 4, "a #a summary", "b #b summary"))}, "e0 e1 e2 e3 e4 e5"},
		{"one of two branches is cut", []*patch.PatchEvent{keep(splice(1, 4, "a #a summary", "b #b summary")), splice(2, 1)}, "e0 e1 e3 e5"},
		{"the other one is cut", []*patch.PatchEvent{keep(splice(0, 5, "a #a summary", "b #b summary")), splice(0, 1)}, "e2 e4 e5"},
		{"events of neither branch belong to the first summary", []*patch.PatchEvent{keep(splice(0, 5, "a #a summary", "b #b summary")), splice(1, 1)}, "e0 e1 e3 e5"},
		{"branches apart", []*patch.PatchEvent{keep(splice(1, 4, "a #a summary", "b #b@2 summary")), summarise(2, 2, "t")}, "e0 e1 e2 e3 e4 e5"},
		{"runs of a branch", []*patch.PatchEvent{keep(splice(0, 5, "b #b@7 summary", "a #a@1.x summary", "c #a summary")), splice(0, 2)}, "e1 e3 e5"},
		{"one of two runs of branches is cut", []*patch.PatchEvent{keep(splice(1, 4, "a #a@1 summary", "b #b@2 summary")), splice(2, 1)}, "e0 e1 e3 e5"},
		{"one of two scopes of a branch is cut", []*patch.PatchEvent{
			splice(1, 2, "x #a scope:x", "y #a scope:y"), keep(splice(1, 2, "s #a scope:x summary", "t #a scope:y summary")), splice(2, 1)}, "e0 x e3 e4 e5"},
		{"a summary among other events", []*patch.PatchEvent{keep(splice(1, 4, "r", "a summary"))}, "e0 r e1 e2 e3 e4 e5"},
		{"a summary that took nothing out", []*patch.PatchEvent{keep(splice(2, 0, "a summary"))}, "e0 e1 a(summary) e2 e3 e4 e5"},
		{"a summary of a cut", []*patch.PatchEvent{splice(1, 2), keep(splice(1, 0, "a summary"))}, "e0 a(summary) e3 e4 e5"},
		{"a pinned event inside a summary", []*patch.PatchEvent{patch.NewPin("e1"), summarise(0, 3, "s")}, "e0 e1(pinned) e2 e3 e4 e5"},
		{"a group", []*patch.PatchEvent{summarise(3, 2, "s").WithGroup("g"), keep(splice(1, 1)).WithGroup("g")}, "e0 e1 e2 e3 e4 e5"},
		{"a group whose summary comes last", []*patch.PatchEvent{keep(splice(4, 1)).WithGroup("g"), summarise(0, 2, "s").WithGroup("g")}, "e0 e1 e2 e3 e4 e5"},
		{"a group that drops", []*patch.PatchEvent{summarise(3, 2, "s").WithGroup("g"), splice(1, 1).WithGroup("g")}, "e0 e2 e3 e4 e5"},
		{"a group without a summary", []*patch.PatchEvent{keep(splice(3, 1)).WithGroup("g"), keep(splice(1, 1)).WithGroup("g")}, "e0 e2 e4 e5"},
		{"a group whose summary is cut", []*patch.PatchEvent{summarise(3, 2, "s").WithGroup("g"), keep(splice(1, 1)).WithGroup("g"), splice(2, 1)}, "e0 e2 e5"},
		{"a group whose summary is summarised", []*patch.PatchEvent{summarise(3, 2, "s").WithGroup("g"), keep(splice(0, 1)).WithGroup("g"), summarise(1, 2, "t")}, "e0 e1 e2 e3 e4 e5"},
		{"a group whose marker was cut", []*patch.PatchEvent{
			summarise(3, 2, "s").WithGroup("g"), keep(splice(1, 1)).WithGroup("g"), splice(0, 2)}, "e1 e3 e4 e5"},
		{"a group whose marker was truncated away", []*patch.PatchEvent{
			summarise(3, 2, "s").WithGroup("g"), keep(splice(1, 1)).WithGroup("g"), patch.NewTruncateBefore("s")}, "e1 e3 e4 e5"},
		{"compaction without a summary", []*patch.PatchEvent{keep(splice(0, 6)).WithAuthor(patch.CompactionAuthor)}, "e0 e1 e2 e3 e4 e5"},
		{"compaction without a summary that was cut", []*patch.PatchEvent{
			keep(splice(1, 2)).WithAuthor(patch.CompactionAuthor), splice(0, 2)}, "e4 e5"},
		{"a group with a reverted summary, followed by a splice", []*patch.PatchEvent{
			keep(splice(2, 1)).WithGroup("g"), summarise(1, 1, "s").WithGroup("g"), summarise(2, 1, "t").WithGroup("g"), summarise(2, 1, "u").WithGroup("g"),
			patch.NewRevert("pu"), splice(2, 0, "x", "y"), splice(1, 2)}, "e0 e2 y e3 e4 e5"},
		{"a group's event in front of a splice that is in front of a summary taken back", []*patch.PatchEvent{
			summarise(2, 4, "t"), patch.NewRevert("pt"), splice(2, 0, "x"), keep(splice(0, 1)).WithGroup("g"), summarise(0, 1, "s").WithGroup("g")}, "e0 e1 x e2 e3 e4 e5"},
		{"a group of branches of which one is cut", []*patch.PatchEvent{
			keep(splice(3, 2, "a #a summary", "b #b summary")).WithGroup("g"), keep(splice(1, 2)).WithGroup("g"), splice(1, 1)}, "e0 e2 e4 e5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := logWith(raw, c.patches)
			v := fold.New("", nil)
			for _, r := range log {
				v = testlog.Must(v.WithRecords(log[:r.Seq]).Apply(r))(t)
			}
			if n := v.SkippedCount(); n > 0 {
				t.Fatalf("%d patches are skipped", n)
			}
			if got := historyOf(t, v.WithRecords(log)); got != c.want {
				t.Errorf("history %s, want %s", got, c.want)
			}
		})
	}
}

// If a view needs the records of hidden events, History returns an error that names exactly these records.
func TestHistoryMissingRecords(t *testing.T) {
	log := logWith([]string{"e0", "e1", "e2", "e3"}, []*patch.PatchEvent{
		patch.NewSummarise(0, 2, event("s", "text:s")).WithID("p"), patch.NewSummarise(0, 2, event("t", "text:t")).WithID("q"),
	})
	v := testlog.Must(fold.New("", nil).Apply(log...))(t)
	var need *fold.MissingRecordsError
	if _, err := v.History(); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{1, 2, 3}) {
		t.Errorf("needs %v", err)
	}
	if _, err := v.WithRecords(log[1:3]).History(); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{1, 2, 3}) {
		t.Errorf("then needs %v", err)
	}
	if _, err := v.HistoryPage("", 0, 3); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{2, 3}) {
		t.Errorf("the last page needs %v", err)
	}
	if _, err := v.HistoryPage("e2", 3, 1); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{2, 3}) {
		t.Errorf("a page before another one needs %v", err)
	}
	if got := historyOf(t, v.WithRecords(log[:5])); got != "e0 e1 e2 e3" {
		t.Errorf("history %s", got)
	}
	for id, seq := range map[string]uint64{"e9": 0, "e8": 3, "s": 5, "q": 6, "later": 7} {
		_, err := v.WithRecords(log).HistoryPage(id, seq, 2)
		testlog.ErrorIs(t, err, fold.ErrEventNotFound, id)
	}
	wrong := slices.Clone(log[:5])
	wrong[1] = patch.Record{Seq: 2, Patch: patch.NewSplice(0, 2)}
	testlog.ErrorIs(t, testlog.ErrorOf(v.WithRecords(wrong).History()), patch.ErrCorrupt, "with another patch in the place of the record")
}

// If one patch added several summaries, HistoryPage needs only the records of the removed events down to the
// requested page, not of all removed events.
func TestHistoryPageMissingRecordsOfBranches(t *testing.T) {
	log := logWith([]string{"e0 #a", "e1 #b", "e2 #a", "e3 #b", "e4 #a", "e5 #b"}, []*patch.PatchEvent{
		patch.NewSplice(0, 6, events("a #a summary", "b #b summary")...).WithState(patch.Keep).WithID("p"), patch.NewSplice(1, 1).WithID("q"),
	})
	v := testlog.Must(fold.New("", nil).Apply(log...))(t)
	var need *fold.MissingRecordsError
	if _, err := v.HistoryPage("e4", 5, 1); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{4, 5}) {
		t.Errorf("needs %v", err)
	}
	if _, err := v.WithRecords(log[3:5]).HistoryPage("e4", 5, 1); !errors.As(err, &need) || !slices.Equal(need.Seqs, []uint64{3, 4, 5}) {
		t.Errorf("then needs %v", err)
	}
	page := testlog.Must(v.WithRecords(log[2:5]).HistoryPage("e4", 5, 1))(t)
	if got := idsOf(eventsOf(page)); !slices.Equal(got, []string{"e2"}) {
		t.Errorf("the page is %v", got)
	}
	_, err := v.WithRecords(log).HistoryPage("e3", 4, 1)
	testlog.ErrorIs(t, err, fold.ErrEventNotFound, "an event whose summary was cut")
}

// The history of a view is the same as in the reference model.
func TestPropertyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 40}).Draw(t, "records")
		ref := fuzz.NewReference(nil, records...)
		k := &keeper{t: t, log: records}
		v := fold.New("", nil)
		v = k.fold(v, records)
		if rapid.Bool().Draw(t, "restored") {
			v = k.restore(v)
		}
		got := k.history(v)
		want := idsOf(ref.History())
		if !slices.Equal(idsOf(got), want) {
			t.Fatalf("history %v, want %v\n%s", idsOf(got), want, fuzz.Text(records, nil))
		}
		end := rapid.IntRange(0, len(got)).Draw(t, "end")
		n := rapid.IntRange(0, end).Draw(t, "events")
		if page := k.historyPage(v, end, n); !slices.Equal(idsOf(page), want[end-n:end]) {
			t.Fatalf("history %v: the last %d before %d are %v\n%s", want, n, end, idsOf(page), fuzz.Text(records, nil))
		}
		var parts []string
		each := k.historyParts(v)
		for _, part := range each {
			parts = append(parts, idsOf(part)...)
		}
		slices.Sort(parts)
		whole := slices.Sorted(slices.Values(want))
		if slices.ContainsFunc(records, hasNoContent) && len(parts) < len(whole) { // some removed events without content have no representative
			whole = parts
		}
		if !slices.Equal(parts, whole) || len(each) != v.Len() {
			t.Fatalf("history %v, in parts %v\n%s", whole, each, fuzz.Text(records, nil))
		}
		if v.Len() == 0 {
			return
		}
		start := rapid.IntRange(0, v.Len()-1).Draw(t, "start")
		p := patch.NewSummarise(start, rapid.IntRange(1, v.Len()-start).Draw(t, "count"), event("the summary", "text:s"))
		r := patch.Record{Seq: v.Seq() + 1, Patch: p.WithID("the patch")}
		k.log = append(slices.Clone(records), r)
		after := testlog.Must(k.apply(v, r))(t)
		if now := k.history(after); !slices.Equal(idsOf(now), idsOf(got)) {
			t.Fatalf("after a summary the history is %v, it was %v\n%s", idsOf(now), idsOf(got), fuzz.Text(k.log, nil))
		}
	})
}

func hasNoContent(r patch.Record) bool {
	return r.Patch != nil && r.Patch.Author() == patch.CompactionAuthor && r.Patch.Type() == patch.Splice
}

func (k *keeper) history(v fold.View) (events []*patch.Event) {
	err := k.retry(v, func(v fold.View) error {
		entries, err := v.History()
		events = eventsOf(entries)
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return events
}

// historyPage returns the last n events of the history before index end.
func (k *keeper) historyPage(v fold.View, end, n int) (events []*patch.Event) {
	err := k.retry(v, func(v fold.View) error {
		entries, err := v.History()
		if err == nil && end < len(entries) {
			entries, err = v.HistoryPage(entries[end].Event.ID(), entries[end].Seq, n)
		} else if err == nil {
			entries, err = v.HistoryPage("", 0, n)
		}
		events = eventsOf(entries)
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return events
}

func (k *keeper) historyParts(v fold.View) (parts [][]*patch.Event) {
	err := k.retry(v, func(v fold.View) error {
		entries, err := v.History()
		parts = partsOf(v, entries)
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return parts
}

// partsOf returns, for each visible event, the events that it represents.
func partsOf(v fold.View, history []fold.Entry) [][]*patch.Event {
	parts := make([][]*patch.Event, v.Len())
	for _, e := range history {
		if e.Index >= 0 {
			parts[e.Index] = append(parts[e.Index], e.Event)
		}
	}
	return parts
}

func eventsOf(entries []fold.Entry) (events []*patch.Event) {
	for _, e := range entries {
		events = append(events, e.Event)
	}
	return events
}

func idsOf(events []*patch.Event) []string {
	ids := []string{}
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	return ids
}

// An entry of the history names the visible event that represents it.
func TestHistoryParts(t *testing.T) {
	keep := func(p *patch.PatchEvent) *patch.PatchEvent { return p.WithState(patch.Keep) }
	for _, c := range []struct {
		name    string
		patches []*patch.PatchEvent
		want    string
	}{
		{"no summary", nil, "e0|e1 |e2 |e3"},
		{"a summary of a summary", []*patch.PatchEvent{
			patch.NewSummarise(0, 2, event("s", "text:s")).WithID("ps"), patch.NewSummarise(0, 2, event("t", "text:t")).WithID("pt")}, "e0 e1 e2|e3"},
		{"two branches", []*patch.PatchEvent{keep(patch.NewSplice(0, 4, events("a #a summary", "b #b summary")...)).WithID("p")}, "e0 e1 e3|e2"},
		{"a group", []*patch.PatchEvent{
			patch.NewSummarise(3, 1, event("s", "text:s")).WithID("p").WithGroup("g"), keep(patch.NewSplice(0, 1)).WithID("q").WithGroup("g")}, "e1|e2|e0 e3"},
		{"a group with two summaries", []*patch.PatchEvent{
			patch.NewSummarise(3, 1, event("s", "text:s")).WithID("p").WithGroup("g"), keep(patch.NewSplice(2, 1)).WithID("q").WithGroup("g"),
			patch.NewSummarise(0, 1, event("t", "text:t")).WithID("r").WithGroup("g")}, "e0 e2|e1|e3"},
	} {
		v := view(t, "e0", "e1 #a", "e2 #b", "e3 #a")
		for i, p := range c.patches {
			if v = logged(t, v, patch.Record{Patch: p}); v.SkippedCount() > 0 {
				t.Fatal(c.name, i)
			}
		}
		history := testlog.Must(withAllRecords(t, v).History())(t)
		var got []string
		for _, part := range partsOf(v, history) {
			got = append(got, strings.Join(idsOf(part), " "))
		}
		if text := strings.Join(got, "|"); text != strings.ReplaceAll(c.want, " |", "|") {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}
