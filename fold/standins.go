package fold

import "iter"

// Ref names an event of a log: the seq of its record, and its index among the events that
// the record brought, 0 for a regular event.
type Ref struct {
	Seq   uint64
	Index int
}

// Cut is what a patch took out of the visible log, and how many events it put in in its
// place.
type Cut struct {
	Seq   uint64 // of the patch
	Group string // of the patch, or ""
	Puts  int    // its events are those with the indices 0 to Puts-1
	Out   iter.Seq[Ref]
}

// Cuts yields what the patches of the view's log took out, in the order of the log, whether
// they stand or have been taken back. Reverts, patches that make no place of their own, and such
// as were skipped are not among them. Of what Out yields, some may be places at which a patch put no event in. The
// error is as that of [View.Skipped].
func (v View) Cuts() (iter.Seq[Cut], error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	return func(yield func(Cut) bool) {
		for _, c := range v.patches.ascending() {
			if c.revert || c.made == 0 {
				continue
			}
			out := func(yield func(Ref) bool) {
				for n := range c.tookOut {
					if !yield(Ref{n.seq, int(n.index)}) {
						return
					}
				}
			}
			puts := 0
			if c.puts {
				puts = int(c.made)
			}
			if !yield(Cut{c.seq, c.group, puts, out}) {
				return
			}
		}
	}, nil
}
