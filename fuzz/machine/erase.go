package machine

import (
	"context"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/storetest"
)

// erase erases some events of the session, with or without their summaries. In one of the stores a commit may fail;
// the next erasure then completes it.
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
	opts.Summaries = rapid.SampledFrom([]patch.Summaries{patch.RevertSummaries, patch.BlankSummaries, patch.KeepSummaries}).Draw(t, "summaries")
	opts.Room = rapid.SampledFrom([]int{1, 20, 1000}).Draw(t, "room")
	want := m.reference().Erase(ids, values, opts.Summaries)
	if sel.All && values == patch.NullValues {
		for name, v := range m.initial {
			if v.Any() != nil {
				want.Initial = append(want.Initial, name)
			}
		}
		slices.Sort(want.Initial)
	}
	want.Closed = uint64(len(m.records)) + 1
	nothing := len(want.Seqs) == 0 && len(want.Initial) == 0
	failure := rapid.SampledFrom([]storetest.Failure{storetest.Refused, storetest.Lost, storetest.Landed}).Draw(t, "failure")
	write := rapid.IntRange(0, 5).Draw(t, "which write fails")
	after, reverts, left := m.erased(want, opts)
	drawn := m.filled
	var logged [2][]patch.Record // the receipt and the reverts
	for i, s := range m.stores {
		ctx := context.Background()
		dry := opts
		dry.DryRun = true
		planned, err := s.Erase(ctx, m.key, sel, dry)
		if err != nil {
			t.Fatal(err)
		}
		var done store.Erasure
		if i == 1 {
			m.peers[m.turn].faulty.Plan(storetest.Plan{Write: write, Failure: failure})
			done, err = s.Erase(ctx, m.key, sel, opts)
			m.peers[m.turn].faulty.Plan(storetest.Plan{})
			if err != nil {
				m.filled[1] = drawn[1]
			}
		}
		if i == 0 || err != nil {
			done, err = s.Erase(ctx, m.key, sel, opts)
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
		if nothing {
			continue
		}
		if opts.Summaries == patch.RevertSummaries && (len(planned.Sessions[0].Reverted) > len(reverts) || !slices.Equal(planned.Sessions[0].Blank, left)) {
			t.Fatalf("store %d: erasing %q: planned %+v, want the reverts %q, and %q stay\n%s", i, ids, planned.Sessions[0], reverts, left, m.log())
		}
		logged[i] = m.raw(t, s, m.key, uint64(len(m.records))+1)
		got, ok := logged[i][0].Patch.Erasure()
		if got.Digest, got.Reason = nil, ""; !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("store %d: erasing %q takes %+v, want %+v\n%s", i, ids, got, want, m.log())
		}
		if reverted := revertedBy(logged[i][1:]); !slices.Equal(reverted, reverts) {
			t.Fatalf("store %d: erasing %q reverts %q, want %q\n%s", i, ids, reverted, reverts, m.log())
		}
	}
	m.views = nil // no patch of them is taken any more
	if nothing {
		return
	}
	m.filled[1] = m.filled[0]
	compareRecords(t, logged[0], logged[1])
	for _, name := range want.Initial {
		m.initial[name] = null
	}
	m.records = append(after[:len(m.records)], logged[0]...)
	for range logged[0] {
		m.offered = append(m.offered, patch.Record{})
	}
}

// erased returns the log after an erasure, and the patches that its closing commit reverts.
func (m *machine) erased(of patch.Erasure, opts store.EraseOptions) (log []patch.Record, reverts, left []string) {
	for _, r := range m.records {
		log = append(log, of.Blank(r, opts.ID))
	}
	if opts.Summaries == patch.RevertSummaries {
		reverts, left = fuzz.NewReference(m.initial, log...).TakeBack(opts.Room)
	}
	return log, reverts, left
}

// forked returns the log of a fork of the session at a seq, with the receipts of earlier erasures.
func (m *machine) forked(at uint64) []patch.Record {
	log := slices.Clone(m.records[:at])
	said := func(id string) bool {
		return slices.ContainsFunc(m.records[:at], func(r patch.Record) bool {
			for _, e := range r.Events() {
				if by, ok := e.Erased(); ok && by == id {
					return true
				}
			}
			by, ok := records.Envelope(r).Erased()
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
