package fold

// Hidden returns the events of the view's log that patches took out of sight and that are out of it,
// each with the seq of the patch since which it is: the newest that took it out, be it the revert of a
// revert. Events that are pinned are not among them. The error is as that of [View.Skipped].
func (v View) Hidden() (map[Ref]uint64, error) {
	if err := v.load(); err != nil {
		return nil, err
	}
	since := map[Ref]uint64{}
	for _, c := range v.patches.ascending() {
		for n := range c.tookOut {
			if n.cut == nil || n.cut.puts {
				since[n.id().ref()] = c.seq
			}
		}
	}
	for n := range v.root.all {
		delete(since, n.id().ref())
	}
	for id := range v.pins {
		delete(since, id.ref())
	}
	return since, nil
}

func (id nodeID) ref() Ref { return Ref{id.seq, int(id.index)} }
