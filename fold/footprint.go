package fold

import (
	"unsafe"

	"github.com/patchlog-dev/patchlog/patch"
)

// Footprint estimates the memory of the view in bytes: its visible events, and its data about hidden events.
// Views of the same session share most of this memory. Footprint takes time linear in the number of visible
// events that no earlier call has measured.
func (v View) Footprint() int {
	return int(unsafe.Sizeof(v)) + v.initialBytes + v.patchBytes + v.nodes.footprint()
}

// nodeBytes is the approximate memory of a node without its event.
const nodeBytes = 64

// footprint returns the approximate memory of the nodes. Each part of the tree caches its result.
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

// cutBytes is the approximate memory of a cut without its removed run and its delta.
const cutBytes = int(unsafe.Sizeof(cut{})) + 128

func (c *cut) footprint() int {
	return cutBytes + len(c.id) + len(c.group) + changesFootprint(c.carriedDelta) +
		len(c.removed.pieces)*int(unsafe.Sizeof(piece{})) + len(c.standIns)*int(unsafe.Sizeof(standIn{}))
}

// changesFootprint returns the approximate memory of changes in bytes.
func changesFootprint(changes []patch.Change) int {
	n := len(changes) * int(unsafe.Sizeof(patch.Change{}))
	for i := range changes {
		n += len(changes[i].Key) + len(changes[i].Value.String())
	}
	return n
}
