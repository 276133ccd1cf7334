package compaction_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// The tests write logs as words, each an event:
//
//	u3        a text of the user's in invocation inv3
//	a3        a text of the agent's
//	c3(x)     the agent calls a function; x is the call id. c3(x,y) calls two at once
//	r3(x)     what the function returned. R3(x) is a response of the user's side
//	l3(x)     a long-running call
//	q3(y:x)   adk_request_confirmation with call id y, about the call x
//	d3        a change of state alone
//	t3        a thought alone
//	S, S2     a summary of raw events, of summaries
//	C         a compaction record of a foreign log
//	u, a      without invocation id
//
// A/u3 is in branch A, A!/u3 in isolation scope A; u3*50 takes 50 tokens; a3=900
// answers a prompt measured at 900 tokens. The event with index i has the id e<i>.
var word = regexp.MustCompile(`^(?:(\w[\w.@]*)(!?)/)?([uacrRlqdtSC])(\d*)(?:\(([\w,:]+)\))?(?:\*(\d+))?(?:=(\d+))?$`)

type event map[string]any

// parseWord gives the event that a word stands for, and of a summary the level.
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

// script gives the view of a log written in words.
func script(t testing.TB, words string) fold.View {
	v := fold.New("", nil)
	apply := func(r patch.Record) {
		r.Seq = v.Seq() + 1
		var err error
		if v, err = v.Apply(r); err != nil {
			t.Fatal(err)
		}
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

// decided writes a decision as the tables do: the trigger, the span, what else goes, and
// the groups if there is not just one.
func decided(d compaction.Decision) string {
	w := d.Window
	if w == nil {
		return "none"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", w.Trigger, spanText(w.Span))
	for _, a := range w.Also {
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
