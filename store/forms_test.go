package store_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/memory"
)

// versions says of which version each record of the session's log is.
func (e *env) versions(key store.Key) string {
	e.Helper()
	head, err := e.engine.Head(ctx, name(key))
	e.no(err)
	raw, err := e.engine.Read(ctx, name(key), head.Creation, 1, 1000, 1<<30)
	e.no(err)
	var all []byte
	for _, r := range raw {
		if r.Sum != patch.Checksum(r.Data) && r.Sum != 0 {
			e.Errorf("record %d goes by the checksum %08x, and has %08x", r.Seq, r.Sum, patch.Checksum(r.Data))
		}
		all = append(all, '0'+r.Data[0])
	}
	return string(all)
}

// A log may have records of both versions, and nobody sees which is which. What is in the log
// in one form is the same when it is offered again by a store that writes the other.
func TestRecordsOfBothVersions(t *testing.T) {
	onEach(t, func(e *env) {
		write := func(version int) {
			e.Helper()
			e.opts.RecordVersion = version
			e.reopen()
		}
		write(1)
		e.create(nil)
		e.append(says("a", 3)...)
		write(0)
		e.append(says("b", 3)...)
		write(1)
		e.append(says("c", 2)...)
		write(2)
		_, err := e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSummarise(1, 5, say("s")).WithID("p"))
		e.no(err)
		e.same("versions", e.versions(key), "111222112")
		e.same("visible", ids(e.view()), "a1 s c1 c2")
		text := e.export()
		for _, version := range []int{1, 2} {
			write(version)
			for _, again := range [][]*patch.Event{says("a", 3), says("b", 3), says("c", 2)} {
				c, err := e.store.AppendEvents(ctx, key, store.AppendOptions{}, again...)
				e.no(err)
				if c.View.Seq() != 9 {
					e.Errorf("a retry made %d records", c.View.Seq())
				}
			}
			done, err := e.store.Import(ctx, key, strings.NewReader(text), store.ImportOptions{})
			e.no(err)
			if done.Added != 0 {
				e.Errorf("importing again added %d records", done.Added)
			}
		}
		e.same("versions", e.versions(key), "111222112")
		// What is written anew is of the newest version.
		_, err = e.store.Fork(ctx, key, forkKey, store.ForkOptions{})
		e.no(err)
		e.same("the fork's versions", e.versions(forkKey), "222222222")
	})
}

// A copy is of the version that its store writes, and the same log; copying again, or back,
// finds all there.
func TestCopyBetweenVersions(t *testing.T) {
	onEach(t, func(e *env) {
		for _, version := range []int{1, 2} {
			from, err := store.OpenMemory(store.Options{RecordVersion: 3 - version})
			e.no(err)
			e.opts.RecordVersion = version
			e.reopen()
			other := store.Key{App: "app", User: "user", Session: fmt.Sprint("of version ", 3-version)}
			add(e.T, from, other, nil, 600) // more than one commit has
			for _, want := range []store.Copied{{Created: true, Added: 600, Seq: 600}, {Present: 600, Seq: 600}} {
				got, err := e.store.CopyFrom(ctx, from, other, store.CopyOptions{})
				e.no(err)
				if got != want {
					e.Errorf("copied %+v, want %+v", got, want)
				}
			}
			e.same("versions", e.versions(other), strings.Repeat(fmt.Sprint(version), 600))
			back, err := from.CopyFrom(ctx, e.store, other, store.CopyOptions{})
			e.no(err)
			if want := (store.Copied{Present: 600, Seq: 600}); back != want {
				e.Errorf("copied back %+v, want %+v", back, want)
			}
			e.no(from.Close())
		}
	})
}

// Processes that write different versions share sessions while a fleet is upgraded.
func TestVersionsShareABackend(t *testing.T) {
	shared := &memory.Backend{}
	var stores []*store.Store
	for _, version := range []int{1, 2} {
		s, err := store.New(unclosed{shared}, store.Options{RecordVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	if _, err := stores[0].Create(ctx, key, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := stores[i%2].AppendEvents(ctx, key, store.AppendOptions{}, say(fmt.Sprint("e", i))); err != nil {
			t.Fatal(err)
		}
		for _, s := range stores {
			session, err := s.Get(ctx, key)
			if err != nil || session.View.Len() != i+1 {
				t.Fatalf("after %d events: %d, %v", i+1, session.View.Len(), err)
			}
		}
	}
	for _, s := range stores {
		for p, err := range s.Verify(ctx, store.VerifyOptions{}) {
			t.Error(p, err)
		}
	}
}

// Reading a log whose records are long and say little keeps a page in memory, not what a page
// of compressed records unpacks to.
func TestReadingHoldsAPage(t *testing.T) {
	onEach(t, func(e *env) {
		e.create(nil)
		for i := range 20 {
			var events []*patch.Event
			for j := range 10 {
				events = append(events, event(`{"id":"e%d-%d","author":%q}`, i, j, strings.Repeat("x", 500_000)))
			}
			e.append(events...)
			_, err := e.store.ApplyPatch(ctx, key, asOfNow, patch.NewSplice(0, 10))
			e.no(err)
		}
		e.opts.CacheBytes = -1
		e.reopen()
		if raw, err := e.engine.Read(ctx, name(key), e.creation(), 1, 1000, 1<<20); err != nil || len(raw) < 100 {
			e.Fatalf("%d records are a page of the backend's, %v", len(raw), err)
		}
		check := func(what string, read func(between func())) {
			before, most := heap(), uint64(0)
			read(func() { most = max(most, heap()) })
			if most == 0 || most > before+8<<20 {
				e.Errorf("%s a log of 100 MB takes %d bytes", what, int64(most)-int64(before))
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
