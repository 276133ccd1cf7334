package browser

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var ada = store.Key{App: "shop", User: "ada", Session: "order 4711"}

// fixture is a store with sessions, and an inspector that serves it.
type fixture struct {
	*store.Store
	t    testing.TB
	base string
}

// newFixture serves an empty store. Times and ids are deterministic.
func newFixture(t testing.TB, opts inspector.Options) *fixture {
	t.Helper()
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	var ids atomic.Int64 // tests write from several goroutines
	s := testlog.Must(store.OpenMemory(store.Options{
		Now:   func() time.Time { return now },
		NewID: func() string { return fmt.Sprintf("id-%d", ids.Add(1)) },
	}))(t)
	opts.Logger = slog.New(slog.DiscardHandler)
	i := testlog.Must(inspector.New(s, opts))(t)
	server := httptest.NewServer(i)
	t.Cleanup(func() {
		server.CloseClientConnections() // ends the streams of pages that follow sessions
		server.Close()
		s.Close()
	})
	return &fixture{s, t, server.URL}
}

// session fills a session with n recorded events, and compacts it while it grows. Then it pins an event, cuts
// another event, and reverts the cut.
func (f *fixture) session(key store.Key, n int) {
	f.t.Helper()
	ctx := f.t.Context()
	testlog.Must(f.Create(ctx, key, map[string]any{"tenant": "north", "user:language": "en"}, store.CreateOptions{}))(f.t)
	cfg := compaction.DefaultConfig()
	cfg.TokenThreshold, cfg.EventRetentionSize, cfg.CompactionInterval = 4_000, 8, 0
	c := testlog.Must(compaction.New(f.Store, cfg, compaction.Options[store.Key]{Logger: slog.New(slog.DiscardHandler)}))(f.t)
	var events []*patch.Event
	flush := func() {
		testlog.Must(f.AppendEvents(ctx, key, events, store.AppendOptions{}))(f.t)
		events = events[:0]
	}
	every := max(n/6, 40)
	for i, r := range recorded.Log(f.t, n) {
		events = append(events, r.Event)
		if i%every == every-1 {
			flush()
			testlog.Must(c.Compact(ctx, key, compaction.Run{Force: true}))(f.t)
		}
	}
	flush()
	v := f.view(key)
	f.apply(key, patch.NewPin(v.At(v.Len()-1).ID()))
	f.apply(key, patch.NewSplice(v.Len()-4, 1).WithID("cut-by-hand"))
	testlog.Must(f.Revert(ctx, key, "cut-by-hand", store.UndoOptions{Author: "ada", AllowOrphans: true}))(f.t)
}

func (f *fixture) apply(key store.Key, p *patch.PatchEvent) {
	f.t.Helper()
	testlog.Must(f.ApplyPatch(f.t.Context(), key, []*patch.PatchEvent{p.WithAuthor("ada")}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))(f.t)
}

func (f *fixture) appendText(key store.Key, author, text string) {
	f.t.Helper()
	testlog.Must(f.AppendEvents(f.t.Context(), key, []*patch.Event{testlog.Text("", "inv-"+text, author, text)}, store.AppendOptions{}))(f.t)
}

// records returns the records of a session, starting at the seq from.
func (f *fixture) records(key store.Key, from uint64) (records []patch.Record) {
	f.t.Helper()
	for r, err := range f.RawEvents(f.t.Context(), key, from) {
		testlog.NoError(f.t, err)
		records = append(records, r)
	}
	return records
}

// address returns the URL of a page about a session.
func address(name string, key store.Key, pairs ...string) string {
	q := url.Values{"key": {key.String()}}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return name + "?" + q.Encode()
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
