package compaction_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// countedLog is a log in memory that counts the records that are read.
type countedLog struct {
	records []patch.Record
	view    fold.View
	read    int
}

func (l *countedLog) View(context.Context, string) (fold.View, error) { return l.view, nil }

func (l *countedLog) RawEvents(_ context.Context, _ string, from uint64) iter.Seq2[patch.Record, error] {
	return func(yield func(patch.Record, error) bool) {
		for _, r := range l.records[max(from, 1)-1:] {
			if l.read++; !yield(r, nil) {
				return
			}
		}
	}
}

func (l *countedLog) ApplyPatch(_ context.Context, _ string, patches []*patch.PatchEvent, _ fold.PatchOptions) (fold.Committed, error) {
	for _, p := range patches {
		if err := l.add(patch.Record{Patch: p}); err != nil {
			return fold.Committed{}, err
		}
	}
	return fold.Committed{View: l.view}, nil
}

func (l *countedLog) add(r patch.Record) (err error) {
	r.Seq = uint64(len(l.records) + 1)
	l.records = append(l.records, r)
	l.view, err = l.view.Apply(r)
	return err
}

// A forced pass reads only the records of its window and a few records before it, however long the log is.
func TestPassReadsItsWindow(t *testing.T) {
	read := func(turns int) int {
		l := &countedLog{view: fold.New("", nil)}
		say := func(i int) {
			for n, author := range []string{"user", "agent"} {
				role := [...]string{"user", "model"}[n]
				testlog.NoError(t, l.add(patch.Record{Event: testlog.Must(patch.NewEvent(patch.Fields{
					ID: fmt.Sprint("e", i, author), InvocationID: fmt.Sprint("i", i), Author: author, Content: patch.Text(role, fmt.Sprintf("Shelf %d has thing T-%d.", i, i*7)),
					Timestamp: time.Unix(int64(2*i+n), 0),
				}))(t)}))
			}
		}
		for i := range turns {
			say(i)
		}
		hidden := testlog.Must(patch.NewEvent(patch.Fields{ID: "s", Author: "user", Content: patch.Text("user", "Shelves were counted.")}))(t)
		testlog.NoError(t, l.add(patch.Record{Patch: patch.NewSummarise(0, l.view.Len(), hidden).WithID("p").WithState(patch.Keep)}))
		for i := range 8 {
			say(turns + i)
		}
		c := testlog.Must(compaction.New(l, compaction.DefaultConfig(), compaction.Options[string]{}))(t)
		if done := testlog.Must(c.Compact(t.Context(), "", compaction.Run{Force: true}))(t); len(done) != 1 {
			t.Fatalf("%+v", done)
		}
		return l.read
	}
	few, many := read(1_000), read(testlog.ScaleDownForRace(50_000))
	if few != many || many > 200 {
		t.Errorf("of 2,000 events it reads %d records, of 100,000 %d", few, many)
	}
}
