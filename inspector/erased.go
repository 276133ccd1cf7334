package inspector

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// receiptsByID are the records that say what was erased, by their ids.
func (t *timeline) receiptsByID() map[string]uint64 {
	out := map[string]uint64{}
	for _, s := range t.steps {
		if s.Patch != nil && s.Patch.Type == patch.Erase {
			out[s.ID] = s.Seq
		}
	}
	return out
}

// blank says of a record by which receipt it was erased, or nothing.
func (t *timeline) blank(key store.Key, r patch.Record) []fact {
	by, erased := records.Envelope(r).Erased()
	seq := t.receiptsByID()[by]
	switch {
	case !erased:
		return nil
	case seq == 0:
		return []fact{{Text: "Erased; the receipt is not in this log"}}
	case r.Patch != nil:
		return []fact{{Text: fmt.Sprintf("Erased, itself or events that it put in: the receipt is record %d", seq), URL: recordURL(key, seq, "")}}
	}
	return []fact{{Text: fmt.Sprintf("Erased: the receipt is record %d", seq), URL: recordURL(key, seq, "")}}
}

// erasable reports whether there may be something in a record that can be erased. What was
// erased with its state values kept can be erased once more without.
func erasable(r patch.Record) bool {
	if r.Patch != nil {
		return r.Patch.Type() != patch.Erase
	}
	return !r.Event.IsBlank(patch.NullValues)
}
