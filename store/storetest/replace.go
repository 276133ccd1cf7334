package storetest

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"

	"github.com/patchlog-dev/patchlog/store/backend"
)

// replacing returns a function that returns r for every head.
func replacing(r backend.Replacement) func(backend.Head) (backend.Replacement, error) {
	return func(backend.Head) (backend.Replacement, error) { return r, nil }
}

// replacement returns a replacement of the records with these seqs, based on the current session.
func (s *suite) replacement(name string, data string, seqs ...uint64) backend.Replacement {
	s.Helper()
	want := s.want.sessions[name]
	r := backend.Replacement{Next: backend.Token(rand.Uint64() | 1), OldMeta: []byte(want.meta)}
	for _, seq := range seqs {
		newData := fmt.Appendf(nil, "%s %d", data, seq)
		r.Records = append(r.Records, backend.Replaced{
			Seq: seq, Old: []byte(want.records[seq-1]), OldSum: want.sums[seq-1], Data: newData, Sum: crc32.ChecksumIEEE(newData),
		})
	}
	return r
}

func (s *suite) replace(name string, r backend.Replacement) {
	s.Helper()
	before := s.mustHead(name)
	plan := func(head backend.Head) (backend.Replacement, error) {
		head.Meta, before.Meta = nil, nil
		if !reflect.DeepEqual(head, before) {
			s.Errorf("Replace in %q is given the head %+v, want %+v", name, head, before)
		}
		return r, nil
	}
	s.must(s.Replace(ctx, name, before.Creation, plan), "Replace in %q", name)
	want := s.want.sessions[name]
	for _, x := range r.Records {
		want.records[x.Seq-1], want.sums[x.Seq-1] = string(x.Data), x.Sum
		scramble(x.Data)
	}
	s.want.append(name, backend.Batch{Records: r.Appended, Counts: r.Counts, Next: r.Next})
	if r.Meta != nil {
		want.meta = string(r.Meta)
	}
	scramble(r.Meta, r.Counts)
	want.snapshot = ""
	after, err := s.head(name)
	if err != nil || after.Edition <= before.Edition {
		s.Errorf("head of %q: edition %d after %d, %v", name, after.Edition, before.Edition, err)
	}
}

// replaceRefused tries a replacement, which must fail with the given error and change nothing.
func (s *suite) replaceRefused(want error, name, what, creation string, r backend.Replacement) {
	s.Helper()
	s.wantError(s.Replace(ctx, name, creation, replacing(r)), want, "Replace of "+what)
	s.check()
}

var replaceCases = []testCase{
	{"Replace", func(s *suite) {
		s.append("a", create("c1", 9))
		s.append("b", create("c2", 3))
		s.replace("a", s.replacement("a", "other", 1))
		s.check()
		s.replace("a", s.replacement("a", string(testData(100_000)), 2, 5, 8))
		s.replace("a", s.replacement("a", "", 9))
		s.check()
		s.append("a", extend("c1", 9, 2))
		s.replace("a", s.replacement("a", "short", backend.Range(1, 11)...))
		s.append("a", extend("c1", 11, 1))
		r := s.replacement("a", "with a meta", 1)
		r.Meta = []byte("another meta")
		s.replace("a", r)
		s.check()
		r = s.replacement("a", "")
		r.Meta = testData(100_000)
		s.replace("a", r)
		s.check()
		s.replace("a", s.replacement("a", "third", 2))
	}},
	{"Replace/snapshot", func(s *suite) {
		s.append("a", create("c1", 3))
		s.append("b", create("c2", 3))
		s.putSnapshot("a", "with what was there")
		s.putSnapshot("b", "of another session")
		before := s.mustHead("a")
		s.replace("a", s.replacement("a", "other", 2))
		s.check()
		late := backend.Snapshot{Seq: 3, Chain: before.Chain, Edition: before.Edition, Data: []byte("made before")}
		s.wantError(s.PutSnapshot(ctx, "a", "c1", late), backend.ErrMoved, "PutSnapshot of a log before the Replace")
		s.check()
		now := s.mustHead("a")
		late.Edition, late.Chain = now.Edition, now.Chain
		s.wantError(s.PutSnapshot(ctx, "a", "c1", late), nil, "PutSnapshot of the log as it is")
		s.want.sessions["a"].snapshot = "made before"
		s.check()
		s.replace("a", s.replacement("a", "")) // no record is replaced, but the snapshot is deleted
	}},
	{"Replace/refused", func(s *suite) {
		s.append("a", create("c1", 3))
		s.putSnapshot("a", "kept")
		changed := func(change func(r *backend.Replacement)) backend.Replacement {
			r := s.replacement("a", "other", 1, 2, 3)
			r.Meta = []byte("another meta")
			change(&r)
			return r
		}
		for what, r := range map[string]backend.Replacement{
			"another meta":            changed(func(r *backend.Replacement) { r.OldMeta = []byte("not this one") }),
			"another record":          changed(func(r *backend.Replacement) { r.Records[2].Old = []byte("record 2") }),
			"a record with more":      changed(func(r *backend.Replacement) { r.Records[1].Old = []byte("record 2 ") }),
			"a record behind the end": changed(func(r *backend.Replacement) { r.Records[2].Seq, r.Records[2].Old = 4, nil }),
			"a record before":         changed(func(r *backend.Replacement) { r.Records[0].Seq, r.Records[0].Old = 0, nil }),
		} {
			s.replaceRefused(backend.ErrMoved, "a", what, "c1", r)
		}
		refusal := errors.New("a refusal")
		s.wantError(s.Replace(ctx, "a", "c1", func(backend.Head) (backend.Replacement, error) { return backend.Replacement{}, refusal }), refusal, "Replace of what is refused")
		s.check()
		before, after := s.replacement("a", "other", 2), s.replacement("a", "again", 2)
		s.replace("a", before)
		s.replaceRefused(backend.ErrMoved, "a", "what was replaced", "c1", after)
		s.append("a", extend("c1", 3, 1))
		s.replace("a", s.replacement("a", "again", 2))
		late := s.replacement("a", "late", 1)
		s.delete("a")
		s.replaceRefused(backend.ErrNotFound, "a", "a deleted session", "c1", late)
		s.append("a", create("c2", 2))
		s.replaceRefused(backend.ErrNotFound, "a", "a session that was created again", "c1", late)
	}},
	{"Replace/appended", func(s *suite) {
		s.append("a", create("c1", 3))
		s.putSnapshot("a", "of the log before")
		r := s.replacement("a", "other", 2)
		r.Appended = records(3, 2)
		s.replace("a", r)
		s.check()
		s.append("a", extend("c1", 5, 1))
		r = s.replacement("a", "again")
		r.Appended = records(6, 1)
		s.replace("a", r) // no record is replaced
		s.check()
		taken := s.replacement("a", "never", 1)
		taken.Appended = records(7, 1)
		taken.Appended[0].IDs = []string{"id5"}
		s.replaceRefused(backend.ErrTaken, "a", "an id that is taken", "c1", taken)
		taken.Appended = records(8, 1)
		s.replaceRefused(backend.ErrInvalid, "a", "a gap behind the log", "c1", taken)
	}},
	{"Replace/concurrent", func(s *suite) {
		const sessions, each = 4, 12
		for i := range sessions {
			s.append(fmt.Sprint("s", i), create(fmt.Sprint("c", i), each))
		}
		runConcurrently(2*sessions, func(i int) {
			name := fmt.Sprint("s", i)
			for seq := uint64(1); seq <= each; seq++ {
				if i < sessions {
					s.wantError(s.Replace(ctx, name, fmt.Sprint("c", i), replacing(s.replacement(name, "other", seq))), nil, "Replace")
				} else if err := s.PutSnapshot(ctx, "s0", "c0", backend.Snapshot{Seq: 1, Data: []byte("of edition 0")}); err != nil {
					s.wantError(err, backend.ErrMoved, "PutSnapshot")
				}
			}
		})
		for i := range sessions {
			want := s.want.sessions[fmt.Sprint("s", i)]
			want.token = 0
			for n := range each {
				data := fmt.Sprint("other ", n+1)
				want.records[n], want.sums[n] = data, crc32.ChecksumIEEE([]byte(data))
			}
		}
	}},
}
