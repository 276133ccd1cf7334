package machine

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// erase erases some events of the session, and of a fork of it that was made before. A commit
// may fail on the way; once more then finishes it.
func (m *machine) erase(t *rapid.T) {
	var ids []string
	for _, r := range m.records {
		if r.Patch != nil && r.Patch.Type() == patch.Erase && r.Patch.Validate() == nil {
			continue
		}
		ids = slices.AppendSeq(ids, r.IDs())
	}
	if len(ids) == 0 {
		t.Skip("an empty log")
	}
	values := rapid.SampledFrom([]patch.Values{patch.KeepValues, patch.NullValues}).Draw(t, "values")
	sel := store.EraseSelection{}
	opts := store.EraseOptions{ID: m.newID(), Author: "ann", Reason: "asked for", Values: values, Salt: []byte("salt")}
	if sel.All = rapid.IntRange(0, 7).Draw(t, "all") == 0; !sel.All {
		ids = rapid.SliceOfN(rapid.SampledFrom(ids), 1, 3).Draw(t, "ids")
		sel.EventIDs = ids
	}
	opts.Summaries = rapid.SampledFrom([]store.Summaries{store.BlankSummaries, store.RemakeSummaries, store.KeepSummaries}).Draw(t, "summaries")
	fails := opts.Summaries == store.RemakeSummaries && rapid.Bool().Draw(t, "a text is not to be had")
	before := m.reference()
	want := before.Erase(ids, values, string(opts.Summaries))
	if sel.All && values == patch.NullValues {
		for name, v := range m.initial {
			if v.Any() != nil {
				want.Initial = append(want.Initial, name)
			}
		}
		slices.Sort(want.Initial)
	}
	nothing := len(want.Seqs) == 0 && len(want.Initial) == 0

	fork := m.key
	fork.Session = "fork " + m.newID()
	at := uint64(rapid.IntRange(0, len(m.records)).Draw(t, "forked at"))
	forked := rapid.Bool().Draw(t, "is forked")
	failure := rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}).Draw(t, "failure")
	write := rapid.IntRange(0, 5).Draw(t, "which write fails")
	var receipts []patch.Record
	for i, s := range m.stores {
		ctx := context.Background()
		if forked {
			if _, err := s.Fork(ctx, m.key, fork, store.ForkOptions{At: &at}); err != nil {
				t.Fatal(err)
			}
		}
		failed := !fails
		opts.Resummarise = func(_ context.Context, summary *patch.Event, events []*patch.Event) (string, error) {
			if !summary.IsBlank(patch.KeepValues) {
				t.Fatalf("store %d: a summary is made anew that is there: %s", i, summary)
			}
			if !failed {
				failed = true
				return "", errNoText
			}
			return retold(events), nil
		}
		planned, err := s.PlanErase(ctx, m.key, sel, opts)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			m.peers[m.turn].faulty.Plan(storetest.Plan{Write: write, Failure: failure})
		}
		done, err := s.Erase(ctx, m.key, sel, opts)
		if i == 1 {
			m.peers[m.turn].faulty.Plan(storetest.Plan{})
		}
		if i == 1 || errors.Is(err, errNoText) {
			if done, err = s.Erase(ctx, m.key, sel, opts); errors.Is(err, errNoText) { // once
				done, err = s.Erase(ctx, m.key, sel, opts)
			}
		}
		if err != nil {
			t.Fatalf("store %d: erasing %q: %v\n%s", i, ids, err, m.log())
		}
		if len(done.Sessions) == 0 != nothing || len(planned.Sessions) == 0 != nothing {
			t.Fatalf("store %d: erasing %q: %+v, planned %+v, want %+v\n%s", i, ids, done, planned, want, m.log())
		}
		for p, err := range s.Verify(ctx, store.VerifyOptions{Key: m.key}) {
			t.Fatalf("store %d: erasing %q: %v, %v\n%s", i, ids, p, err, m.log())
		}
		if !nothing {
			receipt := done.Sessions[0].Receipt
			got, ok := receipt.Patch.Erasure()
			if got.Digest, got.Reason = nil, ""; !ok || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("store %d: erasing %q takes %+v, want %+v\n%s", i, ids, got, want, m.log())
			}
			receipts = append(receipts, receipt)
		}
		if forked {
			m.forkErased(t, s, fork, at, want, opts)
		}
	}
	m.views = nil // no patch of them is taken any more
	if nothing {
		return
	}
	compareRecords(t, receipts[:1], receipts[1:])
	for _, name := range want.Initial {
		m.initial[name] = null
	}
	for i, r := range m.records {
		m.records[i] = want.Blank(r, opts.ID)
	}
	m.records = append(m.records, receipts[0])
	before.Remake(m.records, want, retold)
	m.offered = append(m.offered, patch.Record{})
}

// forked is the log of a fork of the session at a seq: with receipts of what was erased before.
func (m *machine) forked(at uint64) []patch.Record {
	log := slices.Clone(m.records[:at])
	said := func(id string) bool {
		return slices.ContainsFunc(m.records[:at], func(r patch.Record) bool {
			for _, e := range r.Events() {
				if by, ok := e.Erased(); ok && by == id || slices.Contains(e.RemadeAfter(), id) {
					return true
				}
			}
			by, ok := r.Envelope().Erased()
			return ok && by == id
		})
	}
	for _, r := range m.records[at:] {
		if r.Patch == nil || !said(r.ID()) {
			continue
		}
		if receipt, ok := r.Patch.UpTo(at); ok {
			log = append(log, patch.Record{Seq: uint64(len(log) + 1), Patch: receipt})
		}
	}
	return log
}

var null = func() patch.Value {
	v, err := patch.ParseValue([]byte("null"))
	if err != nil {
		panic(err)
	}
	return v
}()

// errNoText: a summary cannot be made anew now.
var errNoText = errors.New("no text")

// retold is what a summary says that is made anew.
func retold(events []*patch.Event) string {
	var said strings.Builder
	for _, e := range events {
		fmt.Fprintf(&said, "%s %x ", e.ID(), crc32.ChecksumIEEE([]byte(e.String())))
	}
	return strings.TrimSpace(said.String())
}

// taken are the ids of what an erasing takes of a log.
func taken(log []patch.Record, of patch.Erasure) (ids []string) {
	for _, r := range log {
		if of.CoversEvent(r.Seq, -1) && (r.Event != nil || len(r.Events()) == 0) {
			ids = append(ids, r.ID())
		}
		for i, e := range r.Events() {
			if of.CoversEvent(r.Seq, i) {
				ids = append(ids, e.ID())
			}
		}
	}
	return ids
}

// forkErased checks that what was erased of the session is erased of its fork, and deletes
// that.
func (m *machine) forkErased(t *rapid.T, s *store.Store, fork store.Key, at uint64, want patch.Erasure, opts store.EraseOptions) {
	ctx := context.Background()
	erased := m.forked(at)
	ref := fuzz.NewReference(m.initial)
	for _, r := range erased {
		ref.Apply(r)
	}
	of := ref.Erase(taken(erased[:at], want), want.Values, string(opts.Summaries))
	for i, r := range erased[:at] {
		erased[i] = want.Blank(r, opts.ID)
	}
	got := m.raw(t, s, fork, 1)
	n := len(erased)
	if len(got) > n { // the receipt of this erasing
		if len(got) != n+1 || got[n].ID() != opts.ID || got[n].Patch == nil {
			t.Fatalf("the fork at %d has %v behind %v", at, got[n:], erased)
		}
		erased = append(erased, got[n])
		ref.Remake(erased, of, retold)
	}
	compareRecords(t, erased, got)
	for p, err := range s.Verify(ctx, store.VerifyOptions{Key: fork}) {
		t.Fatalf("the fork at %d: %v, %v", at, p, err)
	}
	if err := s.Delete(ctx, fork); err != nil {
		t.Fatal(err)
	}
}
