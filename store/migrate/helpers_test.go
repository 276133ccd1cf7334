package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

type fakeSource struct {
	sessions    []*migrate.Session
	shared      []migrate.Shared
	errs        map[int]error // key: index; value: the error to yield instead of the session
	differences []migrate.Difference
}

func (g *fakeSource) String() string                     { return "a test source" }
func (g *fakeSource) Count(context.Context) (int, error) { return len(g.sessions), nil }

func (g *fakeSource) Sessions(context.Context) iter.Seq2[*migrate.Session, error] {
	return func(yield func(*migrate.Session, error) bool) {
		for i, s := range g.sessions {
			if err := g.errs[i]; err != nil {
				if !yield(nil, err) {
					return
				}
			} else if !yield(s, nil) {
				return
			}
		}
	}
}

func (g *fakeSource) Shared(context.Context) iter.Seq2[migrate.Shared, error] {
	return func(yield func(migrate.Shared, error) bool) {
		for _, s := range g.shared {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (g *fakeSource) Differences(context.Context) ([]migrate.Difference, error) {
	return g.differences, nil
}

var key = store.Key{App: "shop", User: "ada", Session: "1"}

var day = time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)

// newSession returns a session with a state and with events given as JSON.
func newSession(t testing.TB, state string, events ...string) *migrate.Session {
	t.Helper()
	s := &migrate.Session{Key: key, Created: day, Updated: day.Add(time.Hour), State: values(t, state)}
	for _, text := range events {
		e := testlog.Must(patch.ParseEvent([]byte(text)))(t)
		s.Events = append(s.Events, e)
	}
	return s
}

func values(t testing.TB, text string) map[string]patch.Value {
	t.Helper()
	v := testlog.Must(patch.ParseValue([]byte(text)))(t)
	return v.Members()
}

// eventText returns an event with a text and, if delta is not empty, a state delta.
func eventText(id string, second int, delta string) string {
	if delta == "" {
		delta = "{}"
	}
	return fmt.Sprintf(`{"id":%q,"invocationId":"i","author":"user","timestamp":"2025-06-01T10:00:%02dZ","content":{"role":"user","parts":[{"text":%q}]},"actions":{"stateDelta":%s}}`,
		id, second, "text of "+id, delta)
}

func openMemory(t testing.TB) *store.Store {
	t.Helper()
	s := testlog.Must(store.OpenMemory(store.Options{}))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// run migrates sessions and returns the last result.
func run(t testing.TB, target *store.Store, opts migrate.Options, sessions ...*migrate.Session) (migrate.Result, migrate.Report) {
	t.Helper()
	return runSource(t, target, opts, &fakeSource{sessions: sessions})
}

func wantStatus(t testing.TB, target *store.Store, want migrate.Status, opts migrate.Options, session *migrate.Session) migrate.Result {
	t.Helper()
	r, _ := run(t, target, opts, session)
	equal(t, "status", r.Status, want)
	return r
}

func runSource(t testing.TB, target *store.Store, opts migrate.Options, from migrate.Source) (last migrate.Result, _ migrate.Report) {
	t.Helper()
	opts.Session = func(r migrate.Result) error { last = r; return nil }
	report := testlog.Must(migrate.Run(t.Context(), target, from, opts))(t)
	return last, report
}

func export(t testing.TB, s *store.Store, key store.Key) string {
	t.Helper()
	var b bytes.Buffer
	testlog.NoError(t, s.Export(t.Context(), key, &b, store.ExportOptions{}))
	return b.String()
}

func dump(t testing.TB, s *store.Store) string {
	t.Helper()
	var b strings.Builder
	for info, err := range s.List(t.Context(), store.ListOptions{}) {
		testlog.NoError(t, err)
		fmt.Fprintf(&b, "%s created %v\n%s", info.Key, info.Created, export(t, s, info.Key))
		got := testlog.Must(s.Get(t.Context(), info.Key))(t)
		all := got.Values()
		for _, k := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&b, "%s=%s\n", k, all[k])
		}
	}
	return b.String()
}

func stateJSON(t testing.TB, s *store.Store, key store.Key) string {
	t.Helper()
	got := testlog.Must(s.Get(t.Context(), key))(t)
	v, err := patch.NewValue(got.Values())
	testlog.NoError(t, err)
	return v.String()
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%v\nwant\n%v", what, got, want)
	}
}

// differencesText returns differences as text, one per line.
func differencesText(differences []migrate.Difference) string {
	var lines []string
	for _, d := range differences {
		lines = append(lines, d.String())
	}
	return strings.Join(lines, "\n")
}
