package fold

import (
	"unsafe"

	"github.com/patchlog-dev/patchlog/patch"
)

// Footprint returns about how many bytes of memory the view takes, most of which it
// shares with the session's other views: the visible events, and what its patches keep
// of what they hid. Of a view that was not released, see [View.Release], the events that
// were hidden since are not counted.
func (v View) Footprint() int {
	n := int(unsafe.Sizeof(v)) + patch.ChangesFootprint(v.initial) + v.held
	if v.root != nil {
		n += v.root.bytes
	}
	return n
}

// cutBytes is about what a patch takes in memory besides what it took out and carries.
const cutBytes = int(unsafe.Sizeof(cut{})+unsafe.Sizeof(patchList{})+unsafe.Sizeof(run{})) + 128

// footprint is about what the patch keeps in memory of what it hid. It must have been
// released.
func (c *cut) footprint() int {
	r := c.out.Load()
	return cutBytes + len(c.id) + patch.ChangesFootprint(c.net()) + len(r.pieces)*int(unsafe.Sizeof(piece{}))
}
