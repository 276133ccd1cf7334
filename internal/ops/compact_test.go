package ops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Each pass is reported with its record. If compaction stops early, the reason is reported. If the summarizer
// fails, the error names the session.
func TestCompact(t *testing.T) {
	key := store.Key{App: "a", User: "u", Session: "s"}
	var log strings.Builder
	for n := range 8 {
		fmt.Fprintf(&log, `{"id":"e%d","invocationId":"i%d","author":"user","content":{"role":"user","parts":[{"text":%q}]}}`+"\n", n, n, strings.Repeat("words ", 50))
	}
	broken := errors.New("broken")
	var s *store.Store
	for name, c := range map[string]struct {
		summarise      compaction.SummarizerFunc
		passes         int
		stopped, fails string
	}{
		"wrote": {func(context.Context, compaction.Request) (compaction.Response, error) {
			return compaction.Response{Text: "all of it"}, nil
		}, 1, "", ""},
		"declined": {func(context.Context, compaction.Request) (compaction.Response, error) {
			return compaction.Response{}, nil
		}, 0, "declined", ""},
		"conflict": {func(ctx context.Context, r compaction.Request) (compaction.Response, error) {
			_, err := s.ApplyPatch(ctx, key, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{AsOfNow: true})
			return compaction.Response{Text: "all of it"}, err
		}, 0, "was logged during the pass", ""},
		"failed": {func(context.Context, compaction.Request) (compaction.Response, error) {
			return compaction.Response{}, broken
		}, 0, "", "session a/u/s: "},
	} {
		var err error
		s = teststore.Memory(t, store.Options{})
		done := testlog.Must(s.Import(t.Context(), key, strings.NewReader(log.String()), store.ImportOptions{}))(t)
		cfg := compaction.DefaultConfig()
		cfg.Summarizer = c.summarise
		told := 0
		op := ops.Compact{Config: cfg, OnPass: func(ops.Pass) { told++ }}
		if d, err := compaction.Plan(done.View, cfg, op.Run); err != nil || d.Window == nil {
			t.Fatalf("%s: nothing is due: %+v, %v", name, d, err)
		}
		got, err := op.Apply(t.Context(), s, key, done.View)
		if len(got.Passes) != c.passes || told != c.passes || !strings.Contains(got.Stopped, c.stopped) || c.stopped == "" && got.Stopped != "" ||
			(err != nil) != (c.fails != "") || err != nil && (!errors.Is(err, broken) || !strings.HasPrefix(err.Error(), c.fails)) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for _, p := range got.Passes {
			if p.Record.ID() != p.PatchID || p.Record.Seq <= done.View.Seq() {
				t.Errorf("%s: record %d, %q, is not that of patch %q", name, p.Record.Seq, p.Record.ID(), p.PatchID)
			}
		}
	}
}
