package write

import (
	"encoding/binary"
	"time"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/backend"
	"github.com/patchlog-dev/patchlog/store/internal/receipt"
)

// Counts are statistics of a session's log. Each commit stores the counts in the session's head, so that a listing
// need not read logs.
type Counts struct {
	Visible       int // number of visible events
	VisibleTokens int
	Tokens        int       // estimated tokens of all events, as they were logged
	Created       time.Time // when the session was created
	Active        time.Time // the latest time of a record, receipts excluded: an erasure is no activity
	Compacted     time.Time // the latest time of a patch of a compaction
	Open          int       // number of erasure receipts that are not closed
	Calls         int       // number of erasures called on this session that may have work left in other sessions
	patched       bool      // a patch was added since VisibleTokens was computed
}

// Add counts a record that is appended.
func (c *Counts) Add(r patch.Record) {
	if p := r.Patch; p != nil {
		c.patched = true
		if p.Author() == patch.CompactionAuthor && p.Timestamp().After(c.Compacted) {
			c.Compacted = p.Timestamp()
		}
		if p.Timestamp().After(c.Active) && !receipt.IsReceipt(r) {
			c.Active = p.Timestamp()
		}
		return
	}
	c.Tokens += r.Event.EstimatedTokens()
	c.VisibleTokens += r.Event.EstimatedTokens()
	if r.Event.Timestamp().After(c.Active) {
		c.Active = r.Event.Timestamp()
	}
}

// At returns the counts for a view of the log. It counts the tokens of the visible log again only if a patch was
// added.
func (c Counts) At(v fold.View) Counts {
	c.Visible = v.Len()
	if c.patched {
		c.VisibleTokens, c.patched = 0, false
		for _, e := range v.Events() {
			c.VisibleTokens += e.EstimatedTokens()
		}
	}
	return c
}

// Encode encodes the counts as varints: first the numbers, then two varints for each time. The first is the seconds
// since 1970. The second is the nanoseconds plus one, or 0 for the zero time.
func (c *Counts) Encode() []byte {
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

func (c *Counts) numbers() []*int {
	return []*int{&c.Visible, &c.VisibleTokens, &c.Tokens, &c.Open, &c.Calls}
}

func (c *Counts) times() []*time.Time { return []*time.Time{&c.Created, &c.Active, &c.Compacted} }

// CountsOf decodes the counts in a head. Counts that cannot be decoded are 0.
func CountsOf(head backend.Head) (c Counts) {
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
