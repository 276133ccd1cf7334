package store

import (
	"encoding/binary"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/erase"
)

// counts are what a session's log comes to. Each commit stores them with the session's head, so that a listing
// reads no logs.
type counts struct {
	visible       int // events
	visibleTokens int
	tokens        int       // of all events, as they were logged
	created       time.Time // of the session; not of what it logs
	active        time.Time // the newest time of a record, but for receipts: to erase is not to use
	compacted     time.Time // of the newest patch of a compaction
	open          int       // receipts of erasures that are not closed
	calls         int       // erasures of the session that are not done in other sessions
	patched       bool      // since the visible tokens were counted
}

// add counts a record that follows those that are counted.
func (c *counts) add(r patch.Record) {
	if p := r.Patch; p != nil {
		c.patched = true
		if p.Author() == patch.CompactionAuthor && p.Timestamp().After(c.compacted) {
			c.compacted = p.Timestamp()
		}
		if p.Timestamp().After(c.active) && !erase.IsReceipt(r) {
			c.active = p.Timestamp()
		}
		return
	}
	c.tokens += r.Event.EstimatedTokens()
	c.visibleTokens += r.Event.EstimatedTokens()
	if r.Event.Timestamp().After(c.active) {
		c.active = r.Event.Timestamp()
	}
}

// of returns the counts of a log as they are with a view of it. Events without patches make the visible log longer;
// after a patch its tokens are counted anew.
func (c counts) of(v fold.View) counts {
	c.visible = v.Len()
	if c.patched {
		c.visibleTokens, c.patched = 0, false
		for _, e := range v.Events() {
			c.visibleTokens += e.EstimatedTokens()
		}
	}
	return c
}

// encode writes the counts as varints: the numbers, then two for each time, the seconds since 1970 and, 0 for no time, the
// nanoseconds and one.
func (c *counts) encode() []byte {
	out := make([]byte, 0, 48)
	for _, n := range c.numbers() {
		out = binary.AppendVarint(out, int64(*n))
	}
	for _, t := range c.times() {
		if t.IsZero() {
			out = append(out, 0, 0)
			continue
		}
		out = binary.AppendVarint(binary.AppendVarint(out, t.Unix()), int64(t.Nanosecond())+1)
	}
	return out
}

func (c *counts) numbers() []*int {
	return []*int{&c.visible, &c.visibleTokens, &c.tokens, &c.open, &c.calls}
}

func (c *counts) times() []*time.Time { return []*time.Time{&c.created, &c.active, &c.compacted} }

// countsOf reads the counts of a head. If they cannot be read, there are none.
func countsOf(head backend.Head) (c counts) {
	data := head.Counts
	next := func() (n int64) {
		n, size := binary.Varint(data)
		if size <= 0 {
			data = nil
			return 0
		}
		data = data[size:]
		return n
	}
	for _, n := range c.numbers() {
		*n = int(next())
	}
	for _, t := range c.times() {
		if sec, nsec := next(), next(); nsec > 0 {
			*t = time.Unix(sec, nsec-1).UTC()
		}
	}
	return c
}
