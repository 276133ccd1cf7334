package compaction

import (
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
)

// PromptTokens returns how many tokens a prompt made of the visible log takes. It is
// the newest measurement (usageMetadata.promptTokenCount) of a visible event that is no
// summary and was logged after the newest patch, plus the estimate
// ([patch.Event.EstimatedTokens]) of that event and all after it, which were not in the
// measured prompt. Where no event was measured since the newest patch, it is the
// estimate of the whole visible log; measured says which. Measurements are never
// summed.
func PromptTokens(v fold.View) (tokens int, measured bool) {
	entries := make([]fold.Entry, 0, v.Len())
	for _, e := range v.Entries() {
		entries = append(entries, e)
	}
	return promptTokens(entries, v.PatchSeq())
}

func promptTokens(entries []fold.Entry, patchSeq uint64) (tokens int, measured bool) {
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		tokens += e.Event.EstimatedTokens()
		if e.Seq > patchSeq && !e.Summary {
			if n := records.PromptTokens(e.Event); n > 0 {
				return tokens + n, true
			}
		}
	}
	return tokens, false
}
