package command

import (
	"context"
	"fmt"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// reportDocument is what a session would have been worth under a policy, as JSON.
type reportDocument struct {
	Key    string `json:"key"`
	Policy string `json:"policy"`
	quality.Figures
	Cost float64 `json:"cost"`
}

// showReport replays a session's raw events under policies, and says what it would have been
// worth. Nothing is written.
func (a *app) showReport(ctx context.Context, s *store.Store, key store.Key, cfg compaction.Config) error {
	var events []*patch.Event
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return err
		}
		if r.Event != nil {
			events = append(events, r.Event)
		}
	}
	rec, err := quality.Record(events)
	if err != nil {
		return err
	}
	policies := []quality.Policy{quality.None(), quality.Truncate(4_000), quality.Clear(3, 5_000), quality.Compact("compacted", cfg)}
	t := newTable("seen", "in reach", "blind", "visible", "cost", "breaks", "passes", "lost", "invented", "policy").numbers(9)
	var none quality.Figures
	for i, p := range policies {
		f, err := rec.Replay(ctx, p)
		if err != nil {
			return fmt.Errorf("session %s: %w", key, err)
		}
		if i == 0 {
			none = f
		}
		if a.json {
			if err := a.out.document(reportDocument{key.String(), p.Name, f, f.Cost()}); err != nil {
				return err
			}
			continue
		}
		var row []cell
		for _, text := range []string{
			present.Share(f.Seen, f.Needed), present.Share(f.Seen+f.Reached, f.Needed), present.Share(f.Seen+f.ReachedBlind, f.Needed), present.Share(f.VisibleTokens, f.RawTokens), present.Share(f.Cost(), none.Cost()),
			fmt.Sprint(f.Breaks), fmt.Sprint(f.Passes), present.Share(f.Lost, f.Held), fmt.Sprint(f.Invented),
		} {
			row = append(row, cell{text, plain})
		}
		t.add(append(row, cell{p.Name, plain})...)
	}
	if a.json {
		return nil
	}
	a.out.linef("%s: %s of %s, %s of the model; %s needed by calls", key, present.Counted(len(events), "event"),
		present.Counted(rec.Invocations(), "invocation"), present.Counted(none.Turns, "turn"), present.Counted(none.Needed, "identifier"))
	if err := a.out.table(t); err != nil {
		return err
	}
	if err := a.out.line("Nothing was written. Seen: of the identifiers in calls that had been said before, those in sight then."); err != nil {
		return err
	}
	return a.out.line("In reach: also those that one search with the call's words brings back; blind: with the other words alone.")
}
