package present

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

// CompactionStats are a session's figures of compaction.
type CompactionStats struct {
	Passes    int         `json:"passes"`    // patches that compaction logged
	Last      *LastPass   `json:"last"`      // null if there is none
	Summaries map[int]int `json:"summaries"` // visible ones, by level
	Prompt    PromptSize  `json:"prompt"`
}

// LastPass is what the newest pass says of itself.
type LastPass struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	compaction.Written
}

// PromptSize is how many tokens a prompt made of the visible log takes.
type PromptSize struct {
	Tokens   int  `json:"tokens"`
	Measured bool `json:"measured"` // as of [compaction.PromptTokens]
}

// PromptOf returns how large a prompt made of the visible log is.
func PromptOf(v fold.View) PromptSize {
	tokens, measured := compaction.PromptTokens(v)
	return PromptSize{tokens, measured}
}

// String says how large the prompt is, and how that is known.
func (p PromptSize) String() string {
	how := "estimated"
	if p.Measured {
		how = "measured, and estimated since"
	}
	return fmt.Sprintf("about %s tokens, %s", Grouped(p.Tokens), how)
}

// addPass counts a patch, if compaction logged it.
func (t *Tally) addPass(r patch.Record) {
	w, ok := compaction.WrittenBy(r.Patch)
	if !ok {
		return
	}
	t.passes++
	t.last = &LastPass{r.Seq, r.Patch.Timestamp(), w}
}

func (t *Tally) compaction(v fold.View) CompactionStats {
	c := CompactionStats{Passes: t.passes, Last: t.last, Summaries: map[int]int{}}
	for _, e := range v.Entries() {
		if e.Summary {
			c.Summaries[compaction.LineageOf(e.Event).Level]++
		}
	}
	c.Prompt = PromptOf(v)
	return c
}

// Rows returns the figures as 'patchlog stats' shows them, below all others.
func (c CompactionStats) Rows() []Row {
	rows := []Row{{"prompt", c.Prompt.String()}, {"compactions", fmt.Sprint(c.Passes)}}
	if l := c.Last; l != nil {
		rows = append(rows,
			Row{"  last compaction", fmt.Sprintf("%s, record %d, by %s", l.Time.Format(time.RFC3339), l.Seq, Printable(string(l.Trigger)))},
			Row{"  events compacted", EventsText(l.Merged, l.EventsBefore, l.EventsAfter, l.Level)},
			Row{"  tokens compacted", TokensText(l.TokensBefore, l.TokensAfter, l.Ratio)},
		)
		if l.Model != "" {
			rows = append(rows, Row{"  model asked", Printable(l.Model)})
		}
	}
	return append(rows, Row{"visible summaries", levelsText(c.Summaries)})
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

// PassText says in a line what a pass of compaction did, of which r is the record and w what
// [compaction.WrittenBy] or the compactor says.
func PassText(r patch.Record, w compaction.Written) string {
	var b strings.Builder
	fmt.Fprintf(&b, "record %d, %s: index %s", r.Seq, Printable(string(w.Trigger)), IndexRange(r.Patch.Start(), r.Patch.Count()))
	if more := w.EventsBefore - r.Patch.Count(); more > 0 {
		fmt.Fprintf(&b, " and %d before", more)
	}
	fmt.Fprintf(&b, ": %s, %s", EventsText(w.Merged, w.EventsBefore, w.EventsAfter, w.Level), TokensText(w.TokensBefore, w.TokensAfter, w.Ratio))
	if w.Model != "" {
		b.WriteString(", by " + Printable(w.Model))
	}
	if w.Took >= time.Second {
		fmt.Fprintf(&b, ", %.1f s", w.Took.Seconds())
	}
	return b.String()
}

// EventsText says what became of how many events in a pass: of events, or of summaries if it
// merged these. Level is that of the summaries that came; with 0, results of tools were cleared.
func EventsText(merged bool, before, after, level int) string {
	if level == 0 {
		return "results cleared in " + Counted(before, "event")
	}
	what := "event"
	if merged {
		what = "summary"
	}
	return fmt.Sprintf("%s → %s of level %d", Counted(before, what), Counted(after, "summary"), level)
}

// TokensText says about how many tokens became how many, and which part of them that is.
func TokensText(before, after int, ratio float64) string {
	text := fmt.Sprintf("about %s → %s tokens", Grouped(before), Grouped(after))
	if before > 0 {
		text += " (" + Percent(ratio) + ")"
	}
	return text
}
