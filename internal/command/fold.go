package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/patch"
)

func (a *app) foldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fold FILE",
		Short: "Show what a model would see of a file, without a database",
		Long: `FILE holds events and patches, one JSON object a line, with or without a header; - is
standard input. A line's seq, if it has one, must be its place in the file: 1, 2, 3 and so
on. Partial events are not logged and take no place. With --json the output is one object:
{"seq","patchSeq","visible","state","skipped"}.`,
		Example: examples(
			"patchlog fold session.jsonl",
			"patchlog fold session.jsonl --at 61 --json | jq .state",
			`patchlog export shop/ada/4711 | patchlog fold - --json`,
		),
	}
	fs := cmd.Flags()
	var state stateFlag
	var at seq
	fs.Var(&state, "state", "the initial state, a `JSON` object, in place of that of the file's header")
	fs.Var(&at, "at", "stop after the record with this `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v, err := a.foldFile(cmd.Context(), args[0], state, at)
		if err != nil {
			return err
		}
		return a.showFold(v)
	}
	return cmd
}

// Records are folded so many at a time.
const foldBatch = 512

// foldFile folds a file up to a record, or to its end.
func (a *app) foldFile(ctx context.Context, name string, state stateFlag, at seq) (fold.View, error) {
	in, err := a.input(ctx, name)
	if err != nil {
		return fold.View{}, err
	}
	defer in.close()
	bar := a.progress("fold")
	defer bar.end()
	counter := &counting{r: in.r}
	d := patch.NewDecoder(counter, in.name)
	d.Translate = new(adkjson.Translator).Line
	initial, _, err := d.InitialState()
	if err != nil {
		return fold.View{}, err
	}
	if state.values != nil {
		initial = state.values
	}
	v := fold.New("", initial)
	place := uint64(0)
	ended := false
	for !ended && place < at.limit() {
		var records []patch.Record
		for len(records) < foldBatch && place < at.limit() {
			rec, err := d.Next()
			if err == io.EOF {
				ended = true
				break
			}
			if err != nil {
				return fold.View{}, err
			}
			if rec.Event != nil && rec.Event.Partial() {
				continue
			}
			place++
			if rec.Seq != 0 && rec.Seq != place {
				return fold.View{}, &patch.LineError{File: in.name, Line: d.Line(), Err: fmt.Errorf("%w: its seq is %d, but its place in the file is %d", patch.ErrInvalid, rec.Seq, place)}
			}
			rec = patch.Complete(rec, nil, time.Time{})
			rec.Seq = place
			records = append(records, rec)
			bar.update(counter.n, in.size, present.Counted(place, "record"))
		}
		if v, err = fold.Fold(v, records); err != nil {
			return fold.View{}, fmt.Errorf("%s: %w", in.name, err)
		}
	}
	if at.given && at.n > place {
		return fold.View{}, fmt.Errorf("%s ends at record %d; there is no record %d", in.name, place, at.n)
	}
	return v, nil
}

// foldDocument is a folded file as JSON.
type foldDocument struct {
	Seq      uint64                 `json:"seq"`
	PatchSeq uint64                 `json:"patchSeq"`
	Visible  []*patch.Event         `json:"visible"`
	State    map[string]patch.Value `json:"state"`
	Skipped  []skipDocument         `json:"skipped"`
}

type skipDocument struct {
	Seq    uint64     `json:"seq"`
	Reason patch.Flaw `json:"reason"`
}

func (a *app) showFold(v fold.View) error {
	skips, err := v.Skipped()
	if err != nil {
		return err
	}
	skipped := []skipDocument{}
	for _, s := range skips {
		skipped = append(skipped, skipDocument(s))
	}
	if a.json {
		events := make([]*patch.Event, 0, v.Len())
		for _, e := range v.Events() {
			events = append(events, e)
		}
		return a.out.document(foldDocument{v.Seq(), v.PatchSeq(), events, valuesOf(v), skipped})
	}
	newest := "no patch"
	if v.PatchSeq() > 0 {
		newest = fmt.Sprintf("newest patch %d", v.PatchSeq())
	}
	a.out.linef("%s after record %d, %s", present.Counted(v.Len(), "visible event"), v.Seq(), newest)
	if err := a.out.eventTable(entriesOf(v), 0, true); err != nil {
		return err
	}
	a.out.line()
	if err := a.out.stateTable(valuesOf(v)); err != nil {
		return err
	}
	for _, s := range skipped {
		a.out.line(a.out.paint(red, fmt.Sprintf("patch %d was skipped: %s", s.Seq, s.Reason)))
	}
	return nil
}
