package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

// compactionStats are a session's figures of compaction.
type compactionStats struct {
	Passes    int         `json:"passes"`    // patches that compaction logged
	Last      *lastPass   `json:"last"`      // null if there is none
	Summaries map[int]int `json:"summaries"` // visible ones, by level
	Prompt    promptSize  `json:"prompt"`
}

// lastPass is what the newest pass says of itself.
type lastPass struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	compaction.Written
}

// compactionOf returns the figures that a view knows; those of the log are added record by
// record.
func compactionOf(v fold.View) compactionStats {
	c := compactionStats{Summaries: map[int]int{}}
	for _, e := range v.Entries() {
		if e.Summary {
			c.Summaries[compaction.LineageOf(e.Event).Level]++
		}
	}
	c.Prompt.Tokens, c.Prompt.Measured = compaction.PromptTokens(v)
	return c
}

// add counts a patch, if compaction logged it.
func (c *compactionStats) add(r patch.Record) {
	w, ok := compaction.WrittenBy(r.Patch)
	if !ok {
		return
	}
	c.Passes++
	c.Last = &lastPass{r.Seq, r.Patch.Timestamp(), w}
}

func (c *compactionStats) rows(row func(name, text string)) {
	row("prompt", c.Prompt.String())
	row("compactions", fmt.Sprint(c.Passes))
	if l := c.Last; l != nil {
		row("  last", fmt.Sprintf("%s, record %d, by %s", l.Time.Format(time.RFC3339), l.Seq, printable(string(l.Trigger))))
		row("  events", eventsText(l.Merged, l.EventsBefore, l.EventsAfter, l.Level))
		row("  tokens", tokensText(l.TokensBefore, l.TokensAfter, l.Ratio))
		if l.Model != "" {
			row("  model", printable(l.Model))
		}
	}
	row("visible summaries", levelsText(c.Summaries))
}

func levelsText(byLevel map[int]int) string {
	var levels []string
	n := 0
	for _, level := range slices.Sorted(maps.Keys(byLevel)) {
		levels = append(levels, fmt.Sprintf("%d of level %d", byLevel[level], level))
		n += byLevel[level]
	}
	if n == 0 {
		return "0"
	}
	return fmt.Sprint(n) + ": " + strings.Join(levels, ", ")
}
