package compaction_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var key = store.Key{App: "app", User: "user", Session: "s"}

// session is a session in a memory store. Tests describe its events by the words of [script].
type session struct {
	t     tester
	store *store.Store
	words int
}

func newSession(t testing.TB, words string) *session {
	s := openSession(t)
	t.Cleanup(func() { s.store.Close() })
	s.append(words)
	return s
}

type tester interface {
	testlog.Failer
	Fatalf(format string, args ...any)
	Context() context.Context
}

func openSession(t tester) *session {
	st := testlog.Must(store.OpenMemory(store.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	testlog.Must(st.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	return &session{t: t, store: st}
}

// append appends the events that words describe. The numbers in their ids continue from the last append.
func (s *session) append(words string) {
	var events []*patch.Event
	for _, w := range strings.Fields(words) {
		e, level := parseWord(s.t, w, s.words)
		if level > 0 {
			s.t.Fatalf("a summary is not appended: %q", w)
		}
		events = append(events, testlog.EventOf(s.t, e))
		s.words++
	}
	s.add(events...)
}

func (s *session) add(events ...*patch.Event) {
	s.t.Helper()
	testlog.Must(s.store.AppendEvents(s.t.Context(), key, events, store.AppendOptions{}))(s.t)
}

func (s *session) records() (all []patch.Record) {
	for r, err := range s.store.RawEvents(s.t.Context(), key, 1) {
		testlog.NoError(s.t, err)
		all = append(all, r)
	}
	return all
}

func (s *session) patches() (all []*patch.PatchEvent) {
	for _, r := range s.records() {
		if r.Patch != nil {
			all = append(all, r.Patch)
		}
	}
	return all
}

func patchIDs(patches []*patch.PatchEvent) (ids []string) {
	for _, p := range patches {
		ids = append(ids, p.ID())
	}
	return ids
}

func (s *session) view() fold.View {
	v := testlog.Must(s.store.View(s.t.Context(), key))(s.t)
	return v
}

// visible describes the visible log by the ids of events. A summary is written as S, its level and the role of its
// content.
func (s *session) visible() string {
	var out []string
	v := s.view()
	for i, e := range v.Events() {
		if v.Entry(i).Summary {
			out = append(out, fmt.Sprintf("S%d:%s", compaction.LineageOf(e).Level, e.Role()))
			continue
		}
		out = append(out, e.ID())
	}
	return strings.Join(out, " ")
}

// compactor returns a compactor with a logger that discards its lines.
func (s *session) compactor(cfg compaction.Config) *compaction.Compactor[store.Key] {
	return s.with(cfg, compaction.Options[store.Key]{})
}

// with returns a compactor with options. If opts has no logger, the compactor's log lines are discarded.
func (s *session) with(cfg compaction.Config, opts compaction.Options[store.Key]) *compaction.Compactor[store.Key] {
	s.t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := testlog.Must(compaction.New(s.store, cfg, opts))(s.t)
	return c
}

// run compacts the session with c until no pass is due.
func (s *session) run(c *compaction.Compactor[store.Key]) []compaction.Written {
	s.t.Helper()
	done := testlog.Must(c.MaybeCompact(s.t.Context(), key))(s.t)
	return done
}

// compact compacts the session with a new compactor until no pass is due.
func (s *session) compact(cfg compaction.Config) []compaction.Written { return s.run(s.compactor(cfg)) }

func (s *session) patch(p *patch.PatchEvent) {
	s.t.Helper()
	testlog.Must(s.store.ApplyPatch(s.t.Context(), key, []*patch.PatchEvent{p}, store.PatchOptions{On: s.view()}))(s.t)
}

func (s *session) state() string { return fmt.Sprint(s.view().State()) }

type decliningSummarizer struct{}

func (decliningSummarizer) Summarize(context.Context, compaction.Request) (compaction.Response, error) {
	return compaction.Response{}, nil
}

// scripted is a summarizer that records its requests. It answers with the result of reply, or with a short text if
// reply is nil.
type scripted struct {
	mu       sync.Mutex
	requests []compaction.Request
	reply    func(compaction.Request) (compaction.Response, error)
}

func (s *scripted) Summarize(_ context.Context, r compaction.Request) (compaction.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if s.reply != nil {
		return s.reply(r)
	}
	return says("told"), nil
}

func (s *scripted) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func says(text string) compaction.Response {
	return compaction.Response{Text: text, Model: "scripted", FinishReason: compaction.FinishStop}
}

func ids(events []*patch.Event) string {
	var out []string
	for _, e := range events {
		if adkrecord.IsCompactionEvent(e) {
			out = append(out, "S")
			continue
		}
		out = append(out, e.ID())
	}
	return strings.Join(out, " ")
}

// every returns a configuration with only the interval trigger.
func every(interval, overlap int, s compaction.Summarizer) compaction.Config {
	return compaction.Config{Enabled: true, CompactionInterval: interval, OverlapSize: overlap, Summarizer: s}
}

// byTokens returns a configuration with only the token trigger.
func byTokens(threshold, retain int) compaction.Config {
	return compaction.Config{Enabled: true, TokenThreshold: threshold, EventRetentionSize: retain}
}

func with(c compaction.Config, change func(*compaction.Config)) compaction.Config {
	change(&c)
	return c
}

func (s *session) want(visible string) {
	s.t.Helper()
	if got := s.visible(); got != visible {
		s.t.Errorf("visible is %q, want %q", got, visible)
	}
}

// The tests describe a log by words. Each word is an event:
//
//	u3        a text of the user in invocation inv3
//	a3        a text of the agent
//	c3(x)     a function call by the agent with call id x. c3(x,y) has two calls
//	r3(x)     the function's response. R3(x) is a response by the user
//	l3(x)     a long-running call
//	q3(y:x)   adk_request_confirmation with call id y, about call x
//	d3        a state change without content
//	t3        a thought without other content
//	S, S2     a summary of raw events, a summary of summaries
//	C         an ADK compaction record
//	u, a      without invocation id
//
// A/u3 is in branch A, and A!/u3 is in isolation scope A. u3*50 has 50 tokens. a3=900 answers a prompt measured at 900
// tokens. The event with index i has the id e<i>.
var word = regexp.MustCompile(`^(?:(\w[\w.@]*)(!?)/)?([uacrRlqdtSC])(\d*)(?:\(([\w,:]+)\))?(?:\*(\d+))?(?:=(\d+))?$`)

type event map[string]any

// parseWord returns the event that a word describes. If the event is a summary, it also returns its level.
func parseWord(t tester, w string, i int) (e event, level int) {
	m := word.FindStringSubmatch(w)
	if m == nil {
		t.Fatalf("no word of a log: %q", w)
	}
	branch, isolated, kind, inv, args, size, measured := m[1], m[2] != "", m[3], m[4], m[5], m[6], m[7]
	e = event{"id": fmt.Sprintf("e%d", i), "author": "agent", "timestamp": at(i)}
	if isolated {
		e["isolationScope"] = branch
	} else if branch != "" {
		e["branch"] = branch
	}
	if inv != "" {
		e["invocationId"] = "inv" + inv
	}
	text := strings.Repeat("abc ", 16)
	if size != "" {
		n, _ := strconv.Atoi(size)
		text = strings.Repeat("abc ", n)
	}
	var parts []any
	role := "model"
	switch kind {
	case "u":
		e["author"], role = "user", "user"
		parts = []any{map[string]any{"text": text}}
	case "a":
		parts = []any{map[string]any{"text": text}}
	case "t":
		parts = []any{map[string]any{"text": text, "thought": true}}
	case "c", "l":
		for _, id := range strings.Split(args, ",") {
			parts = append(parts, map[string]any{"functionCall": map[string]any{"id": id, "name": "tool", "args": map[string]any{"q": text}}})
		}
		if kind == "l" {
			e["longRunningToolIds"] = strings.Split(args, ",")
		}
	case "q":
		id, about, _ := strings.Cut(args, ":")
		parts = []any{map[string]any{"functionCall": map[string]any{
			"id": id, "name": "adk_request_confirmation",
			"args": map[string]any{"originalFunctionCall": map[string]any{"id": about, "name": "tool"}},
		}}}
		e["longRunningToolIds"] = []string{id}
	case "r", "R":
		role = "user"
		if kind == "R" {
			e["author"] = "user"
		}
		for _, id := range strings.Split(args, ",") {
			parts = append(parts, map[string]any{"functionResponse": map[string]any{"id": id, "name": "tool", "response": map[string]any{"r": text}}})
		}
	case "d":
		e["actions"] = map[string]any{"stateDelta": map[string]any{fmt.Sprintf("k%d", i%3): i}}
		role = ""
	case "C":
		e["actions"] = map[string]any{"compaction": map[string]any{"startTimestamp": 1, "endTimestamp": 2, "compactedContent": textOf("model", text)}}
		role = ""
	case "S":
		level, _ = strconv.Atoi(inv)
		level = max(level, 1)
	}
	if measured != "" {
		n, _ := strconv.Atoi(measured)
		e["usageMetadata"] = map[string]any{"promptTokenCount": n}
	}
	if role != "" {
		e["content"] = map[string]any{"role": role, "parts": parts}
	}
	return e, level
}

func at(i int) string {
	return time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339)
}

func content(role string, parts ...any) map[string]any {
	return map[string]any{"role": role, "parts": parts}
}

func textOf(role, text string) map[string]any { return content(role, map[string]any{"text": text}) }

// script returns the view of the log that words describe.
func script(t testing.TB, words string) fold.View {
	v := fold.New("", nil)
	apply := func(r patch.Record) {
		r.Seq = v.Seq() + 1
		v = testlog.Must(v.Apply(r))(t)
	}
	for i, w := range strings.Fields(words) {
		e, level := parseWord(t, w, i)
		if level > 0 {
			windows := 1
			for range level - 1 {
				windows *= 4
			}
			e["content"] = textOf("model", strings.Repeat("sum ", 20))
			e["author"] = "user"
			e["actions"] = map[string]any{"compaction": map[string]any{"startTimestamp": 1, "endTimestamp": 2}}
			e["customMetadata"] = map[string]any{"patchlog": map[string]any{"level": level, "windows": windows, "passes": level, "events": windows}}
			hidden := testlog.EventOf(t, event{"id": fmt.Sprintf("hidden%d", i), "author": "user", "invocationId": fmt.Sprintf("old%d", i)})
			apply(patch.Record{Event: hidden})
			apply(patch.Record{Patch: patch.NewSummarise(v.Len()-1, 1, testlog.EventOf(t, e))})
			continue
		}
		apply(patch.Record{Event: testlog.EventOf(t, e)})
	}
	if skipped := v.SkippedCount(); skipped > 0 {
		t.Fatalf("%q: %d patches of the script were skipped", words, skipped)
	}
	return v
}

// decided describes a decision as the test tables do: the trigger, the window's first span, its other spans, and its
// groups if there are several.
func decided(d compaction.Decision) string {
	w := d.Window
	if w == nil {
		return "none"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", w.Trigger, spanText(w.Span))
	for _, a := range w.EarlierSpans {
		fmt.Fprintf(&b, " also %s", spanText(a))
	}
	if w.Merge {
		b.WriteString(" merged")
	}
	if len(w.Groups) == 0 {
		b.WriteString(" without summary")
	}
	if len(w.Groups) > 1 {
		for _, g := range w.Groups {
			name := g.Branch
			if g.Scope != "" {
				name += g.Scope + "!"
			}
			fmt.Fprintf(&b, " %s:%s", name, strings.Trim(strings.ReplaceAll(fmt.Sprint(g.Indices), " ", ","), "[]"))
		}
	}
	return b.String()
}

func spanText(s compaction.Span) string { return fmt.Sprintf("%d-%d", s.Start, s.Start+s.Count-1) }
