package fold

import (
	"unsafe"

	"github.com/patchlog-dev/patchlog/patch"
)

// Footprint returns about how many bytes of memory the view takes, most of which it
// shares with the session's other views: the visible events, and what its patches keep
// of what they hid. It takes time in the number of visible events, but for those that a view was asked
// about from which this one was made.
func (v View) Footprint() int {
	return int(unsafe.Sizeof(v)) + changesFootprint(v.initial) + v.held + v.nodes.footprint()
}

// nodeBytes is about what a node takes in memory besides its event, with its share of the
// chunks.
const nodeBytes = 64

// footprint returns about what the nodes take in memory. It is computed once for each chunk, and not
// while this is made: that takes a look at every event, which folding does not.
func (s *sequence) footprint() (n int) {
	for c := range s.chunks {
		known := c.bytes.Load()
		if known == 0 {
			known = int64(footprintOf(c.nodes))
			c.bytes.Store(known)
		}
		n += int(known)
	}
	return n
}

func footprintOf(nodes []node) int {
	n := len(nodes) * nodeBytes
	for i := range nodes {
		if e := nodes[i].event; e != nil {
			n += e.Footprint()
		}
	}
	return n
}

// cutBytes is about what a patch takes in memory besides what it took out and carries.
const cutBytes = int(unsafe.Sizeof(cut{})) + 128

// footprint is about what a patch keeps in memory of what it hid.
func (c *cut) footprint() int {
	return cutBytes + len(c.id) + len(c.group) + changesFootprint(c.carries) +
		len(c.out.pieces)*int(unsafe.Sizeof(piece{})) + len(c.standIns)*int(unsafe.Sizeof(standIn{}))
}

// changesFootprint returns about how many bytes of memory changes take.
func changesFootprint(changes []patch.Change) int {
	n := len(changes) * int(unsafe.Sizeof(patch.Change{}))
	for i := range changes {
		n += len(changes[i].Key) + changes[i].Value.Size()
	}
	return n
}
