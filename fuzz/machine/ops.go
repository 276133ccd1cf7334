package machine

import (
	"context"
	"errors"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

func (m *machine) event(t *rapid.T, id string) *patch.Event {
	return fuzz.Event(id, m.reference().Visible()).Draw(t, "event")
}

func (m *machine) append(t *rapid.T) {
	var events []*patch.Event
	var offered []patch.Record
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		id := m.newID()
		if rapid.IntRange(0, 9).Draw(t, "without id") == 0 {
			id = ""
		}
		e := m.event(t, id)
		events = append(events, e)
		if !e.Partial() {
			offered = append(offered, patch.Record{Event: e})
		}
	}
	m.done(t, "", offered, func(s *store.Store) (store.Committed, error) {
		return s.AppendEvents(context.Background(), m.key, store.AppendOptions{}, events...)
	})
}

func (m *machine) drawPatch(t *rapid.T, ref *fuzz.Reference) *patch.PatchEvent {
	return fuzz.PatchOn(m.newID(), ref).Draw(t, "patch")
}

// patchOptions draws how an author says what it has seen, and says by what base the
// model is to judge.
func (m *machine) patchOptions(t *rapid.T, p *patch.PatchEvent) (opts store.PatchOptions, judged *patch.PatchEvent, kind string) {
	opts.AllowOrphans = rapid.Bool().Draw(t, "allow orphans")
	opts.AllowPinned = rapid.IntRange(0, 3).Draw(t, "allow hiding what is pinned") == 0
	based := saysBase(p)
	switch rapid.SampledFrom([]string{"on", "as of now", "neither"}).Draw(t, "seen") {
	case "on":
		opts.On = rapid.SampledFrom(m.views).Draw(t, "view")
		if !based {
			return opts, p.WithBase(opts.On.PatchSeq()), ""
		}
	case "as of now":
		opts.AsOfNow = true
	default:
		if !based && p.IsIndexed() {
			return opts, p, fuzz.Invalid
		}
	}
	return opts, p, ""
}

// saysBase reports whether the patch has a base, be it a malformed one.
func saysBase(p *patch.PatchEvent) bool {
	_, ok := p.Base()
	text, malformed := p.Field("base")
	return ok || malformed && string(text) != "null"
}

func (m *machine) judge(ref *fuzz.Reference, p *patch.PatchEvent, opts store.PatchOptions) string {
	return refusalKind(ref.Check(p, false, allowed(opts)...))
}

func allowed(opts store.PatchOptions) (allowed []fuzz.Allow) {
	if opts.AllowOrphans {
		allowed = append(allowed, fuzz.AllowOrphans)
	}
	if opts.AllowPinned {
		allowed = append(allowed, fuzz.AllowPinned)
	}
	return allowed
}

func refusalKind(err error) string {
	var refusal *fuzz.Refusal
	if errors.As(err, &refusal) {
		return refusal.Kind
	}
	return ""
}

func (m *machine) patch(t *rapid.T) {
	ref := m.reference()
	p := m.drawPatch(t, ref)
	opts, judged, kind := m.patchOptions(t, p)
	if kind == "" {
		kind = m.judge(ref, judged, opts)
	}
	m.done(t, kind, []patch.Record{{Patch: p}}, func(s *store.Store) (store.Committed, error) {
		return s.ApplyPatch(context.Background(), m.key, m.of(s, opts), p)
	})
}

// of gives the options a view of the store's own session: creation ids differ.
func (m *machine) of(s *store.Store, opts store.PatchOptions) store.PatchOptions {
	if opts.On.Creation() == "" || s == m.stores[0] {
		return opts
	}
	v, err := s.ViewAt(context.Background(), m.key, opts.On.Seq())
	if err != nil {
		panic(err)
	}
	opts.On = v
	return opts
}

// patchBatch applies several patches at once: all or none, each judged on what those
// before it leave, neighbours of one group as one, only the first base checked.
func (m *machine) patchBatch(t *rapid.T) {
	ref := m.reference()
	var patches []*patch.PatchEvent
	if rapid.Bool().Draw(t, "is a group") {
		patches = fuzz.Group(m.newID(), ref).Draw(t, "group")
		for i, p := range patches { // all of one, so that they are judged as one
			patches[i] = p.WithGroup(patches[len(patches)-1].Group())
		}
	} else {
		for range rapid.IntRange(2, 3).Draw(t, "patches") {
			p := m.drawPatch(t, ref)
			patches = append(patches, p)
			ref.Apply(patch.Record{Seq: ref.Seq() + 1, Patch: p})
		}
	}
	opts, first, why := m.patchOptions(t, patches[0])
	judged := append([]*patch.PatchEvent{first}, patches[1:]...)
	kind := ""
	for from := 0; from < len(judged) && kind == ""; {
		to := from + fuzz.Neighbours(judged[from:])
		switch lacks := func(p *patch.PatchEvent) bool { return !saysBase(p) && p.IsIndexed() }; {
		case from == 0 && why != "":
			kind = why
		case opts.On.Creation() == "" && !opts.AsOfNow && slices.ContainsFunc(patches[max(from, 1):max(to, 1)], lacks):
			kind = fuzz.Invalid // each says what it has seen
		default:
			kind = refusalKind(m.reference().CheckCall(judged[:to], allowed(opts)...))
		}
		from = to
	}
	var offered []patch.Record
	for _, p := range patches {
		offered = append(offered, patch.Record{Patch: p})
	}
	m.done(t, kind, offered, func(s *store.Store) (store.Committed, error) {
		return s.ApplyPatch(context.Background(), m.key, m.of(s, opts), patches...)
	})
}

// retry offers records that are there once more, among new ones.
func (m *machine) retry(t *rapid.T) {
	var events []*patch.Event
	var offered []patch.Record
	for i, r := range m.offered {
		if r.Event != nil && r.ID() != "" && len(events) < 3 && rapid.Bool().Draw(t, "again") {
			events = append(events, r.Event)
			offered = append(offered, m.offered[i])
		}
		if r.Patch != nil && r.ID() != "" && rapid.IntRange(0, 3).Draw(t, "patch again") == 0 {
			m.done(t, "", []patch.Record{r}, func(s *store.Store) (store.Committed, error) {
				return s.ApplyPatch(context.Background(), m.key, store.PatchOptions{}, r.Patch)
			})
		}
	}
	if e := m.event(t, m.newID()); !e.Partial() {
		events = append(events, e)
		offered = append(offered, patch.Record{Event: e})
	}
	m.done(t, "", offered, func(s *store.Store) (store.Committed, error) {
		return s.AppendEvents(context.Background(), m.key, store.AppendOptions{}, events...)
	})
}

// duplicate offers a used id with other content, which must write nothing.
func (m *machine) duplicate(t *rapid.T) {
	var ids []string
	for _, r := range m.records {
		ids = slices.AppendSeq(ids, r.IDs())
	}
	if len(ids) == 0 {
		t.Skip("an empty log")
	}
	id := rapid.SampledFrom(ids).Draw(t, "used id")
	if rapid.Bool().Draw(t, "in a patch") {
		e, err := patch.NewEvent(patch.Fields{ID: id, Author: "a duplicate"})
		if err != nil {
			t.Fatal(err)
		}
		p := patch.NewSplice(0, 0, e).WithID(m.newID())
		m.done(t, "duplicate", nil, func(s *store.Store) (store.Committed, error) {
			return s.ApplyPatch(context.Background(), m.key, store.PatchOptions{AsOfNow: true}, p)
		})
		return
	}
	e, err := patch.NewEvent(patch.Fields{ID: id, Author: "a duplicate"})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := patch.NewEvent(patch.Fields{ID: m.newID(), Author: "new"})
	if err != nil {
		t.Fatal(err)
	}
	m.done(t, "duplicate", nil, func(s *store.Store) (store.Committed, error) {
		return s.AppendEvents(context.Background(), m.key, store.AppendOptions{}, fresh, e)
	})
}

func (m *machine) preview(t *rapid.T) {
	ref := m.reference()
	p := m.drawPatch(t, ref)
	opts, judged, kind := m.patchOptions(t, p)
	if kind == "" {
		kind = m.judge(ref, judged, opts)
	}
	would := patch.Complete(patch.Record{Seq: uint64(len(m.records) + 1), Patch: p}, m.newID, clock)
	after := m.reference(would)
	for i, s := range m.stores {
		pre, err := s.Preview(context.Background(), m.key, m.of(s, opts), p)
		if got := KindOf(err); got != kind {
			t.Fatalf("store %d: preview of %v: %v, want %q\n%s", i, p, err, kind, m.log())
		}
		if err != nil {
			continue
		}
		if err := fuzz.Compare(stored{pre.After, s, m.key}, after); err != nil {
			t.Fatalf("store %d: preview of %v: %v\n%s", i, p, err, m.log())
		}
	}
}

func (m *machine) asOf(t *rapid.T) {
	seq := rapid.IntRange(0, len(m.records)).Draw(t, "seq")
	ref := fuzz.NewReference(m.initial)
	for _, r := range m.records[:seq] {
		ref.Apply(r)
	}
	for i, s := range m.stores {
		v, err := s.ViewAt(context.Background(), m.key, uint64(seq))
		if err != nil {
			t.Fatal(err)
		}
		if err := fuzz.Compare(stored{v, s, m.key}, ref); err != nil {
			t.Fatalf("store %d: as of %d: %v\n%s", i, seq, err, m.log())
		}
		m.compareHistory(t, s, v, ref)
		if _, err := s.ViewAt(context.Background(), m.key, uint64(len(m.records)+1)); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("store %d: a view beyond the end: %v", i, err)
		}
	}
}

// compareHistory compares what people should see with the model.
func (m *machine) compareHistory(t *rapid.T, s *store.Store, v fold.View, ref *fuzz.Reference) {
	history, err := s.History(context.Background(), m.key, v)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []patch.Record
	for i, e := range history {
		got = append(got, patch.Record{Seq: uint64(i), Event: e.Event})
	}
	for i, e := range ref.History() {
		want = append(want, patch.Record{Seq: uint64(i), Event: e})
	}
	compareRecords(t, want, got)
}

func (m *machine) raw(t *rapid.T) {
	from := rapid.IntRange(0, len(m.records)+1).Draw(t, "from")
	for _, s := range m.stores {
		var got []patch.Record
		for r, err := range s.RawEvents(context.Background(), m.key, uint64(from)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		compareRecords(t, m.records[max(from, 1)-1:], got)
	}
}

func (m *machine) reopen(t *rapid.T) {
	if err := m.stores[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.stores[0].Get(context.Background(), m.key); !errors.Is(err, store.ErrClosed) && m.options(0).CacheBytes < 0 {
		t.Fatalf("reading a closed store: %v", err)
	}
	m.watchEnds(t, store.ErrClosed)
	m.openFile(t)
	m.views = nil // of another edition, if something was erased
	m.follow(m.watch.seen + 1)
}

// twoWriters lets two goroutines patch the bbolt store from one view: one wins, and the
// other sees a conflict. The store in memory then gets what won.
func (m *machine) twoWriters(t *rapid.T) {
	if m.judge(m.reference(), patch.NewSplice(0, 0, m.plainEvent(t)), store.PatchOptions{AllowOrphans: true}) != "" {
		t.Skip("the log takes no patches")
	}
	session, err := m.stores[0].Get(context.Background(), m.key)
	if err != nil {
		t.Fatal(err)
	}
	at := rapid.IntRange(0, session.View.Len()).Draw(t, "at")
	var wg sync.WaitGroup
	errs, patches := make([]error, 2), make([]*patch.PatchEvent, 2)
	for i := range patches {
		patches[i] = patch.NewSplice(at, 0, m.plainEvent(t)).WithID(m.newID()).WithTimestamp(clock)
		wg.Go(func() {
			_, errs[i] = m.stores[0].ApplyPatch(context.Background(), m.key, store.PatchOptions{On: session.View, AllowOrphans: true}, patches[i])
		})
	}
	wg.Wait()
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	if errs[winner] != nil || !errors.Is(errs[1-winner], store.ErrConflict) {
		t.Fatalf("two writers on one base: %v, %v", errs[0], errs[1])
	}
	p := patches[winner].WithBase(session.View.PatchSeq())
	if _, err := m.stores[1].ApplyPatch(context.Background(), m.key, store.PatchOptions{AllowOrphans: true}, p); err != nil {
		t.Fatal(err)
	}
	m.records = append(m.records, patch.Record{Seq: uint64(len(m.records) + 1), Patch: p})
	m.offered = append(m.offered, patch.Record{Patch: p})
}

// failingCommit lets the commit of an append fail in one store. If it took place the call
// succeeds; if it did not, nothing is there, and trying again lands it once.
func (m *machine) failingCommit(t *rapid.T) {
	e := m.plainEvent(t)
	failure := rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}).Draw(t, "failure")
	write := func(s *store.Store) (store.Committed, error) {
		return s.AppendEvents(context.Background(), m.key, store.AppendOptions{}, e)
	}
	m.look(t) // on a view of a session that is gone by now nobody could say what came of it
	m.peers[m.turn].faulty.Plan(storetest.Plan{Write: 1, Failure: failure})
	_, err := write(m.stores[1])
	m.peers[m.turn].faulty.Plan(storetest.Plan{})
	if (err == nil) != (failure == storetest.Landed) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatalf("a commit that was %v: %v", failure, err)
	}
	session, err := m.stores[1].Get(context.Background(), m.key)
	if err != nil {
		t.Fatal(err)
	}
	want := m.reference()
	if failure == storetest.Landed {
		want.Apply(patch.Record{Seq: uint64(len(m.records) + 1), Event: e})
	}
	if err := fuzz.Compare(stored{session.View, m.stores[1], m.key}, want); err != nil {
		t.Fatalf("after a commit that was %v: %v\n%s", failure, err, m.log())
	}
	m.done(t, "", []patch.Record{{Event: e}}, write)
}

func (m *machine) plainEvent(t *rapid.T) *patch.Event {
	e, err := patch.NewEvent(patch.Fields{ID: m.newID(), Author: "agent", Timestamp: clock})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// delete deletes the session and creates it again; its old views are refused.
func (m *machine) delete(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("seldom")
	}
	old := m.views[len(m.views)-1]
	for _, s := range m.stores {
		if err := s.Delete(context.Background(), m.key); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(context.Background(), m.key); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("a deleted session: %v", err)
		}
	}
	m.watchEnds(t, store.ErrNotFound)
	m.create(t)
	_, err := m.stores[0].ApplyPatch(context.Background(), m.key, store.PatchOptions{On: old}, patch.NewSplice(0, 0, m.plainEvent(t)))
	if !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a patch on a deleted session's view: %v", err)
	}
}

func (m *machine) unexpectedPlace(t *rapid.T) {
	wrong := uint64(len(m.records) + 1)
	for _, s := range m.stores {
		_, err := s.AppendEvents(context.Background(), m.key, store.AppendOptions{IfSeq: &wrong}, m.plainEvent(t))
		if !errors.Is(err, store.ErrConflict) {
			t.Fatalf("an append that expects seq %d: %v", wrong, err)
		}
	}
}
