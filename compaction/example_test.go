package compaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var exampleKey = store.Key{App: "shop", User: "ann", Session: "1"}

// exampleStore returns a store with a session of three invocations, each with a question and an answer.
func exampleStore() *store.Store {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := db.Create(ctx, exampleKey, nil, store.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	for i, said := range []string{"I am Ann, order 4711 is missing", "ask the carrier", "and refund me"} {
		for _, role := range []string{"user", "model"} {
			author := "user"
			if role == "model" {
				author, said = "clerk", "It has been taken care of: "+said
			}
			e, err := patch.NewEvent(patch.Fields{
				ID: fmt.Sprintf("e%d-%s", i+1, role), InvocationID: fmt.Sprintf("inv%d", i+1), Author: author,
				Content: patch.Text(role, said),
			})
			if err != nil {
				log.Fatal(err)
			}
			if _, err := db.AppendEvents(ctx, exampleKey, []*patch.Event{e}, store.AppendOptions{}); err != nil {
				log.Fatal(err)
			}
		}
	}
	return db
}

// clerk is a summarizer that needs no model.
var clerk = compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
	text := fmt.Sprintf("Ann misses order 4711. (%d events)", len(r.Events))
	return compaction.Response{Text: text}, nil
})

func ExamplePlan() {
	db := exampleStore()
	defer db.Close()
	view, err := db.View(context.Background(), exampleKey)
	if err != nil {
		log.Fatal(err)
	}
	cfg := compaction.DefaultConfig()
	for _, cfg.CompactionInterval = range []int{5, 2} {
		d, err := compaction.Plan(view, cfg, compaction.Run{})
		if err != nil {
			log.Fatal(err)
		}
		if d.Window == nil {
			fmt.Println(d.Reason)
			continue
		}
		fmt.Printf("visible events %d to %d of %v: %s\n", d.Window.Start, d.Window.Start+d.Window.Count-1, d.Window.Invocations, d.Reason)
	}
	// Output:
	// nothing to do: 2 of 5 invocations; 57 of 64000 tokens
	// visible events 0 to 3 of [inv1 inv2]: 2 invocations have events that are not summarised; the interval is 2
}

func ExampleCompactor_MaybeCompact() {
	db := exampleStore()
	defer db.Close()
	ctx := context.Background()
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.Summarizer = 2, clerk
	c, err := compaction.New(db, cfg, compaction.Options[store.Key]{})
	if err != nil {
		log.Fatal(err)
	}
	written, err := c.MaybeCompact(ctx, exampleKey)
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range written {
		fmt.Printf("%s: %d events became %d, %d tokens %d\n", w.Trigger, w.EventsBefore, w.EventsAfter, w.TokensBefore, w.TokensAfter)
	}
	view, err := db.View(ctx, exampleKey)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(view.Len(), "visible of", view.Seq(), "records")
	// Output:
	// interval: 4 events became 1, 42 tokens 11
	// 3 visible of 7 records
}

func ExampleCompactor_Compact() {
	db := exampleStore()
	defer db.Close()
	c, err := compaction.New(db, compaction.Config{
		Enabled: true, TokenThreshold: 40, EventRetentionSize: 1, Summarizer: clerk,
	}, compaction.Options[store.Key]{})
	if err != nil {
		log.Fatal(err)
	}
	// While inv3 is running, its question must stay visible.
	if _, err := c.Compact(context.Background(), exampleKey, compaction.Run{Invocation: "inv3"}); err != nil {
		log.Fatal(err)
	}
	view, err := db.View(context.Background(), exampleKey)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(transcript.Of(events(view), 0))
	// Output:
	// summary of earlier events: Ann misses order 4711. (4 events)
	// user: and refund me
	// clerk: It has been taken care of: and refund me
}

// Approve gets each summary before it is logged, and can veto it.
func ExampleOptions_approve() {
	db := exampleStore()
	defer db.Close()
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.Summarizer = 2, clerk
	c, err := compaction.New(db, cfg, compaction.Options[store.Key]{
		Approve: func(_ context.Context, d compaction.ApproveRequest[store.Key]) error {
			for _, sum := range d.Summaries {
				for _, p := range sum.Event.Content().Parts() {
					if strings.Contains(p.Text, "4711") {
						return fmt.Errorf("a summary of %d events names an order", len(sum.Events))
					}
				}
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.MaybeCompact(context.Background(), exampleKey)
	fmt.Println(errors.Is(err, compaction.ErrVetoed), err)
	// Output: true vetoed: a summary of 4 events names an order
}

func ExampleWorker() {
	db := exampleStore()
	defer db.Close()
	cfg := compaction.DefaultConfig()
	cfg.CompactionInterval, cfg.Summarizer = 2, clerk
	c, err := compaction.New(db, cfg, compaction.Options[store.Key]{})
	if err != nil {
		log.Fatal(err)
	}
	w, err := compaction.NewWorker(c)
	if err != nil {
		log.Fatal(err)
	}
	w.Notify(exampleKey) // after each invocation; returns at once
	if err := w.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	s := w.Stats()
	fmt.Println(s.Ended, "session looked at,", s.Attempts[compaction.Wrote], "summary")
	// Output: 1 session looked at, 1 summary
}

func ExampleClearToolResults() {
	db := exampleStore()
	defer db.Close()
	ctx := context.Background()
	for _, content := range []string{
		`{"role":"model","parts":[{"functionCall":{"name":"track","args":{"order":4711}}}]}`,
		`{"role":"user","parts":[{"functionResponse":{"name":"track","response":{"log":"left Berlin, left Halle, left Fulda, left Mainz"}}}]}`,
	} {
		e, err := patch.NewEvent(patch.Fields{Author: "clerk", Content: json.RawMessage(content)})
		if err != nil {
			log.Fatal(err)
		}
		if _, err := db.AppendEvents(ctx, exampleKey, []*patch.Event{e}, store.AppendOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	view, err := db.View(ctx, exampleKey)
	if err != nil {
		log.Fatal(err)
	}
	patches, err := compaction.ClearToolResults(view, 0)
	if err != nil {
		log.Fatal(err)
	}
	done, err := db.ApplyPatch(ctx, exampleKey, patches, store.PatchOptions{On: view})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(transcript.Of(events(done.View)[6:], 0))
	// Output:
	// clerk calls track {"order":4711}
	// track returns to clerk: {"result":"[old tool result cleared]"}
}

func ExamplePromptTokens() {
	db := exampleStore()
	defer db.Close()
	view, err := db.View(context.Background(), exampleKey)
	if err != nil {
		log.Fatal(err)
	}
	tokens, measured := compaction.PromptTokens(view)
	fmt.Println(tokens, "tokens, measured:", measured)
	// Output: 57 tokens, measured: false
}

// events returns the visible events of a view.
func events(v fold.View) []*patch.Event {
	var out []*patch.Event
	for _, e := range v.Events() {
		out = append(out, e)
	}
	return out
}
