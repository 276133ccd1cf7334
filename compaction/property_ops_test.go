package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var errScripted = errors.New("scripted failure")

// oneIn draws true about once in n times; it shrinks to false.
func oneIn(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

func (m *machine) configure(t *rapid.T) {
	cfg := compaction.Config{Enabled: true, Fallback: declines{}}
	l := cfg.Limits()
	l.OpenCalls, l.WaitingCalls, l.Summaries = rapid.IntRange(1, 4).Draw(t, "open calls"), rapid.IntRange(1, 4).Draw(t, "waiting calls"), rapid.IntRange(2, 5).Draw(t, "K")
	l.Trifle = 1 << 40
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
		cfg.ClearAfter, cfg.Limits().Results = rapid.SampledFrom([]int{1, 20, 100}).Draw(t, "clear after"), rapid.IntRange(1, 4).Draw(t, "clear keep")
	}
	if oneIn(t, 4, "costs count") {
		l.Trifle = rapid.SampledFrom([]int{1, 100}).Draw(t, "trifle")
	}
	if oneIn(t, 2, "small input") {
		cfg.Limits().Input = rapid.IntRange(100, 150).Draw(t, "input") // 100 is the least
	}
	m.cfg = cfg
}

// drawRun says, of some sessions, which invocation runs and which events stay.
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

// madeCall is a function call that the log has seen.
type madeCall struct{ id, name string }

// turn appends an invocation as most are: a question, calls with their responses, an
// answer.
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

// burst appends events of any kind, in any invocation.
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

// decorate gives an event, now and then, a change of state and a measured prompt.
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

// filler is a text of some tokens that names the event that is drafted.
func (m *machine) filler(t *rapid.T) string {
	return fmt.Sprintf("(e%d)", len(m.events)) + strings.Repeat(" abc", rapid.SampledFrom([]int{3, 5, 8, 13, 30, 80}).Draw(t, "tokens"))
}

func (m *machine) textEvent(t *rapid.T, e event) { e["content"] = m.text(t, "model") }

func (m *machine) userEvent(t *rapid.T, e event) {
	e["author"], e["content"] = "user", m.text(t, "user")
}

// newCall draws a call, of an id that was used before now and then.
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

func (m *machine) callPart(t *rapid.T, c madeCall) map[string]any {
	call := map[string]any{"name": c.name, "args": map[string]any{"q": m.filler(t)}}
	if c.id != "" {
		call["id"] = c.id
	}
	return map[string]any{"functionCall": call}
}

func (m *machine) responsePart(t *rapid.T, c madeCall) map[string]any {
	r := map[string]any{"name": c.name, "response": map[string]any{"r": m.filler(t)}}
	if c.id != "" {
		r["id"] = c.id
	}
	return map[string]any{"functionResponse": r}
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

// responseEvent answers one or two calls, late or early, by the tool or the user's side.
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
		if _, err := m.store.AppendEvents(context.Background(), k, store.AppendOptions{}, parsed); err != nil {
			m.t.Fatal(err)
		}
	}
}

// byHand applies a patch that a user might: a cut with or without replacement, of
// either policy, a new beginning, or a summary. A refusal is fine.
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
	_, err := m.store.ApplyPatch(context.Background(), key, store.PatchOptions{On: v}, patchAt(start))
	if !m.twin {
		return
	}
	twin := m.viewOf(twinKey)
	at, same := sameStretch(v, twin, start, count)
	if !same {
		m.twin = m.twin && err != nil
		return
	}
	_, twinErr := m.store.ApplyPatch(context.Background(), twinKey, store.PatchOptions{On: twin}, patchAt(at))
	m.twin = (err == nil) == (twinErr == nil)
}

// sameStretch returns where the twin has the same events side by side.
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
