package ops_test

import (
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// If another process has leased an invocation, its calls stay open.
func TestCloseCalls(t *testing.T) {
	b := &memory.Backend{}
	s, runner := testlog.Must(store.New(b, store.Options{}))(t), testlog.Must(store.New(b.Peer(), store.Options{}))(t)
	key := store.Key{App: "a", User: "u", Session: "s"}
	var log strings.Builder
	for _, i := range []string{"1", "2"} {
		log.WriteString(`{"id":"e` + i + `","invocationId":"i` + i + `","author":"x","content":{"parts":[{"functionCall":{"id":"c` + i + `","name":"f","args":{}}}]}}` + "\n")
	}
	v := testlog.Must(s.Import(t.Context(), key, strings.NewReader(log.String()), store.ImportOptions{}))(t).View
	for _, c := range []struct {
		ttl  time.Duration
		want int
	}{{time.Hour, 1}, {0, 2}} {
		testlog.Must(runner.Lease(t.Context(), key, compaction.RunLease("i2"), c.ttl))(t)
		patches := testlog.Must(ops.CloseCalls(t.Context(), s, key, v, "me", nil))(t)
		if len(patches) != c.want || patches[0].Author() != "me" {
			t.Errorf("%v: %v", c.ttl, patches)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ops.CloseCalls(t.Context(), s, key, v, "me", nil); err == nil {
		t.Error("no error of the leases")
	}
}
