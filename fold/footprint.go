package fold

import (
	"unsafe"

	"github.com/patchlog-dev/patchlog/patch"
)

// Footprint estimates the memory of the view in bytes: its visible events, and what its patches keep of hidden
// ones. The session's other views share most of it. It takes time linear in the visible events that were not
// measured before in a view that this one was made from.
func (v View) Footprint() int {
	return int(unsafe.Sizeof(v)) + v.initialBytes + v.patchBytes + v.nodes.footprint()
}

// nodeBytes is about what a node takes in memory besides its event.
const nodeBytes = 64

// footprint returns about what the nodes take in memory. It is computed once for each part of the tree, on first use,
// because folding does not look at every event.
func (s *sequence) footprint() int {
	if s == nil {
		return 0
	}
	n := s.bytes.Load()
	if n > 0 {
		return int(n)
	}
	n = int64(len(s.nodes)*nodeBytes + len(s.kids)*int(unsafe.Sizeof(child{})))
	for i := range s.nodes {
		if e := s.nodes[i].event; e != nil {
			n += int64(e.Footprint())
		}
	}
	for _, k := range s.kids {
		n += int64(k.tree.footprint())
	}
	s.bytes.Store(n)
	return int(n)
}

// cutBytes is about what a patch takes in memory besides its removed run and its delta.
const cutBytes = int(unsafe.Sizeof(cut{})) + 128

// footprint is about what a patch keeps in memory of hidden events.
func (c *cut) footprint() int {
	return cutBytes + len(c.id) + len(c.group) + changesFootprint(c.carriedDelta) +
		len(c.removed.pieces)*int(unsafe.Sizeof(piece{})) + len(c.standIns)*int(unsafe.Sizeof(standIn{}))
}

// changesFootprint returns about how many bytes of memory changes take.
func changesFootprint(changes []patch.Change) int {
	n := len(changes) * int(unsafe.Sizeof(patch.Change{}))
	for i := range changes {
		n += len(changes[i].Key) + len(changes[i].Value.String())
	}
	return n
}
