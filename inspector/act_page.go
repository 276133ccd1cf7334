package inspector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"unicode"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// Of what there may be thousands of, so many are on a page; and of a text, so many runes.
const (
	actRows  = 200
	actRunes = 1000
	actJSON  = 64 << 10
)

// actBody is a page about an act: what it would do, did, or why it cannot be done.
type actBody struct {
	Key          string
	Heading      string
	Problem      string
	Notices      []string
	Lines        []string // what a problem or a notice is about
	Plan         []present.Row
	Records      []actRecord
	RecordsTitle string
	Differences  []actDifference
	Links        []link
	Erased       []actErased
	OutOfReach   []string
	Forms        []actForm
	Patches      []string // as JSON
}

func (b *actBody) notice(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		b.Notices = append(b.Notices, text)
	}
}

// actField is a hidden field.
type actField struct{ Name, Value string }

// actForm asks for something, with what a person can tick or type.
type actForm struct {
	Text   string // before it
	Button string
	Strong bool
	Fields []actField
	Allow  *actAllow
	Input  *actInput
}

// actAllow is something to be ticked.
type actAllow struct{ Name, Label string }

// actInput is something to be typed.
type actInput struct{ Name, Label, Value string }

// actRecord is a record that was logged.
type actRecord struct {
	Key    string
	Seq    uint64
	Type   patch.Type
	ID     string
	Author string
	Text   string
	Notes  []present.Note
	Pass   string
}

// actDifference is how two views differ, in the words of the command.
type actDifference struct {
	Title     string
	Changes   []actChange
	More      int // changes that are not shown
	Same      string
	Pins      []string
	State     []present.StateRow
	MoreState int
	SameState string
	Rows      []present.Row
	Reuse     string
	Cost      string
}

// actChange is an event that goes, comes or stays.
type actChange struct {
	Sign   present.Sign
	Index  int
	ID     string
	Author string
	Text   string
}

// Word is the sign in a word.
func (c actChange) Word() string {
	switch c.Sign {
	case present.Went:
		return "goes"
	case present.Came:
		return "comes"
	case present.Changed:
		return "changes"
	}
	return "stays"
}

// add adds a row, if there is room.
func (d *actDifference) add(c present.Change) {
	if len(d.Changes) == actRows {
		d.More++
		return
	}
	e := c.Entry.Event
	d.Changes = append(d.Changes, actChange{c.Sign, c.Index, clip(e.ID(), 80), clip(e.Author(), 80), clip(present.EntryText(c.Entry), actRunes)})
}

// So many events are shown beside those that go or come.
const actAround = 2

// newActDifference shows a difference as the command does.
func newActDifference(title string, of present.Difference, around int) actDifference {
	d := actDifference{Title: title, Pins: shorten(of.PinLines()), Rows: of.Rows()}
	for _, c := range of.Changes(around) {
		d.add(c)
	}
	if len(d.Changes) == 0 {
		d.Same = present.SameEvents
	}
	d.State = of.StateRows()
	if d.MoreState = len(d.State) - actRows; d.MoreState > 0 {
		d.State = d.State[:actRows]
	}
	if len(d.State) == 0 {
		d.SameState = present.SameState
	}
	return d
}

// would shows what a preview says.
func (b *actBody) would(of present.Difference, preview store.Preview) {
	around := 0
	if len(preview.Patches) == 1 && preview.Patches[0].Type() != patch.Revert {
		around = actAround
	}
	d := newActDifference("What would change", of, around)
	d.Reuse, d.Cost = costText(preview.Difference)
	b.Differences = append(b.Differences, d)
	for n, p := range preview.Patches {
		if n == actRows {
			b.Patches = append(b.Patches, fmt.Sprintf("and %d more", len(preview.Patches)-n))
			break
		}
		b.Patches = append(b.Patches, jsonText(p))
	}
}

// reuseText says how much of the prompt stays what it was.
func reuseText(first int) string {
	if first == 0 {
		return "The prompt changes from its first event on: a provider's prompt cache can reuse none of them."
	}
	return fmt.Sprintf("The first index that changes is %d: a provider's prompt cache can reuse the %s before it.", first, present.Counted(first, "event"))
}

// costText says how much of the prompt stays what it was, and what reading the rest anew costs
// against what later turns save, as [compaction.Balance] reckons.
func costText(d fold.Difference) (reuse, cost string) {
	if len(d.Removed)+len(d.Added) == 0 {
		return "What a model sees stays as it is, and so does what a provider has in its prompt cache.", ""
	}
	from, left := tokensFrom(d.Before, d.First), tokensFrom(d.After, d.First)
	b := compaction.Balance{
		Once:     compaction.FreshPrice*float64(left) - compaction.CachedPrice*float64(from),
		EachTurn: compaction.CachedPrice * float64(from-left),
	}
	amount := func(x float64) string { return present.Grouped(int(x + 0.5)) }
	anew := fmt.Sprintf("About %s from there on are read anew.", tokenCount(left))
	switch {
	case b.Once <= 0:
		cost = fmt.Sprintf("%s The next turn costs %s less than it would, and each further one %s less: it has paid for itself at once.", anew, amount(-b.Once), amount(b.EachTurn))
	case b.BreakEven() == 0:
		cost = fmt.Sprintf("%s The next turn costs %s more than it would, and no further one costs less: it never pays for itself.", anew, amount(b.Once))
	default:
		cost = fmt.Sprintf("%s The next turn costs %s more than it would, and each further one %s less: it has paid for itself after %s.",
			anew, amount(b.Once), amount(b.EachTurn), present.Counted(b.BreakEven(), "turn"))
	}
	return reuseText(d.First), cost + fmt.Sprintf(" Costs are in tokens of input, of which a cached one costs %v and one that is read anew %v.", compaction.CachedPrice, compaction.FreshPrice)
}

func tokensFrom(v fold.View, first int) int {
	n := 0
	for _, e := range v.EventsFrom(first) {
		n += e.EstimatedTokens()
	}
	return n
}

func tokenCount(n int) string {
	if n == 1 {
		return "1 token"
	}
	return present.Grouped(n) + " tokens"
}

// shorten leaves out lines that would be too many.
func shorten(lines []string) []string {
	if len(lines) > actRows {
		lines = append(lines[:actRows:actRows], fmt.Sprintf("and %d more", len(lines)-actRows))
	}
	return lines
}

// jsonText is a patch as JSON for people to read, in which all that does not show is escaped. A
// long one is not told to its end.
func jsonText(p *patch.PatchEvent) string {
	text := p.String()
	var out bytes.Buffer
	if json.Indent(&out, []byte(text), "", "  ") == nil {
		text = out.String()
	}
	var b strings.Builder
	for _, r := range text {
		if b.Len() >= actJSON {
			b.WriteString("\n…")
			break
		}
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// showDone shows records that were logged, and what became of the session by them.
func (i *Inspector) showDone(ctx context.Context, a *asked, b *actBody, records []patch.Record) error {
	b.Heading = "Done: " + a.title
	if len(records) == 0 {
		b.notice("Nothing had to be logged.")
		return nil
	}
	first, last := records[0].Seq, records[len(records)-1].Seq
	before, err := i.store.ViewAt(ctx, a.key, first-1)
	if err != nil {
		return err
	}
	rows, after, err := i.actRecords(ctx, a, before, records)
	if err != nil {
		return err
	}
	b.Records, b.RecordsTitle = rows, "In the log"
	if after.Seq() != last { // only so many are shown
		if after, err = i.store.ViewAt(ctx, a.key, last); err != nil {
			return err
		}
	}
	difference := present.DifferenceOf(before, after)
	b.notice("%s.", difference.Sentence())
	b.Differences = append(b.Differences, newActDifference("What changed", difference, 0))
	url, err := query("session", "key", a.key, "at", last)
	if err != nil {
		return err
	}
	b.Links = append(b.Links, link{url + template.URL(fmt.Sprintf("#r%d", last)), fmt.Sprintf("The session after record %d", last)})
	back := asked{act: "revert", key: a.key, creation: a.creation, at: last, seq: last}
	b.Forms = append(b.Forms, actForm{Text: "It can be taken back, as long as no later patch stands on it.", Button: "Take it back …", Fields: back.fields(stepPreview)})
	return nil
}

// actRecords are rows about patches of a log, as many as a page has, from the view before the
// first of them on; and the view after the last that it came to.
func (i *Inspector) actRecords(ctx context.Context, a *asked, before fold.View, records []patch.Record) ([]actRecord, fold.View, error) {
	var rows []actRecord
	left := records
	for r, err := range i.store.RawEvents(ctx, a.key, before.Seq()+1) {
		if err != nil {
			return nil, before, err
		}
		if len(left) == 0 || len(rows) == actRows {
			break
		}
		after, err := i.apply(ctx, a.key, before, r)
		if err != nil {
			return nil, before, err
		}
		if r.Seq == left[0].Seq {
			effect, err := present.EffectOf(before, after, r)
			if err != nil {
				return nil, before, err
			}
			row := actRecord{
				Key: a.key.String(), Seq: r.Seq, Type: r.Patch.Type(), ID: clip(r.ID(), 80), Author: clip(r.Patch.Author(), 80),
				Text: clip(present.PatchText(r.Patch), actRunes), Notes: effect.Notes(),
			}
			if w, ok := compaction.WrittenBy(r.Patch); ok {
				row.Pass = present.PassText(r, w)
			}
			for n := range row.Notes {
				row.Notes[n].Text = clip(row.Notes[n].Text, actRunes)
			}
			if more := len(row.Notes) - 20; more > 0 {
				row.Notes = append(row.Notes[:20], present.Note{Kind: present.NoteAdded, Text: fmt.Sprintf("and %d more", more)})
			}
			rows, left = append(rows, row), left[1:]
		}
		before = after
	}
	return rows, before, nil
}
