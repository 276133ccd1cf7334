package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// replacement makes one that puts data in the place of records, as one who knows the session
// as it is now.
func (s *suite) replacement(name string, data string, seqs ...uint64) backend.Replacement {
	s.Helper()
	head := s.mustHead(name)
	want := s.want.sessions[name]
	r := backend.Replacement{Creation: head.Creation, Last: head.Last, Seen: head.Token, Next: backend.Token(rand.Uint64() | 1), Chain: head.Chain}
	for _, seq := range seqs {
		is := fmt.Appendf(nil, "%s %d", data, seq)
		r.Records = append(r.Records, backend.Replaced{
			Seq: seq, Old: []byte(want.records[seq-1]), OldSum: want.sums[seq-1], Data: is, Sum: crc32.ChecksumIEEE(is),
		})
	}
	return r
}

// replace makes a replacement that must be accepted.
func (s *suite) replace(name string, r backend.Replacement) {
	s.Helper()
	before := s.mustHead(name)
	given := r
	given.Meta, given.Counts, given.Records = bytes.Clone(r.Meta), bytes.Clone(r.Counts), slices.Clone(r.Records)
	for i := range given.Records {
		given.Records[i].Data = bytes.Clone(given.Records[i].Data)
	}
	s.must(s.Replace(ctx, name, given), "Replace in %q", name)
	scramble(given.Meta, given.Counts)
	for _, x := range given.Records {
		scramble(x.Data)
	}
	want := s.want.sessions[name]
	for _, x := range r.Records {
		want.records[x.Seq-1], want.sums[x.Seq-1] = string(x.Data), x.Sum
	}
	want.chain = backend.Chain{}
	for _, sum := range want.sums {
		want.chain = want.chain.Add(sum)
	}
	for _, added := range r.Appended {
		want.records, want.sums = append(want.records, string(added.Data)), append(want.sums, added.Sum)
		want.chain = want.chain.Add(added.Sum)
		for _, id := range added.IDs {
			want.ids[id] = added.Seq
		}
	}
	if r.Meta != nil {
		want.meta = string(r.Meta)
	}
	if r.Counts != nil {
		want.counts = string(r.Counts)
	}
	want.token, want.snapshot = r.Next, ""
	after, err := s.head(name)
	if err != nil || after.Edition <= before.Edition {
		s.Errorf("head of %q: edition %d after %d, %v", name, after.Edition, before.Edition, err)
	}
}

// replaceRefused makes one that must be refused with the given error, and do nothing.
func (s *suite) replaceRefused(want error, name, what string, r backend.Replacement) {
	s.Helper()
	s.is(s.Replace(ctx, name, r), want, "Replace of "+what)
	s.check()
}

var replaceCases = []testCase{
	{"Replace", func(s *suite) {
		s.put("a", create("c1", 9))
		s.put("b", create("c2", 3))
		s.replace("a", s.replacement("a", "other", 1))
		s.check()
		s.replace("a", s.replacement("a", string(big(100_000)), 2, 5, 8))
		s.replace("a", s.replacement("a", "", 9))
		s.check()
		s.put("a", extend("c1", 9, 2))
		s.replace("a", s.replacement("a", "short", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))
		s.put("a", extend("c1", 11, 1))
	}},
	{"Replace/snapshot", func(s *suite) {
		s.put("a", create("c1", 3))
		s.put("b", create("c2", 3))
		s.keep("a", "with what was there")
		s.keep("b", "of another session")
		before := s.mustHead("a")
		s.replace("a", s.replacement("a", "other", 2))
		s.check()
		late := backend.Snapshot{Seq: 3, Chain: before.Chain, Edition: before.Edition, Data: []byte("made before")}
		s.is(s.PutSnapshot(ctx, "a", "c1", late), backend.ErrMoved, "PutSnapshot of a log before the Replace")
		s.check()
		now := s.mustHead("a")
		late.Edition, late.Chain = now.Edition, now.Chain
		s.is(s.PutSnapshot(ctx, "a", "c1", late), nil, "PutSnapshot of the log as it is")
		s.want.sessions["a"].snapshot = "made before"
		s.check()
		s.replace("a", s.replacement("a", "")) // of no record: the snapshot alone
	}},
	{"Replace/meta", func(s *suite) {
		s.put("a", create("c1", 2))
		r := s.replacement("a", "other", 1)
		r.Meta = []byte("another meta")
		s.replace("a", r)
		s.check()
		r = s.replacement("a", "other")
		r.Meta = big(100_000)
		s.replace("a", r)
		s.check()
		s.replace("a", s.replacement("a", "third", 2))
	}},
	{"Replace/refused", func(s *suite) {
		s.put("a", create("c1", 3))
		s.keep("a", "kept")
		of := func(change func(r *backend.Replacement)) backend.Replacement {
			r := s.replacement("a", "other", 1, 2, 3)
			r.Meta = []byte("another meta")
			change(&r)
			return r
		}
		for what, r := range map[string]backend.Replacement{
			"a shorter log":           of(func(r *backend.Replacement) { r.Last = 2 }),
			"a longer log":            of(func(r *backend.Replacement) { r.Last = 4 }),
			"another record":          of(func(r *backend.Replacement) { r.Records[2].Old = []byte("record 2") }),
			"a record with more":      of(func(r *backend.Replacement) { r.Records[1].Old = []byte("record 2 ") }),
			"a record behind the end": of(func(r *backend.Replacement) { r.Records[2].Seq, r.Records[2].Old = 4, nil }),
			"a record before":         of(func(r *backend.Replacement) { r.Records[0].Seq, r.Records[0].Old = 0, nil }),
		} {
			s.replaceRefused(backend.ErrMoved, "a", what, r)
		}
		s.replaceRefused(backend.ErrMoved, "a", "a log that has moved on", of(func(r *backend.Replacement) { r.Seen++ }))
		before, after := s.replacement("a", "other", 2), s.replacement("a", "again", 2)
		s.replace("a", before)
		s.replaceRefused(backend.ErrMoved, "a", "what was replaced", after)
		s.put("a", extend("c1", 3, 1))
		s.replace("a", s.replacement("a", "again", 2))
	}},
	{"Replace/appended", func(s *suite) {
		s.put("a", create("c1", 3))
		s.keep("a", "of the log before")
		r := s.replacement("a", "other", 2)
		r.Appended = records(3, 2)
		s.replace("a", r)
		s.check()
		s.put("a", extend("c1", 5, 1))
		r = s.replacement("a", "again")
		r.Appended = records(6, 1)
		s.replace("a", r) // of no record
		s.check()
		taken := s.replacement("a", "never", 1)
		taken.Appended = records(7, 1)
		taken.Appended[0].IDs = []string{"id5"}
		s.replaceRefused(backend.ErrTaken, "a", "an id that is taken", taken)
	}},
	{"Replace/deleted", func(s *suite) {
		s.put("a", create("c1", 2))
		s.replace("a", s.replacement("a", "other", 1, 2))
		late := s.replacement("a", "late", 1)
		s.remove("a")
		s.replaceRefused(backend.ErrNotFound, "a", "a deleted session", late)
		s.put("a", create("c2", 2))
		s.replaceRefused(backend.ErrNotFound, "a", "a session that was created again", late)
	}},
	{"Replace/concurrent", func(s *suite) {
		const sessions, each = 4, 12
		for i := range sessions {
			s.put(fmt.Sprint("s", i), create(fmt.Sprint("c", i), each))
		}
		todo := make([][]backend.Replacement, sessions)
		for i := range sessions {
			for seq := uint64(1); seq <= each; seq++ {
				todo[i] = append(todo[i], s.replacement(fmt.Sprint("s", i), "other", seq))
			}
		}
		var wg sync.WaitGroup
		for i := range sessions {
			wg.Go(func() {
				name := fmt.Sprint("s", i)
				for _, r := range todo[i] {
					head, err := s.head(name)
					if err == nil {
						r.Seen, r.Chain = head.Token, head.Chain
						err = s.Replace(ctx, name, r)
					}
					if err != nil {
						s.Errorf("Replace in %q: %v", name, err)
						return
					}
				}
			})
			wg.Go(func() {
				for range each {
					if err := s.PutSnapshot(ctx, "s0", "c0", backend.Snapshot{Seq: 1, Data: []byte("of edition 0")}); err != nil && !errors.Is(err, backend.ErrMoved) {
						s.Errorf("PutSnapshot: %v", err)
					}
				}
			})
		}
		wg.Wait()
		for i := range sessions {
			want := s.want.sessions[fmt.Sprint("s", i)]
			want.token, want.chain = 0, backend.Chain{}
			for n, r := range todo[i] {
				want.records[n], want.sums[n] = string(r.Records[0].Data), r.Records[0].Sum
				want.chain = want.chain.Add(want.sums[n])
			}
		}
	}},
}
