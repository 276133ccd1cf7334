// Command summarizer compacts a session with a custom summarizer. The summarizer keeps only the order numbers.
// Replace it with a call of your model.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var orderNumber = regexp.MustCompile(`order \d+`)

// summarizeOrders is a summarizer that lists the order numbers in the events.
func summarizeOrders(_ context.Context, r compaction.Request) (compaction.Response, error) {
	var found []string
	for _, e := range r.Events {
		text, _ := e.Field("content")
		found = append(found, orderNumber.FindAllString(string(text), -1)...)
	}
	slices.Sort(found)
	text := "They spoke of " + strings.Join(slices.Compact(found), ", ") + "."
	return compaction.Response{Text: text, Model: "orders"}, nil
}

func run(ctx context.Context, w io.Writer) error {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	key := store.Key{App: "shop", User: "ann", Session: "1"}
	if _, err := db.Create(ctx, key, nil, store.CreateOptions{}); err != nil {
		return err
	}
	cfg := compaction.DefaultConfig()
	cfg.Summarizer = compaction.SummarizerFunc(summarizeOrders)
	cfg.CompactionInterval, cfg.OverlapSize = 4, 0
	c, err := compaction.New(db, cfg, compaction.Options[store.Key]{})
	if err != nil {
		return err
	}
	patchID := ""
	for i := range 5 {
		turn := []string{
			fmt.Sprintf(`{"invocationId":"inv%d","author":"user","content":{"role":"user","parts":[{"text":"Where is order %d, which I sent for so long ago, and why does nobody tell me?"}]}}`, i, 4711+i),
			fmt.Sprintf(`{"invocationId":"inv%d","author":"clerk","content":{"role":"model","parts":[{"text":"I have asked the carrier about order %d, and shall write as soon as they answer."}]}}`, i, 4711+i),
		}
		for _, text := range turn {
			e, err := patch.ParseEvent([]byte(text))
			if err != nil {
				return err
			}
			if _, err := db.AppendEvents(ctx, key, []*patch.Event{e}, store.AppendOptions{}); err != nil {
				return err
			}
		}
		done, err := c.MaybeCompact(ctx, key)
		if err != nil {
			return err
		}
		for _, d := range done {
			fmt.Fprintf(w, "turn %d: %d events became %d\n", i+1, d.EventsBefore, d.EventsAfter)
			patchID = d.PatchID
		}
	}
	if err := printEvents(ctx, w, db, key); err != nil {
		return err
	}
	// Undo a compaction pass by the id of its patch.
	if _, err := db.Revert(ctx, key, patchID, store.UndoOptions{}); err != nil {
		return err
	}
	v, err := db.View(ctx, key)
	fmt.Fprintln(w, v.Len(), "events after the revert")
	return err
}

func printEvents(ctx context.Context, w io.Writer, db *store.Store, key store.Key) error {
	v, err := db.View(ctx, key)
	if err != nil {
		return err
	}
	for _, e := range v.Entries() {
		if e.Summary {
			text, _ := e.Event.Field("content")
			fmt.Fprintf(w, "%s: %s\n", e.Event.Author(), text)
			continue
		}
		fmt.Fprintf(w, "%s: original event, record %d\n", e.Event.Author(), e.Seq)
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
