package inspector

import (
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
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
	line := &timeline{view: fold.New("", nil), turns: map[string]int{}}
	for _, r := range records {
		err := line.add(r)
		if need := (*fold.NeedError)(nil); errors.As(err, &need) {
			line.view = line.view.With(records[:r.Seq])
			err = line.add(r)
		}
		testlog.NoError(t, err)
	}
	return line
}

// shown is a visible event: where it comes from, and what it takes.
type shown struct {
	seq    uint64
	id     string
	tokens int
}

func shownOf(v fold.View) (events []shown, tokens int) {
	for _, e := range v.Entries() {
		events = append(events, shown{e.Seq, e.Event.ID(), e.Event.EstimatedTokens()})
		tokens += e.Event.EstimatedTokens()
	}
	return events, tokens
}

// What a timeline says of each record is what the views before and after it say, of logs of every
// kind.
func TestPropertyTimeline(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		records := fuzz.Records(fuzz.Options{Accepted: rapid.Bool().Draw(rt, "accepted")}).Draw(rt, "records")
		line := grown(rt, records)
		v := fold.New("", nil)
		var before []shown
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
			after := testlog.Must(v.With(records[:r.Seq-1]).Apply(r))(rt)
			events, tokens := shownOf(after)
			s := line.at(r.Seq)
			if s.Seq != r.Seq || s.ID != r.ID() || s.Events != len(events) || s.Visible != tokens || s.Raw != raw || s.Turn != turn {
				rt.Fatalf("record %d: %+v; there are %d events of %d tokens, of %d\n%s", r.Seq, s, len(events), tokens, raw, fuzz.Text(records, nil))
			}
			if (s.Patch == nil) != (r.Patch == nil) {
				rt.Fatalf("record %d: %+v", r.Seq, s.Patch)
			}
			if p := s.Patch; p != nil {
				hid := seqsBesides(before, events)
				if got := seqsOf(p.Over); !slices.Equal(got, slices.Compact(slices.Clone(hid))) || p.Hid != len(hid) {
					rt.Fatalf("record %d hid %v, and not %v (%d)\n%s", r.Seq, got, hid, p.Hid, fuzz.Text(records, nil))
				}
				if added := seqsBesides(events, before); p.Added != len(added) {
					rt.Fatalf("record %d added %d, and not %d", r.Seq, p.Added, len(added))
				}
				if p.Applied == (after.SkippedCount() > v.SkippedCount()) {
					rt.Fatalf("record %d: applied %v", r.Seq, p.Applied)
				}
				if !p.Applied {
					seen["skipped"]++
				}
			}
			checkUndone(rt, seen, line, records, after)
			v, before = after, events
		}
	})
	for _, what := range []string{"skipped", "undone", "stands", "stands again"} {
		if seen[what] == 0 && !testing.Short() { // when less is drawn
			t.Errorf("never drawn: %s", what)
		}
	}
}

// checkUndone holds what is taken back against what taking it back would do.
func checkUndone(rt *rapid.T, seen map[string]int, line *timeline, records []patch.Record, v fold.View) {
	undone := line.undone(v.Seq())
	reverted := map[string]bool{}
	first := map[string]bool{}
	for _, r := range records[:v.Seq()] {
		if p := r.Patch; p != nil && p.Type() == patch.Revert && line.at(r.Seq).Patch.Applied {
			reverted[p.PatchID()] = true
		}
	}
	for _, r := range records[:v.Seq()] {
		p := r.Patch
		if p == nil || !line.at(r.Seq).Patch.Applied {
			continue
		}
		if p.Type() == patch.Erase {
			if undone[r.Seq] {
				rt.Fatalf("at %d, the receipt of record %d is taken back\n%s", v.Seq(), r.Seq, fuzz.Text(records, nil))
			}
			continue // no revert names it
		}
		if first[p.ID()] {
			continue // it cannot be named
		}
		first[p.ID()] = true
		if p.Group() != "" {
			continue // what stands of a group is what is left when its own reverts are taken back
		}
		ids, err := v.Standing(p.ID())
		if err != nil && !errors.As(err, new(*fold.BlockedError)) {
			rt.Fatal(err)
		}
		if stands := slices.Contains(ids, p.ID()); stands == undone[r.Seq] {
			rt.Fatalf("at %d, the patch of record %d: taken back %v, and it stands: %v\n%s", v.Seq(), r.Seq, undone[r.Seq], stands, fuzz.Text(records, nil))
		}
		switch {
		case undone[r.Seq]:
			seen["undone"]++
		case reverted[p.ID()]:
			seen["stands again"]++
		default:
			seen["stands"]++
		}
	}
}

// seqsBesides are the records of events that are not among others, in order, once for each event.
func seqsBesides(events, others []shown) (seqs []uint64) {
	for _, e := range events {
		if !slices.Contains(others, e) {
			seqs = append(seqs, e.seq)
		}
	}
	return seqs
}

func seqsOf(over []span) (seqs []uint64) {
	for _, o := range over {
		for seq := o.From; seq <= o.To; seq++ {
			seqs = append(seqs, seq)
		}
	}
	return seqs
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
		testlog.Must(s.Create(t.Context(), key, nil))(rt)
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
			var tally present.Tally
			for _, r := range records[:line.last()] {
				tally.Add(r)
			}
			if line.view.Seq() != line.last() || !reflect.DeepEqual(line.tally, tally) {
				rt.Fatalf("the timeline of %d records has a view of %d and the tally %+v, and not %+v", line.last(), line.view.Seq(), line.tally, tally)
			}
		}
	})
}

// Of patches with one id the first is the one that a revert names.
func TestUndoneNamesTheFirst(t *testing.T) {
	records := recorded.Log(t, 10)
	for i, p := range []*patch.PatchEvent{
		patch.NewSplice(0, 1).WithID("a"), patch.NewPin(records[5].Event.ID()).WithID("a"), patch.NewRevert("a").WithID("r"),
	} {
		records = append(records, patch.Record{Seq: uint64(11 + i), Patch: p})
	}
	line := grown(t, records)
	if undone := line.undone(13); line.at(13).Events != 10 || len(undone) != 1 || !undone[11] {
		t.Errorf("%v", undone)
	}
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
		testlog.Must(s.Create(t.Context(), key, nil))(t)
		var events []*patch.Event
		for _, r := range recorded.Log(t, 40) {
			events = append(events, r.Event)
		}
		testlog.Must(s.AppendEvents(t.Context(), key, store.AppendOptions{}, events...))(t)
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
		testlog.Must(s.Create(t.Context(), key, nil))(t)
		for _, r := range recorded.Log(t, n) {
			testlog.Must(s.AppendEvents(t.Context(), key, store.AppendOptions{}, r.Event))(t)
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
		s := testlog.Must(store.Open(path, store.Options{Snapshots: snapshot.Policy{Every: snapshots, Share: 1}}))(t)
		defer s.Close()
		do(s)
	}
	var events []*patch.Event
	for _, r := range recorded.Log(t, 400) {
		events = append(events, r.Event)
	}
	add := func(s *store.Store, events []*patch.Event) {
		t.Helper()
		testlog.Must(s.AppendEvents(t.Context(), key, store.AppendOptions{}, events...))(t)
	}
	opened(-1, func(s *store.Store) {
		testlog.Must(s.Create(t.Context(), key, nil))(t)
		add(s, events[:100])
		testlog.Must(s.ApplyPatch(t.Context(), key, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, patch.NewSplice(3, 40).WithID("cut")))(t)
	})
	opened(1, func(s *store.Store) { add(s, events[100:200]) })
	opened(-1, func(s *store.Store) {
		add(s, events[200:])
		testlog.Must(s.Revert(t.Context(), key, store.UndoOptions{AllowOrphans: true}, "cut"))(t)
	})
	opened(-1, func(s *store.Store) {
		i := testlog.Must(New(s, Options{}))(t)
		before := testlog.Must(s.ViewAt(t.Context(), key, 401))(t)
		r := patch.Record{Seq: 402, Patch: patch.NewRevert("cut").WithID("back")}
		if after, err := i.apply(t.Context(), key, before, r); err != nil || after.Len() != 400 {
			t.Errorf("%d events are visible, %v", after.Len(), err)
		}
		for rec, err := range s.RawEvents(t.Context(), key, 402) {
			testlog.NoError(t, err)
			if f, _, _, err := i.effect(t.Context(), key, rec); err != nil || len(f.Hid) != 0 || len(f.Added) != 40 {
				t.Errorf("the revert hid %d events and added %d, %v", len(f.Hid), len(f.Added), err)
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
