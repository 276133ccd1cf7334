package store_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// If a draft was made before the closing commit of an erase, it is never committed, even if its author has seen
// the receipt. Only the edition of the log reveals such a draft. A backend without editions therefore leaks the
// text.
func TestEraseDraft(t *testing.T) {
	for name, leaks := range map[string]bool{"edition": false, "no edition": true} {
		b := backend.Backend(new(memory.Backend))
		if leaks {
			b = &hooked{Backend: b, fetched: func(_ backend.Query, news *backend.Fetched) { news.Edition = 0 }}
		}
		s := quietly(t, b)
		createWith(t, s, eraseKey, said("a", "secret"), said("b", "other"))
		seen := viewOf(t, s, eraseKey)
		must(t)(s.Erase(ctx, eraseKey, store.EraseSelection{EventIDs: []string{"a"}}, store.EraseOptions{}))
		now := viewOf(t, s, eraseKey)
		draft := patch.NewSummarise(0, 1, said("x", "it was secret")).WithBase(now.PatchSeq())
		_, err := s.ApplyPatch(ctx, eraseKey, []*patch.PatchEvent{draft}, store.PatchOptions{On: seen})
		if errors.Is(err, store.ErrConflict) == leaks || len(has(t, s, eraseKey, "secret")) > 0 != leaks {
			t.Errorf("%s: %v, records %v have it", name, err, has(t, s, eraseKey, "secret"))
		}
	}
}

// eraseWorld has sessions of two users that are forks and copies of each other. Its backend fails as planned.
type eraseWorld struct {
	t       *testing.T
	r       *rapid.T
	backend *storetest.Faulty
	store   *store.Store
	texts   map[store.Key][]string // texts of each session's events, in order
	n       int                    // number of texts so far
}

func newEraseWorld(t *testing.T, r *rapid.T) *eraseWorld {
	w := &eraseWorld{t: t, r: r, backend: &storetest.Faulty{Backend: new(memory.Backend)}, texts: map[store.Key][]string{}}
	w.open()
	return w
}

// open opens a new store on the same backend, as a new process does after the old process was killed.
func (w *eraseWorld) open() {
	w.store = newStore(w.r, w.backend, store.Options{Snapshots: snapshot.Policy{Every: 3, MinPercent: 1}, Logger: slog.New(slog.DiscardHandler)})
}

func (w *eraseWorld) keys() []store.Key {
	return slices.SortedFunc(maps.Keys(w.texts), func(a, b store.Key) int { return strings.Compare(a.String(), b.String()) })
}

// places are JSON members of an event that can contain a text.
var places = []string{
	`"content":{"role":"user","parts":[{"text":"is %s"}]}`,
	`"content":{"role":"model","parts":[{"text":"see"},{"functionCall":{"id":"c%[2]d","name":"f","args":{"deep":["%[1]s"]}}}]}`,
	`"content":{"role":"user","parts":[{"functionResponse":{"id":"c%[2]d","name":"f","response":{"%[1]s":1}}}]}`,
	`"actions":{"stateDelta":{"k%[2]d":"%[1]s"}}`,
	`"actions":{"stateDelta":{"k":{"deep":["in %[1]s"]}}}`,
	`"actions":{"stateDelta":{"user:k%[2]d":"%[1]s","app:k":"%[1]s"}}`,
	`"customMetadata":{"note":"%s"}`,
	`"group":"%s"`,
	`"count":{"x":"%s"},"errorMessage":"none"`,
	`"usageMetadata":{"note":"%s"}`,
}

func (w *eraseWorld) add(r *rapid.T, key store.Key, text string) {
	w.t.Helper()
	w.n++
	place := rapid.SampledFrom(places).Draw(r, "place")
	fields, _, _ := strings.Cut(fmt.Sprintf(place, text, w.n), "%!(EXTRA")
	must(w.r)(w.store.AppendEvents(ctx, key, []*patch.Event{event(`{"id":"e%d","author":"user","invocationId":"i%d",%s}`, w.n, w.n, fields)}, store.AppendOptions{}))
	w.texts[key] = append(w.texts[key], text)
}

// build makes random sessions, forks and copies, and adds events, summaries and splices to them.
func (w *eraseWorld) build(r *rapid.T, text func() string) {
	key := func() store.Key {
		return store.Key{App: "a", User: rapid.SampledFrom([]string{"ann", "bob"}).Draw(r, "user"), Session: rapid.StringMatching(`[a-f]`).Draw(r, "session")}
	}
	some := func() store.Key { return rapid.SampledFrom(w.keys()).Draw(r, "of") }
	for range rapid.IntRange(4, 20).Draw(r, "steps") {
		to := key()
		_, there := w.texts[to]
		step := rapid.SampledFrom([]string{"new", "fork", "fork", "copy", "add", "add", "add", "cut"}).Draw(r, "step")
		switch {
		case len(w.texts) == 0 || step == "new" && !there:
			must(w.r)(w.store.Create(ctx, to, map[string]any{"first": text()}, store.CreateOptions{}))
			w.texts[to] = nil
		case (step == "fork" || step == "copy") && !there:
			from := some()
			info := infoOf(w.r, w.store, from)
			at := uint64(rapid.IntRange(0, int(info.Seq)).Draw(r, "at"))
			if step == "copy" {
				at = info.Seq
				must(w.r)(w.store.Fork(ctx, from, to, store.ForkOptions{}))
			} else {
				must(w.r)(w.store.Fork(ctx, from, to, store.ForkOptions{At: &at}))
			}
			w.texts[to] = nil
			for _, t := range w.texts[from] {
				if w.records(to, t+`"`) > 0 {
					w.texts[to] = append(w.texts[to], t)
				}
			}
		case step == "cut":
			of := some()
			v := testlog.Must(w.store.View(ctx, of))(w.r)
			if v.Len() < 2 {
				continue
			}
			w.n++
			p := patch.NewSummarise(rapid.IntRange(0, v.Len()-2).Draw(r, "start"), 2, said(fmt.Sprint("s", w.n), "told"))
			must(w.r)(w.store.ApplyPatch(ctx, of, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true, AllowOrphans: true}))
		default:
			w.add(r, some(), text())
		}
	}
}

// untilDone repeats an erase until no backend call of the erase fails. When a write fails or has an unknown
// outcome, all later calls of the same process fail too.
func (w *eraseWorld) untilDone(r *rapid.T, erase func() error) {
	w.t.Helper()
	for range rapid.IntRange(0, 4).Draw(r, "interruptions") {
		w.backend.Plan(storetest.Plan{
			Write:    rapid.IntRange(1, 12).Draw(r, "write"),
			Failure:  rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.NotApplied, storetest.Applied}).Draw(r, "failure"),
			FailNext: 1 << 20,
		})
		if err := erase(); err != nil && !errors.Is(err, storetest.ErrInjected) {
			r.Fatal(err)
		}
		w.backend.Plan(storetest.Plan{})
		w.open()
	}
	testlog.NoError(r, erase())
}

// records returns the number of a session's records that contain a text.
func (w *eraseWorld) records(key store.Key, text string) (n int) {
	for _, rec := range recordsOf(w.r, w.store, key) {
		if line, _ := rec.MarshalJSON(); strings.Contains(string(line), text) {
			n++
		}
	}
	return n
}

// keysWith returns the number of keys of a session's initial state and shared state whose values contain a text.
func (w *eraseWorld) keysWith(key store.Key, text string) (n int) {
	session := sessionOf(w.r, w.store, key)
	initial := testlog.Must(w.store.ViewAt(ctx, key, 0))(w.r)
	for _, v := range initial.Values() {
		if strings.Contains(v.String(), text) {
			n++
		}
	}
	for name, v := range session.Values() {
		if shared := strings.HasPrefix(name, "app:") || strings.HasPrefix(name, "user:"); shared && strings.Contains(v.String(), text) {
			n++
		}
	}
	return n
}

// shows reports whether any call of the store returns the text for this session.
func (w *eraseWorld) shows(key store.Key, text string) bool {
	var out strings.Builder
	fmt.Fprintln(&out, exportOf(w.r, w.store, key, store.ExportOptions{}))
	session := sessionOf(w.r, w.store, key)
	for _, e := range session.View.Events() {
		fmt.Fprintln(&out, e)
	}
	for name, v := range session.Values() {
		fmt.Fprintln(&out, name, v)
	}
	hits := testlog.Must(recall.NewFinder(w.store, 0).Search(ctx, key, recall.Search{Query: text}))(w.r)
	for _, hit := range hits {
		fmt.Fprintln(&out, hit.Event, hit.Snippet.Text)
	}
	return w.records(key, text) > 0 || strings.Contains(out.String(), text)
}

// After an erase with Match and NullValues, no record, view, state, search result or export of the session or of a
// related session contains the text. All other content stays.
func TestPropertyEraseMatch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newEraseWorld(t, r)
		texts := 0
		w.build(r, func() string {
			texts++
			if rapid.Bool().Draw(r, "is secret") {
				return fmt.Sprintf("SECRETx%dt", texts)
			}
			return fmt.Sprintf("t%dt", texts)
		})
		key := rapid.SampledFrom(w.keys()).Draw(r, "erase")
		selection := store.EraseSelection{Match: "SECRET"}
		erase := func(opts store.EraseOptions) (done store.Erasure) {
			t.Helper()
			w.untilDone(r, func() (err error) {
				done, err = w.store.Erase(ctx, key, selection, opts)
				return err
			})
			return done
		}
		if rapid.Bool().Draw(r, "keeps values first") {
			planned := testlog.Must(w.store.Erase(ctx, key, selection, store.EraseOptions{DryRun: true}))(w.r)
			erase(store.EraseOptions{ID: "kept"})
			again := testlog.Must(w.store.Erase(ctx, key, selection, store.EraseOptions{DryRun: true}))(w.r)
			if planned.RemainingMatches != again.RemainingMatches {
				r.Fatalf("%d matches remain, and planned were %d", again.RemainingMatches, planned.RemainingMatches)
			}
			if n := w.records(key, "SECRET") + w.keysWith(key, "SECRET"); n != again.RemainingMatches {
				r.Fatalf("%d records and keys have the text, and %d are reported", n, again.RemainingMatches)
			}
		}
		erase(store.EraseOptions{ID: "nulls", Values: patch.NullValues})
		verified(t, w.store)
		if w.shows(key, "SECRET") {
			r.Fatalf("%s shows the text; sessions: %v", key, w.texts)
		}
		for of, texts := range w.texts {
			for _, text := range texts {
				secret := strings.Contains(text, "SECRET") && slices.Contains(w.texts[key], text)
				if secret != (w.records(of, text+`"`) == 0) {
					r.Fatalf("%s is gone of %s: %t; erased of %s; sessions: %v", text, of, !secret, key, w.texts)
				}
			}
		}
		if done, err := w.store.Erase(ctx, key, selection, store.EraseOptions{Values: patch.NullValues}); err != nil || len(done.Sessions)+len(done.Shared) > 0 {
			r.Fatalf("once more: %+v, %v", done, err)
		}
	})
}
