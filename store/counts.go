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

// encode writes the counts as varints; a time is in nanoseconds since 1970, 0 for none.
func (c counts) encode() []byte {
	out := make([]byte, 0, 32)
	for _, n := range []int64{int64(c.visible), int64(c.visibleTokens), int64(c.tokens), nanoseconds(c.active), nanoseconds(c.compacted), int64(c.open), int64(c.calls)} {
		out = binary.AppendVarint(out, n)
	}
	return out
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() || t.Before(time.Unix(0, 0)) {
		return 0
	}
	return t.UnixNano()
}

// countsOf reads the counts of a head. A session that a salvage wrote has none before its next commit.
func countsOf(head backend.Head) counts {
	var n [7]int64
	data := head.Counts
	for i := range n {
		var size int
		if n[i], size = binary.Varint(data); size <= 0 {
			return counts{}
		}
		data = data[size:]
	}
	at := func(ns int64) time.Time {
		if ns == 0 {
			return time.Time{}
		}
		return time.Unix(0, ns).UTC()
	}
	return counts{visible: int(n[0]), visibleTokens: int(n[1]), tokens: int(n[2]), active: at(n[3]), compacted: at(n[4]), open: int(n[5]), calls: int(n[6])}
}
