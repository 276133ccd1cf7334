package compaction

import (
	"encoding/json"
	"time"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// Written describes a logged pass of compaction. The pass's first patch has the description in
// customMetadata["patchlog"]; [WrittenBy] reads it.
type Written struct {
	PatchID      string  `json:"-"`
	Trigger      Trigger `json:"trigger"`
	Merged       bool    `json:"merged"`       // the pass replaced summaries, not raw events
	Level        int     `json:"level"`        // the highest Lineage.Level of the new summaries; 0 if results were cleared
	EventsBefore int     `json:"eventsBefore"` // visible events that were replaced
	EventsAfter  int     `json:"eventsAfter"`  // summaries that replaced them
	TokensBefore int     `json:"tokensBefore"` // estimated, of the replaced events
	TokensAfter  int     `json:"tokensAfter"`  // estimated, of the summaries
	Ratio        float64 `json:"ratio"`        // TokensAfter over TokensBefore; 0 if TokensBefore is 0
	Model        string  `json:"model,omitempty"`
	UsedFallback bool    `json:"usedFallback,omitzero"` // [Extractive] wrote a summary in place of the summarizer

	// Duration includes the calls of the summarizer.
	Duration time.Duration `json:"-"`

	// Usage is the token usage of the summarizer's calls.
	Usage Usage `json:"usage"`

	// Identifiers counts the identifiers of the covered events, or of the merged summaries; Lost counts the identifiers
	// of these that no new summary has. [Losses] names them.
	Identifiers int `json:"identifiers"`
	Lost        int `json:"lost"`

	// Invented counts the identifiers in a model's answers that do not occur in the events.
	Invented int `json:"invented,omitzero"`
}

// Usage adds up the tokens that a summarizer's calls reported.
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

// verified adds the comparison of a summary with its source.
func (w *Written) verified(c identifiers.Comparison) {
	w.Identifiers += c.Identifiers
	w.Lost += len(c.Lost)
}

// writtenMetadata is the custom metadata of a pass's first patch.
type writtenMetadata struct {
	Written
	DurationMs int64 `json:"durationMs"` // until the summaries were there
}

// metadata returns the custom metadata of the pass's first patch.
func (w Written) metadata() (map[string]any, error) {
	text, err := json.Marshal(writtenMetadata{w, w.Duration.Milliseconds()})
	if err != nil {
		return nil, err
	}
	own, err := patch.ParseValue(text)
	return map[string]any{patch.OwnMetadata: own}, err
}

// WrittenBy returns the description of the pass that logged a patch, and whether the patch has one: the first patch of
// each pass has. Duration does not include the time for logging.
func WrittenBy(p *patch.PatchEvent) (Written, bool) {
	if p == nil {
		return Written{}, false
	}
	var m writtenMetadata
	if text, _ := p.Field("customMetadata"); !summaries.DecodeOwnMetadata(text, &m) || m.Trigger == "" {
		return Written{}, false
	}
	m.PatchID, m.Duration = p.ID(), time.Duration(m.DurationMs)*time.Millisecond
	return m.Written, true
}
