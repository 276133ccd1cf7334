package compaction

import (
	"encoding/json"
	"time"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/summaries"
	"github.com/patchlog-dev/patchlog/patch"
)

// Written describes a logged pass. The first patch of the pass has this description in customMetadata["patchlog"].
// [WrittenBy] returns it.
type Written struct {
	PatchID      string  `json:"-"`
	Trigger      Trigger `json:"trigger"`
	Merged       bool    `json:"merged"`       // whether the pass replaced summaries instead of raw events
	Level        int     `json:"level"`        // highest Lineage.Level of the new summaries; 0 if results were cleared
	EventsBefore int     `json:"eventsBefore"` // number of visible events that the pass replaced
	EventsAfter  int     `json:"eventsAfter"`  // number of visible events that the pass inserted
	TokensBefore int     `json:"tokensBefore"` // estimated tokens of the replaced events
	TokensAfter  int     `json:"tokensAfter"`  // estimated tokens of the inserted events
	Ratio        float64 `json:"ratio"`        // TokensAfter divided by TokensBefore; 0 if TokensBefore is 0
	Model        string  `json:"model,omitempty"`
	UsedFallback bool    `json:"usedFallback,omitzero"` // whether [Extractive] wrote a summary instead of the summarizer

	// Duration includes the calls of the summarizer.
	Duration time.Duration `json:"-"`

	// Usage is the token usage of the summarizer's calls.
	Usage Usage `json:"usage"`

	// Identifiers is the number of identifiers in the covered events, or in the merged summaries. Lost is the number of
	// these identifiers that no new summary contains. [Losses] lists the lost identifiers.
	Identifiers int `json:"identifiers"`
	Lost        int `json:"lost"`

	// Invented is the number of identifiers in a model's accepted answers that occur neither in the events nor in the
	// prompt.
	Invented int `json:"invented,omitzero"`
}

// Usage is the total of the tokens that a summarizer's calls reported.
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

// addComparison adds the result of comparing a summary with its source.
func (w *Written) addComparison(c identifiers.Comparison) {
	w.Identifiers += c.Identifiers
	w.Lost += len(c.Lost)
}

// writtenMetadata is the custom metadata of a pass's first patch.
type writtenMetadata struct {
	Written
	DurationMs int64 `json:"durationMs"` // duration until the summaries were written
}

func (w Written) metadata() (map[string]any, error) {
	text, err := json.Marshal(writtenMetadata{w, w.Duration.Milliseconds()})
	if err != nil {
		return nil, err
	}
	own, err := patch.ParseValue(text)
	return map[string]any{patch.OwnMetadata: own}, err
}

// WrittenBy returns the description of the pass that logged p, and whether p has one. Only the first patch of a pass
// has a description. Its Duration excludes the time for logging.
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
