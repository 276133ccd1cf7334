package inspector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// item is an element of a list: the heading of a turn, a row, or a group of rows.
type item struct {
	ID    string
	Turn  *turnHeading
	Row   *row
	Group *rowGroup
}

type turnHeading struct {
	Turn   int
	Time   time.Time
	N      int // number of rows in the turn
	Tokens int
	What   string // a noun for the rows, such as "event"
}

// rowGroup is a group of rows that is shown as one line until it is unfolded.
type rowGroup struct {
	Kind  string
	Text  string
	Turns string // "Turn 5" or "Turns 5–7" for events, "" for patches
	By    uint64 // seq of the patch that hides the events; 0 for patches
	Rows  []*row
}

// row is a record of the raw log, or a visible event.
type row struct {
	ID      string
	Seq     uint64
	Kind    string
	Word    string // name of the kind
	Phrases []phrase
	Time    time.Time
	Gap     string // time between the previous row and this row, if both are of the same turn
	Tokens  int
	Turn    int

	EventID       string // id of an event that a patch added, or ""
	Index         int    // in the visible log, or -1
	Hidden        bool
	Pinned        bool
	Erased        bool
	Skipped       bool
	IsClearedCopy bool // the event is a copy with cleared results

	Patch   *patchStep
	Summary *summaryRow
}

// phrase is a piece of an event's content: a text, or a tool's name with its arguments or its result.
type phrase struct{ Tool, Text string }

type summaryRow struct {
	Covers       string // "turns 1–2 · 40 events"
	Tokens       string // "62.8k → 2.0k tokens"
	By           string
	Text         []textLine
	More         []textLine // lines that are collapsed at first, under “more lines”
	Lost         []fact
	LostMore     int
	Invented     int
	LostUnnamed  int    // number of lost identifiers, if their names were not read
	Patch        uint64 // seq of the patch that added the summary
	Reversible   bool
	FirstCovered uint64
}

func newRow(kind present.Kind, seq uint64, at time.Time, tokens, turn int) *row {
	r := &row{Seq: seq, Kind: pictureKind(kind), Word: string(kind), Time: at, Tokens: tokens, Turn: turn, Index: -1}
	if kind == present.Response {
		r.Word = "result"
	}
	return r
}

// itemList collects the items of a list. It adds a heading per turn, and the time between rows.
type itemList struct {
	items   []item
	last    *row
	heading *turnHeading // heading of the current turn
	what    string
}

func (l *itemList) add(r *row) {
	if l.last == nil || l.last.Turn != r.Turn {
		if l.heading = nil; r.Turn > 0 {
			l.heading = &turnHeading{Turn: r.Turn, Time: r.Time, What: l.what}
			l.items = append(l.items, item{ID: "t" + r.ID, Turn: l.heading})
		}
	} else if !l.last.Time.IsZero() && !r.Time.IsZero() {
		r.Gap = gapText(r.Time.Sub(l.last.Time))
	}
	if l.heading != nil {
		l.heading.N, l.heading.Tokens = l.heading.N+1, l.heading.Tokens+r.Tokens
	}
	l.items, l.last = append(l.items, item{ID: r.ID, Row: r}), r
}

// addGroup adds a group. A group of events also serves as the heading of its turns.
func (l *itemList) addGroup(g *rowGroup) {
	l.items = append(l.items, item{ID: "g" + g.Rows[0].ID, Group: g})
	if g.Turns != "" {
		l.last = nil
	}
}

func gapText(d time.Duration) string {
	sign := "+"
	if d < 0 {
		sign, d = "−", -d
	}
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%s%.1f s", sign, d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%s%.0f s", sign, d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%s%.0f min", sign, d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%s%.0f h", sign, d.Hours())
	}
	return fmt.Sprintf("%s%.0f days", sign, d.Hours()/24)
}

// shortTokens formats a number of tokens in short form, such as 23.4k.
func shortTokens(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 99_950:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	case n < 999_500:
		return fmt.Sprintf("%.0fk", float64(n)/1000)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// Limits of the text of a row.
const (
	rowPhrases  = 4
	phraseRunes = 280
)

// phrasesOf returns the start of an event's content, which fits in a row.
func phrasesOf(e *patch.Event) (out []phrase) {
	for _, p := range e.Parts() {
		switch {
		case len(out) == rowPhrases:
			return append(out, phrase{Text: "…"})
		case p.Kind == patch.PartCall:
			out = append(out, phrase{present.Clip(p.Name, nameRunes), objectText(p.Args)})
		case p.Kind == patch.PartResponse:
			out = append(out, phrase{present.Clip(p.Name, nameRunes), "→ " + objectText(p.Response)})
		case p.Kind == patch.PartText && strings.TrimSpace(p.Text) != "":
			out = append(out, phrase{Text: present.Clip(p.Text, phraseRunes)})
		}
	}
	if len(out) == 0 {
		out = append(out, phrase{Text: present.Clip(present.Describe(e), phraseRunes)})
	}
	return out
}

// objectTextBytes is the maximum size of a JSON object that a row decodes.
const objectTextBytes = 8_000

// objectText returns a JSON object as text: its members, or only the value if the object has one member with a
// usual name such as "output".
func objectText(v patch.Value) string {
	text := v.String()
	if len(text) > objectTextBytes {
		return present.Clip(jsonReadable.Replace(strings.TrimLeft(text[:runeBoundary(text, objectTextBytes)], `{"`)), phraseRunes)
	}
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return present.Clip(text, phraseRunes)
	}
	var texts []string
	name, memberText := "", ""
	for d.More() {
		var value json.RawMessage
		t, err := d.Token()
		if err != nil || d.Decode(&value) != nil {
			break
		}
		name, _ = t.(string)
		if json.Unmarshal(value, &memberText) != nil {
			memberText = string(value)
		}
		texts = append(texts, name+": "+memberText)
	}
	if len(texts) == 1 && slices.Contains([]string{"output", "result", "content", "text", "response", "command", "path"}, name) {
		texts[0] = memberText
	}
	return present.Clip(strings.Join(texts, " · "), phraseRunes)
}

// jsonReadable makes truncated JSON easier to read.
var jsonReadable = strings.NewReplacer(`":"`, ": ", `\n`, " ", `\t`, " ", `\"`, `"`)

func (i *Inspector) conversationItems(ctx context.Context, b *sessionBody) error {
	if err := i.cacheLosses(ctx, b); err != nil {
		return err
	}
	l := itemList{what: "event"}
	show := contentRenderer{BytesLeft: pageBytes}
	for n := b.Visible.First; n < b.Visible.Next; n++ {
		e := b.view.Entry(n)
		var err error
		if e.Event, err = b.redactor.Event(e.Event); err != nil {
			return err
		}
		r := newRow(present.KindOf(e), e.Seq, e.Event.Timestamp(), e.Event.EstimatedTokens(), b.timeline.at(e.Seq).Turn)
		r.Index, r.Pinned = n, e.Pinned
		_, r.Erased = e.Event.ErasedBy()
		r.ID = fmt.Sprintf("v%d", e.Seq)
		if p := b.timeline.at(e.Seq).Patch; p != nil {
			r.EventID = e.Event.ID()
			r.ID += fmt.Sprintf("-%x", r.EventID)
			r.Turn = 0 // a summary does not belong to the turn that wrote it
		}
		if r.IsClearedCopy = isClearedCopy(e.Event) && !e.Summary; r.IsClearedCopy {
			r.Kind, r.Word = "note", "cleared"
		}
		if r.Phrases = phrasesOf(e.Event); e.Summary {
			r.Summary = b.newSummaryRow(n, e, &show)
		}
		l.add(r)
	}
	b.Visible.Items = l.items
	return nil
}

// summaryLines is the number of lines of a summary that are not folded.
const summaryLines = 7

// newSummaryRow returns the summary e at index, with its text and what it lost.
func (b *sessionBody) newSummaryRow(index int, e fold.Entry, show *contentRenderer) *summaryRow {
	s := &summaryRow{Patch: e.Seq, By: "by hand"}
	events, tokens, first, last := 0, 0, 0, 0
	for n, to := range b.targets {
		if to.By == 0 || to.Index != index {
			continue
		}
		step := b.timeline.steps[n]
		if events++; s.FirstCovered == 0 {
			s.FirstCovered = step.Seq
		}
		tokens, first, last = tokens+step.Tokens, cmp.Or(first, step.Turn), max(last, step.Turn)
	}
	s.Covers = present.Counted(events, "event")
	switch {
	case first > 0 && first == last:
		s.Covers = fmt.Sprintf("of turn %d · %s", first, s.Covers)
	case first > 0:
		s.Covers = fmt.Sprintf("of turns %d–%d · %s", first, last, s.Covers)
	}
	s.Tokens = fmt.Sprintf("%s → %s tokens", shortTokens(tokens), shortTokens(e.Event.EstimatedTokens()))
	p := b.timeline.at(e.Seq).Patch
	if p != nil {
		s.Reversible = p.Applied && p.Type != patch.Erase
	}
	if p != nil && p.Pass != nil {
		if s.By = present.Clip(p.Pass.Model, nameRunes); s.By == "extractive" {
			s.By = "offline"
		}
	}
	for _, line := range show.markdownLines(e) {
		if len(s.Text) < summaryLines {
			s.Text = append(s.Text, line)
		} else {
			s.More = append(s.More, line)
		}
	}
	if len(s.More) == 1 {
		s.Text, s.More = append(s.Text, s.More...), nil
	}
	if l := b.timeline.lossOf(e); l != nil {
		s.Lost, s.LostMore, s.Invented = slices.Clone(l.Names), l.More, l.Invented
		for n := range s.Lost {
			s.Lost[n].Text = b.redactor.Text(s.Lost[n].Text)
		}
	} else if p != nil && p.Pass != nil {
		s.LostUnnamed = p.Pass.Lost
	}
	return s
}

// logItems returns the records with the given seqs as items. Patches of a group become one item. So do adjacent
// events that one patch hides.
func (i *Inspector) logItems(ctx context.Context, b *sessionBody, seqs []uint64) ([]item, error) {
	records, err := i.records(ctx, b.Key, seqs)
	if err != nil {
		return nil, err
	}
	var all []*row
	for _, rec := range records {
		all = append(all, b.logRow(rec))
	}
	l := itemList{what: "record"}
	for len(all) > 0 {
		n := 1
		for n < len(all) && inSameGroup(b, all[0], all[n]) {
			n++
		}
		if n < 2 {
			l.add(all[0])
		} else {
			l.addGroup(b.newRowGroup(all[:n]))
		}
		all = all[n:]
	}
	return l.items, nil
}

func (b *sessionBody) logRow(rec patch.Record) *row {
	s := b.timeline.at(rec.Seq)
	r := newRow(s.Kind, rec.Seq, s.Time, s.Tokens, s.Turn)
	r.ID, r.Patch = fmt.Sprintf("r%d", rec.Seq), s.Patch
	_, r.Erased = records.Envelope(rec).ErasedBy()
	if p := s.Patch; p != nil {
		r.Kind, r.Word, r.Skipped = "note", present.Clip(patchNoun(p), nameRunes), !p.Applied
		if p.Summary {
			r.Kind = "summary"
		}
		r.Phrases = []phrase{{Text: b.timeline.describePatch(rec.Seq)}}
		return r
	}
	to := b.targets[rec.Seq-1]
	if r.Hidden = to.hidden(); !r.Hidden {
		r.Index = to.Index
	}
	r.Phrases = phrasesOf(rec.Event)
	return r
}

// inSameGroup reports whether two adjacent rows belong to one group.
func inSameGroup(b *sessionBody, first, next *row) bool {
	if p, q := first.Patch, next.Patch; p != nil && q != nil {
		return p.Group != "" && p.Group == q.Group || p.Pass != nil && q.Pass != nil && p.ClearsResults && q.ClearsResults
	}
	return first.Patch == nil && next.Patch == nil && first.Hidden && next.Hidden && b.targets[first.Seq-1].By == b.targets[next.Seq-1].By
}

func (b *sessionBody) newRowGroup(rows []*row) *rowGroup {
	first, last := rows[0], rows[len(rows)-1]
	if first.Patch != nil {
		return &rowGroup{Kind: first.Kind, Text: b.timeline.describePatches(first.Seq, last.Seq), Rows: rows}
	}
	by := b.targets[first.Seq-1].By
	text := present.Counted(len(rows), "record") + ", not visible"
	if by > 0 {
		text = fmt.Sprintf("%s, hidden by the %s at %d", present.Counted(len(rows), "record"), patchNoun(b.timeline.at(by).Patch), by)
	}
	from, to := max(first.Turn, 1), max(last.Turn, 1) // records before the first turn are shown in turn 1
	g := &rowGroup{Kind: first.Kind, Text: text, By: by, Rows: rows, Turns: fmt.Sprintf("Turn %d", from)}
	if from != to {
		g.Turns = fmt.Sprintf("Turns %d–%d", from, to)
	}
	return g
}

// patchNoun returns a noun for a patch.
func patchNoun(p *patchStep) string {
	switch {
	case p.Summary:
		return "summary"
	case p.ClearsResults:
		return "clearing"
	case p.RewoundTo >= 0:
		return "rewind"
	case p.Type == patch.Splice && p.Hid > 0:
		return "cut"
	case p.Type == patch.TruncateBefore:
		return "cut"
	}
	return string(p.Type)
}

// describePatch describes the effect of the patch seq.
func (t *timeline) describePatch(seq uint64) string { return t.describePatches(seq, seq) }

// describePatches describes the combined effect of the patches with seqs in [first, last].
func (t *timeline) describePatches(first, last uint64) string {
	var sum patchStep
	sum.RewoundTo = -1
	n, merged, counts := 0, 0, map[patch.Type]int{}
	for _, s := range t.steps[first-1 : last] {
		p := s.Patch
		if p == nil {
			continue
		}
		n++
		if counts[p.Type]++; !p.Applied {
			continue
		}
		sum.Applied = true
		sum.Hid, sum.Added = sum.Hid+p.Hid, sum.Added+p.Added
		sum.HidTokens, sum.AddedTokens = sum.HidTokens+p.HidTokens, sum.AddedTokens+p.AddedTokens
		sum.Target, sum.Summary, sum.ClearsResults = p.Target, sum.Summary || p.Summary, sum.ClearsResults || p.ClearsResults
		sum.RewoundTo = max(sum.RewoundTo, p.RewoundTo)
		if p.Pass != nil {
			sum.Pass = p.Pass
			if p.Pass.Merged {
				merged++
			}
		}
	}
	kind := t.at(last).Patch.Type
	tokenChange := fmt.Sprintf(", %s → %s tokens", shortTokens(sum.HidTokens), shortTokens(sum.AddedTokens))
	switch {
	case !sum.Applied:
		return fmt.Sprintf("%s without effect", present.Clip(string(kind), nameRunes))
	case sum.ClearsResults && !sum.Summary && counts[patch.Revert] == 0:
		return fmt.Sprintf("cleared %s%s", present.Counted(sum.Hid, "old result"), tokenChange)
	case merged > 0 && merged == n:
		return fmt.Sprintf("merged %s%s", present.Counted(sum.Hid, "summary"), tokenChange)
	case counts[patch.Summarise] > 0, sum.Summary && sum.Hid > 0 && counts[patch.Revert] == 0:
		return fmt.Sprintf("summarised %s%s", present.Counted(sum.Hid, "event"), tokenChange)
	case sum.RewoundTo == 0 && (counts[patch.Splice] < n || n == 1):
		return fmt.Sprintf("rewound to before turn 1: %s hidden", present.Counted(sum.Hid, "event"))
	case sum.RewoundTo > 0 && (counts[patch.Splice] < n || n == 1):
		return fmt.Sprintf("rewound to the end of turn %d: %s hidden", sum.RewoundTo, present.Counted(sum.Hid, "event"))
	case counts[patch.Revert] == n:
		if n > 1 {
			return fmt.Sprintf("reverted %s", present.Counted(n, "patch"))
		}
		for _, s := range t.steps[:first-1] {
			if s.Patch != nil && s.Patch.ID == sum.Target {
				return fmt.Sprintf("reverted %s %d", patchNoun(s.Patch), s.Seq)
			}
		}
	case counts[patch.Pin] == n:
		return fmt.Sprintf("pinned %s", present.Counted(n, "event"))
	case counts[patch.Unpin] == n:
		return fmt.Sprintf("unpinned %s", present.Counted(n, "event"))
	case counts[patch.Erase] > 0:
		return "erased contents of events"
	case sum.Hid > 0 && sum.Added > 0:
		return fmt.Sprintf("replaced %s by %d%s", present.Counted(sum.Hid, "event"), sum.Added, tokenChange)
	case sum.Hid > 0:
		return fmt.Sprintf("hid %s, %s tokens", present.Counted(sum.Hid, "event"), shortTokens(sum.HidTokens))
	case sum.Added > 0:
		return fmt.Sprintf("added %s", present.Counted(sum.Added, "event"))
	}
	return present.Clip(string(kind), nameRunes)
}

// summaryLoss lists what a summary lost, in one line.
type summaryLoss struct {
	Names    []fact
	More     int
	Invented int
}

// Limits for the identifiers that summaries lost.
const (
	lossNamesShown = 3         // identifiers shown per summary
	lossMaxTokens  = 2_000_000 // tokens of the raw log; in longer logs the losses are not computed
)

func (t *timeline) lossOf(e fold.Entry) *summaryLoss {
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	return t.cache.losses[lossKey{e.Seq, e.Event.ID()}]
}

// lossKey identifies a summary by its id and the record that added it.
type lossKey struct {
	seq uint64
	id  string
}

// cacheLosses computes and caches what the visible summaries of the page lost. If the log is long, it does
// nothing.
func (i *Inspector) cacheLosses(ctx context.Context, b *sessionBody) error {
	var indices []int
	for n := b.Visible.First; n < b.Visible.Next; n++ {
		if e := b.view.Entry(n); e.Summary && b.timeline.lossOf(e) == nil {
			indices = append(indices, n)
		}
	}
	if len(indices) == 0 || b.timeline.at(b.At).Raw > lossMaxTokens {
		return nil
	}
	history, err := i.store.History(ctx, b.Key, b.view)
	if err != nil {
		return err
	}
	b.timeline.cache.mu.Lock()
	defer b.timeline.cache.mu.Unlock()
	for _, l := range compaction.Losses(b.view, history, indices...) {
		l := present.LossOf(b.Key, b.view, l)
		line, e := &summaryLoss{Invented: len(l.Invented)}, b.view.Entry(l.Index)
		names := append(l.NotVisible, l.InOtherEvents...)
		for _, name := range names[:min(len(names), lossNamesShown)] {
			line.Names = append(line.Names, fact{Text: present.Clip(name, lossLength), URL: query("search", "key", b.Key, "q", name, "hidden", 1)})
		}
		line.More = len(names) - len(line.Names)
		b.timeline.cache.losses[lossKey{e.Seq, e.Event.ID()}] = line
	}
	return nil
}

// tokensTitle returns an estimated number of tokens as text, not rounded.
func tokensTitle(n int) string { return tokenCount(n) + ", estimated" }

// timeFormatter returns a function that formats a time. The zero time becomes "".
func timeFormatter(layout string) func(time.Time) string {
	return func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(layout)
	}
}

// timeAgo formats the time from t to now, or the date of t if that is long ago.
func timeAgo(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "–"
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%.0f min ago", d.Minutes())
	case d < 24*time.Hour:
		return fmt.Sprintf("%.0f h ago", d.Hours())
	case d < 7*24*time.Hour:
		return fmt.Sprintf("%.0f days ago", d.Hours()/24)
	}
	return t.UTC().Format("2 Jan 2006")
}
