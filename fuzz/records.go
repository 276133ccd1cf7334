package fuzz

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// DefaultMax is how many records [Records] generates at most unless told otherwise.
const DefaultMax = 40

// Options say which logs [Records] generates.
type Options struct {
	Max int // at most so many records; 0 means [DefaultMax]

	// Accepted leaves out what a store would refuse: ids are given once, and every
	// patch passes [Reference.Check] without allowing orphans.
	Accepted bool
}

// Records generates logs, with seqs 1, 2, 3 …, that look like agents' sessions and hold
// what is hard about them: parallel, long-running, reused and unanswered calls, calls
// without id, branches, state under few keys, events without content or invocation,
// equal and backward times ([Event]); and patches of every type and policy, in range
// and not, well-formed and not ([Patch]). Unless Accepted is set an id now and then is
// there already. Logs shrink record by record.
func Records(opts Options) *rapid.Generator[[]patch.Record] {
	if opts.Max == 0 {
		opts.Max = DefaultMax
	}
	return rapid.Custom(func(t *rapid.T) []patch.Record {
		s := session{opts: opts, ref: NewReference(nil)}
		next := rapid.Custom(s.next)
		for len(s.records) < opts.Max {
			rec := next.Draw(t, "record")
			if rec.Seq == 0 {
				break
			}
			s.add(rec)
		}
		return s.records
	})
}

// session is a log in the making.
type session struct {
	opts    Options
	ref     *Reference
	records []patch.Record
	ids     []string
}

func (s *session) add(rec patch.Record) {
	s.records = append(s.records, rec)
	s.ref.Apply(rec)
	for id := range rec.IDs() {
		s.ids = append(s.ids, id)
	}
}

// next draws the next record, without a seq if there shall be none.
func (s *session) next(t *rapid.T) patch.Record {
	// Zeros end the log: so it shrinks from the end first.
	if rapid.IntRange(0, 31).Draw(t, "more") == 0 && rapid.IntRange(0, 3).Draw(t, "more still") == 0 {
		return patch.Record{}
	}
	seq := uint64(len(s.records) + 1)
	visible := s.ref.Visible()
	if oneIn(t, 3, "is a patch") {
		for range 3 {
			p := PatchOn(s.newID(t, "p", seq), s.ref).Draw(t, "patch")
			if p.Validate() == nil && oneIn(t, 4, "has the newest base") {
				p = p.WithBase(s.ref.PatchSeq())
			}
			if !s.opts.Accepted || s.ref.Check(p, false) == nil {
				return patch.Record{Seq: seq, Patch: p}
			}
		}
	}
	return patch.Record{Seq: seq, Event: Event(s.newID(t, "e", seq), visible).Draw(t, "event")}
}

func (s *session) newID(t *rapid.T, prefix string, seq uint64) string {
	if !s.opts.Accepted && len(s.ids) > 0 && oneIn(t, 24, "takes an id again") {
		return rapid.SampledFrom(s.ids).Draw(t, "id")
	}
	return fmt.Sprintf("%s%d", prefix, seq)
}

// oneIn draws true about once in n times; it shrinks to false.
func oneIn(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

// InitialState generates what a session may be created with: few keys, so that deltas
// collide with them, and keys of every scope.
func InitialState() *rapid.Generator[map[string]patch.Value] {
	return rapid.Custom(func(t *rapid.T) map[string]patch.Value {
		state := map[string]patch.Value{}
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			key := rapid.SampledFrom(stateKeys).Draw(t, "key")
			state[key] = stateValue().Draw(t, "value")
		}
		return state
	})
}
