package compaction_test

import (
	"context"
	"errors"
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

// TestPropertyCompaction appends random events to a session, patches it by hand and compacts it. After each pass, and
// whenever no pass is due, it checks the guarantees of compaction. A twin session gets the same appends and patches
// by hand, but no compaction.
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

// machine is a session and its twin, with the state of the test.
type machine struct {
	t     *rapid.T
	store *store.Store
	cfg   compaction.Config
	twin  bool // whether the twin got the same events and patches by hand

	cleared     map[string]string // id of the original by id of the cleared copy
	events      []*patch.Event    // all appended events
	invocations int
	calls       []madeCall
	byHandCount int

	run      compaction.Run // argument of the current compaction
	sum      *oracle
	passes   int
	judged   any // value with which a check of a pass panicked
	answered int // number of requests so far, which is part of each answer
}

func newMachine(t *rapid.T) *machine {
	st := testlog.Must(store.OpenMemory(store.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	m := &machine{t: t, store: st, twin: true, cleared: map[string]string{}}
	for _, k := range []store.Key{key, twinKey} {
		testlog.Must(st.Create(context.Background(), k, map[string]any{"k0": "initial"}, store.CreateOptions{}))(t)
	}
	m.configure(t)
	return m
}

func (m *machine) viewOf(k store.Key) fold.View {
	v := testlog.Must(m.store.View(context.Background(), k))(m.t)
	return v
}

// oracle is a summarizer whose short answers identify their requests. From call failFrom on, it fails, or declines if
// decline is set.
type oracle struct {
	mu       sync.Mutex
	asked    map[string]compaction.Request // requests since the last call of take, by answer
	calls    int
	answered *int
	failFrom int // number of the first call that fails, from 1; 0 means that none fails
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
	text := strconv.FormatInt(int64(*o.answered), 36) // a single token
	if o.asked == nil {
		o.asked = map[string]compaction.Request{}
	}
	o.asked[text] = r
	return says(text), nil
}

// take returns the requests since its last call, by answer.
func (o *oracle) take() map[string]compaction.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

// compact compacts until no pass is due. It checks each pass and the result.
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
	// reported is set when a pass of the fallback reports the failure of the summarizer. After that, the summarizer
	// backs off.
	reported := false
	observe := func(_ context.Context, a compaction.Attempt[store.Key]) {
		reported = reported || a.Outcome == compaction.Wrote && a.Err != nil
	}
	c := testlog.Must(compaction.New(compaction.Log[store.Key](checkedStore{m.store, m}), cfg, compaction.Options[store.Key]{Logger: slog.New(slog.DiscardHandler), Observe: observe}))(t)
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
		if failed := c.Stats()[compaction.Failed]+c.Stats()[compaction.Declined] > 0; failed && !reported && (err == nil) != m.sum.decline {
			t.Fatalf("the summarizer failed (declined: %v), the error is %v", m.sum.decline, err)
		}
		return // after a failure, the visible log may exceed its bounds
	}
	if err != nil {
		t.Fatalf("compaction of %s: %v", words(v), err)
	}
	judgeEnd(t, m.viewOf(key), cfg, m.run)
}

// checkedStore is a store that checks the view after each patch of the compactor.
type checkedStore struct {
	*store.Store
	m *machine
}

func (w checkedStore) ApplyPatch(ctx context.Context, k store.Key, patches []*patch.PatchEvent, opts store.PatchOptions) (store.Committed, error) {
	before := w.m.viewOf(k)
	done, err := w.Store.ApplyPatch(ctx, k, patches, opts)
	if err != nil {
		return done, err
	}
	w.m.passes++
	if w.m.passes > before.Len()+len(w.m.events) {
		w.m.t.Fatalf("%d passes and no end", w.m.passes)
	}
	// The compactor turns a panic into an error, which would hide a failed check.
	defer func() {
		if w.m.judged = recover(); w.m.judged != nil {
			panic(w.m.judged)
		}
	}()
	p := pass{m: w.m, before: before, after: done.View, asked: w.m.sum.take()}
	p.judge()
	return done, err
}

// check checks that the session has the same state as its twin, and that every patch in its log applies.
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

// checkRaw checks that the raw log has exactly the appended events, unchanged and in order.
func (m *machine) checkRaw(t *rapid.T) {
	i := 0
	for r, err := range m.store.RawEvents(context.Background(), key, 1) {
		testlog.NoError(t, err)
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

// words describes a visible log in error messages.
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

// groupName returns the branch and isolation scope of an event. A summary must not mix branches or scopes.
func groupName(e *patch.Event) string {
	elements := strings.Split(e.Branch(), ".")
	for i := range elements {
		elements[i], _, _ = strings.Cut(elements[i], "@")
	}
	return strings.Join(elements, ".") + "/" + e.IsolationScope()
}

// eventIDs maps the id of each visible event to its index.
func eventIDs(v fold.View) map[string]int {
	at := map[string]int{}
	for i, e := range v.Events() {
		at[e.ID()] = i
	}
	return at
}

func sortedIDs(ids map[string]bool) []string { return slices.Sorted(maps.Keys(ids)) }

var errScripted = errors.New("scripted failure")

// oneIn draws true once in n times on average. It shrinks to false.
func oneIn(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

func (m *machine) configure(t *rapid.T) {
	cfg := compaction.Config{Enabled: true}
	cfg.SetFallback(decliningSummarizer{})
	l := cfg.Limits()
	l.OpenCalls, l.WaitingCalls, l.Summaries = rapid.IntRange(1, 4).Draw(t, "open calls"), rapid.IntRange(1, 4).Draw(t, "waiting calls"), rapid.IntRange(2, 5).Draw(t, "K")
	l.SmallCost = 1 << 30
	cfg.RetainInvocations, l.RetainedTokens = rapid.IntRange(0, 2).Draw(t, "retained invocations"), rapid.SampledFrom([]int{20, 100, 8_000}).Draw(t, "turn")
	which := rapid.IntRange(0, 2).Draw(t, "triggers")
	if which != 1 {
		cfg.CompactionInterval = rapid.IntRange(1, 4).Draw(t, "interval")
		cfg.OverlapSize = rapid.IntRange(0, 3).Draw(t, "overlap")
	}
	if which != 0 {
		cfg.TokenThreshold = rapid.SampledFrom([]int{20, 100, 300, 800}).Draw(t, "threshold")
		cfg.EventRetentionSize = rapid.IntRange(1, 8).Draw(t, "retention")
	}
	if oneIn(t, 3, "long invocations") {
		cfg.InvocationTokens = rapid.SampledFrom([]int{40, 150}).Draw(t, "invocation")
		cfg.EventRetentionSize = max(cfg.EventRetentionSize, 1)
	}
	if oneIn(t, 2, "clears") {
		cfg.ClearAfter, cfg.Limits().ToolResults = rapid.SampledFrom([]int{1, 20, 100}).Draw(t, "clear after"), rapid.IntRange(1, 4).Draw(t, "clear keep")
	}
	if oneIn(t, 4, "costs count") {
		l.SmallCost = rapid.SampledFrom([]int{1, 100}).Draw(t, "trifle")
	}
	if oneIn(t, 2, "small input") {
		cfg.Limits().InputTokens = rapid.IntRange(100, 150).Draw(t, "input") // 100 is the smallest limit allowed
	}
	m.cfg = cfg
}

// drawRun draws the running invocation and the pinned events.
func drawRun(t *rapid.T, v fold.View) compaction.Run {
	var run compaction.Run
	if v.Len() == 0 {
		return run
	}
	anyEvent := rapid.Custom(func(t *rapid.T) *patch.Event { return v.At(rapid.IntRange(0, v.Len()-1).Draw(t, "event")) })
	switch rapid.IntRange(0, 3).Draw(t, "runs") {
	case 2:
		run.Invocation = v.At(v.Len() - 1).InvocationID()
	case 3:
		run.Invocation = anyEvent.Draw(t, "runs").InvocationID()
	}
	for oneIn(t, 4, "pin") {
		run.Pinned = append(run.Pinned, anyEvent.Draw(t, "pinned").ID())
	}
	return run
}

type madeCall struct{ id, name string }

// turn appends an ordinary invocation, which is a question, calls with their responses, and an answer.
func (m *machine) turn(t *rapid.T) {
	m.invocations++
	inv, branch := fmt.Sprintf("inv%d", m.invocations), drawBranch(t)
	m.append(m.draft(inv, "", "user", m.text(t, "user")))
	for oneIn(t, 3, "calls") {
		c := madeCall{fmt.Sprintf("x%d", len(m.calls)), "tool"}
		m.calls = append(m.calls, c)
		m.append(m.draft(inv, branch, "agent", content("model", m.callPart(t, c))))
		if !oneIn(t, 12, "dies") {
			m.append(m.draft(inv, branch, "agent", content("user", m.responsePart(t, c))))
		}
	}
	answer := m.draft(inv, branch, "agent", m.text(t, "model"))
	m.decorate(t, answer)
	m.append(answer)
}

func drawBranch(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", "a", "a@1", "a@2", "a.b", "b", "scope"}).Draw(t, "branch")
}

// burst appends events of any kind to any invocations.
func (m *machine) burst(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "events") {
		inv := ""
		switch rapid.IntRange(0, 4).Draw(t, "invocation") {
		case 0, 1:
			inv = fmt.Sprintf("inv%d", m.invocations)
		case 2:
			m.invocations++
			inv = fmt.Sprintf("inv%d", m.invocations)
		case 3:
			inv = fmt.Sprintf("inv%d", rapid.IntRange(0, m.invocations).Draw(t, "resumed"))
		}
		e := m.draft(inv, drawBranch(t), "agent", nil)
		rapid.SampledFrom([]func(*rapid.T, event){
			m.textEvent, m.userEvent, m.callEvent, m.callEvent, m.responseEvent, m.responseEvent, m.responseEvent,
			m.longRunning, m.confirmation, m.stateOnly, m.thought, m.empty,
		}).Draw(t, "kind")(t, e)
		m.decorate(t, e)
		m.append(e)
	}
}

func (m *machine) draft(inv, branch, author string, content any) event {
	e := event{"id": fmt.Sprintf("e%d", len(m.events)), "author": author, "timestamp": at(len(m.events) * 7 % 5)}
	if inv != "" {
		e["invocationId"] = inv
	}
	switch branch {
	case "":
	case "scope":
		e["isolationScope"] = branch
	default:
		e["branch"] = branch
	}
	if content != nil {
		e["content"] = content
	}
	return e
}

// decorate may add a state delta and a measured prompt size to an event.
func (m *machine) decorate(t *rapid.T, e event) {
	if oneIn(t, 4, "sets state") {
		m.stateOnly(t, e)
	}
	if oneIn(t, 8, "is measured") {
		e["usageMetadata"] = map[string]any{"promptTokenCount": rapid.IntRange(1, 600).Draw(t, "prompt")}
	}
}

func (m *machine) text(t *rapid.T, role string) map[string]any {
	return content(role, map[string]any{"text": m.filler(t)})
}

// filler returns a text of several tokens that identifies its event.
func (m *machine) filler(t *rapid.T) string {
	return fmt.Sprintf("(e%d)", len(m.events)) + strings.Repeat(" abc", rapid.SampledFrom([]int{3, 5, 8, 13, 30, 80}).Draw(t, "tokens"))
}

func (m *machine) textEvent(t *rapid.T, e event) { e["content"] = m.text(t, "model") }

func (m *machine) userEvent(t *rapid.T, e event) {
	e["author"], e["content"] = "user", m.text(t, "user")
}

// newCall draws a call, which may reuse the id of an earlier call.
func (m *machine) newCall(t *rapid.T, name string) madeCall {
	c := madeCall{fmt.Sprintf("x%d", len(m.calls)), name}
	if len(m.calls) > 0 && oneIn(t, 4, "id again") {
		c.id = rapid.SampledFrom(m.calls).Draw(t, "id of").id
	}
	if oneIn(t, 12, "without id") {
		c.id = ""
	}
	m.calls = append(m.calls, c)
	return c
}

func (m *machine) callPart(t *rapid.T, c madeCall) any {
	return testlog.Call(c.id, c.name, map[string]any{"q": m.filler(t)})
}

func (m *machine) responsePart(t *rapid.T, c madeCall) any {
	return testlog.Response(c.id, c.name, map[string]any{"r": m.filler(t)})
}

func (m *machine) callEvent(t *rapid.T, e event) {
	var parts []any
	for range rapid.IntRange(1, 3).Draw(t, "calls") {
		parts = append(parts, m.callPart(t, m.newCall(t, "tool")))
	}
	e["content"] = content("model", parts...)
}

func (m *machine) longRunning(t *rapid.T, e event) {
	c := m.newCall(t, "tool")
	e["content"] = content("model", m.callPart(t, c))
	if c.id != "" {
		e["longRunningToolIds"] = []string{c.id}
	}
}

func (m *machine) confirmation(t *rapid.T, e event) {
	if len(m.calls) == 0 {
		m.longRunning(t, e)
		return
	}
	about := rapid.SampledFrom(m.calls).Draw(t, "about")
	c := madeCall{fmt.Sprintf("x%d", len(m.calls)), "adk_request_confirmation"}
	m.calls = append(m.calls, c)
	e["content"] = content("model", map[string]any{"functionCall": map[string]any{
		"id": c.id, "name": c.name, "args": map[string]any{"originalFunctionCall": map[string]any{"id": about.id, "name": "tool"}},
	}})
	e["longRunningToolIds"] = []string{c.id}
}

// responseEvent appends responses to one or two calls in any order, from the tool or from the user.
func (m *machine) responseEvent(t *rapid.T, e event) {
	if len(m.calls) == 0 {
		m.textEvent(t, e)
		return
	}
	if oneIn(t, 2, "of the user's side") {
		e["author"] = "user"
	}
	var parts []any
	for range rapid.IntRange(1, 2).Draw(t, "responses") {
		parts = append(parts, m.responsePart(t, rapid.SampledFrom(m.calls).Draw(t, "answers")))
	}
	e["content"] = content("user", parts...)
}

func (m *machine) stateOnly(t *rapid.T, e event) {
	keyName := fmt.Sprintf("k%d", rapid.IntRange(0, 2).Draw(t, "key"))
	e["actions"] = map[string]any{"stateDelta": map[string]any{keyName: e["id"]}}
}

func (m *machine) thought(t *rapid.T, e event) {
	e["content"] = content("model", map[string]any{"text": m.filler(t), "thought": true})
}

func (m *machine) empty(_ *rapid.T, e event) {
	e["content"] = map[string]any{"role": "model", "parts": []any{}}
}

func (m *machine) append(e event) {
	parsed := testlog.EventOf(m.t, e)
	m.events = append(m.events, parsed)
	for _, k := range []store.Key{key, twinKey} {
		testlog.Must(m.store.AppendEvents(context.Background(), k, []*patch.Event{parsed}, store.AppendOptions{}))(m.t)
	}
}

// byHand applies a patch that a user could write: a cut, a truncation, or a summary. A cut may have a replacement,
// and may keep or drop the state. The store may refuse the patch.
func (m *machine) byHand(t *rapid.T) {
	v := m.viewOf(key)
	if v.Len() == 0 {
		return
	}
	m.byHandCount++
	start := rapid.IntRange(0, v.Len()-1).Draw(t, "start")
	count := min(rapid.IntRange(1, 4).Draw(t, "count"), v.Len()-start)
	made := event{"id": fmt.Sprintf("hand%d", m.byHandCount), "author": "user", "content": textOf("model", "said by hand")}
	var patchAt func(start int) *patch.PatchEvent
	switch rapid.IntRange(0, 4).Draw(t, "patch") {
	case 0, 1:
		policy := rapid.SampledFrom([]patch.StatePolicy{patch.Drop, patch.Keep}).Draw(t, "policy")
		var instead []*patch.Event
		if oneIn(t, 3, "replaced") {
			made["content"] = textOf("user", "said by hand instead")
			instead = append(instead, testlog.EventOf(t, made))
		}
		patchAt = func(start int) *patch.PatchEvent { return patch.NewSplice(start, count, instead...).WithState(policy) }
	case 2:
		patchAt = func(int) *patch.PatchEvent { return patch.NewTruncateBefore(v.At(start).ID()) }
	default:
		s := testlog.EventOf(t, made)
		patchAt = func(start int) *patch.PatchEvent { return patch.NewSummarise(start, count, s) }
	}
	_, err := m.store.ApplyPatch(context.Background(), key, []*patch.PatchEvent{patchAt(start)}, store.PatchOptions{On: v})
	if !m.twin {
		return
	}
	twin := m.viewOf(twinKey)
	at, same := sameStretch(v, twin, start, count)
	if !same {
		m.twin = m.twin && err != nil
		return
	}
	_, twinErr := m.store.ApplyPatch(context.Background(), twinKey, []*patch.PatchEvent{patchAt(at)}, store.PatchOptions{On: twin})
	m.twin = (err == nil) == (twinErr == nil)
}

// sameStretch returns the index at which the twin has the same adjacent events, if any.
func sameStretch(v, twin fold.View, start, count int) (at int, same bool) {
	at, found := twin.Find(v.At(start).ID())
	if !found || at+count > twin.Len() {
		return 0, false
	}
	for i := range count {
		if v.At(start+i).ID() != twin.At(at+i).ID() {
			return 0, false
		}
	}
	return at, true
}
