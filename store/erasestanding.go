package store

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// standing is patches that mean one thing, of one group or a single one: what they have put in
// stands for what they took out.
type standing struct {
	cuts []fold.Cut // in the order of the log
	puts []fold.Ref

	// of says which summary stands for what went, where that is known of all. It is nil where any
	// of what they put in may stand for any of it.
	of map[fold.Ref]fold.Ref
}

// out yields what they took out. The last of a group was made first, from the end of the log.
func (u *standing) out() iter.Seq[fold.Ref] {
	return func(yield func(fold.Ref) bool) {
		for _, cut := range slices.Backward(u.cuts) {
			for ref := range cut.Out {
				if !yield(ref) {
					return
				}
			}
		}
	}
}

// standsFor returns what one of the events that they put in stands for, and whether that is known.
func (u *standing) standsFor(put fold.Ref) (refs []fold.Ref, known bool) {
	if u.of == nil && len(u.puts) > 1 {
		return nil, false
	}
	for ref := range u.out() {
		if of, is := u.of[ref]; u.of == nil || is && of == put {
			refs = append(refs, ref)
		}
	}
	return refs, true
}

// branch is what compaction never mixes in one text.
type branch struct{ name, scope string }

func branchOf(e *patch.Event) branch {
	return branch{records.BranchWithoutRuns(e.Branch()), e.IsolationScope()}
}

// telling is what a summary says of itself.
type telling struct {
	of      branch
	events  int // raw ones that it stands for; 0 if it says nothing
	windows int // summaries of raw events that went into it
}

func tellingOf(e *patch.Event) telling {
	t := telling{of: branchOf(e)}
	var own struct{ Events, Windows int }
	var all map[string]json.RawMessage
	text, _ := e.Field("customMetadata")
	if json.Unmarshal(text, &all) == nil && json.Unmarshal(all[patch.OwnMetadata], &own) == nil && own.Events > 0 {
		t.events, t.windows = own.Events, own.Windows
	}
	return t
}

// standings returns what patches of a log have put in, and what for.
func (s *Store) standings(ctx context.Context, key Key, v fold.View, c *scan) ([]*standing, error) {
	cuts, err := v.Cuts()
	if err != nil {
		return nil, err
	}
	var all []*standing
	groups := map[string]*standing{}
	for cut := range cuts {
		u := groups[cut.Group]
		if u == nil {
			u = &standing{}
			all = append(all, u)
			if cut.Group != "" {
				groups[cut.Group] = u
			}
		}
		u.cuts = append(u.cuts, cut)
		for i := range cut.Puts {
			u.puts = append(u.puts, fold.Ref{Seq: cut.Seq, Index: i})
		}
	}
	all = slices.DeleteFunc(all, func(u *standing) bool { return len(u.puts) == 0 })
	for _, u := range all {
		if err := s.attribute(ctx, key, v.Creation(), c, u); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// attribute finds out which of several summaries stands for what: compaction makes one for each
// branch, and each says for how many events it stands. If that fits, it is known.
func (s *Store) attribute(ctx context.Context, key Key, creation string, c *scan, u *standing) error {
	if len(u.puts) < 2 {
		return nil
	}
	by := map[branch]fold.Ref{}
	for _, put := range u.puts {
		t := c.told[put]
		if t.events == 0 {
			return nil
		}
		by[t.of] = put // if two are of one branch, one of them has no events
	}
	events, err := s.eventsAt(ctx, key, creation, slices.Collect(u.out()))
	if err != nil {
		return err
	}
	of := make(map[fold.Ref]fold.Ref, len(events))
	count := map[fold.Ref]int{}
	for ref, e := range events {
		put, ok := by[branchOf(e)]
		if !ok {
			return nil
		}
		of[ref] = put
		n := 1
		if t, is := c.told[ref]; is {
			n = t.events
		}
		count[put] += n
	}
	for _, put := range u.puts {
		if count[put] != c.told[put].events {
			return nil
		}
	}
	u.of = of
	return nil
}

// eventsAt reads events of a log. Of refs at which a patch has put nothing in, there are none.
func (s *Store) eventsAt(ctx context.Context, key Key, creation string, refs []fold.Ref) (map[fold.Ref]*patch.Event, error) {
	var seqs []uint64
	for _, ref := range refs {
		seqs = append(seqs, ref.Seq)
	}
	slices.Sort(seqs)
	records, err := s.pick(ctx, key, creation, slices.Compact(seqs))
	if err != nil {
		return nil, err
	}
	at := make(map[uint64]patch.Record, len(records))
	for _, r := range records {
		at[r.Seq] = r
	}
	out := make(map[fold.Ref]*patch.Event, len(refs))
	for _, ref := range refs {
		if events := at[ref.Seq].Events(); ref.Index >= 0 && ref.Index < len(events) {
			out[ref] = events[ref.Index]
		}
	}
	return out, nil
}
