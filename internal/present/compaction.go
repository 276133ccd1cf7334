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
	Last      *LastPass   `json:"last"`      // null if compaction logged none
	Summaries map[int]int `json:"summaries"` // number of visible summaries by level
	Prompt    PromptSize  `json:"prompt"`
}

// LastPass is the newest pass, as its patch describes it.
type LastPass struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	compaction.Written
}

// PromptSize is the number of tokens of a prompt made from the visible log.
type PromptSize struct {
	Tokens   int       `json:"tokens"`
	Measured bool      `json:"measured"`            // the model counted them: see [compaction.PromptTokens]
	At       time.Time `json:"measuredAt,omitzero"` // time of the model's count
}

// PromptOf returns the size of a prompt made from the visible log of v.
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

// String describes the size, and how it was found.
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

// Rows returns the last rows of 'patchlog stats'.
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

// PassText describes a compaction pass in one line, given its record. The figures w come from
// [compaction.WrittenBy] or from the compactor.
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

// EventsText describes how many events a pass summarised, or how many summaries it merged. The level is that of
// the new summaries. Level 0 means that the pass cleared results of tools.
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

// TokensText describes a change of tokens, with its ratio.
func TokensText(before, after int, ratio float64) string {
	text := fmt.Sprintf("about %s → %s tokens", Grouped(before), Grouped(after))
	if before > 0 {
		text += " (" + Percent(ratio) + ")"
	}
	return text
}

// PlanRows describes the next pass as 'patchlog compact --dry-run' shows it below the key and the reason.
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
			row("invocations", "%s", idRange(w.Invocations))
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

// UnforcedText says whether the compactor of a running service would make the planned pass now. It compares the
// plan d with the plan without [compaction.Run.Force].
func UnforcedText(d, unforced compaction.Decision) string {
	switch {
	case unforced.Window == nil:
		return "A service would not compact now: " + strings.TrimPrefix(unforced.Reason, "nothing to do: ") + "."
	case unforced.Window.Trigger != d.Window.Trigger:
		return "A service would make another pass now: " + unforced.Reason + "."
	}
	return "A service would compact now, too."
}

// NextPassesText says that more passes may follow the planned pass. It returns "" if no pass is planned. Later
// passes cannot be predicted, because they depend on the length of this pass's summary.
func NextPassesText(d compaction.Decision) string {
	switch {
	case d.Window == nil:
		return ""
	case d.Window.Results > 0:
		return "Nothing was written. More passes may follow."
	}
	return "Nothing was written. More passes may follow. What they cover depends on the summary of this pass."
}

// idRunes is the maximum number of runes of an id in a line of text.
const idRunes = 40

// idRange describes a list of ids by its length, first id and last id.
func idRange(ids []string) string {
	first, last := PrintableUpTo(ids[0], idRunes), PrintableUpTo(ids[len(ids)-1], idRunes)
	if len(ids) == 1 {
		return "1: " + first
	}
	return fmt.Sprintf("%d: %s to %s", len(ids), first, last)
}

// Loss is the [compaction.Loss] of a visible summary for 'patchlog loss'. The most important identifiers come
// first.
type Loss struct {
	Key   store.Key `json:"key"`
	Seq   uint64    `json:"seq"` // seq of the view's last record
	Level int       `json:"level"`
	compaction.Loss
}

// LossOf converts a loss for display.
func LossOf(key store.Key, v fold.View, l compaction.Loss) Loss {
	l.NotVisible, l.InOtherEvents, l.Invented, l.Numbers = rankIdentifiers(l.NotVisible), rankIdentifiers(l.InOtherEvents), rankIdentifiers(l.Invented), rankIdentifiers(l.Numbers)
	return Loss{key, v.Seq(), compaction.LineageOf(l.Summary).Level, l}
}

// LossList lists identifiers that a summary lost or invented.
type LossList struct {
	What  string // "not visible", "in other events", "invented" or "numbers that no event has"
	Names []string
}

// Lists returns the lists that are not empty.
func (d Loss) Lists() []LossList {
	all := []LossList{{"not visible", d.NotVisible}, {"in other events", d.InOtherEvents}, {"invented", d.Invented}, {"numbers that no event has", d.Numbers}}
	return slices.DeleteFunc(all, func(l LossList) bool { return len(l.Names) == 0 })
}

// Header says what the summary covers, and how many identifiers of the covered events are visible.
func (d Loss) Header() []string {
	return []string{
		fmt.Sprintf("index %d, level %d, id %s: covers %s of %s, about %s → %s tokens", d.Index, d.Level, Printable(d.Summary.ID()),
			Counted(d.Events, "event"), Counted(d.Invocations, "invocation"), Grouped(d.Tokens), Grouped(d.Summary.EstimatedTokens())),
		fmt.Sprintf("  %d of %s can be seen", d.Identifiers-len(d.NotVisible), Counted(d.Identifiers, "identifier")),
	}
}

// Lines returns the output of 'patchlog loss' for a summary: the header, then a line for each list.
func (d Loss) Lines() []string {
	lines := d.Header()
	for _, l := range d.Lists() {
		names := make([]string, len(l.Names))
		for i, n := range l.Names {
			names[i] = Printable(n)
		}
		lines = append(lines, fmt.Sprintf("  %s (%d): %s", l.What, len(names), strings.Join(names, ", ")))
	}
	return lines
}

// rankIdentifiers sorts identifiers by importance. First come e-mail addresses, then paths and URLs, then mixtures of
// letters and digits such as order numbers, then numbers, then the rest.
func rankIdentifiers(names []string) []string {
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
	out := append([]string{}, names...) // not nil, so that JSON has [] and not null
	slices.SortStableFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

// LossesOf returns the losses of a session's visible summaries in log order, and the view that they refer to.
// If patchID is not "", it returns only the losses of the summaries that the patch or its group added, in the
// view that [SummariesAddedBy] returns. LossesOf reads the covered records. Errors come from the store's reads.
func LossesOf(ctx context.Context, s *store.Store, key store.Key, patchID string) (fold.View, []Loss, error) {
	v, err := s.View(ctx, key)
	if err != nil {
		return fold.View{}, nil, err
	}
	var only []string // ids of summaries
	if patchID != "" {
		if v, only, err = SummariesAddedBy(ctx, s, key, v, patchID); err != nil {
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

// SummariesAddedBy returns the ids of the events that a patch and its group added, and a view that contains all
// these events. The view is v or, if v does not contain them all, the view after the last patch of the group.
// SummariesAddedBy reads the whole log. The error matches [store.ErrNotFound] if there is no such patch, and
// [patch.ErrInvalid] if the patch added nothing. Other errors come from the store's reads.
func SummariesAddedBy(ctx context.Context, s *store.Store, key store.Key, v fold.View, patchID string) (fold.View, []string, error) {
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
		return v, nil, fmt.Errorf("session %s: %w: patch %q added no summary", key, patch.ErrInvalid, patchID)
	}
	for _, id := range ids {
		if _, visible := v.Find(id); !visible {
			later, err := s.ViewAt(ctx, key, last)
			return later, ids, err
		}
	}
	return v, ids, nil
}
