package recall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// The text of an event is built in time linear in its size. In quadratic time, this test would exceed the timeout of
// go test.
func TestTextIsLinear(t *testing.T) {
	var state, parts strings.Builder
	for i := range testlog.ScaleDownForRace(200_000) {
		fmt.Fprintf(&state, `"key %d":%d,`, i, i)
		parts.WriteString(`{"text":"needle"},`)
	}
	for _, text := range []string{
		`{"id":"e","actions":{"stateDelta":{"all":{` + state.String() + `"z":1}}}}`,
		`{"id":"e","content":{"parts":[` + parts.String() + `{"functionCall":{"name":"recall_search"}}]}}`,
	} {
		new(recall.Index).Add(ofJSON(1, text))
	}
}

// With ShownToModel, a search does not find text that only people see, such as state changes.
func TestShown(t *testing.T) {
	l := newLogs()
	l.put("a",
		ofJSON(1, `{"id":"e1","author":"user","content":{"parts":[{"text":"signed in"}]},"actions":{"stateDelta":{"oauth":"token-4711"}}}`),
		ofJSON(2, `{"id":"e2","author":"a","content":{"parts":[{"functionCall":{"id":"c","name":"adk_request_credential","args":{"x":"mail-4711"}}}]}}`),
		ofJSON(3, `{"id":"e3","author":"a","outputTranscription":{"text":"spoken aloud"}}`),
		ofJSON(4, `{"id":"e4","author":"a","content":{"parts":[{"functionCall":{"name":"recall_read"}},{"text":"a thought","thought":true},{"text":"said beside"}]}}`),
		ofJSON(5, `{"id":"e5","author":"a","content":{"parts":[{"text":"not hidden"}]},"customMetadata":{"patchlog":{"recalled":"e1","as":"e5"}}}`),
		ofJSON(6, `{"id":"p","patchType":"splice","start":0,"count":0,"replacement":[
			{"id":"r1","content":{"parts":[{"text":"an edited copy"}]},"customMetadata":{"patchlog":{"recalled":"e1","as":"other"}}},
			{"id":"r2","content":{"parts":[{"text":"came back"}]},"customMetadata":{"patchlog":{"recalled":"e1","as":"r2"}}},
			{"id":"r3","content":{"parts":[{"text":"shortened copy"}]},"customMetadata":{"patchlog":{"cleared":{"as":"r3","id":"e1","seq":1}}}}]}`),
	)
	f := recall.NewFinder(l, 0)
	for query, want := range map[string][2]string{
		"oauth": {"1@3", ""}, "token-4711": {"1@3", ""}, "mail-4711": {"2@4", ""}, "adk_request_credential": {"2@4", ""},
		"signed": {"1@3", "1@3"}, "spoken": {"3@5", "3@5"}, "thought": {"", ""}, "beside": {"4@6", "4@6"},
		"hidden": {"5@7", "5@7"}, "edited": {"6@0", "6@0"}, "came": {"", ""}, "shortened": {"", ""},
	} {
		for i, shown := range []bool{false, true} {
			got := found(f.Search(t.Context(), "a", recall.Search{Query: query, Filter: recall.Filter{ShownToModel: shown}}))
			if first, _, _ := strings.Cut(got, " "); first != want[i] {
				t.Errorf("%s, shown %v: %s, want %s first", query, shown, got, want[i])
			}
		}
	}
	if got := found(f.Search(t.Context(), "a", recall.Search{Filter: recall.Filter{ShownToModel: true, To: 3}})); got != "3@5 1@3" {
		t.Errorf("all that is shown: %s", got)
	}
	hits, err := f.Search(t.Context(), "a", recall.Search{Query: "signed", Limit: 1, Filter: recall.Filter{ShownToModel: true}})
	if err != nil || hits[0].Snippet.Text != "signed in" {
		t.Errorf("%+v, %v", hits, err)
	}
}

// If a search excludes an event, the event does not raise the scores of its neighbours. Otherwise the order of hits
// would reveal the content of the event.
func TestFilterDoesNotLeak(t *testing.T) {
	l := newLogs()
	l.put("a", said(1, "user", "hello"), ofJSON(2, `{"id":"s","author":"user","isolationScope":"other","content":{"parts":[{"text":"hunter2"}]}}`),
		said(3, "user", "bye"), said(4, "user", "hunter2 cut"), ofJSON(5, `{"id":"p","patchType":"splice","start":3,"count":1}`))
	f := recall.NewFinder(l, 0)
	if got := found(f.Search(t.Context(), "a", recall.Search{Query: "hunter2"})); got == "" {
		t.Error("people find nothing")
	}
	got := found(f.Search(t.Context(), "a", recall.Search{Query: "hunter2", Represented: true, Sees: func(_, scope string) bool { return scope == "" }}))
	if got != "" {
		t.Errorf("found: %s", got)
	}
}

func TestTimesOfAnyYear(t *testing.T) {
	l := newLogs()
	l.put("a", ofJSON(1, `{"id":"e1","author":"u","timestamp":"0001-01-01T00:00:00Z","content":{"parts":[{"text":"x y"}]}}`),
		ofJSON(2, `{"id":"e2","author":"u","timestamp":"9999-12-31T23:59:59.999999999Z","content":{"parts":[{"text":"x z"}]}}`))
	f := recall.NewFinder(l, 0)
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		since, until time.Time
		want         string
	}{
		{year(1), year(2), "1@0"}, {year(-300_000), year(300_000), "2@1 1@0"}, {year(9999), time.Time{}, "2@1"},
		{year(300_000), time.Time{}, ""}, {time.Unix(0, 0), time.Time{}, "2@1"},
	} {
		s := recall.Search{Query: "x", Filter: recall.Filter{Since: c.since, Until: c.until}}
		if got := found(f.Search(t.Context(), "a", s)); got != c.want {
			t.Errorf("from %v to %v: %s, want %s", c.since, c.until, got, c.want)
		}
	}
}

// A search finds ids inside quotes and questions. It finds a long word by its beginning.
func TestFindsWords(t *testing.T) {
	l := newLogs()
	long := strings.Repeat("x", 70)
	l.put("a", said(1, "user", long+"Ab "+long+"Cd"), said(2, "user", "other"), said(3, "user", "Zürich cafe, where children went"), said(4, "user", strings.Repeat("y", 70)+"EfGh"),
		said(5, "user", "новый файл"), ofJSON(6, "{\"id\":\"u\u0308-9\",\"content\":{\"parts\":[{\"text\":\"a\"}]}}"))
	f := recall.NewFinder(l, 0)
	for query, want := range map[string]string{
		`"id-2"`: "2@1", "what is id-2?": "2@1", "(id-2)": "2@1", "zurich": "3@2", "a child goes": "3@2", "нового": "5@4", "\u00fc-9": "6@5", "CAFÉ": "3@2", "cafés": "3@2",
		strings.Repeat("z", 70) + "IjKl": "", strings.Repeat("y", 64): "4@3",
	} {
		got := found(f.Search(t.Context(), "a", recall.Search{Query: query, Limit: 1}))
		if got != want {
			t.Errorf("%.20s: %s, want %s", query, got, want)
		}
	}
}

// If a search excludes many matches, it continues until it has enough hits.
func TestManyFilteredEvents(t *testing.T) {
	l := newLogs()
	for n := 1; n <= 300; n++ {
		l.put("a", said(n, "user", "needle"))
	}
	l.put("a", ofJSON(301, `{"id":"p","patchType":"splice","start":0,"count":3}`))
	f := recall.NewFinder(l, 0)
	if got := found(f.Search(t.Context(), "a", recall.Search{Query: "needle", Hidden: true})); got != "3(p) 2(p) 1(p)" {
		t.Errorf("hidden: %s", got)
	}
	hits, err := f.Search(t.Context(), "a", recall.Search{Query: "needle", Represented: true, Limit: 1000})
	if err != nil || len(hits) != 297 {
		t.Errorf("%d hits, %v", len(hits), err)
	}
}

// A search of a session with deep chains of summaries takes little time.
func TestDeepChains(t *testing.T) {
	l := newLogs()
	l.put("a", said(1, "user", "needle"))
	for n := 2; n < 1000; n++ {
		l.put("a", ofJSON(n, fmt.Sprintf(`{"id":"p%d","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"s%d","content":{"parts":[{"text":"short"}]}}}`, n, n)))
	}
	l.looks = 0
	if got := found(recall.NewFinder(l, 0).Search(t.Context(), "a", recall.Search{Query: "needle", Represented: true, Hidden: true})); got != "1(p2)" {
		t.Error(got)
	}
	if l.looks > 3 {
		t.Errorf("%d looks into the log", l.looks)
	}
}

// A search builds an index only once, even if the index is not cached. A search of a view from before the session was
// recreated does not replace the newest index.
func TestIndexesAreBuiltOnce(t *testing.T) {
	l := newLogs()
	for n := 1; n <= 50; n++ {
		l.put("a", said(n, "user", "needle"))
		l.put("b", said(n, "user", "needle"))
	}
	one := func(f *recall.Finder[string], s recall.Search) {
		t.Helper()
		s.Query = "needle"
		if _, err := f.Search(t.Context(), "a", s); err != nil {
			t.Fatal(err)
		}
	}
	one(recall.NewFinder(l, -1), recall.Search{})
	if l.read != 50+10 {
		t.Errorf("%d records were read for an index that is not kept", l.read)
	}
	l.read = 0
	f := recall.NewFinder(l, 0)
	all := func(yield func(string, error) bool) { _ = yield("a", nil) && yield("b", nil) }
	for range 2 {
		if hits, err := f.SearchAll(t.Context(), all, nil, recall.Search{Query: "needle"}); err != nil || len(hits) == 0 {
			t.Fatal(hits, err)
		}
	}
	if l.read != 2*50+2*20 {
		t.Errorf("%d records were read for two of 50", l.read)
	}
	old := testlog.Must(l.viewAt("a", 50))(t)
	l.created["a"]++
	one(f, recall.Search{})
	l.read = 0
	one(f, recall.Search{View: &old})
	one(f, recall.Search{})
	if l.read != 50+2*10 {
		t.Errorf("%d records were read for a view of another creation, and then the newest", l.read)
	}
	// If two indexes together exceed the memory limit, both sessions are still searched.
	hits, err := recall.NewFinder(l, 1).SearchAll(t.Context(), all, nil, recall.Search{Query: "needle", Limit: 100})
	if err != nil || len(hits) != 100 || l.read != 70+3*50+100 {
		t.Errorf("%d hits after %d records were read, %v", len(hits), l.read, err)
	}
}

// slow is a log whose reads block until their context ends.
type slow struct {
	*logs
	reading chan struct{} // closed when reading begins
}

func (s slow) Records(ctx context.Context, key string, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		close(s.reading)
		<-ctx.Done() // the read blocks until its context ends
		yield(patch.Record{}, ctx.Err())
	}
}

// wrong is a log that returns wrong records once they have been indexed.
type wrong struct {
	*logs
	give func([]patch.Record) []patch.Record
}

func (w wrong) Records(ctx context.Context, key string, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	given := w.logs.Records(ctx, key, v, seqs)
	if w.looks == 1 {
		return given
	}
	return func(yield func(patch.Record, error) bool) {
		var records []patch.Record
		for r := range given {
			records = append(records, r)
		}
		for _, r := range w.give(records) {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func TestWrongRecords(t *testing.T) {
	for name, give := range map[string]func([]patch.Record) []patch.Record{
		"none":      func([]patch.Record) []patch.Record { return nil },
		"another's": func(r []patch.Record) []patch.Record { r[0].Seq = 99; return r },
	} {
		for _, told := range []bool{false, true} {
			if _, err := recall.NewFinder(wrong{trip(), give}, 0).Search(t.Context(), "a", recall.Search{Query: "lisbon", Represented: told}); err == nil {
				t.Errorf("%s, told %v: no error", name, told)
			}
		}
	}
}

// One patch can hide events of two branches. If the summary of one branch is cut, only the events of the other branch
// count as represented.
func TestRepresentedByBranchAndScope(t *testing.T) {
	l := newLogs()
	l.put("a",
		ofJSON(1, `{"id":"e1","author":"u","branch":"x","content":{"parts":[{"text":"needle one"}]}}`),
		ofJSON(2, `{"id":"e2","author":"u","branch":"y","content":{"parts":[{"text":"needle two"}]}}`),
		ofJSON(3, `{"id":"p","patchType":"splice","start":0,"count":2,"state":"keep","replacement":[
			{"id":"sx","branch":"x","content":{"parts":[{"text":"short"}]},"actions":{"compaction":{}}},
			{"id":"sy","branch":"y","content":{"parts":[{"text":"short"}]},"actions":{"compaction":{}}}]}`),
		ofJSON(4, `{"id":"cut","patchType":"splice","start":1,"count":1}`),
	)
	if got := found(recall.NewFinder(l, 0).Search(t.Context(), "a", recall.Search{Query: "needle", Represented: true})); got != "1(p)" {
		t.Errorf("told of: %s", got)
	}
}

// hooked is a log that calls the function at during reads.
type hooked struct {
	*logs
	at func(seq uint64)
}

func (h hooked) Records(_ context.Context, key string, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for r, err := range h.logs.Records(context.Background(), key, v, seqs) {
			if h.at(r.Seq); !yield(r, err) {
				return
			}
		}
	}
}

// If an index is forgotten while it is being built, it is not cached. A cancelled search stops reading the log.
func TestFinderDuringAppends(t *testing.T) {
	l := newLogs()
	for n := 1; n <= 5_000; n++ {
		l.put("a", said(n, "user", "needle"))
	}
	var f *recall.Finder[string]
	f = recall.NewFinder(hooked{l, func(seq uint64) {
		if seq == 300 {
			f.Forget("a")
		}
	}}, 0)
	if _, err := f.Search(t.Context(), "a", recall.Search{Query: "needle"}); err != nil || f.Bytes() != 0 {
		t.Errorf("%d bytes are kept of what was forgotten, %v", f.Bytes(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	last := uint64(0)
	f = recall.NewFinder(hooked{l, func(seq uint64) {
		if last = seq; seq == 300 {
			cancel()
		}
	}}, 0)
	if _, err := f.Search(ctx, "a", recall.Search{Query: "needle"}); !errors.Is(err, context.Canceled) || last > 4_000 {
		t.Errorf("given up at record 300, it was read to %d: %v", last, err)
	}
}

// A search that waits while another search builds the index can be cancelled. No goroutine remains.
func TestSearchHeedsContexts(t *testing.T) {
	before := runtime.NumGoroutine()
	s := slow{trip(), make(chan struct{})}
	f := recall.NewFinder(s, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := f.Search(ctx, "a", recall.Search{Query: "lisbon"})
		done <- err
	}()
	<-s.reading
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	testlog.ErrorIs(t, testlog.ErrorOf(f.Search(short, "a", recall.Search{Query: "lisbon"})), context.DeadlineExceeded, "who waited")
	cancel()
	testlog.ErrorIs(t, <-done, context.Canceled, "who read")
	for runtime.NumGoroutine() > before { // if a goroutine remains, the timeout of go test lists it
		time.Sleep(time.Millisecond)
	}
	if f := recall.NewFinder(trip(), 0); true {
		if _, err := f.Search(t.Context(), "a", recall.Search{Query: "lisbon"}); err != nil {
			t.Fatal(err)
		}
		testlog.ErrorIs(t, testlog.ErrorOf(f.Search(ctx, "a", recall.Search{Query: "lisbon"})), context.Canceled, "on an index that is there")
	}
}

// If a log ends before the newest record of the view, the search fails. Cached entries of empty sessions count toward
// the memory limit.
func TestFinderOddLogs(t *testing.T) {
	l := trip()
	v := testlog.Must(l.viewAt("a", 10))(t)
	l.sessions["a"] = l.sessions["a"][:5]
	if _, err := recall.NewFinder(l, 0).Search(t.Context(), "a", recall.Search{Query: "lisbon", View: &v}); err == nil || !strings.Contains(err.Error(), "ends at record 5") {
		t.Errorf("%v", err)
	}
	empty := newLogs()
	f := recall.NewFinder(empty, 10_000)
	for i := range 100 {
		key := fmt.Sprint("s", i)
		empty.sessions[key] = []patch.Record{}
		if hits, err := f.Search(t.Context(), key, recall.Search{Query: "x"}); err != nil || len(hits) > 0 {
			t.Fatal(hits, err)
		}
	}
	if f.Bytes() == 0 || f.Bytes() > 10_000 {
		t.Errorf("%d bytes are kept of 100 empty sessions", f.Bytes())
	}
}

// If several logs are searched with the sum of their Stats, their scores are comparable.
func TestStatsAdd(t *testing.T) {
	records := []patch.Record{said(1, "user", "needle and hay"), said(2, "user", "hay"), said(3, "user", "needle needle in much more hay than this")}
	together, first, second := new(recall.Index), new(recall.Index), new(recall.Index)
	for i, r := range records {
		together.Add(r)
		if i < 2 {
			first.Add(r)
		} else {
			second.Add(r)
		}
	}
	terms := recall.Parse("needle hay")
	var sum recall.Stats
	sum.Add(recall.Stats{})
	sum.Add(first.Stats(terms, math.MaxUint64, false))
	sum.Add(second.Stats(terms, math.MaxUint64, false))
	if want := together.Stats(terms, math.MaxUint64, false); fmt.Sprint(sum) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", sum, want)
	}
}
