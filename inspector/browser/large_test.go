package browser

import (
	"fmt"
	"testing"

	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// The size of a page is bounded, even if the session is long.
func TestLongSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inspector.Options{})
	f.longSession(ada)
	p := openPage(t, f.base, pageOptions{})
	last := f.view(ada).Seq()
	for _, at := range []uint64{last, 5_000} {
		p.Go(address("session", ada, "at", fmt.Sprint(at)))
		f.waitForRecord(p, ada, at)
		var bytes, elements int
		p.Eval("performance.getEntriesByType('navigation')[0].decodedBodySize", &bytes)
		p.Eval("document.querySelectorAll('*').length", &elements)
		t.Logf("after record %d of %d: %d kB, %d elements", at, last, bytes/1000, elements)
		if bytes > 1_000_000 || elements > 8_000 {
			t.Errorf("after record %d the page has %d bytes and %d elements", at, bytes, elements)
		}
	}
	p.Overflow()
}

// longSession fills a session with 10,000 events. Summaries cover most of them.
func (f *fixture) longSession(key store.Key) {
	f.t.Helper()
	ctx := f.t.Context()
	testlog.Must(f.Create(ctx, key, map[string]any{"tenant": "north"}, store.CreateOptions{}))(f.t)
	var events []*patch.Event
	for _, r := range recorded.Log(f.t, 10_000) {
		if events = append(events, r.Event); len(events) < 500 {
			continue
		}
		testlog.Must(f.AppendEvents(ctx, key, events, store.AppendOptions{}))(f.t)
		events = events[:0]
		f.apply(key, patch.NewSummarise(f.view(key).Len()-500, 300, testlog.Text("", "", "user", "three hundred events")))
	}
}
