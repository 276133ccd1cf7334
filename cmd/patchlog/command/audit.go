package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// effect is what a record did to the visible log.
type effect struct {
	record  patch.Record
	applied bool
	reason  patch.Flaw // why it was not
	start   int        // the index of the first event that went or came
	hid     []*patch.Event
	added   []*patch.Event
}

// effectOf finds out what a record did. A view and the one after a record have their
// events in common, as pointers, but for one stretch.
func effectOf(before, after fold.View, r patch.Record) (effect, error) {
	f := effect{record: r, applied: true}
	if r.Event != nil {
		f.start, f.added = before.Len(), []*patch.Event{r.Event}
		return f, nil
	}
	if after.SkippedCount() > before.SkippedCount() {
		skipped, err := after.Skipped()
		if err != nil {
			return effect{}, err
		}
		f.applied, f.reason = false, skipped[len(skipped)-1].Reason
		return f, nil
	}
	old, now := slices.Collect(visible(before)), slices.Collect(visible(after))
	for f.start < min(len(old), len(now)) && old[f.start] == now[f.start] {
		f.start++
	}
	old, now = old[f.start:], now[f.start:]
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	f.hid, f.added = old, now
	return f, nil
}

func (a *app) audit(ctx context.Context, keyText string, from uint64) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		initial, err := s.InitialState(ctx, key)
		if err != nil {
			return err
		}
		before := fold.New("", initial) // which keeps what is hidden, for reverts
		bar := a.quietProgress("audit")
		defer bar.end()
		for r, err := range s.RawEvents(ctx, key, 1) {
			if err != nil {
				return err
			}
			after, err := before.Apply(r)
			if err != nil {
				return err
			}
			if r.Seq >= from {
				f, err := effectOf(before, after, r)
				if err != nil {
					return err
				}
				if err := a.auditLine(f); err != nil {
					return err
				}
			}
			before = after
			bar.update(0, 0, counted(r.Seq, "record"))
		}
		if from > before.Seq() {
			return fmt.Errorf("session %s: the log ends at record %d; there is no record %d", key, before.Seq(), from)
		}
		return nil
	})
}

func (a *app) auditLine(f effect) error {
	if a.json {
		return a.out.document(f.json())
	}
	if e := f.record.Event; e != nil {
		cells := eventCells(fold.Entry{Event: e, Summary: e.IsSummary()})
		return a.auditRow(f.record.Seq, cell{"event", plain}, cells[0], cells[1], cells[2])
	}
	p := f.record.Patch
	text := cell{patchText(p), plain}
	if err := a.auditRow(f.record.Seq, cell{printable(string(p.Type())), bold}, cell{printable(p.ID()), dim}, cell{authorText(p.Author()), cyan}, text); err != nil {
		return err
	}
	if group := p.Group(); group != "" {
		if err := a.auditNote(dim, "group "+printable(group)); err != nil {
			return err
		}
	}
	if !f.applied {
		return a.auditNote(red, "skipped: "+string(f.reason))
	}
	hid := "hid nothing"
	if n := len(f.hid); n > 0 {
		hid = "hid " + counted(n, "visible event") + ": index " + indexRange(f.start, n)
	}
	if err := a.auditNote(plain, hid); err != nil {
		return err
	}
	for i, e := range f.added {
		text := eventCells(fold.Entry{Event: e, Summary: p.Type() == patch.Summarise || e.IsSummary()})[2].text
		if err := a.auditNote(plain, fmt.Sprintf("added at index %d, id %s: %s", f.start+i, printable(e.ID()), text)); err != nil {
			return err
		}
	}
	return nil
}

// Columns of a seq in the audit log: its rows are written one by one, so that a long
// log need not be held in memory.
const seqColumns = 7

func (a *app) auditRow(seq uint64, kind, id, author, text cell) error {
	widths := []int{seqColumns, len("truncate_before"), 36, 14, 0}
	widths[4] = max(a.out.columns-widths[0]-widths[1]-widths[2]-widths[3]-8, leastLast)
	return a.out.line(a.out.row([]cell{{fmt.Sprint(seq), plain}, kind, id, author, text}, widths, []bool{true, false, false, false, false}))
}

// auditNote writes what came of a patch below its row.
func (a *app) auditNote(s style, text string) error {
	const indent = seqColumns + 2
	return a.out.line(strings.Repeat(" ", indent), a.out.paint(s, cut(text, max(a.out.columns-indent, leastLast))))
}

// patchText says in one printable line what a patch asks for.
func patchText(p *patch.PatchEvent) string {
	text := "state " + printable(string(p.StatePolicy()))
	switch p.Type() {
	case patch.Splice, patch.Summarise:
		text = fmt.Sprintf("start %d, count %d, ", p.Start(), p.Count()) + text
	case patch.TruncateBefore:
		text = "event " + printable(p.EventID()) + ", " + text
	case patch.Pin, patch.Unpin:
		text = "event " + printable(p.EventID())
	case patch.Revert:
		text = "patch " + printable(p.PatchID())
	}
	if base, ok := p.Base(); ok {
		text += fmt.Sprintf(", base %d", base)
	}
	return text
}

func indexRange(start, n int) string {
	if n == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d to %d", start, start+n-1)
}

// hidden names an event that went.
type hidden struct {
	Index int    `json:"index"`
	ID    string `json:"id"`
}

// auditDocument is a line of the audit log as JSON.
type auditDocument struct {
	Seq     uint64       `json:"seq"`
	Record  patch.Record `json:"record"`
	Applied bool         `json:"applied"`
	Reason  patch.Flaw   `json:"reason"`
	Hid     []hidden     `json:"hid"`
	Added   []string     `json:"added"`
}

func (f effect) json() auditDocument {
	d := auditDocument{f.record.Seq, f.record, f.applied, f.reason, make([]hidden, len(f.hid)), idsOf(f.added)}
	for i, e := range f.hid {
		d.Hid[i] = hidden{f.start + i, e.ID()}
	}
	return d
}
