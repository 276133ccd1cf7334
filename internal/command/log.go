package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log KEY",
		Short: "Show the events that a model sees",
		Long: `Patches count events by their index. A record number (seq) names an event wherever an id does. Tokens
are estimated. With --json each line is {"index","seq","event"}.

With --history, the events that summaries replaced are shown in place of the summaries: the log as a
person should read it. With --type, the records of one type are shown, whether a model sees them or not:
receipt for what was erased, by whom and why, splice, summarise, pin, revert and so on for patches.`,
		Example: examples("patchlog log shop/ada/4711 --last 10"),
	}
	fs := cmd.Flags()
	var last, turn int // 0 means all, and now
	var at seq
	fs.Var(number{&last, 1}, "last", "only the last `N` events")
	fs.Var(&at, "at", "as it stood after the record with this `SEQ`")
	fs.Var(number{&turn, 1}, "turn", "as it stood at the end of turn `N`; turns are invocations, counted from 1")
	cmd.MarkFlagsMutuallyExclusive("at", "turn")
	history := fs.Bool("history", false, "show what summaries replaced, in their place")
	kind := fs.String("type", "", "only records of this `TYPE`, such as event, summarise or receipt")
	cmd.MarkFlagsMutuallyExclusive("history", "type")
	cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(recordTypes, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *kind != "" {
			if !slices.Contains(recordTypes, *kind) {
				return usagef("--type: unknown type %q; one of %s", *kind, strings.Join(recordTypes, ", "))
			}
			return a.paged(cmd.Context(), func() error { return a.logType(cmd.Context(), args[0], last, at, turn, *kind) })
		}
		return a.paged(cmd.Context(), func() error { return a.log(cmd.Context(), args[0], last, at, turn, *history) })
	}
	return cmd
}

// The types that --type knows. A receipt is what an erasing logs.
const receiptType = "receipt"

var recordTypes = []string{"event", receiptType, string(patch.Splice), string(patch.TruncateBefore), string(patch.Summarise), string(patch.Pin), string(patch.Unpin), string(patch.Revert)}

// logType shows the records of a type.
func (a *app) logType(ctx context.Context, keyText string, last int, at seq, turn int, kind string) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		if err := at.ofTurn(ctx, s, key, turn); err != nil {
			return err
		}
		var records []patch.Record
		for r, err := range s.RawEvents(ctx, key, 1) {
			if err != nil {
				return err
			}
			if r.Seq > at.limit() {
				break
			}
			of := "event"
			if r.Patch != nil {
				if of = string(r.Patch.Type()); r.Patch.Type() == patch.Erase {
					of = receiptType
				}
			}
			if of != kind {
				continue
			}
			if records = append(records, r); last > 0 && len(records) > last {
				records = slices.Delete(records, 0, 1)
			}
		}
		if !a.json {
			a.out.linef("%s: %s of type %s", key, present.Counted(len(records), "record"), kind)
		}
		for _, r := range records {
			if err := a.logRecord(r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) logRecord(r patch.Record) error {
	switch {
	case a.json:
		return a.out.document(r)
	case r.Patch == nil:
		return a.auditLine(present.Effect{Record: r})
	}
	p := r.Patch
	a.out.linef("record %d, id %s, by %s, %s", r.Seq, present.Printable(r.ID()), present.Printable(p.Author()), p.Timestamp().Format("2006-01-02 15:04:05Z"))
	return a.out.linef("  %s", present.PatchText(p))
}

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit KEY",
		Short: "Show everything that was logged, and what each patch did",
		Long: `With --json each line is {"seq","record","applied","reason","hid","added"}: hid are the events that the record
hid, with their indices before, and added the ids of those that it inserted. reason says why a patch was not
applied.`,
		Example: examples("patchlog audit shop/ada/4711 --from 62"),
	}
	fs := cmd.Flags()
	var from seq
	fs.Var(&from, "from", "begin with the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.paged(cmd.Context(), func() error { return a.audit(cmd.Context(), args[0], from.n) })
	}
	return cmd
}

// ofTurn sets the seq to the last one of a turn, if that is not 0.
func (f *seq) ofTurn(ctx context.Context, s *store.Store, key store.Key, turn int) (err error) {
	if turn > 0 {
		f.n, err = ops.TurnEnd(ctx, s, key, turn)
		f.given = true
	}
	return err
}

// viewAt returns the newest view, or an earlier one.
func viewAt(ctx context.Context, s *store.Store, key store.Key, at seq) (fold.View, error) {
	if at.given {
		return s.ViewAt(ctx, key, at.n)
	}
	session, err := s.Get(ctx, key)
	return session.View, err
}

func (a *app) log(ctx context.Context, keyText string, last int, at seq, turn int, history bool) error {
	return a.withSession(ctx, keyText, Reading, func(s *store.Store, key store.Key) error {
		if err := at.ofTurn(ctx, s, key, turn); err != nil {
			return err
		}
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
		return a.out.eventTable(entries, first, !history)
	})
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

// eventTable writes events for people, from one on.
func (o *output) eventTable(entries []fold.Entry, first int, indexed bool) error {
	if len(entries) == first {
		return nil
	}
	columns := []string{"index", "seq", "time", "tokens", "author", "event"}
	if !indexed {
		columns = columns[1:]
	}
	t := newTable(columns...)
	for i, name := range columns {
		t.right[i] = name == "index" || name == "seq" || name == "tokens"
	}
	for i, e := range entries[first:] {
		id := eventCells(e)
		cells := []cell{
			{fmt.Sprint(first + i), plain}, {fmt.Sprint(e.Seq), dim}, {e.Event.Timestamp().Format("2006-01-02 15:04:05"), dim},
			{present.Grouped(e.Event.EstimatedTokens()), dim}, id[1], id[2],
		}
		t.add(cells[len(cells)-len(columns):]...)
	}
	return o.table(t)
}
