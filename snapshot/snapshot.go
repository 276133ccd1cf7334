// Package snapshot turns a view into bytes and back, so that reading a session need not
// start at its first record.
//
// A snapshot is a cache: it may be missing, stale, of another
// version or damaged, and the answer is the same, only slower. It holds no event: it
// says by seq and index which records do, mostly as ranges.
package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// Version is the version of the byte form. What the bytes mean also depends on
// [fold.Meaning]; both stand in every snapshot. Version 1 did not say where patches' nodes
// are sorted in.
const Version = 2

// ErrUnusable is what the errors of [Decode] match: the snapshot is damaged, of another
// version, or of another session or log. Whoever sees it folds from the first record.
var ErrUnusable = errors.New("unusable snapshot")

// ErrOutdated is what an error of [Decode] matches besides if the snapshot is whole, but
// another version of the program made it.
var ErrOutdated = errors.New("snapshot of another version")

// Byte 0 is the version, byte 1 the meaning, bytes 2 to 5 the CRC32C, little endian, of
// all the others.
const headerBytes = 6

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, data[:2]), castagnoli, data[headerBytes:])
}

// Kinds of runs, which the nodes are written in.
const (
	runEvents = 0 // regular events of consecutive records: first seq, count
	runEvent  = 1 // one event: seq, index, flags, pos, what it carries
	runMarker = 2 // flags, pos, what it carries
)

const (
	flagSummary = 1
	flagCarries = 2
	flagPinned  = 4
)

const flagUnknown = 1

// Encode returns the view's snapshot. Its size depends on the visible events and on
// what kept cuts carry, not on what is hidden; a stretch of events that no patch touched
// takes a few bytes. The error matches [patch.ErrInvalid] if a state key is not UTF-8.
func Encode(v fold.View) ([]byte, error) {
	s := v.Skeleton()
	w := writer{Version, fold.Meaning, 0, 0, 0, 0}
	w.text(s.Creation)
	w.uint(s.Seq)
	w.uint(s.PatchSeq)
	w.text(s.Invocation)
	if s.Unknown {
		w.uint(flagUnknown)
	} else {
		w.uint(0)
	}
	w.uint(uint64(s.Skips))
	for _, n := range s.Nodes {
		if !plain(n) {
			if err := w.single(n); err != nil {
				return nil, err
			}
			continue
		}
		w.uint(runEvents)
		w.uint(n.Seq)
		w.uint(n.More + 1)
	}
	binary.LittleEndian.PutUint32(w[2:], checksum(w))
	return w, nil
}

// plain reports whether a node is a regular event that carries nothing and is not pinned,
// or several.
func plain(n fold.NodeRef) bool {
	return n.Seq != 0 && n.Pos == n.Seq && n.Index == 0 && !n.Summary && !n.Pinned && len(n.Carries) == 0
}

type writer []byte

func (w *writer) uint(u uint64) { *w = binary.AppendUvarint(*w, u) }

func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *writer) single(n fold.NodeRef) error {
	flags := uint64(0)
	if n.Summary {
		flags |= flagSummary
	}
	if len(n.Carries) > 0 {
		flags |= flagCarries
	}
	if n.Pinned {
		flags |= flagPinned
	}
	if n.Seq == 0 {
		w.uint(runMarker)
	} else {
		w.uint(runEvent)
		w.uint(n.Seq)
		w.uint(uint64(n.Index))
	}
	w.uint(flags)
	w.uint(n.Pos)
	if len(n.Carries) == 0 {
		return nil
	}
	members := make(map[string]patch.Value, len(n.Carries))
	for _, c := range n.Carries {
		members[c.Key] = c.Value
	}
	object, err := patch.NewObject(members)
	if err != nil {
		return err
	}
	form, err := object.MarshalBinary()
	w.text(string(form))
	return err
}

// Decode returns the skeleton of the view that a snapshot was made of, without the
// initial state, which the caller knows. creation is the id of the session's creation and
// last its log's last seq: a snapshot of another session, or of a longer log, is refused.
// Whatever the bytes say, they cost time and memory linear in their number. The error
// matches [ErrUnusable].
func Decode(data []byte, creation string, last uint64) (fold.Skeleton, error) {
	unusable := func(format string, args ...any) (fold.Skeleton, error) {
		return fold.Skeleton{}, fmt.Errorf("%w: %s", ErrUnusable, fmt.Sprintf(format, args...))
	}
	if len(data) < headerBytes {
		return unusable("%d bytes", len(data))
	}
	if sum, want := checksum(data), binary.LittleEndian.Uint32(data[2:]); sum != want {
		return unusable("checksum %08x, want %08x", sum, want)
	}
	if data[0] != Version || data[1] != fold.Meaning {
		return fold.Skeleton{}, fmt.Errorf("%w: %w: version %d with meaning %d; this program makes %d with %d",
			ErrUnusable, ErrOutdated, data[0], data[1], Version, fold.Meaning)
	}
	r := reader{rest: data[headerBytes:]}
	s := fold.Skeleton{Creation: r.text(), Seq: r.uint(), PatchSeq: r.uint(), Invocation: r.text()}
	s.Unknown = r.uint()&flagUnknown != 0
	skips := r.uint()
	switch {
	case r.err != nil:
		return unusable("%v", r.err)
	case s.Creation != creation:
		return unusable("it is of another session, created as %q", s.Creation)
	case s.Seq > last:
		return unusable("it stands at record %d, but the log ends at %d", s.Seq, last)
	case s.PatchSeq > s.Seq || skips > s.Seq || skips > math.MaxInt:
		return unusable("at record %d it counts %d skipped patches and a patch %d", s.Seq, skips, s.PatchSeq)
	}
	s.Skips = int(skips)
	ranged := uint64(0) // events in ranges
	for len(r.rest) > 0 && r.err == nil {
		if r.uint() == runEvents && r.err == nil {
			first, count := r.uint(), r.uint()
			if ranged += count; count == 0 || count > s.Seq || ranged > s.Seq || first == 0 || first > s.Seq-count+1 {
				return unusable("a range of %d events from record %d on, at record %d", count, first, s.Seq)
			}
			s.Nodes = append(s.Nodes, fold.NodeRef{Seq: first, Pos: first, More: count - 1})
			continue
		}
		n := r.single()
		if n.Seq > s.Seq || n.Pos > s.Seq {
			return unusable("an event of record %d, place %d, at record %d", n.Seq, n.Pos, s.Seq)
		}
		s.Nodes = append(s.Nodes, n)
	}
	if r.err != nil {
		return unusable("%v", r.err)
	}
	return s, nil
}
