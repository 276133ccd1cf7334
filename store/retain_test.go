package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

const day = 24 * time.Hour

// aged makes a session of an app that was created, and used, so many days ago.
func aged(t *testing.T, s *store.Store, app, id string, created, used float64) store.Key {
	t.Helper()
	key := store.Key{App: app, User: "u", Session: id}
	ago := func(days float64) time.Time { return now.Add(-time.Duration(days * float64(day))) }
	must(t)(s.CreateAt(ctx, key, nil, ago(created)))
	for i := range 40 { // one of the last tells
		at := ago(used + 500)
		if i == 20 {
			at = ago(used)
		}
		e, err := patch.NewEvent(patch.Fields{ID: fmt.Sprint("e", i), Author: "user", Content: patch.Text("user", "hello"), Timestamp: at})
		testlog.NoError(t, err)
		must(t)(s.AppendEvents(ctx, key, store.AppendOptions{}, e))
	}
	return key
}

func retained(t *testing.T, s *store.Store, policies map[string]store.Retention, opts store.RetainOptions) string {
	t.Helper()
	var all []string
	for r, err := range s.Retain(ctx, policies, opts) {
		switch {
		case errors.Is(err, store.ErrCorrupt):
			all = append(all, r.Key.Session+" corrupt")
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d %s", r.Key.Session, int(now.Sub(r.Used)/day), r.Kept)))
		}
	}
	return strings.Join(all, ", ")
}

func sessionsOf(t *testing.T, s *store.Store) string {
	t.Helper()
	var all []string
	for i, err := range s.List(ctx, store.ListOptions{}) {
		if err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Fatal(err)
		}
		all = append(all, i.Key.Session)
	}
	return strings.Join(all, " ")
}

// What was not used for as long as its app's policy says goes, and a dry run says so before.
func TestRetain(t *testing.T) {
	onEach(t, func(e *env) {
		t, s := e.T, e.store
		aged(t, s, "a", "a-old", 40, 31)
		aged(t, s, "a", "a-used", 40, 29)
		aged(t, s, "a", "a-young", 29, 300) // its events say that they are older than it is
		aged(t, s, "a", "a-ahead", 40, -1)
		pinned := aged(t, s, "a", "a-pinned", 40, 35)
		must(t)(s.ApplyPatch(ctx, pinned, asOfNow, patch.NewPin("e3").WithTimestamp(now.Add(-34*day))))
		aged(t, s, "b", "b-old", 40, 31)
		aged(t, s, "c", "c-old", 400, 399)
		policies := map[string]store.Retention{"a": {DeleteAfter: 30 * day, KeepPinned: true}, "b": {}, "d": {DeleteAfter: 1}}
		all := sessionsOf(t, s)
		want := "a-old 31, a-pinned 34 pinned"
		if got := retained(t, s, policies, store.RetainOptions{DryRun: true}); got != want {
			t.Errorf("due is %q, want %q", got, want)
		}
		if got := sessionsOf(t, s); got != all {
			t.Errorf("after a dry run there is %s, was %s", got, all)
		}
		if got := retained(t, s, policies, store.RetainOptions{}); got != want {
			t.Errorf("done is %q, want %q", got, want)
		}
		if got, want := sessionsOf(t, s), strings.Replace(all, "a-old ", "", 1); got != want {
			t.Errorf("there is %s, want %s", got, want)
		}
		if got := retained(t, s, policies, store.RetainOptions{}); got != "a-pinned 34 pinned" {
			t.Errorf("again: %q", got)
		}
		// That of all others is for apps without one.
		policies[""], policies["a"] = store.Retention{DeleteAfter: 31 * day}, store.Retention{DeleteAfter: 34 * day}
		if got, want := retained(t, s, policies, store.RetainOptions{}), "a-pinned 34, c-old 399"; got != want {
			t.Errorf("done is %q, want %q", got, want)
		}
		testlog.NoError(t, s.Close())
	})
}

// A loop that ends early has done as many steps, and the next goes on.
func TestRetainInSteps(t *testing.T) {
	onEach(t, func(e *env) {
		t, s := e.T, e.store
		for i := range 3 {
			aged(t, s, "a", fmt.Sprint("s", i), 40, 35)
		}
		policies := map[string]store.Retention{"": {DeleteAfter: 30 * day}}
		for n := 3; n > 0; n-- {
			if got := strings.Count(sessionsOf(t, s), "s"); got != n {
				t.Fatalf("%d sessions, want %d", got, n)
			}
			for range s.Retain(ctx, policies, store.RetainOptions{}) {
				break
			}
		}
		if got := sessionsOf(t, s); got != "" {
			t.Errorf("left is %s", got)
		}
	})
}

func TestRetainErrors(t *testing.T) {
	onEach(t, func(e *env) {
		t, s := e.T, e.store
		aged(t, s, "a", "old", 40, 35)
		first := func(ctx context.Context, policies map[string]store.Retention) error {
			for _, err := range s.Retain(ctx, policies, store.RetainOptions{}) {
				return err
			}
			return nil
		}
		if err := first(ctx, map[string]store.Retention{"a": {DeleteAfter: -1}}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a policy below 0: %v", err)
		}
		done, cancel := context.WithCancel(ctx)
		cancel()
		if err := first(done, map[string]store.Retention{"a": {DeleteAfter: day}}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if got := sessionsOf(t, s); got != "old" {
			t.Errorf("there is %q", got)
		}
	})
}

// intrusive is a backend that does something before the first session is deleted.
type intrusive struct {
	backend.Backend
	once sync.Once
	do   func()
}

func (b *intrusive) Delete(ctx context.Context, session, creation string, seen *backend.Head) error {
	b.once.Do(b.do)
	return b.Backend.Delete(ctx, session, creation, seen)
}

// What is used while it is judged is kept.
func TestRetainSparesWhatIsUsed(t *testing.T) {
	shared := &memory.Backend{}
	opts := store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)}
	other := newStore(t, shared, opts)
	defer other.Close()
	b := &intrusive{Backend: shared}
	s := newStore(t, b, opts)
	defer s.Close()
	key := aged(t, other, "a", "woken", 40, 35)
	aged(t, other, "b", "old", 40, 35)
	b.do = func() {
		e, err := patch.NewEvent(patch.Fields{Author: "user", Content: patch.Text("user", "I am back")})
		testlog.NoError(t, err)
		must(t)(other.AppendEvents(ctx, key, store.AppendOptions{}, e))
	}
	policies := map[string]store.Retention{"": {DeleteAfter: 30 * day}}
	if got, want := retained(t, s, policies, store.RetainOptions{}), "woken 35 used, old 35"; got != want {
		t.Errorf("done is %q, want %q", got, want)
	}
	if got := sessionsOf(t, other); got != "woken" {
		t.Errorf("there is %s", got)
	}
}

// One process at a time deletes, and a dry run waits for none.
func TestRetainByOneProcess(t *testing.T) {
	shared := &memory.Backend{}
	opts := store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)}
	var stores [2]*store.Store
	for i, b := range []backend.Backend{shared, shared.Peer()} {
		var err error
		if stores[i], err = store.New(b, opts); err != nil {
			t.Fatal(err)
		}
		defer stores[i].Close()
	}
	aged(t, stores[0], "a", "s1", 40, 35)
	aged(t, stores[0], "a", "s2", 40, 35)
	policies := map[string]store.Retention{"a": {DeleteAfter: day}}
	for r, err := range stores[0].Retain(ctx, policies, store.RetainOptions{}) {
		if err != nil || r.Key.Session != "s1" {
			t.Fatal(r.Key, err)
		}
		for _, err := range stores[1].Retain(ctx, policies, store.RetainOptions{}) {
			if !errors.Is(err, store.ErrRetaining) {
				t.Errorf("beside the first: %v", err)
			}
		}
		if got := retained(t, stores[1], policies, store.RetainOptions{DryRun: true}); got != "s2 35" {
			t.Errorf("due is %q", got)
		}
		break
	}
	if got := retained(t, stores[1], policies, store.RetainOptions{}); got != "s2 35" {
		t.Errorf("after the first: %q", got)
	}
}

// What is damaged is said, and stays; the others go.
func TestRetainDamaged(t *testing.T) {
	store.Uncompressed(t) // so that the record is found by its text
	b, path := openBolt(t)
	e := &env{T: t, backend: &storetest.Faulty{Backend: b}, engine: b, path: path, opts: store.Options{Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)}}
	e.open()
	defer func() { e.store.Close() }()
	aged(t, e.store, "a", "damaged", 40, 35)
	key := store.Key{App: "a", User: "u", Session: "damaged"}
	e.say(key, "needle two")
	aged(t, e.store, "a", "old", 40, 35)
	e.damageFile(func(data []byte) {
		for at := 0; ; at++ {
			i := bytes.Index(data[at:], []byte("needle two"))
			if i < 0 {
				return
			}
			at += i
			data[at] ^= 4
		}
	})
	if got, want := retained(t, e.store, map[string]store.Retention{"a": {DeleteAfter: day}}, store.RetainOptions{}), "damaged corrupt, old 35"; got != want {
		t.Errorf("done is %q, want %q", got, want)
	}
	if got := sessionsOf(t, e.store); got != "damaged" {
		t.Errorf("there is %s", got)
	}
}

func daysAgo(days float64) time.Time { return now.Add(-time.Duration(days * float64(day))) }

// hiding logs a to h, of 100 days ago; s1 over a and b of 90 days ago, and m over it and c of 50 days
// ago; a cut of e, which is pinned, one of f, which was taken back and came again 10 days ago, and one of
// g of 80 days ago. In sight are m, d and h.
func hiding(t testing.TB, s *store.Store, key store.Key) {
	t.Helper()
	must(t)(s.CreateAt(t.Context(), key, nil, daysAgo(100)))
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		text := fmt.Sprintf(`{"id":%q,"author":"user","timestamp":%q,"content":{"role":"user","parts":[{"text":"text %s"}]},"actions":{"stateDelta":{"k%s":"value %s"}}}`,
			id, daysAgo(100).Format(time.RFC3339), id, id, id)
		must(t)(s.AppendEvents(t.Context(), key, store.AppendOptions{}, lines(t, text)...))
	}
	apply := func(days float64, p *patch.PatchEvent) {
		t.Helper()
		must(t)(s.ApplyPatch(t.Context(), key, store.PatchOptions{AsOfNow: true, AllowPinned: true}, p.WithTimestamp(daysAgo(days))))
	}
	keep := func(p *patch.PatchEvent) *patch.PatchEvent { return p.WithState(patch.Keep) }
	apply(90, patch.NewSummarise(0, 2, said(t, "s1", "told by s1")))
	apply(90, patch.NewPin("e"))
	apply(90, keep(patch.NewSplice(3, 1)))                 // e
	apply(90, keep(patch.NewSplice(3, 1)).WithID("f cut")) // f
	apply(85, patch.NewRevert("f cut").WithID("f back"))
	apply(80, keep(patch.NewSplice(4, 1))) // g
	apply(50, patch.NewSummarise(0, 2, said(t, "m", "told by m")))
	apply(10, patch.NewRevert("f back"))
}

// without returns which of some texts a session's records do not have.
func without(t testing.TB, s *store.Store, key store.Key, texts ...string) string {
	t.Helper()
	var raw bytes.Buffer
	testlog.NoError(t, s.Export(t.Context(), key, &raw, store.ExportOptions{}))
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(raw.String(), text) }), ", ")
}

var hidingTexts = []string{"text a", "text b", "text c", "text d", "text e", "text f", "text g", "text h", "told by s1", "told by m"}

// sight is what the newest view shows, and its state.
func sight(t testing.TB, s *store.Store, key store.Key) string {
	t.Helper()
	v := viewOf(t, s, key)
	var text strings.Builder
	for i, e := range v.Entries() {
		fmt.Fprintln(&text, i, e.Seq, e.Summary, e.Pinned, e.Event)
	}
	for name, value := range v.Values() {
		fmt.Fprintln(&text, name, value)
	}
	return text.String()
}

func done(t testing.TB, s *store.Store, policy store.Retention, opts store.RetainOptions) (all []string) {
	t.Helper()
	for r, err := range s.Retain(t.Context(), map[string]store.Retention{"": policy}, opts) {
		testlog.NoError(t, err)
		all = append(all, fmt.Sprint(r.Key.Session, " ", r.Deleted, " ", r.Kept, " ", r.Erased))
	}
	return all
}

// What was hidden for as long goes, and nothing else: what is in sight, the state, and the summaries
// are as before, and so are forks.
func TestRetainErasesHidden(t *testing.T) {
	erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		hiding(t, s, eraseKey)
		fork := eraseKey
		fork.Session = "fork"
		at := uint64(9) // a and b alone are hidden
		must(t)(s.Fork(t.Context(), eraseKey, fork, store.ForkOptions{At: &at}))
		before := sight(t, s, eraseKey)
		for _, c := range []struct {
			days int
			gone string
			n    int
		}{
			{101, "", 0}, // it is younger
			{95, "", 0},
			{90, "text a, text b", 2},
			{60, "text a, text b, text g", 1},
			{40, "text a, text b, text c, text g, told by s1", 2},
		} {
			policy := store.Retention{EraseHiddenAfter: time.Duration(c.days) * day}
			var want []string
			if c.n > 0 {
				want = []string{fmt.Sprint("s false  ", c.n)}
			}
			receipts, err := s.Receipts(t.Context(), eraseKey)
			testlog.NoError(t, err)
			gone := without(t, s, eraseKey, slices.Clone(hidingTexts)...)
			if got := done(t, s, policy, store.RetainOptions{DryRun: true}); !slices.Equal(got, want) {
				t.Errorf("%d days: due is %q, want %q", c.days, got, want)
			}
			if got := without(t, s, eraseKey, slices.Clone(hidingTexts)...); got != gone {
				t.Errorf("%d days: a dry run took %s", c.days, got)
			}
			if got := done(t, s, policy, store.RetainOptions{}); !slices.Equal(got, want) {
				t.Errorf("%d days: done is %q, want %q", c.days, got, want)
			}
			if got := without(t, s, eraseKey, slices.Clone(hidingTexts)...); got != c.gone {
				t.Errorf("%d days: gone is %s, want %s", c.days, got, c.gone)
			}
			if got := sight(t, s, eraseKey); got != before {
				t.Errorf("%d days: it shows\n%s\nand did\n%s", c.days, got, before)
			}
			after, err := s.Receipts(t.Context(), eraseKey)
			if err != nil || len(after) != len(receipts)+len(want) {
				t.Fatalf("%d days: %d receipts, were %d, %v", c.days, len(after), len(receipts), err)
			}
			if c.n > 0 {
				p := after[len(after)-1].Patch
				if of, _ := p.Erasure(); p.Author() != "retention" || of.Summaries != patch.KeepSummaries || of.Values != patch.KeepValues || of.Reason != fmt.Sprintf("hidden for %dh0m0s", 24*c.days) {
					t.Errorf("the receipt is %s", p)
				}
			}
			if got := done(t, s, policy, store.RetainOptions{}); len(got) > 0 {
				t.Errorf("%d days, again: %q", c.days, got)
			}
			verified(t, s)
		}
		// The fork is judged by itself: its creation is of now.
		if got := without(t, s, fork, slices.Clone(hidingTexts)...); got != "told by m" {
			t.Errorf("gone of the fork is %s", got)
		}
		// To erase is not to use: it is deleted as if it had not been.
		if got := done(t, s, store.Retention{DeleteAfter: 11 * day, EraseHiddenAfter: 1}, store.RetainOptions{}); !slices.Equal(got, []string{"s false  1"}) {
			t.Errorf("before it is due to be deleted: %q", got)
		}
		if got := done(t, s, store.Retention{DeleteAfter: 10 * day, EraseHiddenAfter: 1}, store.RetainOptions{}); !slices.Equal(got, []string{"s true  0"}) {
			t.Errorf("when it is due to be deleted: %q", got)
		}
	})
}

// A session that is kept for what is pinned loses what is hidden.
func TestRetainErasesOfWhatIsKept(t *testing.T) {
	erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		hiding(t, s, eraseKey)
		must(t)(s.ApplyPatch(t.Context(), eraseKey, store.PatchOptions{}, patch.NewPin("h").WithTimestamp(daysAgo(30))))
		policy := store.Retention{DeleteAfter: day, KeepPinned: true, EraseHiddenAfter: 60 * day}
		for _, want := range []string{"s false pinned 3", "s false pinned 0"} {
			if got := done(t, s, policy, store.RetainOptions{}); !slices.Equal(got, []string{want}) {
				t.Errorf("done is %q, want %q", got, want)
			}
		}
		for _, err := range s.Retain(t.Context(), map[string]store.Retention{"a": {EraseHiddenAfter: -1}}, store.RetainOptions{}) {
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "EraseHiddenAfter") {
				t.Errorf("a policy below 0: %v", err)
			}
		}
	})
}

// Whatever fails at whichever write, the next retention, or the next erasing, finishes it, with one
// receipt, and keeps what stands for what is erased, also what came in between.
func TestRetainFailingWrites(t *testing.T) {
	failed := 0
	for write := 1; write < 4; write++ {
		for i, failure := range []storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed} {
			if testlog.Race && i != write%3 { // one way to fail for each write
				continue
			}
			for _, erase := range []bool{false, true} {
				erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
					hiding(t, s, eraseKey)
					before := sight(t, s, eraseKey)
					policies := map[string]store.Retention{"a": {EraseHiddenAfter: 40 * day}}
					faulty.Plan(storetest.Plan{Write: write, Failure: failure})
					for _, err := range s.Retain(t.Context(), policies, store.RetainOptions{}) {
						if err != nil {
							failed++
						}
					}
					faulty.Plan(storetest.Plan{})
					begun, err := s.Receipts(t.Context(), eraseKey)
					testlog.NoError(t, err)
					if erase {
						must(t)(s.Erase(t.Context(), eraseKey, store.EraseSelection{}, store.EraseOptions{}))
					}
					if got := done(t, s, policies["a"], store.RetainOptions{}); erase && len(begun) > 0 && len(got) > 0 {
						t.Errorf("the erasing left %q", got)
					}
					if got := done(t, s, policies["a"], store.RetainOptions{}); len(got) > 0 {
						t.Errorf("once more: %q", got)
					}
					if receipts, err := s.Receipts(t.Context(), eraseKey); err != nil || len(receipts) != 1 {
						t.Errorf("write %d %v: receipts %v, %v", write, failure, receipts, err)
					}
					if got, want := without(t, s, eraseKey, slices.Clone(hidingTexts)...), "text a, text b, text c, text g, told by s1"; got != want {
						t.Errorf("write %d %v: gone is %s, want %s", write, failure, got, want)
					}
					if got := sight(t, s, eraseKey); got != before {
						t.Errorf("write %d %v: it shows\n%s\nand did\n%s", write, failure, got, before)
					}
					verified(t, s)
				})
			}
		}
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
}

// A summary that another process logs while it is erased stays, with what it stands for.
func TestRetainBesideSummary(t *testing.T) {
	first := &memory.Backend{}
	faulty := &storetest.Faulty{Backend: first}
	var stores []*store.Store
	for _, b := range []backend.Backend{faulty, first.Peer()} {
		s := newStore(t, b, store.Options{Now: func() time.Time { return now }})
		defer s.Close()
		stores = append(stores, s)
	}
	s := stores[0]
	hiding(t, s, eraseKey)
	came := false
	faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Lost, During: func() {
		came = true
		if _, err := stores[1].ApplyPatch(context.Background(), eraseKey, store.PatchOptions{AsOfNow: true}, patch.NewSummarise(0, 2, said(t, "late", "told late"))); err != nil {
			t.Error(err)
		}
	}})
	done(t, s, store.Retention{EraseHiddenAfter: 40 * day}, store.RetainOptions{})
	if got, want := without(t, s, eraseKey, append(slices.Clone(hidingTexts), "told late")...), "text a, text b, text c, text g, told by s1"; got != want || !came {
		t.Errorf("gone is %s, want %s; a summary came: %v", got, want, came)
	}
	verified(t, s)
}

// An erasing that does not keep, and was cut short, is finished as it was meant: what came in since, and
// stands for what it erases, goes too.
func TestRetainFinishesErasing(t *testing.T) {
	erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
		hiding(t, s, eraseKey)
		faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Refused})
		if _, err := s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{"d"}}, store.EraseOptions{Author: "ann"}); !errors.Is(err, storetest.ErrInjected) {
			t.Fatalf("a step that fails: %v", err)
		}
		faulty.Plan(storetest.Plan{})
		must(t)(s.ApplyPatch(t.Context(), eraseKey, store.PatchOptions{AsOfNow: true}, patch.NewSummarise(1, 1, said(t, "late", "told of d"))))
		if got := done(t, s, store.Retention{EraseHiddenAfter: 40 * day}, store.RetainOptions{}); !slices.Equal(got, []string{"s false  5"}) {
			t.Errorf("done is %q", got)
		}
		if got, want := without(t, s, eraseKey, append(slices.Clone(hidingTexts), "told of d")...), "text a, text b, text c, text d, text g, told by s1, told of d"; got != want {
			t.Errorf("gone is %s, want %s", got, want)
		}
		receipts, err := s.Receipts(t.Context(), eraseKey)
		if err != nil || len(receipts) != 3 {
			t.Fatalf("receipts %v, %v", receipts, err)
		}
		for i, author := range []string{"ann", "retention", "ann"} {
			if p := receipts[i].Patch; p.Author() != author {
				t.Errorf("receipt %d is %s", i, p)
			}
		}
		verified(t, s)
	})
}

// Of any log all that is hidden for long, and nothing else, is blank, and what is in sight and the state
// are as before.
func TestPropertyRetainHidden(t *testing.T) {
	clock := now
	s := teststore.Memory(t, store.Options{Now: func() time.Time { return clock }})
	erased := 0
	rapid.Check(t, func(t *rapid.T) {
		records := fuzz.Records(fuzz.Options{Max: 30, Accepted: true}).Draw(t, "records")
		clock = time.Unix(0, 0)
		must(t)(s.Import(context.Background(), eraseKey, strings.NewReader(fuzz.Text(records, nil)), store.ImportOptions{}))
		defer func() { _ = s.Delete(context.Background(), eraseKey) }()
		ref := fuzz.NewReference(nil)
		for _, r := range records {
			ref.Apply(r)
		}
		var raw []patch.Record
		for r, err := range s.RawEvents(context.Background(), eraseKey, 1) {
			testlog.NoError(t, err)
			raw = append(raw, r)
		}
		clock = now.Add(100 * 365 * day)
		if i := rapid.IntRange(0, len(raw)).Draw(t, "clock"); i < len(raw) && raw[i].Patch != nil {
			clock = raw[i].Patch.Timestamp().Add(time.Hour)
		}
		want := map[fuzz.Place]bool{}
		for at, since := range ref.Hidden() {
			if !raw[since-1].Patch.Timestamp().After(clock.Add(-time.Hour)) {
				want[at] = true
			}
		}
		before := viewOf(t, s, eraseKey)
		n := 0
		for r, err := range s.Retain(context.Background(), map[string]store.Retention{"": {EraseHiddenAfter: time.Hour}}, store.RetainOptions{}) {
			testlog.NoError(t, err)
			n += r.Erased
		}
		if n != len(want) {
			t.Fatalf("%d are erased, want %d", n, len(want))
		}
		erased += n
		i := 0
		for r, err := range s.RawEvents(context.Background(), eraseKey, 1) {
			testlog.NoError(t, err)
			if i == len(raw) {
				break
			}
			for j, e := range r.Events() {
				if was := raw[i].Events()[j]; e.IsBlank(patch.KeepValues) != want[fuzz.Place{Seq: r.Seq, Index: j}] || !e.IsBlank(patch.KeepValues) && e.String() != was.String() {
					t.Fatalf("record %d has %s, and had %s", r.Seq, e, was)
				}
			}
			i++
		}
		after := viewOf(t, s, eraseKey)
		is, was := maps.Collect(after.Entries()), maps.Collect(before.Entries())
		if !maps.EqualFunc(is, was, func(a, b fold.Entry) bool {
			return a.Event.String() == b.Event.String() && a.Seq == b.Seq && a.Summary == b.Summary && a.Pinned == b.Pinned
		}) || fmt.Sprint(after.State()) != fmt.Sprint(before.State()) {
			t.Fatalf("it shows %v %v, and did %v %v", is, after.State(), was, before.State())
		}
	})
	if erased == 0 {
		t.Error("nothing was erased")
	}
}
