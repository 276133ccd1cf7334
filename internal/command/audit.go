package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) audit(ctx context.Context, keyText string, from uint64) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		initial, err := s.InitialState(ctx, key)
		if err != nil {
			return err
		}
		before := fold.New("", initial)
		var log []patch.Record // for reverts
		bar := a.quietProgress("audit")
		defer bar.end()
		for r, err := range s.RawEvents(ctx, key, 1) {
			if err != nil {
				return err
			}
			after, err := before.With(log).Apply(r)
			if err != nil {
				return err
			}
			log = append(log, r)
			if r.Seq >= from {
				f, err := present.EffectOf(before, after, r)
				if err != nil {
					return err
				}
				if err := a.auditLine(f); err != nil {
					return err
				}
			}
			before = after
			bar.update(0, 0, present.Counted(r.Seq, "record"))
		}
		if from > before.Seq() {
			return fmt.Errorf("session %s: the log ends at record %d; there is no record %d", key, before.Seq(), from)
		}
		return nil
	})
}

func (a *app) auditLine(f present.Effect) error {
	if a.json {
		return a.out.document(f.Document())
	}
	if e := f.Record.Event; e != nil {
		cells := eventCells(fold.Entry{Event: e, Summary: e.IsSummary()})
		return a.auditRow(f.Record.Seq, cell{"event", plain}, cells[0], cells[1], cells[2])
	}
	p := f.Record.Patch
	text := cell{present.PatchText(p), plain}
	if err := a.auditRow(f.Record.Seq, cell{present.Printable(string(p.Type())), bold}, cell{present.Printable(p.ID()), dim}, cell{authorText(p.Author()), cyan}, text); err != nil {
		return err
	}
	for _, n := range f.Notes() {
		if err := a.auditNote(noteStyles[n.Kind], n.Text); err != nil {
			return err
		}
	}
	return nil
}

var noteStyles = map[present.NoteKind]style{present.NoteGroup: dim, present.NoteSkipped: red}

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
