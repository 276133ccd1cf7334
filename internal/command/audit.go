package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := command(`audit KEY
Show every record of the log, and what each patch did

With --json each line is {"turn", "applied", "reason", "start", "hidden", "added", "record"}: hidden has the ids of the
events that the patch hid, from index start on, added those of the events that it inserted, and reason says why a patch
was not applied.

$ patchlog audit shop/ada/4711 --from 62`)
	var which auditing
	seqVar(cmd.Flags(), &which.from, "from", "begin with the record with this `SEQ`")
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		return a.paged(ctx, func() error { return a.audit(ctx, s, key, which) })
	})
	return cmd
}

// auditing says which records are shown.
type auditing struct {
	from, until *uint64 // seqs; nil means the first, and the last
	kind        string  // the type of the records; "" means each
	last        int     // how many of these, the newest; 0 means all
}

// recordTypes are the values of --type.
var recordTypes = []string{"event", receiptType, string(patch.Splice), string(patch.TruncateBefore), string(patch.Summarise), string(patch.Pin), string(patch.Unpin), string(patch.Revert)}

// receiptType is the type of the patch that an erasure logs, in --type and in the table.
const receiptType = "receipt"

// typeOf is the type of a record.
func typeOf(r patch.Record) string {
	switch {
	case r.Patch == nil:
		return "event"
	case r.Patch.Type() == patch.Erase:
		return receiptType
	}
	return string(r.Patch.Type())
}

// audited is a record with its turn and what it did.
type audited struct {
	Turn    int          `json:"turn"`
	Applied bool         `json:"applied"`
	Reason  patch.Flaw   `json:"reason"`
	Start   int          `json:"start"`
	Hidden  []string     `json:"hidden"`
	Added   []string     `json:"added"`
	Record  patch.Record `json:"record,omitzero"`

	effect present.Effect
}

// audited returns records of the log with what each did.
func (a *app) audited(ctx context.Context, s *store.Store, key store.Key, which auditing) (records []audited, err error) {
	info, err := s.Info(ctx, key)
	if err != nil {
		return nil, err
	}
	if which.from != nil && *which.from > info.Seq {
		return nil, fmt.Errorf("session %s: the log ends at record %d; there is no record %d", key, info.Seq, *which.from)
	}
	before, err := s.ViewAt(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	bar := a.progress("audit")
	defer bar.end()
	var log []patch.Record // for reverts
	turns := ops.Turns{}
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return nil, err
		}
		if which.until != nil && r.Seq > *which.until {
			break
		}
		after, err := before.WithRecords(log).Apply(r)
		if err != nil {
			return nil, err
		}
		log = append(log, r)
		turn := turns.Add(r)
		if (which.from == nil || r.Seq >= *which.from) && (which.kind == "" || which.kind == typeOf(r)) {
			f, err := present.EffectOf(before, after, r)
			if err != nil {
				return nil, err
			}
			records = append(records, audited{turn, f.Applied, f.Reason, f.Start, idsOf(f.Hidden), idsOf(f.Added), r, f})
			if which.last > 0 && len(records) > which.last {
				records = slices.Delete(records, 0, 1)
			}
		}
		before = after
		bar.update(int64(r.Seq), int64(info.Seq), present.Counted(r.Seq, "record"))
	}
	return records, nil
}

// audit shows records of the log, and what each patch did.
func (a *app) audit(ctx context.Context, s *store.Store, key store.Key, which auditing) error {
	records, err := a.audited(ctx, s, key, which)
	if err != nil {
		return err
	}
	t := newTable("seq", "turn", "time", "tokens", "author or type", "record")
	t.right[0], t.right[1], t.right[3] = true, true, true
	t.least, t.drops = leastText, []int{2, 3, 1}
	for _, r := range records {
		if a.json {
			if err := a.out.document(r); err != nil {
				return err
			}
			continue
		}
		t.add(r.cells()...)
		a.addNotes(t, r)
	}
	switch {
	case a.json:
		return nil
	case len(records) == 0:
		return a.out.line("no records")
	}
	return a.out.table(t)
}

// cells returns the record's columns.
func (r audited) cells() []cell {
	by, text, at, tokens := cell{}, cell{}, time.Time{}, ""
	if e := r.Record.Event; e != nil {
		cells := eventCells(fold.Entry{Event: e, Summary: e.IsSummary()})
		by, text, at, tokens = cells[1], cells[2], e.Timestamp(), present.Grouped(e.EstimatedTokens())
	} else {
		p := r.Record.Patch
		by, at = cell{present.Printable(typeOf(r.Record)), bold}, p.Timestamp()
		if author := authorText(p.Author()); author != "" {
			text.text = "by " + author
		}
		if typeOf(r.Record) != receiptType { // the text of a receipt is below, uncut
			text.text = strings.TrimPrefix(text.text+": "+present.ShortIDs(present.PatchText(p)), ": ")
		}
	}
	return []cell{{fmt.Sprint(r.Record.Seq), plain}, {fmt.Sprint(r.Turn), dim}, {at.Format(time.DateTime), dim}, {tokens, dim}, by, text}
}

// mostAdded limits the added events that are shown of a patch: a revert can bring back thousands.
const mostAdded = 3

// addNotes adds lines about the record's effect below the last row of a table.
func (a *app) addNotes(t *table, r audited) {
	indent := strings.Repeat(" ", noteIndent)
	if typeOf(r.Record) == receiptType {
		t.note(a.out.fill(safeText(indent + present.PatchText(r.Record.Patch))))
	}
	notes := r.effect.Notes()
	if most := len(notes) - len(r.Added) + mostAdded; most < len(notes)-1 { // the notes of added events come last
		notes = append(notes[:most:most], present.Note{Text: fmt.Sprintf("and %d more, to index %d", len(notes)-most, r.Start+len(r.Added)-1)})
	}
	for _, n := range notes {
		text := cut(present.ShortIDs(n.Text), max(a.out.columns-noteIndent, leastLast))
		t.note(painted(indent) + a.out.paint(noteStyles[n.Kind], text))
	}
}

func idsOf(events []*patch.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	return ids
}

var noteStyles = map[present.NoteKind]style{present.NoteGroup: dim, present.NoteSkipped: red}

// noteIndent is the indentation of a note below a record.
const noteIndent = 8
