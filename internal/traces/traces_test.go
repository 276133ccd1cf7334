package traces_test

import (
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/traces"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestTraces(t *testing.T) {
	var found traces.Traces
	for i, c := range [][2]string{
		{`{"text":"recall_search"}`, ``},
		{`{"functionCall":{"id":"1","name":"recall_read","args":{"handle":" 17.2/0 "}}}`, ``},
		{`{"functionCall":{"id":"1","name":"recall_search","args":{"handle":"9"}}}`, ``},
		{`{"functionCall":{"id":"2","name":"recall_read","args":{"handle":"id=a/b"}}}`, ``},
		{`{"functionCall":{"id":"3","name":"recall_read","args":{"handle":7}}},{"functionCall":{"id":"4","name":"recall_read"}}`, ``},
		{`{"functionResponse":{"id":"1","name":"recall_read","response":{"text":"x"}}}`, `[{17 2 }]`},
		{`{"functionResponse":{"id":"2","name":"recall_read"}}`, `[{0 0 a/b} {0 0 a}]`},
		{`{"functionResponse":{"id":"3","name":"recall_read"}},{"functionResponse":{"id":"5","name":"recall_read"}}`, ``},
		{`{"functionResponse":{"id":"1","name":"other","response":{"results":[{"handle":"1"}]}}}`, ``},
		{`{"functionResponse":{"name":"recall_search","response":{"results":[{"handle":"3"},{"handle":4},{"x":1},{"handle":"5.1"},{"handle":"0"},{"handle":"x"},{"handle":"1.x"},{"handle":"id=e"}]}}}`, `[{3 0 } {5 1 } {0 0 e}]`},
		{`{"functionResponse":{"name":"recall_search","response":{"results":5}}}`, ``},
		{`{"functionResponse":{"name":"recall_search"}}`, ``},
	} {
		e := testlog.Must(patch.ParseEvent([]byte(`{"id":"e","content":{"parts":[` + c[0] + `]}}`)))(t)
		got := ""
		if all := found.Of(e); all != nil {
			got = fmt.Sprint(all)
		}
		if got != c[1] {
			t.Errorf("%d: %s was brought from %s, want %s", i, c[0], got, c[1])
		}
	}
}
