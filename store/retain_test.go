package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

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
		no(t, err)
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
		no(t, s.Close())
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
		no(t, err)
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
