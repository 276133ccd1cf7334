package present_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

func TestPlan(t *testing.T) {
	long := strings.Repeat("i", 50)
	for _, c := range []struct {
		name     string
		decision compaction.Decision
		rows     []present.Row
		outlook  string
		json     string
	}{
		{"nothing", compaction.Decision{Reason: "not due", PromptTokens: 5},
			[]present.Row{{"prompt", "about 5 tokens, estimated"}},
			"",
			`{"key":"a/u/s","window":null,"reason":"not due","prompt":{"tokens":5,"measured":false}}`},
		{"window", compaction.Decision{Reason: "because", PromptTokens: 2000, Measured: true, Window: &compaction.Window{
			Trigger: compaction.ByTokens, Span: compaction.Span{Start: 7, Count: 3}, Also: []compaction.Span{{Start: 1, Count: 2}},
			Groups:      []compaction.Group{{Indices: []int{1, 2}}, {Branch: "a.b", Scope: "s\n", Indices: []int{7, 8, 9}}},
			Invocations: []string{"one\x1b", "two", long}, Tokens: 1000,
		}},
			[]present.Row{{"trigger", "tokens"}, {"window", "start 7, count 3"}, {"  also", "start 1, count 2"},
				{"  branch", "no branch: 2 events"}, {"  branch", "a.b, scope s: 3 events"}, {"invocations", `3: one\u001b to ` + long[:40]},
				{"tokens", "about 1,000 in the window"}, {"prompt", "about 2,000 tokens, measured, and estimated since"}},
			"Nothing was written. More passes may follow; what they cover depends on this one's summary.",
			`{"key":"a/u/s","window":{"trigger":"tokens","start":7,"count":3,"also":[{"start":1,"count":2}],"merge":false,"groups":[{"branch":"","scope":"","events":[1,2]},{"branch":"a.b","scope":"s\n","events":[7,8,9]}],"invocations":["one\u001b","two","` + long + `"],"tokens":1000},` +
				`"reason":"because","prompt":{"tokens":2000,"measured":true}}`},
		{"one group", compaction.Decision{Window: &compaction.Window{Trigger: compaction.ByInterval, Span: compaction.Span{Count: 1}, Groups: []compaction.Group{{Branch: "b", Indices: []int{0}}}, Invocations: []string{"one"}}},
			[]present.Row{{"trigger", "interval"}, {"window", "start 0, count 1"}, {"invocations", "1: one"}, {"tokens", "about 0 in the window"}, {"prompt", "about 0 tokens, estimated"}},
			"Nothing was written. More passes may follow; what they cover depends on this one's summary.",
			`{"key":"a/u/s","window":{"trigger":"interval","start":0,"count":1,"also":[],"merge":false,"groups":[{"branch":"b","scope":"","events":[0]}],"invocations":["one"],"tokens":0},"reason":"","prompt":{"tokens":0,"measured":false}}`},
		{"clearing", compaction.Decision{Window: &compaction.Window{Trigger: compaction.ByClearing, Span: compaction.Span{Start: 9, Count: 1}, Also: []compaction.Span{{Start: 3, Count: 1}}, Results: 2, Tokens: 1234}},
			[]present.Row{{"trigger", "clearing"}, {"clears", "2 results, in events 3 to 9"}, {"tokens", "about 1,234 in these events"}, {"prompt", "about 0 tokens, estimated"}},
			"Nothing was written. More passes may follow.",
			`{"key":"a/u/s","window":{"trigger":"clearing","start":9,"count":1,"also":[{"start":3,"count":1}],"merge":false,"groups":[],"invocations":[],"tokens":1234,"results":2},"reason":"","prompt":{"tokens":0,"measured":false}}`},
		{"clearing one", compaction.Decision{Window: &compaction.Window{Trigger: compaction.ByClearing, Span: compaction.Span{Start: 9, Count: 1}, Results: 1}},
			[]present.Row{{"trigger", "clearing"}, {"clears", "1 result, in events 9 to 9"}, {"tokens", "about 0 in these events"}, {"prompt", "about 0 tokens, estimated"}},
			"Nothing was written. More passes may follow.",
			`{"key":"a/u/s","window":{"trigger":"clearing","start":9,"count":1,"also":[],"merge":false,"groups":[],"invocations":[],"tokens":0,"results":1},"reason":"","prompt":{"tokens":0,"measured":false}}`},
	} {
		plan := present.PlanOf(key, c.decision)
		testlog.Equal(t, c.name, plan.Rows(), c.rows)
		testlog.Equal(t, c.name+" outlook", plan.Outlook(), c.outlook)
		testlog.Equal(t, c.name+" JSON", asJSON(t, plan), c.json)
	}
}
