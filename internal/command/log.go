package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) logCommand() *cobra.Command {
	cmd := command(`log KEY
Show the events that a model sees

Patches count visible events by their index. A record's number, its seq, can be given wherever an event's id is expected.
Tokens are estimated. With --json each line is {"index", "seq", "event"}.

--history shows the replaced events in place of the summaries, as a person would read the session. --type shows the
records of one type as 'patchlog audit' does, hidden events included; erasures with author and reason are the type
receipt. With --last the column of turns is missing, since counting turns takes reading the whole log.

$ patchlog log shop/ada/4711 --last 10`)
	fs := cmd.Flags()
	var last, turn int // 0 means all, and now
	var at *uint64
	fs.Var(number{&last, 1}, "last", "only the last `N` events")
	seqVar(fs, &at, "at", "as it stood after the record with this `SEQ`")
	fs.Var(number{&turn, 1}, "turn", "as it stood at the end of turn `N`; turns are invocations, counted from 1")
	cmd.MarkFlagsMutuallyExclusive("at", "turn")
	history := fs.Bool("history", false, "show what summaries replaced, in their place")
	kind := ""
	choose(cmd, &kind, "type", "only records of this `TYPE`, such as event, summarise or receipt", recordTypes...)
	cmd.MarkFlagsMutuallyExclusive("history", "type")
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		return a.paged(ctx, func() error {
			if turn > 0 {
				seq, err := ops.LastRecordOfTurn(ctx, s, key, turn)
				if err != nil {
					return err
				}
				at = &seq
			}
			if kind != "" {
				return a.audit(ctx, s, key, auditing{last: last, until: at, kind: kind})
			}
			return a.log(ctx, s, key, last, at, *history)
		})
	})
	return cmd
}

// recordTypes are the values of --type.
var recordTypes = []string{"event", receiptType, string(patch.Splice), string(patch.TruncateBefore), string(patch.Summarise), string(patch.Pin), string(patch.Unpin), string(patch.Revert)}

// viewAt returns the view after a record, or the newest one if at is nil.
func viewAt(ctx context.Context, s *store.Store, key store.Key, at *uint64) (fold.View, error) {
	if at != nil {
		return s.ViewAt(ctx, key, *at)
	}
	return s.View(ctx, key)
}

func (a *app) log(ctx context.Context, s *store.Store, key store.Key, last int, at *uint64, history bool) error {
	v, err := viewAt(ctx, s, key, at)
	if err != nil {
		return err
	}
	entries := entriesOf(v)
	which := present.Counted(len(entries), "visible event")
	if history {
		if entries, err = s.History(ctx, key, v); err != nil {
			return err
		}
		entries = compaction.WithoutRestored(entries)
		which = present.Counted(len(entries), "event") + " of the history"
	}
	first := 0
	if 0 < last && last < len(entries) {
		first = len(entries) - last
	}
	if a.json {
		return a.logLines(ctx, entries, first, !history)
	}
	if first > 0 {
		which = fmt.Sprintf("last %d of %s", last, which)
	}
	a.out.linef("%s: %s after record %d", key, which, v.Seq())
	turns := ops.Turns{}
	if first == 0 { // with --last, reading the whole log would cost more than the table
		for r, err := range s.RawEvents(ctx, key, 1) {
			if err != nil {
				return err
			}
			if r.Seq > v.Seq() {
				break
			}
			turns.Add(r)
		}
	}
	return a.out.eventTable(entries, first, !history, turns)
}

// logLines writes events for programs, from one on.
func (a *app) logLines(ctx context.Context, entries []fold.Entry, first int, indexed bool) error {
	for i, e := range entries[first:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		line := present.Line{Seq: e.Seq, Event: e.Event, Pinned: e.Pinned}
		if i += first; indexed {
			line.Index = &i
		}
		if err := a.out.document(line); err != nil {
			return err
		}
	}
	return nil
}

// eventTable writes a table of the events from an index on, with their turns if these are known.
func (o *output) eventTable(entries []fold.Entry, first int, indexed bool, turns ops.Turns) error {
	if len(entries) == first {
		return nil
	}
	t := newTable("index", "seq", "turn", "time", "tokens", "author", "event")
	t.right[0], t.right[1], t.right[2], t.right[4] = true, true, true, true
	t.least, t.drops = leastText, []int{3, 4, 2}
	for i, e := range entries[first:] {
		id, index, turn := eventCells(e), cell{}, cell{"", dim}
		if indexed {
			index.text = fmt.Sprint(first + i)
		}
		if n := turns[e.Event.InvocationID()]; n > 0 {
			turn.text = fmt.Sprint(n)
		}
		t.add(index, cell{fmt.Sprint(e.Seq), dim}, turn, cell{e.Event.Timestamp().Format(time.DateTime), dim},
			cell{present.Grouped(e.Event.EstimatedTokens()), dim}, id[1], id[2])
	}
	return o.table(t)
}

// leastText is for how many columns of text a table leaves others out.
const leastText = 36

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

// cells are the columns of a record.
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

// mostAdded is how many of the events are shown that a patch added: a revert can bring back thousands.
const mostAdded = 3

// addNotes adds to the last row of a table what the record did.
func (a *app) addNotes(t *table, r audited) {
	indent := strings.Repeat(" ", noteIndent)
	if typeOf(r.Record) == receiptType {
		t.note(a.out.fill(safeText(indent + present.PatchText(r.Record.Patch))))
	}
	notes := r.effect.Notes()
	if most := len(notes) - len(r.Added) + mostAdded; most < len(notes)-1 { // those of added events come last
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

// noteIndent is where a note stands below a record.
const noteIndent = 8

// entriesOf returns the visible log.
func entriesOf(v fold.View) []fold.Entry {
	var entries []fold.Entry
	for _, e := range v.Entries() {
		entries = append(entries, e)
	}
	return entries
}

// eventCells are the cells that say id, author and content of an event.
func eventCells(entry fold.Entry) []cell {
	e := entry.Event
	id := cell{present.ShortID(e.ID()), dim}
	if e.ID() == "" {
		id.text = "(new)"
	}
	text := cell{present.EntryText(entry), textStyles[present.KindOf(entry)]}
	author := cell{authorText(e.Author()), cyan}
	if e.Author() == "user" && present.KindOf(fold.Entry{Event: e}) != present.Response {
		author.style = green
	}
	return []cell{id, author, text}
}

var textStyles = map[present.Kind]style{present.Call: yellow, present.Response: yellow, present.Summary: magenta}

// authorText is an author as a column shows it.
func authorText(author string) string { return cut(present.Printable(author), 24) }

func (a *app) lossCommand() *cobra.Command {
	cmd := command(`loss KEY
Show which identifiers the summaries lack

Identifiers are ids, paths, addresses and words with digits. For each visible summary, this shows those of its events that
are missing from the visible log, those that other visible events still have, and those that the summary invented.

With --patch, the summaries are those that this patch or its group inserted, now or, if they are hidden, after the
patch. PATCH is the number of its record, its id, or the beginning of its id. With --json each summary is a line
{"key", "seq", "level", "index", "summary", "events", "invocations", "tokens", "identifiers", "notVisible",
"inOtherEvents", "invented", "numbers"}.

$ patchlog loss shop/ada/4711`)
	id := ""
	textVar(cmd.Flags(), &id, "patch", "only the summaries that this `PATCH` inserted")
	cmd.RunE = a.onSession(nil, func(ctx context.Context, s *store.Store, key store.Key, _ []string) error {
		var err error
		if id != "" {
			if id, err = ops.PatchID(ctx, s, key, id); err != nil {
				return err
			}
		}
		v, losses, err := present.LossesOf(ctx, s, key, id)
		if err != nil {
			return err
		}
		if !a.json {
			a.out.linef("%s: %s after record %d", key, present.Counted(len(losses), "summary"), v.Seq())
		}
		for _, l := range losses {
			if a.json {
				if err := a.out.document(l); err != nil {
					return err
				}
				continue
			}
			a.out.line()
			for _, line := range l.Lines() {
				a.out.line(present.ShortIDs(line))
			}
		}
		return nil
	})
	return cmd
}
