package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func eightEvents(t *testing.T) (*store.Store, store.Key, fold.View) {
	t.Helper()
	s := teststore.Memory(t, store.Options{})
	var log strings.Builder
	for n := range 8 {
		fmt.Fprintf(&log, `{"id":"e%d","invocationId":"i","author":"user","content":{"role":"user","parts":[{"text":"x"}]}}`+"\n", n)
	}
	key := store.Key{App: "a", User: "u", Session: "s"}
	done := testlog.Must(s.Import(t.Context(), key, strings.NewReader(log.String()), store.ImportOptions{}))(t)
	return s, key, done.View
}

// An edit of several spans is a group of patches, the last span first. If an edit is impossible, the error says
// why.
func TestEdit(t *testing.T) {
	_, _, v := eightEvents(t)
	two := []compaction.Span{{Start: 1, Count: 2}, {Start: 5, Count: 1}}
	for _, c := range []struct {
		edit ops.Edit
		want string
	}{
		{ops.Edit{Kind: ops.Cut, Spans: two}, "splice start 5, count 1, state drop; splice start 1, count 2, state drop"},
		{ops.Edit{Kind: ops.Summarise, Spans: two[:1], Text: "t", State: "drop"}, "summarise start 1, count 2, state drop"},
		{ops.Edit{Kind: ops.Pin, Spans: two[1:]}, "pin event e5"},
		{ops.Edit{Kind: ops.Unpin, EventID: "e1"}, "unpin event e1"},
		{ops.Edit{Kind: ops.Unpin, Spans: two}, "no selected event is pinned"},
		{ops.Edit{Kind: ops.Summarise, Spans: two, Text: "t"}, "all events from 1 to 5"},
		{ops.Edit{Kind: ops.Summarise, Spans: two[:1]}, "the text of the summary is missing"},
		{ops.Edit{Kind: ops.Cut}, "no event is selected"},
	} {
		patches, err := c.edit.Patches(v)
		var said []string
		for _, p := range patches {
			said = append(said, string(p.Type())+" "+present.PatchText(p))
			if (p.Group() != "") != (len(patches) > 1) || p.Group() != patches[0].Group() {
				t.Errorf("%+v: group %q", c.edit, p.Group())
			}
		}
		if refused := (*ops.EditError)(nil); errors.As(err, &refused) {
			if said = []string{refused.Problem}; (refused.Suggested.Count == 5) != (len(c.edit.Spans) > 1 && c.edit.Text != "") {
				t.Errorf("%+v: whole stretch %v", c.edit, refused.Suggested)
			}
		}
		if text := strings.Join(said, "; "); !strings.Contains(text, c.want) || text == "" {
			t.Errorf("%+v: %s, %v; want %s", c.edit, text, err, c.want)
		}
	}
}

// Restoring a summary of summaries restores all logged events, in one group. The preview writes nothing.
func TestRestore(t *testing.T) {
	s, key, v := eightEvents(t)
	var last string
	for _, span := range []compaction.Span{{Start: 0, Count: 2}, {Start: 1, Count: 2}, {Start: 0, Count: 2}} {
		edit := ops.Edit{Kind: ops.Summarise, Spans: []compaction.Span{span}, Text: "in short"}
		done := testlog.Must(ops.Patches{Plan: edit.Patches}.Apply(t.Context(), s, key, v))(t)
		v, last = done.View, done.Records[0].ID()
	}
	c := ops.Restore{PatchID: last, Author: "ada"}
	would, err := c.Preview(t.Context(), s, key, v)
	if err != nil || len(would.Patches) != 3 || would.After.Len() != 8 {
		t.Fatalf("%d patches, %d events, %v", len(would.Patches), would.After.Len(), err)
	}
	done, err := c.Apply(t.Context(), s, key, v)
	if err != nil || done.View.Len() != 8 || len(done.Records) != 3 || done.Records[0].Seq != v.Seq()+1 || done.Records[2].Patch.Group() == "" {
		t.Fatalf("%+v, %v", done.Records, err)
	}
	for n := range 8 {
		if id := done.View.At(n).ID(); id != fmt.Sprint("e", n) {
			t.Errorf("event %d is %s", n, id)
		}
	}
	if _, err := c.Preview(t.Context(), s, key, done.View); err == nil {
		t.Error("a restored summary can be restored again")
	}
}

// A manual summary is a summary, and covers the times of its events. Before a model's turn its role is not
// model.
func TestManualSummary(t *testing.T) {
	v := fold.New("c", nil)
	for i, role := range []string{"user", "model", "user", "model"} {
		e := testlog.Must(patch.NewEvent(patch.Fields{ID: string(rune('a' + i)), Author: role, Content: patch.Text(role, "said"), Timestamp: time.Unix([]int64{100, 103, 101, 102}[i], 0)}))(t)
		v = testlog.Must(v.Apply(patch.Record{Seq: uint64(i + 1), Event: e}))(t)
	}
	for _, c := range []struct {
		span     compaction.Span
		role     string
		from, to float64
	}{
		{compaction.Span{Start: 0, Count: 2}, "model", 100, 103},
		{compaction.Span{Start: 1, Count: 2}, "user", 101, 103},
		{compaction.Span{Start: 2, Count: 2}, "model", 101, 102},
		{compaction.Span{Start: 0, Count: 3}, "user", 100, 103},
		{compaction.Span{Start: 9, Count: 1}, "model", 0, 0},
		{compaction.Span{Start: -1, Count: -5}, "model", 0, 0},
	} {
		e := testlog.Must(ops.ManualSummary(v, c.span, "inv", "what was said"))(t)
		said, err := e.Compaction()
		if err != nil || said == nil {
			t.Fatalf("%v: no compaction: %v", c.span, err)
		}
		if e.Role() != c.role || said.StartTimestamp != c.from || said.EndTimestamp != c.to || e.ID() != "" || e.InvocationID() != "inv" || !e.IsSummary() {
			t.Errorf("%v: %s", c.span, e)
		}
	}
	if _, err := ops.ManualSummary(v, compaction.Span{Start: 0, Count: 1}, "inv", "\xff"); err == nil {
		t.Error("a text that is not UTF-8 is taken")
	}
}
