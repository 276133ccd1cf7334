package compaction_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A session lives through random appends, patches by hand and compactions. What
// compaction promises is judged after each pass, by the view before and the view after,
// and again when no pass is left. A twin session gets the same appends and patches and
// is never compacted.
func TestPropertyCompaction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		defer m.store.Close()
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"turn":     m.turn,
			"turn 2":   m.turn,
			"turn 3":   m.turn,
			"burst":    m.burst,
			"burst 2":  m.burst,
			"by hand":  m.byHand,
			"compact":  m.compact,
			"compact2": m.compact,
			"config":   m.configure,
		})
	})
}

var twinKey = store.Key{App: "app", User: "user", Session: "twin"}

// machine is a session, its twin, and what the test knows of them.
type machine struct {
	t     *rapid.T
	store *store.Store
	cfg   compaction.Config
	twin  bool // the twin got all that the session got

	cleared     map[string]string // ids of what was cleared, by those of what stands in its place
	events      []*patch.Event    // all that were appended
	invocations int
	calls       []madeCall
	byHandCount int

	run      compaction.Run // of the compaction under way
	sum      *oracle
	passes   int
	judged   any // what the judge of a pass has panicked with
	answered int // requests, ever: answers are numbered
}

func newMachine(t *rapid.T) *machine {
	st, err := store.OpenMemory(store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, store: st, twin: true, cleared: map[string]string{}}
	for _, k := range []store.Key{key, twinKey} {
		if _, err := st.Create(context.Background(), k, map[string]any{"k0": "initial"}); err != nil {
			t.Fatal(err)
		}
	}
	m.configure(t)
	return m
}

func (m *machine) viewOf(k store.Key) fold.View {
	v, err := m.store.View(context.Background(), k)
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

// oracle is a summarizer whose answers are short and name the request that they answer.
// It fails or declines from a call on, if it is told to.
type oracle struct {
	mu       sync.Mutex
	asked    map[string]compaction.Request // since the last take, by answer
	calls    int
	answered *int
	failFrom int // counted from 1; 0 means never
	decline  bool
}

func (o *oracle) Summarize(_ context.Context, r compaction.Request) (compaction.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	if o.failFrom > 0 && o.calls >= o.failFrom {
		if o.decline {
			return compaction.Response{}, nil
		}
		return compaction.Response{}, errScripted
	}
	*o.answered++
	text := strconv.FormatInt(int64(*o.answered), 36) // one token
	if o.asked == nil {
		o.asked = map[string]compaction.Request{}
	}
	o.asked[text] = r
	return says(text), nil
}

// take returns the requests since the last take, by answer.
func (o *oracle) take() map[string]compaction.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

// compact compacts until nothing is left to do, and judges each pass and the end.
func (m *machine) compact(t *rapid.T) {
	v := m.viewOf(key)
	m.run = drawRun(t, v)
	m.sum = &oracle{answered: &m.answered}
	if oneIn(t, 5, "summarizer fails") {
		m.sum.failFrom = rapid.IntRange(1, 3).Draw(t, "from call")
		m.sum.decline = rapid.Bool().Draw(t, "declines")
	}
	cfg := m.cfg
	cfg.Summarizer = m.sum
	reported := false // the failure, by a pass that was written without the summarizer, which backs off from then on
	observe := func(_ context.Context, a compaction.Attempt[store.Key]) {
		reported = reported || a.Outcome == compaction.Wrote && a.Err != nil
	}
	c, err := compaction.New(compaction.Log[store.Key](watched{m.store, m}), cfg, compaction.Options[store.Key]{Logger: slog.New(slog.DiscardHandler), Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	m.passes = 0
	done, err := c.Compact(context.Background(), key, m.run)
	if m.judged != nil {
		panic(m.judged)
	}
	m.checkRaw(t)
	if len(done) != m.passes {
		t.Fatalf("%d passes are reported, %d were written", len(done), m.passes)
	}
	if m.sum.failFrom > 0 && m.sum.calls >= m.sum.failFrom {
		if failed := c.Stats().Failed+c.Stats().Declined > 0; failed && !reported && (err == nil) != m.sum.decline {
			t.Fatalf("the summarizer failed (declined: %v), the error is %v", m.sum.decline, err)
		}
		return // the log may be longer than the bounds
	}
	if err != nil {
		t.Fatalf("compaction of %s: %v", words(v), err)
	}
	judgeEnd(t, m.viewOf(key), cfg, m.run)
}

// watched is a log whose patches are judged as they are written.
type watched struct {
	*store.Store
	m *machine
}

func (w watched) ApplyOn(ctx context.Context, k store.Key, on fold.View, opts fold.CheckOptions, patches ...*patch.PatchEvent) (fold.View, error) {
	before := w.m.viewOf(k)
	next, err := w.Store.ApplyOn(ctx, k, on, opts, patches...)
	if err != nil {
		return next, err
	}
	w.m.passes++
	if w.m.passes > before.Len()+len(w.m.events) {
		w.m.t.Fatalf("%d passes and no end", w.m.passes)
	}
	// The compactor takes a panic for an error, and what the judge says would be lost.
	defer func() {
		if w.m.judged = recover(); w.m.judged != nil {
			panic(w.m.judged)
		}
	}()
	p := pass{m: w.m, before: before, after: next, asked: w.m.sum.take()}
	p.judge()
	return next, err
}

// check holds the session against its twin.
func (m *machine) check(t *rapid.T) {
	m.t = t
	v := m.viewOf(key)
	if m.twin {
		if state, want := values(v), values(m.viewOf(twinKey)); !maps.EqualFunc(state, want, patch.Value.Equal) {
			t.Fatalf("state is %v, without compaction it is %v", state, want)
		}
	}
	if v.SkippedCount() > 0 {
		t.Fatal("a patch in the log does not apply")
	}
}

// checkRaw holds the raw log against what was appended.
func (m *machine) checkRaw(t *rapid.T) {
	i := 0
	for r, err := range m.store.RawEvents(context.Background(), key, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Event == nil {
			continue
		}
		if i == len(m.events) {
			t.Fatalf("the raw log has an event more: %v", r.Event)
		}
		if !patch.Same(r, patch.Record{Event: m.events[i]}) {
			t.Fatalf("the raw log has %v, appended was %v", r.Event, m.events[i])
		}
		i++
	}
	if i != len(m.events) {
		t.Fatalf("the raw log has %d events, appended were %d", i, len(m.events))
	}
}

func values(v fold.View) map[string]patch.Value { return maps.Collect(v.Values()) }

// words describes a visible log, for messages.
func words(v fold.View) string {
	var out []string
	for i, e := range v.Events() {
		word := e.ID()
		if v.Entry(i).Summary {
			word = fmt.Sprintf("S(%s)%d", e.Role(), compaction.LineageOf(e).Level)
		}
		if g := groupName(e); g != "/" {
			word = g + ":" + word
		}
		if id := e.InvocationID(); id != "" && !v.Entry(i).Summary {
			word += "@" + id
		}
		if e.Author() == "user" {
			word += "u"
		}
		for p := range e.FunctionParts() {
			kind := "c"
			switch {
			case p.Response:
				kind = "r"
			case records.IsLongRunning(e, p.ID):
				kind = "l"
			}
			word += fmt.Sprintf(" %s(%s)", kind, p.ID)
		}
		out = append(out, "["+word+"]")
	}
	return strings.Join(out, " ")
}

// groupName is what must not be mixed in one text.
func groupName(e *patch.Event) string {
	elements := strings.Split(e.Branch(), ".")
	for i := range elements {
		elements[i], _, _ = strings.Cut(elements[i], "@")
	}
	return strings.Join(elements, ".") + "/" + e.IsolationScope()
}

// eventIDs gives the index of each visible event, by its id.
func eventIDs(v fold.View) map[string]int {
	at := map[string]int{}
	for i, e := range v.Events() {
		at[e.ID()] = i
	}
	return at
}

func sortedIDs(ids map[string]bool) []string { return slices.Sorted(maps.Keys(ids)) }

// What was told in turn 1 goes through at most 1 + log_K summarisations in 2,000 turns,
// and the summaries that are visible stay fewer than K for each level.
func TestPropertyToldFirstSurvives(t *testing.T) {
	turns := 2000
	if testing.Short() {
		turns = 300
	}
	for _, row := range []struct{ interval, k int }{{1, 2}, {2, 4}, {5, 3}} {
		t.Run(fmt.Sprintf("interval %d, K %d", row.interval, row.k), func(t *testing.T) {
			s := newSession(t, "")
			sum := &scripted{reply: func(r compaction.Request) (compaction.Response, error) {
				if strings.Contains(r.Prompt, "teal") {
					return says("teal"), nil
				}
				return says("grey"), nil
			}}
			cfg := with(every(row.interval, 0, sum), func(c *compaction.Config) { c.Limits().Summaries = row.k })
			c := s.compactor(cfg)
			first := testlog.EventOf(t, event{"author": "user", "invocationId": "inv0", "content": textOf("user", "my colour is teal, as you know")})
			s.add(first)
			for turn := 1; turn <= turns; turn++ {
				s.append(fmt.Sprintf("u%d a%d", turn, turn))
				s.run(c)
				v := s.view()
				summaries, windows := 0, 0
				for i, e := range v.Events() {
					if v.Entry(i).Summary {
						summaries++
						windows += compaction.LineageOf(e).Windows
					}
				}
				log := 0
				for n := windows; n >= row.k; n /= row.k {
					log++
				}
				if summaries > (row.k-1)*(1+log) || v.Len()-summaries > 3*row.interval {
					t.Fatalf("turn %d: %d summaries of %d windows, %d events are visible", turn, summaries, windows, v.Len())
				}
				if windows == 0 {
					continue
				}
				oldest := v.At(0)
				if passes := compaction.LineageOf(oldest).Passes; passes > 1+log {
					t.Fatalf("turn %d: what was told first went through %d summarisations of %d windows", turn, passes, windows)
				}
				if text := testlog.FirstText(oldest); !strings.Contains(text, "teal") {
					t.Fatalf("turn %d: the oldest summary says %q", turn, text)
				}
			}
			if windows := turns / row.interval; uint64(windows) > c.Stats().Wrote {
				t.Errorf("%d passes in %d turns", c.Stats().Wrote, turns)
			}
		})
	}
}
