package recall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// logs stores sessions in memory. It implements [recall.Log].
type logs struct {
	mu       sync.Mutex
	sessions map[string][]patch.Record
	created  map[string]int
	read     int // number of records read, including those of hits
	err      error
	lost     string // session whose records can be read only once more
	gone     string // session whose records cannot be read
	looks    int    // number of calls of Records
}

func newLogs() *logs {
	return &logs{sessions: map[string][]patch.Record{}, created: map[string]int{}}
}

func (l *logs) put(key string, records ...patch.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[key] = append(slices.Clip(l.sessions[key]), records...)
}

func (l *logs) viewAt(key string, seq int) (fold.View, error) {
	records := l.sessions[key]
	v := fold.New(fmt.Sprint(key, l.created[key]), nil)
	for _, r := range records[:seq] {
		next, err := v.Apply(r)
		var need *fold.MissingRecordsError
		if errors.As(err, &need) {
			next, err = v.WithRecords(records[:r.Seq-1]).Apply(r)
		}
		if err != nil {
			return v, err
		}
		v = next
	}
	return v, nil
}

var errGone = errors.New("gone")

func (l *logs) View(_ context.Context, key string) (fold.View, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[key] == nil {
		return fold.View{}, errGone
	}
	return l.viewAt(key, len(l.sessions[key]))
}

func (l *logs) Records(_ context.Context, key string, v fold.View, seqs []uint64) iter.Seq2[patch.Record, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	records, err := l.sessions[key], l.err
	if key == l.lost {
		l.lost, l.gone = "", key
	} else if key == l.gone {
		err = errGone
	}
	return func(yield func(patch.Record, error) bool) {
		for _, seq := range seqs {
			if seq > uint64(len(records)) {
				return
			}
			l.mu.Lock()
			l.read++
			l.mu.Unlock()
			if !yield(records[seq-1], err) || err != nil {
				return
			}
		}
	}
}

func said(seq int, author, text string) patch.Record {
	return patch.Record{Seq: uint64(seq), Event: testlog.New(patch.Fields{
		ID: fmt.Sprint("id-", seq), InvocationID: fmt.Sprint("inv-", seq/2), Author: author, Content: patch.Text("user", text),
		Timestamp: time.Unix(int64(seq), 0),
	})}
}

func ofJSON(seq int, text string) patch.Record {
	r := testlog.Record(text)
	r.Seq = uint64(seq)
	return r
}

// trip returns a log of a session with events of many kinds.
func trip() *logs {
	l := newLogs()
	l.put("a",
		said(1, "user", "I want to fly to Lisbon, booking W2378156"),
		said(2, "agent", "Your flight is cancelled."),
		said(3, "user", "Then I want my money back"),
		ofJSON(4, `{"id":"call","author":"agent","timestamp":"1970-01-01T00:00:04Z","content":{"role":"model","parts":[{"text":"secret plan","thought":true},{"functionCall":{"id":"c1","name":"refund","args":{"booking":"W2378156"}}}]}}`),
		ofJSON(5, `{"id":"resp","author":"agent","timestamp":"1970-01-01T00:00:05Z","content":{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"refund","response":{"amount":"412.50 EUR"}}}]},"actions":{"stateDelta":{"refunded":true,"card":"visa-0042"}}}`),
		said(6, "agent", "Done: 412.50 EUR go back to your card"),
		ofJSON(7, `{"id":"look","author":"agent","timestamp":"1970-01-01T00:00:07Z","content":{"role":"model","parts":[{"functionCall":{"id":"c2","name":"recall_search","args":{"query":"lisbon cancelled"}}}]}}`),
		ofJSON(8, `{"id":"res8","author":"agent","timestamp":"1970-01-01T00:00:08Z","content":{"role":"user","parts":[{"functionResponse":{"id":"c2","name":"recall_search","response":{"found":"fly to Lisbon"}}},{"text":"beside it"}]}}`),
		ofJSON(9, `{"id":"p1","patchType":"summarise","start":0,"count":3,"summaryEvent":{"id":"s1","author":"user","content":{"role":"user","parts":[{"text":"The user's flight to Lisbon was cancelled."}]}}}`),
		ofJSON(10, `{"id":"p2","patchType":"splice","start":3,"count":1,"replacement":[{"id":"r1","author":"agent","content":{"role":"model","parts":[{"text":"Done, by hand: zebra"}]}}]}`),
	)
	return l
}

func found(hits []recall.Hit[string], err error) string {
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, h := range hits {
		at := fmt.Sprint(h.Seq)
		if h.Index > 0 {
			at += fmt.Sprint("/", h.Index)
		}
		if h.Place.Index >= 0 {
			at += fmt.Sprint("@", h.Place.Index)
		} else {
			at += "(" + h.Place.HiddenBy + ")"
		}
		all = append(all, at)
	}
	return strings.Join(all, " ")
}

func TestSearch(t *testing.T) {
	f := recall.NewFinder(trip(), 0)
	old := testlog.Must(trip().viewAt("a", 8))(t)
	for _, c := range []struct {
		name string
		s    recall.Search
		want string
	}{
		{"words, and what stands beside them", recall.Search{Query: "flights to Lisbon", Limit: 3}, "2(p1) 1(p1) 3(p1)"},
		{"an identifier comes first", recall.Search{Query: "money back W2378156", Limit: 3}, "4@1 1(p1) 3(p1)"},
		{"an id of a call", recall.Search{Query: "c1"}, "5@2 4@1"},
		{"an id of an event", recall.Search{Query: " id-6 ", Limit: 1}, "6(p2)"},
		{"an id of an invocation", recall.Search{Query: "inv-1", Limit: 2}, "3(p1) 2(p1)"},
		{"a number of a tool", recall.Search{Query: "412.50", Limit: 2}, "6(p2) 5@2"},
		{"the state", recall.Search{Query: "visa-0042", Limit: 1}, "5@2"},
		{"no thoughts", recall.Search{Query: "secret"}, ""},
		{"nothing that was recalled", recall.Search{Query: "found"}, ""},
		{"but what stands beside it", recall.Search{Query: "beside", Limit: 1}, "8@5"},
		{"an event that a patch put in", recall.Search{Query: "zebra", Limit: 1}, "10@3"},
		{"hidden alone", recall.Search{Query: "done zebra EUR", Hidden: true, Limit: 1}, "6(p2)"},
		{"told of", recall.Search{Query: "done EUR", Hidden: true, Represented: true, Limit: 1}, "3(p1)"},
		{"summaries", recall.Search{Query: "Lisbon", Filter: recall.Filter{Summaries: true, From: 9}, Limit: 1}, "9@0"},
		{"no summaries", recall.Search{Query: "Lisbon", Filter: recall.Filter{From: 9}}, ""},
		{"an author", recall.Search{Query: "lisbon", Filter: recall.Filter{Author: "agent"}, Limit: 1}, "2(p1)"},
		{"no such author", recall.Search{Query: "lisbon", Filter: recall.Filter{Author: "nobody"}}, ""},
		{"a tool", recall.Search{Query: "money W2378156 412.50", Filter: recall.Filter{Tool: "refund"}}, "4@1 5@2"},
		{"seqs", recall.Search{Query: "lisbon", Filter: recall.Filter{From: 2, To: 3}}, "2(p1) 3(p1)"},
		{"times", recall.Search{Query: "lisbon", Filter: recall.Filter{Since: time.Unix(2, 0), Until: time.Unix(3, 0)}}, "2(p1)"},
		{"who may see what", recall.Search{Query: "lisbon", Sees: func(branch, scope string) bool { return branch == "" && scope == "" }}, "1(p1) 2(p1) 3(p1)"},
		{"who may see nothing", recall.Search{Query: "lisbon", Sees: func(branch, scope string) bool { return branch != "" }}, ""},
		{"the state is not shown", recall.Search{Query: "visa-0042", Represented: true}, ""},
		{"though the event is", recall.Search{Query: "412.50", Represented: true, Limit: 1}, "5@2"},
		{"as of a view", recall.Search{Query: "lisbon zebra", View: &old, Limit: 1}, "1@0"},
		{"hidden as of a view", recall.Search{Query: "lisbon zebra", View: &old, Hidden: true}, ""},
		{"nothing is asked", recall.Search{Query: " \n"}, "10@3 8@5 6(p2) 5@2 4@1 3(p1) 2(p1) 1(p1)"},
		{"a record", recall.Search{Filter: recall.Filter{From: 3, To: 3}}, "3(p1)"},
		{"of a tool", recall.Search{Filter: recall.Filter{Tool: "refund"}, Limit: 1}, "5@2"},
		{"nothing to be found", recall.Search{Query: " \n\t… ?!"}, ""},
		{"words that are common", recall.Search{Query: "I want my", Limit: 1}, "3(p1)"},
		{"words that are not there", recall.Search{Query: "xylophone"}, ""},
	} {
		if got := found(f.Search(t.Context(), "a", c.s)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSearchErrors(t *testing.T) {
	f := recall.NewFinder(trip(), 0)
	for _, s := range []recall.Search{
		{Limit: -1}, {Limit: recall.MaxLimit + 1}, {Snippet: -1}, {Filter: recall.Filter{From: 2, To: 1}},
		{Filter: recall.Filter{Since: time.Unix(2, 0), Until: time.Unix(1, 0)}},
	} {
		s.Query = "x"
		if _, err := f.Search(t.Context(), "a", s); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), "Search.") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	testlog.ErrorIs(t, testlog.ErrorOf(f.Search(t.Context(), "none", recall.Search{Query: "x"})), errGone, "a session that is not there")
	l := trip()
	l.err = errGone
	f = recall.NewFinder(l, 0)
	testlog.ErrorIs(t, testlog.ErrorOf(f.Search(t.Context(), "a", recall.Search{Query: "lisbon"})), errGone, "a log that cannot be read")
	l.err = nil
	if got := found(f.Search(t.Context(), "a", recall.Search{Query: "lisbon", Limit: 1})); got != "1(p1)" {
		t.Errorf("and then can: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testlog.ErrorIs(t, testlog.ErrorOf(recall.NewFinder(trip(), 0).Search(ctx, "a", recall.Search{Query: "lisbon"})), context.Canceled, "cancelled")
}

// A search takes little time for a query of any size and kind.
func TestHostileQueries(t *testing.T) {
	f := recall.NewFinder(trip(), 0)
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, "w%d ", i)
	}
	for name, query := range map[string]string{
		"1 MB":                strings.Repeat("lisbon ", 1<<17),
		"one word of 1 MB":    strings.Repeat("a", 1<<20),
		"different words":     many.String(),
		"a regular bomb":      "(a+)+$ (x+x+)+y .*.*.*.*=.* [[[[ \\\\\\ (?P<",
		"control characters":  "\x00\x01\x1b[31m\u202e\u2028lisbon\x7f",
		"no Unicode":          "\xff\xfelisbon\xc3",
		"accents":             "e" + strings.Repeat("\u0301", 1<<16),
		"operators":           `"lisbon" AND (NOT +x -y) OR author:user~2^5 *`,
		"half a character":    strings.Repeat("é", recall.MaxQueryBytes) + "lisbon",
		"scripts of no space": strings.Repeat("東京都", 1<<16),
	} {
		if _, err := f.Search(t.Context(), "a", recall.Search{Query: query}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := found(f.Search(t.Context(), "a", recall.Search{Query: "\x00\u202elisbon\x7f", Limit: 1})); got != "1(p1)" {
		t.Errorf("a word between control characters: %s", got)
	}
}

func TestSearchAll(t *testing.T) {
	l := trip()
	l.put("b", said(1, "user", "my booking W2378156 again"), said(2, "agent", "yes"))
	l.put("c", said(1, "user", "something else"))
	f := recall.NewFinder(l, 0)
	keys := func(yield func(string, error) bool) {
		_ = yield("gone", nil) && yield("a", nil) && yield("b", nil) && yield("c", nil)
	}
	var skipped []string
	skip := func(key string, err error) bool {
		skipped = append(skipped, key)
		return errors.Is(err, errGone)
	}
	hits, err := f.SearchAll(t.Context(), keys, skip, recall.Search{Query: "W2378156", Limit: 3})
	if err != nil || len(hits) != 3 || !slices.Equal(skipped, []string{"gone"}) {
		t.Fatalf("%v, %v, skipped %q", hits, err, skipped)
	}
	if got := []string{hits[0].Key, hits[1].Key, hits[2].Key}; !slices.Contains(got, "a") || !slices.Contains(got, "b") || !slices.IsSortedFunc(hits, func(a, b recall.Hit[string]) int {
		return -int(math.Copysign(1, a.Score-b.Score))
	}) {
		t.Errorf("%q in the order of %v", got, hits)
	}
	if _, err := f.SearchAll(t.Context(), keys, func(string, error) bool { return false }, recall.Search{Query: "x"}); !errors.Is(err, errGone) {
		t.Errorf("with nothing left out: %v", err)
	}
	// If the events of a session can no longer be read, none of its hits are returned.
	l.lost = "b"
	hits, err = recall.NewFinder(l, 0).SearchAll(t.Context(), keys, skip, recall.Search{Query: "W2378156"})
	if err != nil || len(hits) == 0 || slices.ContainsFunc(hits, func(h recall.Hit[string]) bool { return h.Key == "b" }) {
		t.Errorf("%v, %v", hits, err)
	}
	failing := func(yield func(string, error) bool) { yield("", errGone) }
	testlog.ErrorIs(t, testlog.ErrorOf(f.SearchAll(t.Context(), failing, skip, recall.Search{Query: "x"})), errGone, "keys that fail")
}

// The log of a session is indexed once, and later searches add only new records. If a session is recreated, its index
// is rebuilt. The indexes stay within the memory limit.
func TestFinderCache(t *testing.T) {
	l := newLogs()
	for i := range 20 {
		for n := range 50 {
			l.put(fmt.Sprint("s", i), said(n+1, "user", fmt.Sprintf("word%d other%d", n, i)))
		}
	}
	one := func(f *recall.Finder[string], key string) {
		t.Helper()
		if got := found(f.Search(t.Context(), key, recall.Search{Query: "word7", Limit: 1})); got != "8@7" {
			t.Fatal(got)
		}
	}
	f := recall.NewFinder(l, 0)
	one(f, "s0")
	one(f, "s0")
	if l.read != 50+2 {
		t.Errorf("%d records were read for two searches", l.read)
	}
	l.put("s0", said(51, "user", "new51"))
	if got := found(f.Search(t.Context(), "s0", recall.Search{Query: "new51", Limit: 1})); got != "51@50" || l.read != 51+3 {
		t.Errorf("%s after %d records", got, l.read)
	}
	f.Forget("s0")
	f.Forget("none")
	if f.Bytes() != 0 {
		t.Errorf("%d bytes are kept of nothing", f.Bytes())
	}
	one(f, "s0")
	each := f.Bytes()

	l.mu.Lock()
	l.created["s0"]++
	l.sessions["s0"] = []patch.Record{said(1, "user", "reborn")}
	l.mu.Unlock()
	if got := found(f.Search(t.Context(), "s0", recall.Search{Query: "reborn word7"})); got != "1@0" {
		t.Errorf("created again: %s", got)
	}

	f = recall.NewFinder(l, 3*each+each/2)
	for i := 1; i < 20; i++ {
		one(f, fmt.Sprint("s", i))
	}
	if f.Bytes() > 3*each+each/2 || f.Bytes() < 2*each {
		t.Errorf("%d bytes are kept, of %d for each", f.Bytes(), each)
	}
	l.read = 0
	if one(f, "s17"); l.read != 1 {
		t.Error("one used of late was not kept")
	}
	one(f, "s5")
	l.read = 0
	if one(f, "s17"); l.read != 1 {
		t.Error("the one used last but one was not kept")
	}
	if one(f, "s1"); l.read != 1+50+1 {
		t.Error("the one used first was kept")
	}
	f = recall.NewFinder(l, -1)
	one(f, "s1")
	if f.Bytes() != 0 {
		t.Errorf("%d bytes are kept of none", f.Bytes())
	}
}

func TestFinderConcurrently(t *testing.T) {
	l := newLogs()
	l.put("a", said(1, "user", "needle"))
	f := recall.NewFinder(l, 1000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				if i%10 == 0 {
					f.Forget("a")
				}
				hits, err := f.Search(t.Context(), "a", recall.Search{Query: "needle"})
				if err != nil || len(hits) == 0 {
					t.Error(hits, err)
				}
			}
		})
	}
	for n := 2; n < 100; n++ {
		l.put("a", said(n, "user", "needle"))
	}
	wg.Wait()
}

// After each append, a search on an index that grew with the log gives the same hits as a search on a new index. With
// Hidden, no hit is visible.
func TestPropertySearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 30}).Draw(t, "records")
		query := rapid.SampledFrom([]string{"question answer", "what was said", "e1 e3", "inv2", "call weather", "k"}).Draw(t, "query")
		s := recall.Search{Query: query, Limit: recall.MaxLimit, Hidden: rapid.Bool().Draw(t, "hidden"), Represented: rapid.Bool().Draw(t, "told")}
		s.Summaries = rapid.Bool().Draw(t, "summaries")
		l := newLogs()
		l.sessions["a"] = []patch.Record{}
		grown := recall.NewFinder(l, 0)
		for n, r := range records {
			l.put("a", r)
			got := testlog.Must(grown.Search(t.Context(), "a", s))(t)
			want, err := recall.NewFinder(l, -1).Search(t.Context(), "a", s)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("after %d: %s, want %s\n%s", n+1, found(got, nil), found(want, err), fuzz.Text(records[:n+1], nil))
			}
			for _, h := range got {
				if h.Place.Index >= 0 && s.Hidden {
					t.Fatalf("%d is in sight\n%s", h.Seq, fuzz.Text(records[:n+1], nil))
				}
			}
			past := rapid.IntRange(0, n+1).Draw(t, "past")
			v := testlog.Must(l.viewAt("a", past))(t)
			then := s
			then.View = &v
			got, err = grown.Search(t.Context(), "a", then)
			before := newLogs()
			before.sessions["a"] = append([]patch.Record{}, records[:past]...)
			want, wantErr := recall.NewFinder(before, -1).Search(t.Context(), "a", s)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("as of %d: %s, %v, want %s\n%s", past, found(got, nil), err, found(want, wantErr), fuzz.Text(records[:n+1], nil))
			}
		}
	})
}

// A search for an identifier of a recorded session ranks the events that contain it before all other events.
func TestRecordedIdentifiers(t *testing.T) {
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) {
			count := 0
			for _, file := range set.Sample(t, 6) {
				records := read(t, file)
				x := new(recall.Index)
				having := map[string][]uint64{}
				for _, r := range records {
					x.Add(r)
					for _, id := range identifiers.Find(recall.Text(r.Event)) {
						having[id] = append(having[id], r.Seq)
					}
				}
				for id, want := range having {
					count++
					terms := recall.Parse(id)
					var got []uint64
					for m := range x.Search(terms, recall.Filter{ShownToModel: true}, math.MaxUint64, x.Stats(terms, math.MaxUint64, true), nil) {
						if got = append(got, m.Seq); len(got) == len(want) {
							break
						}
					}
					slices.Sort(got)
					if !slices.Equal(got, want) {
						t.Fatalf("%s: %q stands in %v, the first found are %v", file, id, want, got)
					}
				}
			}
			t.Logf("%d identifiers", count)
		})
	}
}

func read(t *testing.T, file string) []patch.Record {
	t.Helper()
	in := testlog.Must(os.Open(file))(t)
	defer in.Close()
	records, _, err := records.ReadAll(patch.NewDecoder(in, file))
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		records[i].Seq = uint64(i + 1)
	}
	return records
}
