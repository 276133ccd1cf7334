package compaction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// callLog returns a view of events. Each line gives the id, the content parts and the other fields of an event.
func callLog(t *testing.T, lines ...string) fold.View {
	t.Helper()
	v := fold.New("", nil)
	for i, line := range lines {
		id, rest, _ := strings.Cut(line, " ")
		parts, more, _ := strings.Cut(rest, " | ")
		e := testlog.Must(patch.ParseEvent([]byte(fmt.Sprintf(`{"id":%q,"invocationId":"i-%s","author":"agent","content":{"parts":[%s]}%s}`, id, id, parts, more))))(t)
		v = testlog.Must(v.Apply(patch.Record{Seq: uint64(i) + 1, Event: e}))(t)
	}
	return v
}

func call(id string) string {
	return fmt.Sprintf(`{"functionCall":{"id":%q,"name":"f","args":{}}}`, id)
}

func result(id string) string {
	return fmt.Sprintf(`{"functionResponse":{"id":%q,"name":"f","response":{}}}`, id)
}

// shownCalls lists the ids of the visible events, each with its calls and responses. It lists an inserted event as
// "new".
func shownCalls(v fold.View) string {
	var out []string
	for _, e := range v.Events() {
		id := e.ID()
		if len(id) > 3 {
			id = "new"
		}
		for p := range e.FunctionParts() {
			id += map[bool]string{false: "+", true: "-"}[p.Response] + p.ID
		}
		out = append(out, id)
	}
	return strings.Join(out, " ")
}

// CloseCalls inserts a response only for a call that will never be answered. A late result replaces the inserted
// response.
func TestCloseCalls(t *testing.T) {
	v := callLog(t,
		"a "+call("1")+","+call("2"),
		"b "+call("3")+` | ,"longRunningToolIds":["3"]`,
		"c "+call("4"), "d "+result("4"),
		"e "+call("5"), `f {"functionCall":{"id":"q","name":"adk_request_confirmation","args":{"originalFunctionCall":{"id":"5"}}}}`,
		"g "+call("6"), `h  | ,"isolationScope":"6"`,
		"i "+call("7"), "j "+call("8"))
	n := 0
	newID := func() string { n++; return fmt.Sprint("id-", n) }
	patches := testlog.Must(compaction.CloseCalls(v, newID, func(c fold.Call) bool { return v.At(c.Index).InvocationID() == "i-j" }))(t)
	for _, p := range patches {
		if !strings.HasPrefix(p.ID(), compaction.InterruptedPrefix) || p.Group() == "" || p.Group() != patches[0].Group() {
			t.Errorf("patch %q of group %q", p.ID(), p.Group())
		}
	}
	closed := testlog.Must(v.Preview(patches, fold.CheckOptions{}))(t)
	const want = "a+1+2 new-1-2 b+3 c+4 d-4 e+5 f+q g+6 h i+7 new-7 j+8"
	if got := shownCalls(closed); got != want {
		t.Fatalf("shown is\n%s, want\n%s", got, want)
	}
	if again := testlog.Must(compaction.CloseCalls(closed, newID, func(fold.Call) bool { return false }))(t); len(again) != 1 {
		t.Errorf("again %d, want that of j", len(again))
	}
	for late, want := range map[string]string{
		"2":   strings.Replace(want, "new-1-2", "new-1", 1),
		"7":   strings.Replace(want, " new-7", "", 1),
		"1,7": strings.Replace(strings.Replace(want, "new-1-2", "new-2", 1), " new-7", "", 1),
		"4":   want,
		"":    want,
	} {
		var parts []string
		for _, id := range slices.DeleteFunc(strings.Split(late, ","), func(id string) bool { return id == "" }) {
			parts = append(parts, result(id))
		}
		e := callLog(t, "z "+strings.Join(parts, ",")).At(0)
		patches := testlog.Must(compaction.ReopenCalls(closed, e))(t)
		reopened := closed
		if len(patches) > 0 {
			reopened = testlog.Must(closed.Preview(patches, fold.CheckOptions{AllowOrphans: true}))(t)
		}
		if got := shownCalls(reopened); got != want {
			t.Errorf("after %q shown is\n%s, want\n%s", late, got, want)
		}
	}
}
