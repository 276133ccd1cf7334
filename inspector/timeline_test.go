package inspector

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
)

// grown is the timeline of a log, with what its view needs of it.
func grown(t testlog.Failer, records []patch.Record) *timeline {
	t.Helper()
	line := &timeline{view: fold.New("", nil), turns: ops.Turns{}}
	for _, r := range records {
		err := line.add(r)
		if need := (*fold.MissingRecordsError)(nil); errors.As(err, &need) {
			line.view = line.view.WithRecords(records[:r.Seq])
			err = line.add(r)
		}
		testlog.NoError(t, err)
	}
	return line
}

// What a timeline says of each record is what the views before and after it say, of logs of every
// kind.
func TestPropertyTimeline(t *testing.T) {
	skipped := 0
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{Accepted: rapid.Bool().Draw(rt, "accepted")}).Draw(rt, "records")
		line := grown(rt, records)
		v := fold.New("", nil)
		raw := 0
		turns, turn := map[string]int{}, 0
		for _, r := range records {
			turn = len(turns)
			if r.Event != nil && r.Event.InvocationID() != "" {
				if turns[r.Event.InvocationID()] == 0 {
					turns[r.Event.InvocationID()] = turn + 1
				}
				turn = turns[r.Event.InvocationID()]
			}
			if r.Event != nil {
				raw += r.Event.EstimatedTokens()
			}
			after := testlog.Must(v.WithRecords(records[:r.Seq-1]).Apply(r))(rt)
			tokens := 0
			for _, e := range after.Events() {
				tokens += e.EstimatedTokens()
			}
			s := line.at(r.Seq)
			if s.Seq != r.Seq || s.ID != r.ID() || s.Events != after.Len() || s.Visible != tokens || s.Raw != raw || s.Turn != turn {
				rt.Fatalf("record %d: %+v; there are %d events of %d tokens, of %d\n%s", r.Seq, s, after.Len(), tokens, raw, fuzz.Text(records, nil))
			}
			if (s.Patch == nil) != (r.Patch == nil) {
				rt.Fatalf("record %d: %+v", r.Seq, s.Patch)
			}
			if p := s.Patch; p != nil {
				if p.Applied == (after.SkippedCount() > v.SkippedCount()) {
					rt.Fatalf("record %d: applied %v", r.Seq, p.Applied)
				}
				if !p.Applied {
					skipped++
				}
			}
			v = after
		}
	})
	if skipped == 0 && !testing.Short() { // when less is drawn
		t.Error("no patch was skipped")
	}
}

// inspect returns an inspector of a store in memory.
func inspect(t testing.TB, opts Options) (*store.Store, *Inspector) {
	t.Helper()
	s := teststore.Memory(t, store.Options{Logger: slog.New(slog.DiscardHandler)})
	i := testlog.Must(New(s, opts))(t)
	return s, i
}

// A timeline that grows with its log is the one that is made at once, and what was handed out
// before stays as it was.
func TestPropertyTimelineGrows(t *testing.T) {
	s, i := inspect(t, Options{})
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{Accepted: true}).Draw(rt, "records")
		n++
		key := store.Key{App: "a", User: "u", Session: fmt.Sprint(n)}
		testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(rt)
		var handed []*timeline
		for seq := 0; ; {
			testlog.Must(s.Import(t.Context(), key, strings.NewReader(fuzz.Text(records[:seq], nil)), store.ImportOptions{}))(rt)
			line := testlog.Must(i.timeline(t.Context(), key))(rt)
			handed = append(handed, line)
			if seq == len(records) {
				break
			}
			seq = rapid.IntRange(seq+1, len(records)).Draw(rt, "seq")
		}
		for n := range records { // as they were logged: with times, say
			for r, err := range s.RawEvents(t.Context(), key, uint64(n+1)) {
				testlog.NoError(rt, err)
				records[n] = r
				break
			}
		}
		whole := grown(rt, records)
		for _, line := range handed {
			for n, s := range line.steps {
				if !reflect.DeepEqual(s, whole.steps[n]) {
					rt.Fatalf("in the timeline of %d records, one is\n%+v %+v\nand not\n%+v %+v\n%s", line.last(), s, s.Patch, whole.steps[n], whole.steps[n].Patch, fuzz.Text(records, nil))
				}
			}
			if line.view.Seq() != line.last() {
				rt.Fatalf("the timeline of %d records has a view of %d", line.last(), line.view.Seq())
			}
		}
	})
}

// The timelines that were not used for longest are evicted when all take too many bytes.
func TestTimelinesAreEvicted(t *testing.T) {
	s, i := inspect(t, Options{CacheBytes: 200_000})
	look := func(n int) *timeline {
		t.Helper()
		return testlog.Must(i.timeline(t.Context(), store.Key{App: "a", User: "u", Session: fmt.Sprint(n)}))(t)
	}
	const sessions = 12
	var first *timeline
	for n := range sessions {
		key := store.Key{App: "a", User: "u", Session: fmt.Sprint(n)}
		testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
		var events []*patch.Event
		for _, r := range recorded.Log(t, 40) {
			events = append(events, r.Event)
		}
		testlog.Must(s.AppendEvents(t.Context(), key, events, store.AppendOptions{}))(t)
		look(n)
		if line := look(0); first == nil {
			first = line
		} else if &line.steps[0] != &first.steps[0] {
			t.Errorf("the last used timeline but for that of session %d was evicted", n)
		}
	}
	cached := func() (names []string, bytes int64) {
		for _, k := range i.timelines.cached {
			names = append(names, k.key.Session)
			bytes += k.line.footprint()
		}
		return names, bytes
	}
	names, bytes := cached()
	if bytes > 200_000 || bytes < 50_000 {
		t.Errorf("%v take %d bytes", names, bytes)
	}
	if len(names) < 2 || len(names) == sessions || !slices.Equal(names[:2], []string{"0", fmt.Sprint(sessions - 1)}) {
		t.Errorf("%v are cached", names)
	}
	i.opts.CacheBytes = 1
	look(5)
	if names, _ := cached(); !slices.Equal(names, []string{"5"}) {
		t.Errorf("too large for the cache: %v are cached", names)
	}
	i.opts.CacheBytes = -1
	look(5)
	if names, _ := cached(); len(names) > 0 {
		t.Errorf("without a cache %v are cached", names)
	}
	if line := look(5); line.last() != 40 {
		t.Errorf("without a cache the timeline has %d records", line.last())
	}
}

// The footprint of a timeline counts what it keeps of events that are hidden, and of patches.
func TestTimelineFootprint(t *testing.T) {
	long := strings.Repeat("x", 1_000)
	of := func(id string) int64 {
		records := recorded.Log(t, 100)
		for n := range 50 {
			p := patch.NewSplice(0, 2).WithID(fmt.Sprint(id, n)).WithGroup(fmt.Sprint(id, "g", n))
			records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
		}
		line := grown(t, records)
		return line.footprint() - int64(line.view.Footprint())
	}
	if short, more := of("p"), of(long); short < 150*200 || more-short < 2*50*int64(len(long)-1) {
		t.Errorf("%d bytes, and %d with long ids", short, more)
	}
}

// A session that is created again has a timeline of its own.
func TestTimelineOfASessionCreatedAgain(t *testing.T) {
	s, i := inspect(t, Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	for round, n := range []int{9, 4} {
		if round > 0 {
			testlog.NoError(t, s.Delete(t.Context(), key))
		}
		testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
		for _, r := range recorded.Log(t, n) {
			testlog.Must(s.AppendEvents(t.Context(), key, []*patch.Event{r.Event}, store.AppendOptions{}))(t)
		}
		line, err := i.timeline(t.Context(), key)
		if err != nil || line.last() != uint64(n) || line.at(line.last()).Events != n {
			t.Fatalf("round %d: %v, %d records", round, err, line.last())
		}
	}
}

// A page of a session that was opened anew shows a revert of what snapshots leave out, and what
// that did.
func TestPageOfALateRevert(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	key := store.Key{App: "a", User: "u", Session: "s"}
	opened := func(snapshots int, do func(s *store.Store)) {
		t.Helper()
		s := testlog.Must(store.Open(path, store.Options{Snapshots: snapshot.Policy{Every: snapshots, MinPercent: 1}}))(t)
		defer s.Close()
		do(s)
	}
	var events []*patch.Event
	for _, r := range recorded.Log(t, 400) {
		events = append(events, r.Event)
	}
	add := func(s *store.Store, events []*patch.Event) {
		t.Helper()
		testlog.Must(s.AppendEvents(t.Context(), key, events, store.AppendOptions{}))(t)
	}
	opened(-1, func(s *store.Store) {
		testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
		add(s, events[:100])
		testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{patch.NewSplice(3, 40).WithID("cut")}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(t)
	})
	opened(1, func(s *store.Store) { add(s, events[100:200]) })
	opened(-1, func(s *store.Store) {
		add(s, events[200:])
		testlog.Must(s.Revert(t.Context(), key, "cut", store.UndoOptions{AllowOrphans: true}))(t)
	})
	opened(-1, func(s *store.Store) {
		i := testlog.Must(New(s, Options{}))(t)
		for rec, err := range s.RawEvents(t.Context(), key, 402) {
			testlog.NoError(t, err)
			if f, _, _, err := i.effect(t.Context(), key, rec); err != nil || len(f.Hidden) != 0 || len(f.Added) != 40 {
				t.Errorf("the revert hid %d events and added %d, %v", len(f.Hidden), len(f.Added), err)
			}
		}
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/session?key=a/u/s", nil))
		page := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(page, "hid nothing") || strings.Count(page, ">added at index ") != 40 {
			t.Errorf("status %d, %d events are said to have come back", w.Code, strings.Count(page, ">added at index "))
		}
	})
}

// However long names and however large a state are, a session's page stays below a megabyte.
func TestSessionPageIsBounded(t *testing.T) {
	testlog.OneGoroutine(t)
	s, i := inspect(t, Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	long := strings.Repeat("<", 1<<20)
	state := map[string]string{}
	for n := range 5_000 {
		state[fmt.Sprint("key", n)] = strings.Repeat("<", 300)
	}
	set := testlog.Must(json.Marshal(state))(t)
	text := fmt.Sprintf(`{"id":"a","author":%q,"content":{"role":"model","parts":[{"text":"hello"}]},"actions":{"stateDelta":%s}}
{"id":"b","author":%[1]q,"content":{"role":"model","parts":[{"text":"hello"}]}}
{"id":"p","author":%[1]q,"patchType":"splice","start":1,"count":1}
`, long, set)
	testlog.Must(s.Import(t.Context(), key, strings.NewReader(text), store.ImportOptions{}))(t)
	for _, address := range []string{"session?key=a/u/s", "session?key=a/u/s&at=2", "diff?key=a/u/s&from=0&to=3"} {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/"+address, nil))
		if w.Code != http.StatusOK || w.Body.Len() > 1_000_000 {
			t.Errorf("%s: status %d, %d bytes", address, w.Code, w.Body.Len())
		}
		if page := w.Body.String(); strings.HasPrefix(address, "session") && (!strings.Contains(page, "5000 keys") || !strings.Contains(page, "more, which ‘patchlog stats’ shows")) {
			t.Errorf("%s does not say how many keys there are", address)
		}
	}
}

// The figures are those of the view that is shown, also if the session grows while its page is made.
func TestStatsAreOfTheViewShown(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	say := func() {
		t.Helper()
		e, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "hello")})
		if err == nil {
			_, err = s.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{})
		}
		testlog.NoError(t, err)
	}
	say()
	i := testlog.Must(New(s, Options{}))(t)
	line := testlog.Must(i.timeline(t.Context(), key))(t)
	session, _, err := i.sessionAt(t.Context(), key, 1, 1)
	testlog.NoError(t, err)
	say()
	// A record that has come since is not there yet, for the page that is being made.
	if _, _, err := i.sessionAt(t.Context(), key, 2, 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record beyond the timeline: %v", err)
	}
	got := map[string]string{}
	for _, r := range line.stats(session.View, 0) {
		got[r.Name] = r.Text
	}
	if got["Records"] != "1" || got["Visible events"] != "1" || got["Tokens, about"] != fmt.Sprintf("%d of %[1]d visible (100 %%)", line.at(1).Raw) {
		t.Errorf("the figures are %v", got)
	}
}

// flushed records the body up to the flush of a response, and then calls onFlush.
type flushed struct {
	*httptest.ResponseRecorder
	begin   []byte
	onFlush func()
}

func (f *flushed) Flush() {
	f.begin = slices.Clone(f.Body.Bytes())
	f.onFlush()
}

// The start of a page is sent before a long log is read, compressed or not, and the page is otherwise the same. If the
// log cannot be read, the page shows the error.
func TestSessionPageIsBegun(t *testing.T) {
	lines := make([]string, progressRecords+1)
	for n := range lines {
		lines[n] = event(fmt.Sprint("e", n), "user", text("hello"))
	}
	s, i := shownLog(t, Options{}, lines...)
	get := func(i *Inspector, encoding string, onFlush func()) (begin, whole string) {
		t.Helper()
		f := &flushed{ResponseRecorder: httptest.NewRecorder(), onFlush: onFlush}
		r := httptest.NewRequest("GET", "http://localhost/session?key="+url.QueryEscape(recordKey.String()), nil)
		r.Header.Set("Accept-Encoding", encoding)
		i.ServeHTTP(f, r)
		read := func(b []byte) string {
			in := io.Reader(bytes.NewReader(b))
			if encoding == "gzip" && len(b) > 0 {
				in = testlog.Must(gzip.NewReader(in))(t)
			}
			out, _ := io.ReadAll(in) // the stream is cut off at the flush
			return string(out)
		}
		if f.Code != http.StatusOK || (f.Header().Get("Content-Encoding") == "gzip") != (encoding == "gzip") || f.Header().Get("Content-Security-Policy") == "" {
			t.Error(f.Code, f.Header())
		}
		return read(f.begin), read(f.Body.Bytes())
	}
	const reading = `<p id="reading" role="status">Reading 20,001 records …</p>`
	begin, whole := get(i, "gzip", func() {})
	if !strings.HasSuffix(begin, contentStart+"\n"+reading+"\n") || !strings.HasPrefix(whole, begin) {
		t.Errorf("begun with %q", begin)
	}
	none, again := get(i, "", func() {})
	if without := strings.Replace(whole, reading+"\n", "", 1); none != "" || strings.TrimSpace(without) == "" || strings.Join(strings.Fields(without), " ") != strings.Join(strings.Fields(again), " ") {
		t.Errorf("begun with %q, and another page than without", none)
	}
	fresh := testlog.Must(New(s, Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	begin, whole = get(fresh, "", func() { testlog.NoError(t, s.Close()) })
	if !strings.HasPrefix(whole, begin) || !strings.Contains(whole, "closed") || strings.Count(whole, "<main") != 1 || strings.Contains(whole, `id="session"`) {
		t.Errorf("a store that is closed: %s", whole)
	}
}

// After an erasure the timeline is built anew once, and then comes from the cache.
func TestErasedIsReadOnce(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	e := testlog.Must(patch.NewEvent(patch.Fields{ID: "e", Author: "user", Content: patch.Text("user", "hello")}))(t)
	testlog.Must(s.AppendEvents(t.Context(), key, []*patch.Event{e}, store.AppendOptions{}))(t)
	testlog.Must(s.Erase(t.Context(), key, store.EraseSelection{All: true}, store.EraseOptions{}))(t)
	i := testlog.Must(New(s, Options{}))(t)
	var first *step
	for range 2 {
		line := testlog.Must(i.timeline(t.Context(), key))(t)
		if first != nil && first != &line.steps[0] {
			t.Error("it was read again")
		}
		first = &line.steps[0]
	}
}

// drawnRecords is the log of a test: some events, of which a summary hides 2 to 5, a pass of compaction clears 7 and 8,
// and patches of other kinds.
func drawnRecords(t *testing.T) []patch.Record {
	t.Helper()
	records := recorded.Log(t, 10)
	summary := testlog.Must(patch.NewEvent(patch.Fields{ID: "told", Author: "user", Content: patch.Text("user", "in short")}))(t)
	clearing := testlog.Must(patch.NewSplice(3, 2).WithID("pass").WithCustomMetadata(map[string]any{"patchlog": map[string]any{"trigger": "clear", "eventsBefore": 2}}))(t)
	for _, p := range []*patch.PatchEvent{
		patch.NewSummarise(1, 4, summary).WithID("sum"), // 11
		clearing, // 12
		patch.NewRevert("sum").WithID("sum back"),            // 13
		patch.NewPin(records[9].Event.ID()).WithID("pinned"), // 14
		patch.NewSplice(400, 1).WithID("too far"),            // 15
	} {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
	}
	return records
}

func drawingAt(t testlog.Failer, records []patch.Record, at int) *drawing {
	t.Helper()
	return newDrawing(grown(t, records), testlog.Must(fold.New("", nil).Apply(records[:at]...))(t))
}

// After each record, the cells of visible records are tall, and those of later records are drawn as such.
func TestDrawingThroughTime(t *testing.T) {
	records := drawnRecords(t)
	for at := range len(records) + 1 {
		d := drawingAt(t, records, at)
		v := testlog.Must(fold.New("", nil).Apply(records[:at]...))(t)
		visible := map[int]bool{}
		for _, e := range v.Entries() {
			visible[int(e.Seq)] = true
		}
		cells := 0
		for state, path := range map[string]string{"seen": d.Seen, "hidden": d.Hidden, "later": d.Later} {
			for _, place := range regexp.MustCompile(`M(\d+) (\d+)h1V`).FindAllStringSubmatch(path, -1) {
				cells++
				x, _ := strconv.Atoi(place[1])
				want := "later"
				if visible[x+1] {
					want = "seen"
				} else if x < at {
					want = "hidden"
				}
				if state != want || (place[2] == strconv.Itoa(cellTop)) != visible[x+1] {
					t.Errorf("after %d, the cell of record %d is %s from %s on, and not %s", at, x+1, state, place[2], want)
				}
			}
		}
		if cells != len(records) || d.Now != uint64(at) {
			t.Errorf("after %d, there are %d cells, and the line of %d", at, cells, d.Now)
		}
	}
}

// Each patch has a tick. A pass that clears results counts as a compaction, not as another patch.
func TestDrawingTicks(t *testing.T) {
	d := drawingAt(t, drawnRecords(t), 15)
	testlog.Equal(t, "compactions", d.Compactions, ticks{2, "M11 40v6M12 40v6"})
	testlog.Equal(t, "others", d.Manual, ticks{3, "M13 40v6M14 40v6M15 40v6"})
}

// drawn renders a drawing, and checks it as XML, which is stricter than HTML.
func drawn(t testlog.Failer, d *drawing) string {
	t.Helper()
	var out strings.Builder
	testlog.NoError(t, templates.ExecuteTemplate(&out, "drawing", d))
	for x := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := x.Token(); err == io.EOF {
			return out.String()
		} else if err != nil {
			t.Fatal(err, " in\n", out.String())
		}
	}
}

func TestPropertyDrawingsAreWellFormed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(rt, "records")
		text := drawn(rt, drawingAt(rt, records, rapid.IntRange(0, len(records)).Draw(rt, "at")))
		if (text == "") != (len(records) == 0) || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "%!") {
			rt.Fatalf("%s", text)
		}
	})
}

// The drawing of a long log is small, and counts all patches.
func TestDrawingsAreSmall(t *testing.T) {
	testlog.OneGoroutine(t)
	line, manual := &timeline{}, 0
	for n := range 100_000 {
		s := step{Seq: uint64(n + 1), Kind: present.User, Raw: n, Visible: n % 1000}
		if n%20 == 0 {
			s.Kind, s.Patch, manual = present.Patch, &patchStep{Type: patch.Pin, Applied: true}, manual+1
		}
		line.steps = append(line.steps, s)
	}
	d := newDrawing(line, fold.New("", nil))
	if text := drawn(t, d); len(text) > 50_000 || !strings.Contains(text, "A cell stands for 167 records.") {
		t.Errorf("%d bytes", len(text))
	}
	if places := strings.Count(d.Manual.Path, "M"); d.Manual.N != manual || places < 500 || places > drawnPlaces+1 {
		t.Errorf("%d patches at %d places, and not %d", d.Manual.N, places, manual)
	}
}
