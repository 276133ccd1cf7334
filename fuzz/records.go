package fuzz

import (
	"cmp"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/patch"
)

// DefaultMax is the maximum number of records if [Options.Max] is 0.
const DefaultMax = 40

// Options configures [Records].
type Options struct {
	Max int // maximum number of records; 0 means [DefaultMax]

	// Accepted generates only logs that a store would accept. In such a log, ids are unique, and patches pass
	// [Reference.Check], both alone and together with their group.
	Accepted bool
}

// Records generates logs of agents' sessions, with seqs from 1. The events come from [Event]. Calls can be parallel,
// long-running, reused, unanswered or without id. Times can be equal or go backward. Events can have branches, and
// can lack content or an invocation. The patches come from [PatchOn] and [Group].
//
// Unless Accepted is set, some ids are repeated, and some patches are receipts of erasures. [EraseLog] blanks the
// records that the receipts cover. When rapid shrinks a log, it drops single records or whole groups. [Batches]
// splits a log into commits.
func Records(opts Options) *rapid.Generator[[]patch.Record] {
	opts.Max = cmp.Or(opts.Max, DefaultMax)
	return rapid.Custom(func(t *rapid.T) []patch.Record {
		s := session{opts: opts, ref: NewReference(nil)}
		next := rapid.Custom(s.next)
		for len(s.records) < opts.Max {
			recs := next.Draw(t, "record")
			if len(recs) == 0 {
				break
			}
			for _, rec := range recs {
				s.add(rec)
			}
		}
		return s.records
	})
}

// session is a log that is being generated.
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

// next draws the next record, or the patches of a group. At the end of the log, it returns nil.
func (s *session) next(t *rapid.T) []patch.Record {
	// If both numbers are 0, the log ends. rapid shrinks numbers to 0, so logs shrink from the end.
	if rapid.IntRange(0, 31).Draw(t, "more") == 0 && rapid.IntRange(0, 3).Draw(t, "more still") == 0 {
		return nil
	}
	seq := uint64(len(s.records) + 1)
	visible := s.ref.Visible()
	if !s.opts.Accepted && oneIn(t, 16, "is a receipt") {
		return []patch.Record{{Seq: seq, Patch: Receipt(s.newID(t, "p", seq)).Draw(t, "receipt")}}
	}
	if oneIn(t, 3, "is a patch") {
		for range 3 {
			patches := s.patches(t, seq)
			if patches[0].Validate() == nil && oneIn(t, 4, "has the newest base") {
				patches[0] = patches[0].WithBase(s.ref.PatchSeq())
			}
			if s.opts.Accepted {
				ungrouped := slices.Clone(patches)
				for i, p := range ungrouped {
					ungrouped[i] = p.WithGroup("")
				}
				if s.ref.Check(CheckOptions{}, ungrouped...) != nil || s.ref.Check(CheckOptions{}, patches...) != nil {
					continue
				}
			}
			var recs []patch.Record
			for i, p := range patches {
				recs = append(recs, patch.Record{Seq: seq + uint64(i), Patch: p})
			}
			return recs
		}
	}
	return []patch.Record{{Seq: seq, Event: Event(s.newID(t, "e", seq), visible).Draw(t, "event")}}
}

// patches draws a patch, or the patches of a group.
func (s *session) patches(t *rapid.T, seq uint64) []*patch.PatchEvent {
	id := s.newID(t, "p", seq)
	if oneIn(t, 5, "is a group") {
		if group := Group(id, s.ref).Draw(t, "group"); len(s.records)+len(group) <= s.opts.Max {
			return group
		}
	}
	return []*patch.PatchEvent{PatchOn(id, s.ref).Draw(t, "patch")}
}

func (s *session) newID(t *rapid.T, prefix string, seq uint64) string {
	if !s.opts.Accepted && len(s.ids) > 0 && oneIn(t, 24, "takes an id again") {
		return rapid.SampledFrom(s.ids).Draw(t, "id")
	}
	return fmt.Sprintf("%s%d", prefix, seq)
}

// Batches splits a log into commits. Adjacent patches of a group are one commit. Every other record is a commit of
// one record.
func Batches(records []patch.Record) [][]patch.Record {
	var batches [][]patch.Record
	for i, rec := range records {
		if i > 0 && rec.Patch != nil && rec.Patch.Group() != "" &&
			records[i-1].Patch != nil && records[i-1].Patch.Group() == rec.Patch.Group() {
			last := len(batches) - 1
			batches[last] = append(batches[last], rec)
			continue
		}
		batches = append(batches, records[i:i+1:i+1])
	}
	return batches
}

// oneIn draws true about once in n times. The value shrinks to false.
func oneIn(t *rapid.T, n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

// InitialState generates initial states. The keys are few, so that state deltas change them. The keys have every
// prefix.
func InitialState() *rapid.Generator[map[string]patch.Value] {
	return rapid.MapOfN(rapid.SampledFrom(stateKeys), stateValue(), 0, 3)
}
