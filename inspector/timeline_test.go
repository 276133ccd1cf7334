package inspector

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
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

// buildTimeline builds the timeline of a log. It supplies the records that the view needs.
func buildTimeline(t testlog.Failer, records []patch.Record) *timeline {
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

// For all kinds of logs, a timeline's steps agree with the views before and after each record.
func TestPropertyTimeline(t *testing.T) {
	skipped := 0
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{Accepted: rapid.Bool().Draw(rt, "accepted")}).Draw(rt, "records")
		line := buildTimeline(rt, records)
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
			if s.Seq != r.Seq || s.Events != after.Len() || s.Visible != tokens || s.Raw != raw || s.Turn != turn {
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
	if skipped == 0 && !testing.Short() { // short mode draws fewer logs
		t.Error("no patch was skipped")
	}
}

// newMemoryInspector returns a store in memory and an inspector of it.
func newMemoryInspector(t testing.TB, opts Options) (*store.Store, *Inspector) {
	t.Helper()
	s := teststore.Memory(t, store.Options{Logger: slog.New(slog.DiscardHandler)})
	i := testlog.Must(New(s, opts))(t)
	return s, i
}

// A timeline that grows with its log equals a timeline built at once. Copies handed out earlier do not change.
func TestPropertyTimelineGrows(t *testing.T) {
	s, i := newMemoryInspector(t, Options{})
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
		for n := range records { // the store adds times
			for r, err := range s.RawEvents(t.Context(), key, uint64(n+1)) {
				testlog.NoError(rt, err)
				records[n] = r
				break
			}
		}
		whole := buildTimeline(rt, records)
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

// If all timelines together are too large, the least recently used ones are evicted.
func TestTimelinesAreEvicted(t *testing.T) {
	s, i := newMemoryInspector(t, Options{CacheBytes: 200_000})
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
			bytes += k.timeline.footprint()
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

// The footprint of a timeline includes the memory for hidden events and for patches.
func TestTimelineFootprint(t *testing.T) {
	long := strings.Repeat("x", 1_000)
	of := func(id string) int64 {
		records := recorded.Log(t, 100)
		for n := range 50 {
			p := patch.NewSplice(0, 2).WithID(fmt.Sprint(id, n)).WithGroup(fmt.Sprint(id, "g", n))
			records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
		}
		line := buildTimeline(t, records)
		return line.footprint() - int64(line.view.Footprint())
	}
	if short, more := of("p"), of(long); short < 150*150 || more-short < 2*50*int64(len(long)-1) {
		t.Errorf("%d bytes, and %d with long ids", short, more)
	}
}

// A session that is created again has a new timeline.
func TestTimelineOfRecreatedSession(t *testing.T) {
	s, i := newMemoryInspector(t, Options{})
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

// After a store was reopened, a page shows the effect of a revert even if the snapshot does not have the
// reverted patch.
func TestLateRevert(t *testing.T) {
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
			before, after, err := i.views(t.Context(), key, rec.Seq-1, rec.Seq)
			testlog.NoError(t, err)
			if f, err := present.EffectOf(before, after, rec); err != nil || len(f.Hidden) != 0 || len(f.Added) != 40 {
				t.Errorf("the revert hid %d events and added %d, %v", len(f.Hidden), len(f.Added), err)
			}
		}
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/session?key=a/u/s", nil))
		page := w.Body.String()
		line := testlog.Must(i.timeline(t.Context(), key))(t)
		if p := line.at(402).Patch; p.Hid != 0 || p.Added != 40 || w.Code != http.StatusOK || !strings.Contains(page, "reverted cut 101") {
			t.Errorf("status %d, the revert: %+v", w.Code, p)
		}
	})
}

// A session's page is smaller than a megabyte, even with long names and a large state.
func TestSessionPageIsBounded(t *testing.T) {
	testlog.SkipUnderRace(t)
	s, i := newMemoryInspector(t, Options{})
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
	for _, address := range []string{"session?key=a/u/s", "session?key=a/u/s&at=2", "state?key=a/u/s", "record?key=a/u/s&seq=1", "diff?key=a/u/s&from=0&to=3"} {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/"+address, nil))
		if w.Code != http.StatusOK || w.Body.Len() > 1_000_000 {
			t.Errorf("%s: status %d, %d bytes", address, w.Code, w.Body.Len())
		}
		if page := w.Body.String(); strings.HasPrefix(address, "state") && !strings.Contains(page, "more, which ‘patchlog stats’ shows") {
			t.Errorf("%s does not say how many keys there are", address)
		}
	}
}

// The figures are those of the shown view, even if the session grows meanwhile.
func TestStatsMatchView(t *testing.T) {
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
	say()
	b := sessionBody{Key: key, timeline: line}
	testlog.NoError(t, i.fillSession(t.Context(), &b, 1))
	// A page does not include records that are newer than its timeline.
	if err := i.fillSession(t.Context(), &sessionBody{Key: key, timeline: line}, 2); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record beyond the timeline: %v", err)
	}
	got := map[string]string{}
	for _, r := range line.stats(b.view, 0) {
		got[r.Name] = r.Text
	}
	if got["Records"] != "1" || got["Visible events"] != "1" || got["Tokens, about"] != fmt.Sprintf("%d of %[1]d visible (100 %%)", line.at(1).Raw) {
		t.Errorf("the figures are %v", got)
	}
}

// After an erasure, the timeline is rebuilt once and then cached.
func TestTimelineAfterErase(t *testing.T) {
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

// pictureRecords returns a test log. A summary hides events 2 to 5, and a compaction pass clears the results in 7
// and 8. There are patches of other types too.
func pictureRecords(t *testing.T) []patch.Record {
	t.Helper()
	records := recorded.Log(t, 10)
	summary := testlog.Must(patch.NewEvent(patch.Fields{ID: "told", Author: "user", Content: patch.Text("user", "in short")}))(t)
	clearing := testlog.Must(patch.NewSplice(3, 2).WithID("pass").WithCustomMetadata(map[string]any{"patchlog": map[string]any{"trigger": "clear", "eventsBefore": 2}}))(t)
	for _, p := range []*patch.PatchEvent{
		patch.NewSummarise(1, 4, summary).WithID("sum"), // record 11
		clearing, // record 12
		patch.NewRevert("sum").WithID("sum back"),            // record 13
		patch.NewPin(records[9].Event.ID()).WithID("pinned"), // record 14
		patch.NewSplice(400, 1).WithID("too far"),            // record 15
	} {
		records = append(records, patch.Record{Seq: uint64(len(records) + 1), Patch: p})
	}
	return records
}

func pictureAt(t testlog.Failer, records []patch.Record, at int) (*picture, []target, fold.View) {
	t.Helper()
	line := buildTimeline(t, records)
	v := testlog.Must(fold.New("", nil).Apply(records[:at]...))(t)
	targets := testlog.Must(findTargets(line, v))(t)
	return newPicture(line, v, targets), targets, v
}

// As of each record, the upper row has all events of the raw log in order. Events that the model does not see
// are marked hidden, and events after the record are marked later. The lower row has the visible events. A
// funnel leads from each hidden stretch to the event that represents it.
func TestPictureThroughTime(t *testing.T) {
	records := pictureRecords(t)
	for at := 1; at <= len(records); at++ {
		p, targets, v := pictureAt(t, records, at)
		visible := map[uint64]int{}
		for n, e := range v.Entries() {
			visible[e.Seq] = n
		}
		seen := 0
		for n, to := range targets {
			index, ok := visible[uint64(n+1)]
			if r := records[n]; r.Event != nil && (to.hidden() == ok || ok && to.Index != index) {
				t.Errorf("after %d, record %d has the target %+v, and is visible: %v", at, n+1, to, ok)
			}
		}
		end := 0.0
		for _, c := range p.RawLog {
			if c.X < end-0.01 || c.Width <= 0 || c.X+c.Width > pictureWidth+0.01 {
				t.Errorf("after %d, a cell from %g, %g wide, after %g", at, c.X, c.Width, end)
			}
			end = c.X + c.Width
			_, ok := visible[c.Seq]
			if single := strings.Count(c.Title, "·") < 3 && !strings.Contains(c.Title, "events"); single && (c.Later != (c.Seq > uint64(at)) || !c.Later && c.Hidden == ok) {
				t.Errorf("after %d, the cell of record %d is %+v", at, c.Seq, c)
			}
		}
		for range p.Visible {
			seen++
		}
		if v.Len() > 0 && (seen == 0 || seen > v.Len()) || p.Now < 0 || p.Now > pictureWidth {
			t.Errorf("after %d, %d cells of %d visible events, and now at %g", at, seen, v.Len(), p.Now)
		}
		if hidden := slices.ContainsFunc(targets, func(to target) bool { return to.By > 0 }); hidden != (len(p.Funnels) > 0) {
			t.Errorf("after %d, %d funnels", at, len(p.Funnels))
		}
	}
}

// The title of a cell names no turn 0. Events before the first turn have no turn in their title.
func TestPictureTitlesBeforeTurns(t *testing.T) {
	of := func(id, invocation string) patch.Record {
		return patch.Record{Event: testlog.Text(id, invocation, "user", "hello")}
	}
	for _, c := range []struct {
		invocations []string
		want        string
	}{{[]string{"", "i1", "i1", "i2"}, "user, turn 1 · user, turn 1 · user, turn 2 · user"}, {[]string{"", ""}, "user, user"}} {
		var records []patch.Record
		for n, invocation := range c.invocations {
			r := of(fmt.Sprint("e", n), invocation)
			r.Seq = uint64(n + 1)
			records = append(records, r)
		}
		p, _, _ := pictureAt(t, records, len(records))
		var titles []string
		for _, c := range p.RawLog {
			titles = append(titles, strings.TrimSuffix(c.Title, " · 2 tokens"))
		}
		if got := strings.Join(titles, ", "); got != c.want {
			t.Errorf("%q: titles %q, want %q", c.invocations, got, c.want)
		}
	}
	for turns, want := range map[[2]int]string{{0, 0}: "", {0, 3}: "up to turn 3 · ", {2, 2}: "turn 2 · ", {2, 4}: "turns 2–4 · "} {
		if got := turnsText(turns[0], turns[1]); got != want {
			t.Errorf("turns %v: %q, want %q", turns, got, want)
		}
	}
}

// renderPicture renders a picture and parses it as XML, which is stricter than HTML.
func renderPicture(t testlog.Failer, p *picture) string {
	t.Helper()
	var out strings.Builder
	testlog.NoError(t, templates.ExecuteTemplate(&out, "picture", sessionBody{Picture: p}))
	for x := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := x.Token(); err == io.EOF {
			return out.String()
		} else if err != nil {
			t.Fatal(err, " in\n", out.String())
		}
	}
}

func TestPropertyPicturesAreWellFormed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{}).Draw(rt, "records")
		p, _, _ := pictureAt(rt, records, rapid.IntRange(0, len(records)).Draw(rt, "at"))
		text := renderPicture(rt, p)
		if (text == "") != (len(records) == 0) || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "%!") {
			rt.Fatalf("%s", text)
		}
	})
}

// The picture of a long log is small, because adjacent cells and funnels are merged.
func TestPicturesAreSmall(t *testing.T) {
	testlog.SkipUnderRace(t)
	line, targets := &timeline{}, []target{}
	for n := range 100_000 {
		s := step{Seq: uint64(n + 1), Kind: []present.Kind{present.User, present.Call, present.Model}[n%3], Turn: n/7 + 1, Tokens: n % 13, Raw: n * 6}
		to := target{Index: -1, By: uint64(n/50 + 1)}
		if n%20 == 0 {
			s.Kind, s.Patch = present.Patch, &patchStep{Type: patch.Pin, Applied: true}
		}
		line.steps, targets = append(line.steps, s), append(targets, to)
	}
	v := fold.New("", nil)
	p := &picture{}
	p.drawRawLog(line, v, targets, nil)
	if text := renderPicture(t, p); len(p.RawLog) > 700 || len(p.Funnels) > 400 || len(p.Turns) > 50 || len(text) > 150_000 {
		t.Errorf("%d cells, %d funnels, %d turns, %d bytes", len(p.RawLog), len(p.Funnels), len(p.Turns), len(text))
	}
}

// Targets are recomputed only after a patch.
func TestTargetsAreExtended(t *testing.T) {
	s, i := newMemoryInspector(t, Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	testlog.Must(s.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	for n, r := range recorded.Log(t, 40) {
		testlog.Must(s.AppendEvents(t.Context(), key, []*patch.Event{r.Event}, store.AppendOptions{}))(t)
		if n%10 == 9 {
			testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{patch.NewSplice(1, 3)}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(t)
		}
		line := testlog.Must(i.timeline(t.Context(), key))(t)
		v := testlog.Must(s.View(t.Context(), key))(t)
		if got, want := testlog.Must(line.targets(v))(t), testlog.Must(findTargets(line, v))(t); !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d events: %v, want %v", n+1, got, want)
		}
	}
}
