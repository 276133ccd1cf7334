package compaction_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var key = store.Key{App: "app", User: "user", Session: "s"}

// session is a session of a store in memory, written in the words of [script].
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

// tester is a test, or a case of a property.
type tester interface {
	testlog.Failer
	Fatalf(format string, args ...any)
	Context() context.Context
}

func openSession(t tester) *session {
	st, err := store.OpenMemory(store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	return &session{t: t, store: st}
}

// append appends the events that words stand for; the ids go on counting.
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

// add appends events.
func (s *session) add(events ...*patch.Event) {
	s.t.Helper()
	if _, err := s.store.AppendEvents(s.t.Context(), key, store.AppendOptions{}, events...); err != nil {
		s.t.Fatal(err)
	}
}

// records returns the raw log.
func (s *session) records() (all []patch.Record) {
	for r, err := range s.store.RawEvents(s.t.Context(), key, 1) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// patches returns the patches of the raw log.
func (s *session) patches() (all []*patch.PatchEvent) {
	for _, r := range s.records() {
		if r.Patch != nil {
			all = append(all, r.Patch)
		}
	}
	return all
}

func (s *session) view() fold.View {
	v, err := s.store.View(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// visible writes the visible log: ids of events, and summaries as S with their level and
// the role of their content.
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

// compactor returns a compactor that logs nowhere.
func (s *session) compactor(cfg compaction.Config) *compaction.Compactor[store.Key] {
	return s.with(cfg, compaction.Options[store.Key]{})
}

// with returns a compactor with options, which logs nowhere if they name no logger.
func (s *session) with(cfg compaction.Config, opts compaction.Options[store.Key]) *compaction.Compactor[store.Key] {
	s.t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := compaction.New(s.store, cfg, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// run compacts until nothing is left to do.
func (s *session) run(c *compaction.Compactor[store.Key]) []compaction.Written {
	s.t.Helper()
	done, err := c.MaybeCompact(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

// compact compacts by a configuration until nothing is left to do.
func (s *session) compact(cfg compaction.Config) []compaction.Written { return s.run(s.compactor(cfg)) }

func (s *session) patch(p *patch.PatchEvent) {
	s.t.Helper()
	if _, err := s.store.ApplyPatch(s.t.Context(), key, store.PatchOptions{On: s.view()}, p); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) state() string { return fmt.Sprint(s.view().State()) }

// declines is a summarizer that has nothing to say.
type declines struct{}

func (declines) Summarize(context.Context, compaction.Request) (compaction.Response, error) {
	return compaction.Response{}, nil
}

// scripted is a summarizer that notes what it is asked, and answers with a short text or
// as it is told.
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

// every is a configuration with the interval trigger alone.
func every(interval, overlap int, s compaction.Summarizer) compaction.Config {
	return compaction.Config{Enabled: true, CompactionInterval: interval, OverlapSize: overlap, Summarizer: s}
}

func with(c compaction.Config, change func(*compaction.Config)) compaction.Config {
	change(&c)
	return c
}
