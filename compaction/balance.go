package compaction

import (
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/price"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Limits that decide whether a pass is made.
//
// A pass that costs at most [limits.SmallCost] always pays. Any other pass pays if both of these conditions hold:
//
//   - Its immediate cost is at most a tenth (maxCostShare) of the session's cost so far, plus the net savings of earlier passes. If the session ends with the next turn, compaction has then hardly increased its cost.
//   - It breaks even within maxBreakEvenTurns turns, or removes half of the prompt after the first changed token.
//
// A pass that does not pay is still made if the prompt has 32,000 tokens (largePrompt), or if the trigger's value is
// reached four times over (forcedFactor). The exceptions are under "Cost" in docs/COMPACTION.md.
const (
	maxCostShare      = 0.1
	maxBreakEvenTurns = 20
	largePrompt       = 32_000
	forcedFactor      = 4
)

// PricedSummarizer is a [Summarizer] whose calls cost money. Price returns the cost of one token read and of one token
// written, relative to an uncached input token. Other summarizers count as free. With a PricedSummarizer, the interval
// trigger fires only if the pass pays or [Run.Force] is set. See "Cost" in docs/COMPACTION.md.
type PricedSummarizer interface {
	Summarizer
	Price() (read, written float64)
}

func priceOf(s Summarizer) (read, written float64) {
	if p, ok := s.(PricedSummarizer); ok {
		return p.Price()
	}
	return 0, 0
}

// pays reports whether a pass over a window pays. The argument saved is the number of tokens that the pass saves. If
// the pass does not pay, pays also returns the reason.
func (s *planner) pays(w *Window, saved int, cfg Config) (bool, string) {
	b, removesHalf := s.balance(w, saved, cfg)
	spent, netSavings := s.costSoFar()
	turns := b.BreakEven()
	switch allowed := maxCostShare*spent + netSavings; {
	case b.Once <= float64(cfg.limits.SmallCost):
	case turns == 0:
		return false, "a pass never pays"
	case b.Once > allowed || turns > maxBreakEvenTurns && !removesHalf:
		return false, fmt.Sprintf("a pass does not pay yet: it breaks even after %d turns and costs %.0f at once; the maximum is %.0f", turns, b.Once, allowed)
	}
	return true, ""
}

// balance returns the cost and savings of a pass. The model's cache loses the part of the prompt that begins with the
// first changed token, and the summarizer reads and writes tokens. The result removesHalf reports whether the pass
// removes half of that part of the prompt.
func (s *planner) balance(w *Window, saved int, cfg Config) (b price.Balance, removesHalf bool) {
	first := w.Start
	if len(w.EarlierSpans) > 0 {
		first = w.EarlierSpans[0].Start
	}
	from := s.tokensBetween(first, len(s.entries))
	b = price.Change(from, from-saved)
	if len(w.Groups) > 0 {
		read, written := priceOf(cfg.Summarizer)
		b.Once += written * float64(w.Tokens-saved)
		template := patch.EstimateTextTokens(cfg.PromptTemplate)
		if cfg.PromptTemplate == DefaultPromptTemplate {
			template += patch.EstimateTextTokens(DefaultInstructions)
		}
		for _, g := range w.Groups {
			prompt := template + tokensOf(s.summariesBefore(g))
			for _, i := range g.Indices {
				prompt += transcriptTokens(s.entries[i].Event)
			}
			b.Once += read * float64(prompt)
		}
	}
	return b, saved >= from-saved
}

// costSoFar estimates what the session has cost so far without compaction. The result netSavings is what the newest
// summary has saved since it was logged, minus the cost of that summary.
func (s *planner) costSoFar() (spent, netSavings float64) {
	prefix, visible, unread := 0, 0, 0 // tokens of the raw log, of the visible log, and of events that no prompt contained yet
	for i, e := range s.entries {
		tokens := s.tokensBetween(i, i+1)
		if e.Summary {
			l := LineageOf(e.Event)
			logged := max(l.Tokens, tokens)
			turns := float64(l.Events / 2) // models write about every second event
			spent += price.Fresh*float64(logged) + turns*price.Cached*(float64(prefix)+float64(logged)/2)
			prefix, visible = prefix+logged, visible+tokens
			netSavings = -price.Fresh * float64(tokens)
			continue
		}
		if e.Event.Author() != "user" && e.Event.Role() == "model" {
			spent += price.Cached*float64(prefix) + price.Fresh*float64(unread)
			netSavings += price.Cached * float64(prefix-visible)
			prefix, visible, unread = prefix+unread, visible+unread, 0
		}
		unread += records.LoggedTokens(e.Event)
	}
	return spent, netSavings
}

// summaryShare estimates the size of a summary as a fraction of the size of its events. minAim tokens are added to
// this fraction. In 730 passes over recorded and synthetic sessions, the measured fraction was 21 to 28 % for windows
// of 800 tokens or more, and up to half for smaller windows.
const summaryShare = 0.25

// estimateSavings estimates how many tokens the summaries of a window save.
func (s *planner) estimateSavings(w *Window, cfg Config) int {
	remaining := 0
	for _, g := range w.Groups {
		tokens := s.tokensAt(g.Indices)
		remaining += min(tokens, cfg.limits.SummaryTokens, minAim+int(summaryShare*float64(tokens)))
	}
	return w.Tokens - remaining
}

// PromptTokens returns the number of tokens of a prompt made from the visible log. It uses the newest measurement
// (usageMetadata.promptTokenCount) of a visible event that is not a summary and was logged after the newest patch. It
// adds the estimate ([patch.Event.EstimatedTokens]) for the measured event and all later events, which were not part of
// the measured prompt. If there is no such measurement, PromptTokens returns the estimate for the whole visible log,
// and false.
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
