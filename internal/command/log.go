package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/terminal"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) logCommand() *cobra.Command {
	cmd := command(`log KEY
Show the events that a model sees

The index is the position of an event in what the model sees. 'patchlog patch' needs the index. The seq is the number of
the event's record. Other commands accept the seq in place of the event's id. Tokens are estimates. If an event belongs to
a subagent, its text begins with the branch. With --json each line is {"index", "seq", "event"}.

--history shows the replaced events in place of the summaries, as a person would read the session. --type shows the
records of one type as 'patchlog audit' does, including hidden events. Erasures, with author and reason, have the type
receipt. With --last, there is no column of turns, because counting turns needs the whole log.

$ patchlog log shop/ada/4711 --last 10`)
	fs := cmd.Flags()
	var last, turn int // number of events, 0 for all; and number of the turn, 0 for the end of the log
	var at *uint64
	numberVar(fs, &last, 1, "last", "only the last `N` events")
	seqVar(fs, &at, "at", "show the session as of the record with this `SEQ`")
	numberVar(fs, &turn, 1, "turn", "show the session as of the end of turn `N`; turns are invocations, numbered from 1")
	cmd.MarkFlagsMutuallyExclusive("at", "turn")
	history := fs.Bool("history", false, "show the replaced events in place of the summaries")
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

// viewAt returns the view after the record with the seq at, or the newest view if at is nil.
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
		which = fmt.Sprintf("last %d of %s", last, which)
	}
	if !a.json {
		a.out.Linef("%s: %s after record %d", key, which, v.Seq())
	}
	turns := ops.Turns{}
	if !a.json && first == 0 { // not with --last, because reading the whole log would take most of the time
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
	t := terminal.NewTable([]int{0, 1, 2, 4}, "index", "seq", "turn", "time", "tokens", "author", "event")
	t.Least, t.Drops = leastText, []int{3, 4, 2}
	for i, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		line := present.Line{Seq: e.Seq, Event: e.Event, Pinned: e.Pinned}
		index, turn := terminal.Cell{}, terminal.Cell{}
		if !history {
			line.Index, index = &i, terminal.Plain.Of(i)
		}
		if n := turns[e.Event.InvocationID()]; n > 0 {
			turn = terminal.Dim.Of(n)
		}
		switch {
		case i < first:
		case a.json:
			a.out.Document(line)
		default:
			t.Add(append([]terminal.Cell{index}, eventRow(e, terminal.Dim.Of(e.Seq), turn)...)...)
		}
	}
	if t.Len() == 0 {
		return nil
	}
	return a.out.Table(t)
}

// leastText is the minimum width of the text column in tables of events. If the column would be narrower, the table
// drops other columns.
const leastText = 36

func entriesOf(v fold.View) []fold.Entry {
	var entries []fold.Entry
	for _, e := range v.Entries() {
		entries = append(entries, e)
	}
	return entries
}

// eventRow returns an event's cells for a table of events or records.
func eventRow(entry fold.Entry, seq, turn terminal.Cell) []terminal.Cell {
	e, cells := entry.Event, eventCells(entry)
	return []terminal.Cell{seq, turn, terminal.Dim.Of(e.Timestamp().Format(time.DateTime)), terminal.Dim.Of(present.Grouped(e.EstimatedTokens())), cells[1], cells[2]}
}

// eventCells returns cells for the id, the author and the content of an event.
func eventCells(entry fold.Entry) []terminal.Cell {
	e := entry.Event
	id := present.ShortID(e.ID())
	text := present.EntryText(entry)
	if branch := e.Branch(); strings.Contains(branch, ".") { // the event belongs to a subagent
		text = "[" + terminal.Cut(present.Printable(branch), 32) + "] " + text
	}
	style := terminal.Cyan
	if e.Author() == "user" && present.KindOf(fold.Entry{Event: e}) != present.Response {
		style = terminal.Green
	}
	return []terminal.Cell{terminal.Dim.Of(cmp.Or(id, "(new)")), style.Of(authorText(e.Author())), textStyles[present.KindOf(entry)].Of(text)}
}

var textStyles = map[present.Kind]terminal.Style{present.Call: terminal.Yellow, present.Response: terminal.Yellow, present.Summary: terminal.Magenta}

// authorText returns an author's name, shortened to fit a column.
func authorText(author string) string { return terminal.Cut(present.Printable(author), 24) }
