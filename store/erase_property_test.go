package store_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// eraseWorld is sessions of two users that fork and copy each other, over a backend that fails as planned.
type eraseWorld struct {
	t       *testing.T
	r       *rapid.T
	backend *storetest.Faulty
	store   *store.Store
	texts   map[store.Key][]string // of each session's events, in order
	n       int                    // texts so far
}

func newEraseWorld(t *testing.T, r *rapid.T) *eraseWorld {
	w := &eraseWorld{t: t, r: r, backend: &storetest.Faulty{Backend: new(memory.Backend)}, texts: map[store.Key][]string{}}
	w.open()
	return w
}

// open begins anew with what the backend has, as a process does after another was killed.
func (w *eraseWorld) open() {
	s, err := store.New(w.backend, store.Options{Snapshots: snapshot.Policy{Every: 3, Share: 1}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	w.must(err)
	w.store = s
}

func (w *eraseWorld) must(err error) {
	w.r.Helper()
	no(w.r, err)
}

func (w *eraseWorld) keys() []store.Key {
	return slices.SortedFunc(maps.Keys(w.texts), func(a, b store.Key) int { return strings.Compare(a.String(), b.String()) })
}

// places are those where a text can be in an event.
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

// add appends an event with a text to a session.
func (w *eraseWorld) add(r *rapid.T, key store.Key, text string) {
	w.t.Helper()
	w.n++
	place := rapid.SampledFrom(places).Draw(r, "place")
	fields := fmt.Sprintf(place+`%[3]s`, text, w.n, "")
	fields, _, _ = strings.Cut(fields, "%!(EXTRA")
	_, err := w.store.AppendEvents(ctx, key, store.AppendOptions{}, lines(w.t, fmt.Sprintf(`{"id":"e%d","author":"user","invocationId":"i%d",%s}`, w.n, w.n, fields))...)
	w.must(err)
	w.texts[key] = append(w.texts[key], text)
}

// build draws sessions: new ones, forks and copies of those that are there, with more events, summaries and splices.
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
			_, err := w.store.Create(ctx, to, map[string]any{"first": text()})
			w.must(err)
			w.texts[to] = nil
		case (step == "fork" || step == "copy") && !there:
			from := some()
			info, err := w.store.Info(ctx, from)
			w.must(err)
			at := uint64(rapid.IntRange(0, int(info.Seq)).Draw(r, "at"))
			if step == "copy" {
				at = info.Seq
				var file strings.Builder
				w.must(w.store.Export(ctx, from, &file, store.ExportOptions{}))
				_, err = w.store.Import(ctx, to, strings.NewReader(file.String()), store.ImportOptions{})
			} else {
				_, err = w.store.Fork(ctx, from, to, store.ForkOptions{At: &at})
			}
			w.must(err)
			w.texts[to] = nil
			for _, t := range w.texts[from] {
				if w.records(to, t+`"`) > 0 {
					w.texts[to] = append(w.texts[to], t)
				}
			}
		case step == "cut":
			of := some()
			v, err := w.store.View(ctx, of)
			w.must(err)
			if v.Len() < 2 {
				continue
			}
			w.n++
			p := patch.NewSummarise(rapid.IntRange(0, v.Len()-2).Draw(r, "start"), 2, said(w.t, fmt.Sprint("s", w.n), "told"))
			_, err = w.store.ApplyPatch(ctx, of, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, p)
			w.must(err)
		default:
			w.add(r, some(), text())
		}
	}
}

// untilDone calls an erase that is interrupted: a write fails, or nobody knows whether it did, and all that the
// process would do then; until it is not.
func (w *eraseWorld) untilDone(r *rapid.T, erase func() error) {
	w.t.Helper()
	for range rapid.IntRange(0, 4).Draw(r, "interruptions") {
		w.backend.Plan(storetest.Plan{
			Write:   rapid.IntRange(1, 12).Draw(r, "write"),
			Failure: rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}).Draw(r, "failure"),
			Then:    1 << 20,
		})
		if err := erase(); err != nil && !errors.Is(err, storetest.ErrInjected) {
			r.Fatal(err)
		}
		w.backend.Plan(storetest.Plan{})
		w.open()
	}
	w.must(erase())
}

// records returns how many records of a session have a text.
func (w *eraseWorld) records(key store.Key, text string) (n int) {
	for rec, err := range w.store.RawEvents(ctx, key, 1) {
		w.must(err)
		if line, _ := rec.MarshalJSON(); strings.Contains(string(line), text) {
			n++
		}
	}
	return n
}

// shows reports whether anything that the store gives of a session has a text.
func (w *eraseWorld) shows(key store.Key, text string) bool {
	var out strings.Builder
	w.must(w.store.Export(ctx, key, &out, store.ExportOptions{}))
	session, err := w.store.Get(ctx, key)
	w.must(err)
	for _, e := range session.View.Events() {
		fmt.Fprintln(&out, e)
	}
	for name, v := range session.Values() {
		fmt.Fprintln(&out, name, v)
	}
	hits, err := w.store.Search(ctx, key, recall.Search{Query: text})
	w.must(err)
	for _, hit := range hits {
		fmt.Fprintln(&out, hit.Event, hit.Snippet.Text)
	}
	return w.records(key, text) > 0 || strings.Contains(out.String(), text)
}

func (w *eraseWorld) length() (n uint64) {
	for _, key := range w.keys() {
		info, err := w.store.Info(ctx, key)
		w.must(err)
		n += info.Seq
	}
	return n
}

// Whatever forks and copies there are, of whichever users and in whichever order, and however often the erase is
// interrupted: once it succeeds, nothing that a session of the user has is in any session, all else is, and once more does nothing.
func TestPropertyEraseUser(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newEraseWorld(t, r)
		texts := 0
		w.build(r, func() string { texts++; return fmt.Sprintf("t%dt", texts) })
		gone := map[string]bool{}
		for key, texts := range w.texts {
			for _, text := range texts {
				gone[text] = gone[text] || key.User == "ann"
			}
		}
		opts := store.EraseOptions{ID: "receipt"}
		if rapid.IntRange(0, 3).Draw(r, "values") == 0 {
			opts.Values = patch.KeepValues
		}
		w.untilDone(r, func() error {
			_, err := w.store.EraseUser(ctx, "a", "ann", opts)
			return err
		})
		if opts.Values == patch.KeepValues {
			opts = store.EraseOptions{ID: "another"}
			w.untilDone(r, func() error {
				_, err := w.store.EraseUser(ctx, "a", "ann", opts)
				return err
			})
		}
		verified(t, w.store)
		for text, is := range gone {
			var in []string
			for _, key := range w.keys() {
				if w.records(key, text+`"`) > 0 {
					in = append(in, key.String())
				}
			}
			if is != (len(in) == 0) {
				r.Fatalf("%s is in %q, and shall be gone: %t; sessions: %v", text, in, is, w.texts)
			}
		}
		n := w.length()
		for _, id := range []string{opts.ID, "", "other"} {
			_, err := w.store.EraseUser(ctx, "a", "ann", store.EraseOptions{ID: id})
			w.must(err)
		}
		if again := w.length(); again != n {
			r.Fatalf("once more logs %d records; sessions: %v", again-n, w.texts)
		}
	})
}

// After an erase by match with null in place of state values no record, view, state, search result or export of
// the session, or of another one that has its events, has the text, wherever it was; all else stays.
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
			planned, err := w.store.Erase(ctx, key, selection, store.EraseOptions{DryRun: true})
			w.must(err)
			erase(store.EraseOptions{ID: "kept"})
			again, err := w.store.Erase(ctx, key, selection, store.EraseOptions{DryRun: true})
			w.must(err)
			if fmt.Sprint(planned.Kept) != fmt.Sprint(again.Kept) {
				r.Fatalf("kept are %v, and planned were %v", again.Kept, planned.Kept)
			}
			if n := w.records(key, "SECRET"); n != again.Kept.Events {
				r.Fatalf("%d records have the text, and %d events are reported", n, again.Kept.Events)
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
