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
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := command(`audit KEY
Show every record of the log, and what each patch did

With --json each line is {"turn", "applied", "reason", "start", "hidden", "added", "record"}. hidden has the ids of the
events that the patch hid, from index start on. added has the ids of the events that the patch inserted. If the patch was
not applied, reason says why.

$ patchlog audit shop/ada/4711 --from 62`)
	var which auditing
	seqVar(cmd.Flags(), &which.from, "from", "begin with the record with this `SEQ`")
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		return a.paged(ctx, func() error { return a.audit(ctx, s, key, which) })
	})
	return cmd
}

type auditing struct {
	from, until *uint64 // seqs of the first and last record to show; nil means no limit
	kind        string  // type of the records to show; "" means all types
	last        int     // number of newest records to show; 0 means all
}

// recordTypes are the values of --type.
var recordTypes = []string{"event", receiptType, string(patch.Splice), string(patch.TruncateBefore), string(patch.Summarise), string(patch.Pin), string(patch.Unpin), string(patch.Revert)}

// receiptType is the type that --type and the table use for a patch that an erasure logs.
const receiptType = "receipt"

// typeOf returns the type of a record as shown in the table.
func typeOf(r patch.Record) string {
	switch {
	case r.Patch == nil:
		return "event"
	case r.Patch.Type() == patch.Erase:
		return receiptType
	}
	return string(r.Patch.Type())
}

// audited is a record together with its turn and its effect.
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

// audited returns the selected records of the log, with their effects.
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
	defer bar.End()
	var log []patch.Record // the effect of a revert depends on earlier records
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
		bar.Count(int(r.Seq), int(info.Seq), "record")
	}
	return records, nil
}

// audit writes the selected records of the log, and what each patch did.
func (a *app) audit(ctx context.Context, s *store.Store, key store.Key, which auditing) error {
	records, err := a.audited(ctx, s, key, which)
	if err != nil {
		return err
	}
	t := terminal.NewTable([]int{0, 1, 3}, "seq", "turn", "time", "tokens", "author or type", "record")
	t.Least, t.Drops = leastText, []int{2, 3, 1}
	for _, r := range records {
		if a.json {
			a.out.Document(r)
			continue
		}
		t.Add(r.cells()...)
		r.addNotes(t)
	}
	switch {
	case a.json:
		return nil
	case len(records) == 0:
		return a.out.Line("no records")
	}
	return a.out.Table(t)
}

func (r audited) cells() []terminal.Cell {
	seq, turn := terminal.Plain.Of(r.Record.Seq), terminal.Dim.Of(r.Turn)
	if e := r.Record.Event; e != nil {
		return eventRow(fold.Entry{Event: e, Summary: e.IsSummary()}, seq, turn)
	}
	p := r.Record.Patch
	text := ""
	if author := authorText(p.Author()); author != "" {
		text = "by " + author
	}
	if typeOf(r.Record) != receiptType { // the text of a receipt is in a note instead
		text = strings.TrimPrefix(text+": "+present.ShortIDs(present.PatchText(p)), ": ")
	}
	return []terminal.Cell{seq, turn, terminal.Dim.Of(p.Timestamp().Format(time.DateTime)), {}, terminal.Bold.Of(present.Printable(typeOf(r.Record))), terminal.Plain.Of(text)}
}

// mostAdded limits how many of a patch's added events are listed. A revert can add thousands of events.
const mostAdded = 3

// addNotes adds lines about the record's effect below the last row of a table.
func (r audited) addNotes(t *terminal.Table) {
	if typeOf(r.Record) == receiptType {
		t.Note(terminal.Plain.Of(present.PatchText(r.Record.Patch)), true)
	}
	notes := r.effect.Notes()
	if most := len(notes) - len(r.Added) + mostAdded; most < len(notes)-1 { // the notes about added events are at the end
		notes = append(notes[:most:most], present.Note{Text: fmt.Sprintf("and %d more, to index %d", len(notes)-most, r.Start+len(r.Added)-1)})
	}
	for _, n := range notes {
		t.Note(noteStyles[n.Kind].Of(present.ShortIDs(n.Text)), false)
	}
}

func idsOf(events []*patch.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID())
	}
	return ids
}

var noteStyles = map[present.NoteKind]terminal.Style{present.NoteGroup: terminal.Dim, present.NoteSkipped: terminal.Red}
