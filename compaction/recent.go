package compaction

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/patchlog-dev/patchlog/patch"
)

// recent names the raw events of the last invocations that a summary stands for: what the
// next window's summarizer is shown again. It stands in the metadata of the patch that put
// the summary in, by the summary's id, and holds for the log that has that record: a
// summary that was carried into another log brings none, and a patch that was does not
// fit the events there.
type recent struct {
	Seqs [][2]uint64 `json:"seqs"` // ranges, both ends included
	IDs  string      `json:"ids"`  // the checksum of the events' ids
}

// recentEvent is a raw event's place in the log, and its id.
type recentEvent struct {
	seq uint64
	id  string
}

func recentOf(events []recentEvent) recent {
	var r recent
	sum := sha256.New()
	for _, e := range events {
		r.Seqs = addSeq(r.Seqs, e.seq)
		sum.Write(append([]byte(e.id), 0))
	}
	r.IDs = hex.EncodeToString(sum.Sum(nil)[:8])
	return r
}

// addSeq adds a seq to ranges of seqs.
func addSeq(ranges [][2]uint64, seq uint64) [][2]uint64 {
	if last := len(ranges) - 1; last >= 0 && ranges[last][1]+1 == seq {
		ranges[last][1] = seq
		return ranges
	}
	return append(ranges, [2]uint64{seq, seq})
}

func (r recent) metadata() map[string]any {
	ranges := make([]any, len(r.Seqs))
	for i, s := range r.Seqs {
		ranges[i] = []any{s[0], s[1]}
	}
	return map[string]any{"seqs": ranges, "ids": r.IDs}
}

// saidRecent returns what a patch says is recent of a summary that it put in, if it does.
func saidRecent(p *patch.PatchEvent, summaryID string) (r recent, ok bool) {
	m, _ := metadataOf(p)
	r, ok = m.Recent[summaryID]
	return r, ok && len(r.Seqs) > 0
}
