package store_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

// Reading a log whose records are long and say little keeps a page in memory, not what a page
// of compressed records unpacks to.
func TestReadingHoldsAPage(t *testing.T) {
	testlog.OneGoroutine(t)
	rounds := 20
	if testing.Short() {
		rounds = 10
	}
	long := strings.Repeat("x", 500_000)
	onEach(t, func(e *env) {
		e.create(nil)
		for i := range rounds {
			var events []*patch.Event
			for j := range 10 {
				events = append(events, testlog.New(patch.Fields{ID: fmt.Sprint("e", i, "-", j), Author: long}))
			}
			e.append(events...)
			e.must(e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 10)))
		}
		e.opts.CacheBytes = -1
		e.reopen()
		if raw, err := e.engine.Read(ctx, name(key), e.creation(), backend.Range(1, 1000), 1<<20); err != nil || len(raw) < 100 {
			e.Fatalf("%d records are a page of the backend's, %v", len(raw), err)
		}
		check := func(what string, read func(between func())) {
			before, most := heap(), uint64(0)
			read(func() { most = max(most, heap()) })
			if most == 0 || most > before+8<<20 {
				e.Errorf("%s a log of %d MB takes %d bytes", what, 5*rounds, int64(most)-int64(before))
			}
		}
		check("reading", func(between func()) {
			for r, err := range e.store.RawEvents(ctx, key, 1) {
				e.no(err)
				if r.Seq%50 == 1 {
					between()
				}
				runtime.KeepAlive(r)
			}
		})
	})
}

// name is what backends call a session whose key needs no escaping.
func name(key store.Key) string {
	return strings.Join([]string{key.App, key.User, key.Session, ""}, "\x00\x01")
}
