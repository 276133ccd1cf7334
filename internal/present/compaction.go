package present

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// CompactionStats are the compaction figures of a session.
type CompactionStats struct {
	Passes    int         `json:"passes"`    // number of patches that compaction logged
	Last      *LastPass   `json:"last"`      // null if there is none
	Summaries map[int]int `json:"summaries"` // number of visible summaries by level
	Prompt    PromptSize  `json:"prompt"`
}

// LastPass is the newest pass, by its own metadata.
type LastPass struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	compaction.Written
}

// PromptSize is the number of tokens of a prompt made of the visible log.
type PromptSize struct {
	Tokens   int       `json:"tokens"`
	Measured bool      `json:"measured"`            // measured by the model: see [compaction.PromptTokens]
	At       time.Time `json:"measuredAt,omitzero"` // time of the measurement
}

// PromptOf returns the size of a prompt made of the visible log.
func PromptOf(v fold.View) PromptSize {
	tokens, measured := compaction.PromptTokens(v)
	size := PromptSize{Tokens: tokens, Measured: measured}
	for i := v.Len() - 1; measured && i >= 0; i-- {
		if e := v.Entry(i); !e.Summary && records.PromptTokens(e.Event) > 0 {
			size.At = e.Event.Timestamp()
			break
		}
	}
	return size
}

// String describes the size and its source.
func (p PromptSize) String() string {
	how := "estimated"
	switch {
	case p.Measured && !p.At.IsZero():
		how = "measured at " + p.At.UTC().Format(time.DateTime) + ", and estimated since"
	case p.Measured:
		how = "measured, and estimated since"
	}
	return fmt.Sprintf("about %s tokens, %s", Grouped(p.Tokens), how)
}

// PassOf returns the figures of the pass that logged a patch, or nil if compaction did not log it.
func PassOf(p *patch.PatchEvent) *compaction.Written {
	if w, ok := compaction.WrittenBy(p); ok {
		return &w
	}
	return nil
}

// Rows returns the figures as 'patchlog stats' shows them, after all others.
func (c CompactionStats) Rows() []Row {
	rows := []Row{{"prompt", c.Prompt.String()}, {"compactions", fmt.Sprint(c.Passes)}}
	if l := c.Last; l != nil {
		rows = append(rows,
			Row{"  last compaction", fmt.Sprintf("%s, record %d, by %s", l.Time.UTC().Format(time.DateTime), l.Seq, Printable(string(l.Trigger)))},
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

// PassText describes a compaction pass in one line. r is its record, w comes from [compaction.WrittenBy] or the
// compactor.
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
	if w.Duration >= time.Second {
		fmt.Fprintf(&b, ", %.1f s", w.Duration.Seconds())
	}
	return b.String()
}

// EventsText describes a pass by numbers of events, or of summaries if it merged these. level is that of the new
// summaries; 0 means that results of tools were cleared.
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

// TokensText describes a change of tokens with its ratio.
func TokensText(before, after int, ratio float64) string {
	text := fmt.Sprintf("about %s → %s tokens", Grouped(before), Grouped(after))
	if before > 0 {
		text += " (" + Percent(ratio) + ")"
	}
	return text
}

// PlanRows returns the next compaction as 'patchlog compact --dry-run' shows it, after the key and reason.
func PlanRows(d compaction.Decision) []Row {
	var rows []Row
	row := func(name, format string, args ...any) { rows = append(rows, Row{name, fmt.Sprintf(format, args...)}) }
	switch w := d.Window; {
	case w == nil:
	case w.Results > 0:
		first := w.Start
		if len(w.EarlierSpans) > 0 {
			first = w.EarlierSpans[0].Start
		}
		row("trigger", "%s", w.Trigger)
		row("clears", "%s, in events %d to %d", Counted(w.Results, "result"), first, w.Start)
		row("tokens", "about %s in these events", Grouped(w.Tokens))
	default:
		row("trigger", "%s", w.Trigger)
		row("window", "start %d, count %d", w.Start, w.Count)
		for _, s := range w.EarlierSpans {
			row("  also", "start %d, count %d", s.Start, s.Count)
		}
		for _, g := range w.Groups {
			if len(w.Groups) > 1 {
				row("  branch", "%s: %s", groupName(g), Counted(len(g.Indices), "event"))
			}
		}
		if len(w.Invocations) > 0 {
			row("invocations", "%s", ends(w.Invocations))
		}
		row("tokens", "about %s in the window", Grouped(w.Tokens))
	}
	row("prompt", "%s", PromptSize{Tokens: d.PromptTokens, Measured: d.Measured})
	return rows
}

// groupName returns a group's branch and scope for display.
func groupName(g compaction.Group) string {
	name := "no branch"
	if g.Branch != "" {
		name = Printable(g.Branch)
	}
	if g.Scope != "" {
		name += ", scope " + Printable(g.Scope)
	}
	return name
}

// UnforcedText says whether a service would make a planned pass now. unforced is the plan without [compaction.Run.Force].
func UnforcedText(d, unforced compaction.Decision) string {
	switch {
	case unforced.Window == nil:
		return "A service would not compact now: " + strings.TrimPrefix(unforced.Reason, "nothing to do: ") + "."
	case unforced.Window.Trigger != d.Window.Trigger:
		return "A service would do something else now: " + unforced.Reason + "."
	}
	return "A service would compact now, too."
}

// NextPassesText describes what may follow the planned pass, or returns "" if nothing may. Later passes depend on the
// length of the summary and cannot be predicted.
func NextPassesText(d compaction.Decision) string {
	switch {
	case d.Window == nil:
		return ""
	case d.Window.Results > 0:
		return "Nothing was written. More passes may follow."
	}
	return "Nothing was written. More passes may follow; what they cover depends on this one's summary."
}

// idRunes is the maximum number of runes of an id in a line of text.
const idRunes = 40

// ends returns the number of ids, the first and the last.
func ends(ids []string) string {
	first, last := PrintableUpTo(ids[0], idRunes), PrintableUpTo(ids[len(ids)-1], idRunes)
	if len(ids) == 1 {
		return "1: " + first
	}
	return fmt.Sprintf("%d: %s to %s", len(ids), first, last)
}

// Loss is the [compaction.Loss] of a visible summary, as 'patchlog loss' shows it, with the most important names first.
type Loss struct {
	Key   store.Key `json:"key"`
	Seq   uint64    `json:"seq"` // of the view's last record
	Level int       `json:"level"`
	compaction.Loss
}

// LossOf converts a loss for display.
func LossOf(key store.Key, v fold.View, l compaction.Loss) Loss {
	l.NotVisible, l.InOtherEvents, l.Invented, l.Numbers = ranked(l.NotVisible), ranked(l.InOtherEvents), ranked(l.Invented), ranked(l.Numbers)
	return Loss{key, v.Seq(), compaction.LineageOf(l.Summary).Level, l}
}

// LossList is the names of one sort that a summary loses or invents.
type LossList struct {
	What  string // "not visible", "in other events", "invented" or "numbers that no event has"
	Names []string
}

// Lists returns the non-empty lists.
func (d Loss) Lists() []LossList {
	all := []LossList{{"not visible", d.NotVisible}, {"in other events", d.InOtherEvents}, {"invented", d.Invented}, {"numbers that no event has", d.Numbers}}
	return slices.DeleteFunc(all, func(l LossList) bool { return len(l.Names) == 0 })
}

// Head says what the summary covers, and how much of it is visible.
func (d Loss) Head() []string {
	return []string{
		fmt.Sprintf("index %d, level %d, id %s: covers %s of %s, about %s → %s tokens", d.Index, d.Level, Printable(d.Summary.ID()),
			Counted(d.Events, "event"), Counted(d.Invocations, "invocation"), Grouped(d.Tokens), Grouped(d.Summary.EstimatedTokens())),
		fmt.Sprintf("  %d of %s can be seen", d.Identifiers-len(d.NotVisible), Counted(d.Identifiers, "identifier")),
	}
}

// Lines returns the output of 'patchlog loss' for a summary: its head, then a line for each list.
func (d Loss) Lines() []string {
	lines := d.Head()
	for _, l := range d.Lists() {
		names := make([]string, len(l.Names))
		for i, n := range l.Names {
			names[i] = Printable(n)
		}
		lines = append(lines, fmt.Sprintf("  %s (%d): %s", l.What, len(names), strings.Join(names, ", ")))
	}
	return lines
}

// ranked sorts names by importance: addresses and paths first, then names with letters, digits and punctuation, such as
// order numbers, then numbers, then words.
func ranked(names []string) []string {
	rank := func(name string) int {
		letters, digits, signs := false, 0, false
		for _, r := range name {
			switch {
			case unicode.IsDigit(r):
				digits++
			case unicode.IsLetter(r):
				letters = true
			default:
				signs = true
			}
		}
		switch {
		case strings.Contains(name, "@"):
			return 0
		case strings.Contains(name, "/"):
			return 1
		case letters && signs && digits > 1, letters && digits > 3:
			return 2
		case digits > 3:
			return 3
		}
		return 4
	}
	out := append([]string{}, names...) // never null in JSON
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

// LossesOf returns the losses of a session's visible summaries, in log order, and the view that shows them. With a
// patch's id it returns the losses of the summaries that the patch or its group added, in the view of [SummariesBy]. It
// reads the covered records. Errors are as from the store's reads.
func LossesOf(ctx context.Context, s *store.Store, key store.Key, patchID string) (fold.View, []Loss, error) {
	v, err := s.View(ctx, key)
	if err != nil {
		return fold.View{}, nil, err
	}
	var only []string // ids of summaries
	if patchID != "" {
		if v, only, err = SummariesBy(ctx, s, key, v, patchID); err != nil {
			return fold.View{}, nil, err
		}
	}
	history, err := s.History(ctx, key, v)
	if err != nil {
		return fold.View{}, nil, err
	}
	var docs []Loss
	for _, l := range compaction.Losses(v, history) {
		if patchID == "" || slices.Contains(only, l.Summary.ID()) {
			docs = append(docs, LossOf(key, v, l))
		}
	}
	return v, docs, nil
}

// SummariesBy returns the ids of the events that a patch and its group added, and a view that shows them: v, or, if
// they are no longer all visible, the view after the last patch of the group. It reads the whole log. Errors are as
// from the store's reads, or say that there is no such patch or that it added nothing.
func SummariesBy(ctx context.Context, s *store.Store, key store.Key, v fold.View, patchID string) (fold.View, []string, error) {
	var all []patch.Record // patches of the log
	found := -1
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return v, nil, err
		}
		if r.Patch == nil {
			continue
		}
		if r.ID() == patchID {
			found = len(all)
		}
		all = append(all, r)
	}
	if found < 0 {
		return v, nil, fmt.Errorf("session %s: %w: there is no patch %q", key, store.ErrNotFound, patchID)
	}
	var ids []string
	last := uint64(0)
	for i, r := range all {
		if group := all[found].Patch.Group(); i == found || group != "" && r.Patch.Group() == group {
			for _, e := range r.Patch.NewEvents() {
				ids = append(ids, e.ID())
			}
			last = r.Seq
		}
	}
	if len(ids) == 0 {
		return v, nil, fmt.Errorf("session %s: %w: patch %q put in no summary", key, patch.ErrInvalid, patchID)
	}
	for _, id := range ids {
		if _, visible := v.Find(id); !visible {
			then, err := s.ViewAt(ctx, key, last)
			return then, ids, err
		}
	}
	return v, ids, nil
}
