package fold

import (
	"unsafe"

	"github.com/patchlog-dev/patchlog/patch"
)

// Footprint returns about how many bytes of memory the view takes, most of which it
// shares with the session's other views: the visible events, and what its patches keep
// of what they hid. What they hid itself, which views keep that are not lean, is not
// counted.
func (v View) Footprint() int {
	n := int(unsafe.Sizeof(v)) + patch.ChangesFootprint(v.initial) + v.held
	if v.root != nil {
		n += v.root.bytes
	}
	return n
}

// cutBytes is about what a patch takes in memory besides what it took out and carries.
const cutBytes = int(unsafe.Sizeof(cut{})+unsafe.Sizeof(patchList{})) + 128

// footprint is about what a lean patch keeps in memory of what it hid.
func (c *cut) footprint() int {
	return cutBytes + len(c.id) + len(c.group) + patch.ChangesFootprint(c.net()) + len(c.out.pieces)*int(unsafe.Sizeof(piece{}))
}
