package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// reader reads what a writer wrote. After its first error it reads zeros.
type reader struct {
	rest []byte
	kind uint64 // the last number read
	err  error
}

var errShort = errors.New("it ends too early")

func (r *reader) uint() uint64 {
	if r.err != nil {
		return 0
	}
	u, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.err = errShort
		return 0
	}
	r.rest = r.rest[n:]
	r.kind = u
	return u
}

func (r *reader) text() string {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.err = errShort
	}
	if r.err != nil {
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

// single reads a run of one node, whose kind has been read.
func (r *reader) single() fold.NodeRef {
	var n fold.NodeRef
	switch r.kind {
	case runEvent:
		n.Seq = r.uint()
		index := r.uint()
		if r.err == nil && (n.Seq == 0 || index > math.MaxInt32) {
			r.err = fmt.Errorf("an event of record %d, index %d", n.Seq, index)
		}
		n.Index = int(index)
	case runMarker:
	default:
		r.err = fmt.Errorf("a run of unknown kind %d", r.kind)
	}
	flags := r.uint()
	n.Summary, n.Pinned = flags&flagSummary != 0, flags&flagPinned != 0
	if n.Pinned && n.Seq == 0 && r.err == nil {
		r.err = errors.New("a pinned marker")
	}
	n.Pos = r.uint()
	if flags&flagCarries == 0 || r.err != nil {
		return n
	}
	var object patch.Value
	if err := object.UnmarshalBinary([]byte(r.text())); err != nil {
		if r.err == nil {
			r.err = err
		}
		return n
	}
	members := object.Members()
	if len(members) == 0 && r.err == nil {
		r.err = errors.New("it carries no changes where it says that it does")
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		n.Carries = append(n.Carries, patch.Change{Key: key, Value: members[key]})
	}
	return n
}
