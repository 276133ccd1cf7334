package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/memory"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

const day = 24 * time.Hour

// aged creates a session of an app. The arguments created and used are the days since its creation and its last
// use.
func aged(t *testing.T, s *store.Store, app, id string, created, used float64) store.Key {
	t.Helper()
	key := store.Key{App: app, User: "u", Session: id}
	must(t)(s.Create(ctx, key, nil, store.CreateOptions{Created: daysAgo(created)}))
	for i := range 40 { // gives one of the last events the time of the last use
		at := daysAgo(used + 500)
		if i == 20 {
			at = daysAgo(used)
		}
		e := testlog.New(patch.Fields{ID: fmt.Sprint("e", i), Author: "user", Content: patch.Text("user", "hello"), Timestamp: at})
		must(t)(s.AppendEvents(ctx, key, []*patch.Event{e}, store.AppendOptions{}))
	}
	return key
}

// storeOfToday opens a store whose clock always returns now.
func storeOfToday(t *testing.T, b backend.Backend) *store.Store {
	return envOn(t, b, snapshot.Policy{}).store
}

func retained(t *testing.T, s *store.Store, policies map[string]store.Retention, dryRun bool) string {
	t.Helper()
	var all []string
	for r, err := range s.Retain(ctx, policies, store.RetainOptions{DryRun: dryRun}) {
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

// Retain deletes the sessions that were last used longer ago than their app's policy allows. A dry run reports the
// same sessions.
func TestRetain(t *testing.T) {
	onEach(t, func(e *env) {
		t, s := e.T, e.store
		aged(t, s, "a", "a-old", 40, 31)
		aged(t, s, "a", "a-used", 40, 29)
		aged(t, s, "a", "a-young", 29, 300) // session whose events have timestamps from before its creation
		aged(t, s, "a", "a-ahead", 40, -1)
		pinned := aged(t, s, "a", "a-pinned", 40, 35)
		must(t)(s.ApplyPatch(ctx, pinned, []*patch.PatchEvent{patch.NewPin("e3").WithTimestamp(now.Add(-34 * day))}, asOfNow))
		aged(t, s, "b", "b-old", 40, 31)
		aged(t, s, "c", "c-old", 400, 399)
		policies := map[string]store.Retention{"a": {DeleteAfter: 30 * day, KeepPinned: true}, "b": {}, "d": {DeleteAfter: 1}}
		all := sessionsOf(t, s)
		want := "a-old 31, a-pinned 34 pinned"
		testlog.Equal(t, "due", retained(t, s, policies, true), want)
		testlog.Equal(t, "after a dry run there", sessionsOf(t, s), all)
		testlog.Equal(t, "done", retained(t, s, policies, false), want)
		testlog.Equal(t, "there", sessionsOf(t, s), strings.Replace(all, "a-old ", "", 1))
		testlog.Equal(t, "again", retained(t, s, policies, false), "a-pinned 34 pinned")
		// The policy with the key "" applies to apps without a policy.
		policies[""], policies["a"] = store.Retention{DeleteAfter: 31 * day}, store.Retention{DeleteAfter: 34 * day}
		testlog.Equal(t, "done", retained(t, s, policies, false), "a-pinned 34, c-old 399")
		testlog.NoError(t, s.Close())
	})
}

func TestRetainErrors(t *testing.T) {
	onEach(t, func(e *env) {
		aged(e.T, e.store, "a", "old", 40, 35)
		first := func(ctx context.Context, policy store.Retention) error {
			return errIn(e.store.Retain(ctx, map[string]store.Retention{"a": policy}, store.RetainOptions{}))
		}
		e.is(first(ctx, store.Retention{DeleteAfter: -1}), store.ErrInvalid, "DeleteAfter")
		e.is(first(ctx, store.Retention{EraseHiddenAfter: -1}), store.ErrInvalid, "EraseHiddenAfter")
		done, cancel := context.WithCancel(ctx)
		cancel()
		e.is(first(done, store.Retention{DeleteAfter: day}), context.Canceled)
		e.same("there", sessionsOf(e.T, e.store), "old")
	})
}

// If a session is written to after Retain found it due, Retain keeps the session.
func TestRetainSparesWhatIsUsed(t *testing.T) {
	shared := &memory.Backend{}
	b := &hooked{Backend: shared}
	other, s := storeOfToday(t, shared), storeOfToday(t, b)
	key := aged(t, other, "a", "woken", 40, 35)
	aged(t, other, "b", "old", 40, 35)
	b.set(beforeFirst("Delete", func() {
		must(t)(other.AppendEvents(ctx, key, []*patch.Event{said("", "I am back")}, store.AppendOptions{}))
	}))
	policies := map[string]store.Retention{"": {DeleteAfter: 30 * day}}
	testlog.Equal(t, "done", retained(t, s, policies, false), "woken 35 used, old 35")
	testlog.Equal(t, "there", sessionsOf(t, other), "woken")
}

// Only one process can run Retain at a time. A dry run never waits.
func TestRetainByOneProcess(t *testing.T) {
	shared := &memory.Backend{}
	stores := []*store.Store{storeOfToday(t, shared), storeOfToday(t, shared.Peer())}
	aged(t, stores[0], "a", "s1", 40, 35)
	aged(t, stores[0], "a", "s2", 40, 35)
	policies := map[string]store.Retention{"a": {DeleteAfter: day}}
	for r, err := range stores[0].Retain(ctx, policies, store.RetainOptions{}) {
		if err != nil || r.Key.Session != "s1" {
			t.Fatal(r.Key, err)
		}
		for _, err := range stores[1].Retain(ctx, policies, store.RetainOptions{}) {
			testlog.ErrorIs(t, err, store.ErrRetainRunning, "beside the first")
		}
		testlog.Equal(t, "due", retained(t, stores[1], policies, true), "s2 35")
		break
	}
	testlog.Equal(t, "after the first", retained(t, stores[1], policies, false), "s2 35")
}

// Retain reports a damaged session and keeps it. It still deletes other sessions.
func TestRetainDamaged(t *testing.T) {
	store.Uncompressed(t) // so that the test can find the record by its text
	onFile(t, func(e *env) {
		key := aged(t, e.store, "a", "damaged", 40, 35)
		e.say(key, "needle two")
		aged(t, e.store, "a", "old", 40, 35)
		e.damageFile(flip("needle two"))
		testlog.Equal(t, "done", retained(t, e.store, map[string]store.Retention{"a": {DeleteAfter: day}}, false), "damaged corrupt, old 35")
		testlog.Equal(t, "there", sessionsOf(t, e.store), "damaged")
	})
}

func daysAgo(days float64) time.Time { return now.Add(-time.Duration(days * float64(day))) }

// hiding appends the events a to h, 100 days ago. 90 days ago, s1 summarises a and b. 50 days ago, m summarises s1
// and c. One cut hides e, which is pinned. A cut of f was reverted, and that revert was reverted 10 days ago. One
// cut hid g 80 days ago. The visible events are m, d and h.
func hiding(t testing.TB, s *store.Store, key store.Key) {
	t.Helper()
	must(t)(s.Create(t.Context(), key, nil, store.CreateOptions{Created: daysAgo(100)}))
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		must(t)(s.AppendEvents(t.Context(), key, []*patch.Event{event(`{"id":%q,"author":"user","timestamp":%q,"content":{"role":"user","parts":[{"text":"text %s"}]},"actions":{"stateDelta":{"k%s":"value %s"}}}`,
			id, daysAgo(100).Format(time.RFC3339), id, id, id)}, store.AppendOptions{}))
	}
	apply := func(days float64, p *patch.PatchEvent) {
		t.Helper()
		must(t)(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{p.WithTimestamp(daysAgo(days))}, store.PatchOptions{AsOfNow: true, AllowPinned: true}))
	}
	keep := func(p *patch.PatchEvent) *patch.PatchEvent { return p.WithState(patch.Keep) }
	apply(90, patch.NewSummarise(0, 2, said("s1", "told by s1")))
	apply(90, patch.NewPin("e"))
	apply(90, keep(patch.NewSplice(3, 1)))                 // cuts e
	apply(90, keep(patch.NewSplice(3, 1)).WithID("f cut")) // cuts f
	apply(85, patch.NewRevert("f cut").WithID("f back"))
	apply(80, keep(patch.NewSplice(4, 1))) // cuts g
	apply(50, patch.NewSummarise(0, 2, said("m", "told by m")))
	apply(10, patch.NewRevert("f back"))
}

// without returns the texts that hiding appended and that no record of the session contains any longer. It also checks
// the texts in others.
func without(t testing.TB, s *store.Store, key store.Key, others ...string) string {
	t.Helper()
	raw := exportOf(t, s, key, store.ExportOptions{})
	texts := append([]string{"text a", "text b", "text c", "text d", "text e", "text f", "text g", "text h", "told by s1", "told by m"}, others...)
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(raw, text) }), ", ")
}

// sight describes the visible events and the state of the newest view.
func sight(t testing.TB, s *store.Store, key store.Key) string {
	t.Helper()
	v := viewOf(t, s, key)
	return fmt.Sprint(maps.Collect(v.Entries()), maps.Collect(v.Values()))
}

func done(t testing.TB, s *store.Store, policy store.Retention, dryRun bool) (all []string) {
	t.Helper()
	for r, err := range s.Retain(t.Context(), map[string]store.Retention{"": policy}, store.RetainOptions{DryRun: dryRun}) {
		testlog.NoError(t, err)
		all = append(all, fmt.Sprint(r.Key.Session, " ", r.Deleted, " ", r.Kept, " ", r.Erased))
	}
	return all
}

// Retain erases exactly the events that were hidden for longer than the policy allows. The visible events, the
// state, the summaries and the forks do not change.
func TestRetainErasesHidden(t *testing.T) {
	erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		hiding(t, s, eraseKey)
		fork := sibling("fork")
		at := uint64(9) // only a and b are hidden at this seq
		must(t)(s.Fork(t.Context(), eraseKey, fork, store.ForkOptions{At: &at}))
		before := sight(t, s, eraseKey)
		for _, c := range []struct {
			days int
			gone string
			n    int
		}{
			{101, "", 0}, // the session is younger than 101 days
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
			receipts := testlog.Must(s.Receipts(t.Context(), eraseKey))(t)
			gone := without(t, s, eraseKey)
			testlog.Equal(t, fmt.Sprintf("%d days: due", c.days), done(t, s, policy, true), want)
			testlog.Equal(t, fmt.Sprintf("%d days: a dry run took", c.days), without(t, s, eraseKey), gone)
			testlog.Equal(t, fmt.Sprintf("%d days: done", c.days), done(t, s, policy, false), want)
			testlog.Equal(t, fmt.Sprintf("%d days: gone", c.days), without(t, s, eraseKey), c.gone)
			testlog.Equal(t, fmt.Sprintf("%d days: it shows", c.days), sight(t, s, eraseKey), before)
			after := testlog.Must(s.Receipts(t.Context(), eraseKey))(t)
			testlog.Equal(t, "receipts", len(after), len(receipts)+len(want))
			if c.n > 0 {
				p := after[len(after)-1].Patch
				if of, _ := p.Erasure(); p.Author() != "retention" || of.Summaries != patch.KeepSummaries || of.Values != patch.KeepValues || of.Reason != fmt.Sprintf("hidden for %dh0m0s", 24*c.days) {
					t.Errorf("the receipt is %s", p)
				}
			}
			testlog.Equal(t, fmt.Sprintf("%d days, again", c.days), done(t, s, policy, false), nil)
			verified(t, s)
		}
		// The fork's events count as hidden only since the fork was created, which is now.
		testlog.Equal(t, "gone of the fork", without(t, s, fork), "told by m")
		// An erase by Retain does not count as a use of the session, so it does not delay the deletion.
		testlog.Equal(t, "before it is due to be deleted", done(t, s, store.Retention{DeleteAfter: 11 * day, EraseHiddenAfter: 1}, false), []string{"s false  1"})
		testlog.Equal(t, "when it is due to be deleted", done(t, s, store.Retention{DeleteAfter: 10 * day, EraseHiddenAfter: 1}, false), []string{"s true  0"})
	})
}

// If a pinned event prevents the deletion of a session, Retain still erases the session's hidden events.
func TestRetainErasesOfWhatIsKept(t *testing.T) {
	erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, _ *storetest.Faulty) {
		hiding(t, s, eraseKey)
		must(t)(s.ApplyPatch(t.Context(), eraseKey, []*patch.PatchEvent{patch.NewPin("h").WithTimestamp(daysAgo(30))}, store.PatchOptions{}))
		policy := store.Retention{DeleteAfter: day, KeepPinned: true, EraseHiddenAfter: 60 * day}
		for _, want := range []string{"s false pinned 3", "s false pinned 0"} {
			testlog.Equal(t, "done", done(t, s, policy, false), []string{want})
		}
	})
}

// If another process logs a summary during an erase, the summary and the events that it covers stay.
func TestRetainBesideSummary(t *testing.T) {
	first := &memory.Backend{}
	faulty := &storetest.Faulty{Backend: first}
	s, peer := storeOfToday(t, faulty), storeOfToday(t, first.Peer())
	hiding(t, s, eraseKey)
	came := false
	faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.NotApplied, During: func() {
		came = true
		testlog.WantNil(t, testlog.ErrorOf(peer.ApplyPatch(context.Background(), eraseKey, []*patch.PatchEvent{patch.NewSummarise(0, 2, said("late", "told late"))}, store.PatchOptions{AsOfNow: true})))
	}})
	done(t, s, store.Retention{EraseHiddenAfter: 40 * day}, false)
	testlog.Equal(t, "gone", without(t, s, eraseKey, "told late"), "text a, text b, text c, text g, told by s1")
	testlog.Equal(t, "a summary came", came, true)
	verified(t, s)
}

// Retain finishes an interrupted erase with the options of that erase.
func TestRetainFinishesErasing(t *testing.T) {
	erasableAt(t, func() time.Time { return now }, func(t *testing.T, s *store.Store, faulty *storetest.Faulty) {
		hiding(t, s, eraseKey)
		faulty.Plan(storetest.Plan{Write: 2, Failure: storetest.Refused})
		testlog.ErrorIs(t, testlog.ErrorOf(s.Erase(t.Context(), eraseKey, store.EraseSelection{EventIDs: []string{"d"}}, store.EraseOptions{Author: "ann"})), storetest.ErrInjected, "a step that fails")
		faulty.Plan(storetest.Plan{})
		testlog.Equal(t, "done", done(t, s, store.Retention{EraseHiddenAfter: 40 * day}, false), []string{"s false  5"})
		testlog.Equal(t, "gone", without(t, s, eraseKey), "text a, text b, text c, text d, text g, told by s1")
		var authors []string
		for _, r := range testlog.Must(s.Receipts(ctx, eraseKey))(t) {
			authors = append(authors, r.Patch.Author())
		}
		testlog.Equal(t, "authors of receipts", authors, []string{"ann", "retention"})
		verified(t, s)
	})
}

// In any log, Retain erases exactly the events that were hidden for longer than the policy allows. The visible
// events and the state do not change.
func TestPropertyRetainHidden(t *testing.T) {
	clock := now
	s := teststore.Memory(t, store.Options{Now: func() time.Time { return clock }})
	erased := 0
	rapid.Check(t, func(t *rapid.T) {
		drawn := fuzz.Records(fuzz.Options{Max: 30, Accepted: true}).Draw(t, "records")
		clock = time.Unix(0, 0)
		must(t)(s.Import(context.Background(), eraseKey, strings.NewReader(fuzz.Text(drawn, nil)), store.ImportOptions{}))
		defer func() { _ = s.Delete(context.Background(), eraseKey) }()
		ref := fuzz.NewReference(nil)
		for _, r := range drawn {
			ref.Apply(r)
		}
		raw := recordsOf(t, s, eraseKey)
		clock = now.Add(100 * 365 * day)
		if i := rapid.IntRange(0, len(raw)).Draw(t, "clock"); i < len(raw) && raw[i].Patch != nil {
			clock = raw[i].Patch.Timestamp().Add(time.Hour)
		}
		want := map[fuzz.Place]bool{}
		latest := make([]time.Time, len(raw)+1) // newest timestamp up to each record; a patch counts as logged at that time
		for i, r := range raw {
			at := records.Envelope(r).Timestamp()
			if latest[i+1] = latest[i]; at.After(latest[i]) {
				latest[i+1] = at
			}
		}
		for at, since := range ref.Hidden() {
			if !latest[since].After(clock.Add(-time.Hour)) {
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
		for i, r := range recordsOf(t, s, eraseKey)[:len(raw)] {
			for j, e := range r.Events() {
				if was := raw[i].Events()[j]; e.IsBlank(patch.KeepValues) != want[fuzz.Place{Seq: r.Seq, Index: j}] || !e.IsBlank(patch.KeepValues) && e.String() != was.String() {
					t.Fatalf("record %d has %s, and had %s", r.Seq, e, was)
				}
			}
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
