package compaction

import (
	"time"

	"github.com/patchlog-dev/patchlog/compaction/internal/record"
	"github.com/patchlog-dev/patchlog/patch"
)

// Written says what one pass of compaction put into a log. The same is in the patch's
// customMetadata["patchlog"], under the names of the JSON tags, and [WrittenBy] reads it.
type Written struct {
	PatchID      string        `json:"-"`
	Trigger      Trigger       `json:"trigger"`
	Merged       bool          `json:"merged"`       // summaries went, not raw events
	Level        int           `json:"level"`        // of the summaries, the highest
	EventsBefore int           `json:"eventsBefore"` // visible events that went
	EventsAfter  int           `json:"eventsAfter"`  // summaries that came
	TokensBefore int           `json:"tokensBefore"` // estimated, of the events that went
	TokensAfter  int           `json:"tokensAfter"`  // estimated, of the summaries
	Ratio        float64       `json:"ratio"`        // TokensAfter over TokensBefore; 0 if nothing went
	Model        string        `json:"model,omitempty"`
	Took         time.Duration `json:"-"` // with the calls of the summarizer

	// Usage is what the summarizer measured, added up over its calls.
	Usage Usage `json:"usage"`

	// Verified says that the summaries were held against what they stand for. Of the Held
	// identifiers that this has, Lost are in no summary for it; Invented are those that
	// summaries have and it has not ([InventedBy]). What a summary of summaries stands for is
	// what these say.
	Verified bool `json:"verified"`
	Held     int  `json:"held"`
	Lost     int  `json:"lost"`
	Invented int  `json:"invented"`
}

// Usage counts the tokens of a summarizer's calls, where it measures them.
type Usage struct {
	Calls        int `json:"calls"`
	PromptTokens int `json:"promptTokens"`
	AnswerTokens int `json:"answerTokens"`
}

func (u *Usage) add(t Tokens) {
	u.Calls++
	u.PromptTokens += t.Prompt
	u.AnswerTokens += t.Answer
}

// patchMetadata is what the patch of a pass says of it in its
// customMetadata["patchlog"].
type patchMetadata struct {
	Written
	DurationMs int64             `json:"durationMs"` // until the summaries were there
	Recent     map[string]recent `json:"recent,omitempty"`
	strangers
}

// strangers are the first of what summaries have and the events have not.
type strangers struct {
	InventedNames []string `json:"inventedNames,omitempty"`
	Numbers       []string `json:"numbers,omitempty"`
}

// metadata returns the figures as a patch's metadata has them.
func (m patchMetadata) metadata() map[string]any {
	w := m.Written
	out := map[string]any{
		"trigger": string(w.Trigger), "merged": w.Merged, "level": w.Level,
		"eventsBefore": w.EventsBefore, "eventsAfter": w.EventsAfter,
		"tokensBefore": w.TokensBefore, "tokensAfter": w.TokensAfter, "ratio": w.Ratio,
		"durationMs": m.DurationMs, "verified": w.Verified, "held": w.Held, "lost": w.Lost, "invented": w.Invented,
		"usage": map[string]any{
			"calls": w.Usage.Calls, "promptTokens": w.Usage.PromptTokens, "answerTokens": w.Usage.AnswerTokens,
		},
	}
	if w.Model != "" {
		out["model"] = w.Model
	}
	for name, names := range map[string][]string{"inventedNames": m.InventedNames, "numbers": m.Numbers} {
		if len(names) > 0 {
			out[name] = names
		}
	}
	named := map[string]any{}
	for id, r := range m.Recent {
		named[id] = r.metadata()
	}
	out["recent"] = named
	return out
}

// metadataOf reads a patch's metadata.
func metadataOf(p *patch.PatchEvent) (m patchMetadata, ok bool) {
	if p == nil {
		return m, false
	}
	if text, _ := p.Field("customMetadata"); !record.Own(text, &m) {
		return patchMetadata{}, false
	}
	m.PatchID, m.Took = p.ID(), time.Duration(m.DurationMs)*time.Millisecond
	return m, true
}

// WrittenBy returns what a patch says of the pass of compaction that logged it, if one
// did. It is the first patch of a pass that says it. Took is without the time that logging
// took.
func WrittenBy(p *patch.PatchEvent) (Written, bool) {
	m, ok := metadataOf(p)
	if !ok || m.Trigger == "" {
		return Written{}, false
	}
	return m.Written, true
}

// InventedBy returns what a patch says of identifiers that the summaries of its pass invented,
// of which there may be some if [Config.MaxInvented] lets them, and of words in them that may be
// sums, counts and the like of what they stand for; at most 32 of each.
func InventedBy(p *patch.PatchEvent) (identifiers, numbers []string) {
	m, _ := metadataOf(p)
	return m.InventedNames, m.Numbers
}
