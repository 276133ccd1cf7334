package compaction_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/gemini"
	"github.com/patchlog-dev/patchlog/compaction/internal/transcript"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// TestNil checks that what is not there is refused at once, by name.
func TestNil(t *testing.T) {
	db, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	with := func(change func(*compaction.Config)) func() error {
		return func() error {
			cfg := compaction.DefaultConfig()
			change(&cfg)
			_, err := compaction.New(db, cfg, compaction.Options[store.Key]{})
			return err
		}
	}
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"log": {func() error {
			_, err := compaction.New(nil, compaction.DefaultConfig(), compaction.Options[store.Key]{})
			return err
		}, "log"},
		"store": {func() error {
			_, err := compaction.New((*store.Store)(nil), compaction.DefaultConfig(), compaction.Options[store.Key]{})
			return err
		}, "log"},
		"compactor": {func() error {
			_, err := compaction.NewWorker[store.Key](nil)
			return err
		}, "compactor"},
		"summarizer":       {with(func(c *compaction.Config) { c.Summarizer = (*gemini.Summarizer)(nil) }), "Summarizer"},
		"summarizing func": {with(func(c *compaction.Config) { c.Summarizer = compaction.SummarizerFunc(nil) }), "Summarizer"},
		"fallback":         {with(func(c *compaction.Config) { c.Fallback = (*gemini.Summarizer)(nil) }), "Fallback"},
		"event of a request": {func() error {
			_, err := compaction.Extractive{}.Summarize(t.Context(), compaction.Request{Events: []*patch.Event{nil}})
			return err
		}, "event 0"},
	} {
		if err := c.do(); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoEvent checks that nil among events is as none, where no error can say so, and
// that the zero view is an empty session's.
func TestNoEvent(t *testing.T) {
	e, err := patch.ParseEvent([]byte(`{"author":"user","content":{"parts":[{"text":"x"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	events := []*patch.Event{nil, e, nil}
	if got := transcript.Of(events, 0); got != transcript.Of(events[1:2], 0) {
		t.Errorf("transcript: %q", got)
	}
	if l := compaction.LineageOf(nil); l.Level != 1 {
		t.Errorf("lineage %+v", l)
	}
	d, err := compaction.Plan(fold.View{}, compaction.DefaultConfig(), compaction.Run{})
	if err != nil || d.Window != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if patches, err := compaction.ClearToolResults(fold.View{}, 0); len(patches) > 0 || err != nil {
		t.Error(patches, err)
	}
}
