// Package fixed gives tests what a command makes differently in each run: ids, the time and
// the words of summaries.
package fixed

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/store"
)

// IDs makes ids, and shows them and random ones as a test can expect them.
type IDs struct {
	made  atomic.Int64
	Shown map[string]string // by id
}

// NewIDs returns one that has made none.
func NewIDs() *IDs { return &IDs{Shown: map[string]string{}} }

// madeID matches the ids that are made here, and random UUIDs.
var madeID = regexp.MustCompile(`made-\d+|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

var duration = regexp.MustCompile(`("durationMs":)\d+`)

// Show returns output as a test expects it: new ids are new-1, new-2 and so on, in the order
// in which they show first, and nothing takes any time.
func (i *IDs) Show(text string) string {
	text = madeID.ReplaceAllStringFunc(text, func(id string) string {
		if i.Shown[id] == "" {
			i.Shown[id] = fmt.Sprintf("new-%d", len(i.Shown)+1)
		}
		return i.Shown[id]
	})
	return duration.ReplaceAllString(text, "${1}0")
}

// Store returns options of a store whose clock stands still.
func (i *IDs) Store() store.Options {
	return store.Options{
		Logger: slog.New(slog.DiscardHandler),
		Now:    func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 600, time.UTC) },
		NewID:  func() string { return fmt.Sprintf("made-%d", i.made.Add(1)) },
	}
}

// InShort is a summarizer whose words do not change when the real one becomes better.
func InShort(_ context.Context, r compaction.Request) (compaction.Response, error) {
	text := fmt.Sprintf("%s to %s in short", r.Events[0].ID(), r.Events[len(r.Events)-1].ID())
	return compaction.Response{Text: text, Model: "extractive"}, nil
}
