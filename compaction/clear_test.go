package compaction_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var checkAll = fold.CheckOptions{}

func TestClearToolResults(t *testing.T) {
	const long = "*40"
	for _, row := range []struct {
		name string
		log  string
		keep int
		want string // indices of the cleared events
	}{
		{"nothing to clear", "u1 a1", 0, ""},
		{"all but the last", "u1 c1(x) r1(x)" + long + " c1(y) r1(y)" + long + " c1(z) r1(z)" + long, 1, "2 4"},
		{"all", "u1 c1(x) r1(x)" + long, 0, "2"},
		{"below 0 is 0", "u1 c1(x) r1(x)" + long, -3, "2"},
		{"more than there are", "u1 c1(x) r1(x)" + long, 9, ""},
		{"short ones stay", "u1 c1(x) r1(x)*2 u2", 0, ""},
		{"two in an event, the last one stays", "u1 c1(x,y) r1(x,y)" + long, 1, "2"},
		{"a placeholder that waits for the user stays", "u1 l1(x) r1(x)" + long + " a1", 0, ""},
		{"and is cleared when the user has answered", "u1 l1(x) r1(x)" + long + " a1 R2(x)" + long, 0, "2 4"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSession(t, row.log)
			before := s.view()
			state := s.state()
			patches, err := compaction.ClearToolResults(before, row.keep)
			if err != nil {
				t.Fatal(err)
			}
			if len(patches) > 0 {
				if _, err := s.store.ApplyPatch(t.Context(), key, store.PatchOptions{}, patches...); err != nil {
					t.Fatal(err)
				}
			}
			after := s.view()
			if after.Len() != before.Len() || s.state() != state {
				t.Fatalf("%d events, state %s; were %d, %s", after.Len(), s.state(), before.Len(), state)
			}
			var cleared []string
			for i, e := range after.Events() {
				old := before.At(i)
				if e.ID() == old.ID() {
					continue
				}
				cleared = append(cleared, fmt.Sprint(i))
				if !strings.Contains(e.String(), compaction.Cleared) || e.EstimatedTokens() >= old.EstimatedTokens() {
					t.Errorf("event %d is now %s", i, e)
				}
				if e.Author() != old.Author() || e.InvocationID() != old.InvocationID() || !e.Timestamp().Equal(old.Timestamp()) || e.Role() != old.Role() {
					t.Errorf("event %d: %s was %s", i, e, old)
				}
			}
			if got := strings.Join(cleared, " "); got != row.want {
				t.Errorf("cleared are %q, want %q", got, row.want)
			}
			if fmt.Sprint(after.Calls()) != fmt.Sprint(before.Calls()) {
				t.Errorf("the calls are %v, were %v", after.Calls(), before.Calls())
			}
			if again, _ := compaction.ClearToolResults(after, row.keep); len(again) != 0 {
				t.Errorf("%d patches for what is clear already", len(again))
			}
		})
	}
}

func TestClearKeepsStateAndFields(t *testing.T) {
	s := newSession(t, "u1 c1(x)")
	e := testlog.EventOf(t, event{
		"id": "r", "author": "agent", "invocationId": "inv1", "branch": "b", "longRunningToolIds": []any{}, "unknown": []any{},
		"actions": map[string]any{"stateDelta": map[string]any{"found": 3, "app:shared": 1}, "artifactDelta": map[string]any{"f": 2}},
		"content": map[string]any{"role": "user", "more": 1, "parts": []any{
			map[string]any{"text": "seen"},
			map[string]any{"functionResponse": map[string]any{"id": "x", "name": "tool", "response": map[string]any{"r": strings.Repeat("y", 100)}}, "thoughtSignature": "AAAA"},
		}},
	})
	s.add(e)
	patches, err := compaction.ClearToolResults(s.view(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.ApplyPatch(t.Context(), key, store.PatchOptions{}, patches...); err != nil {
		t.Fatal(err)
	}
	got := s.view().At(2)
	want := e.String()
	for _, change := range [][2]string{
		{`"id":"r"`, `"id":"` + got.ID() + `","timestamp":"` + got.Timestamp().Format(time.RFC3339Nano) + `"`},
		{`{"r":"` + strings.Repeat("y", 100) + `"}`, `{"result":"` + compaction.Cleared + `"}`},
		{`,"stateDelta":{"app:shared":1,"found":3}`, ``},
		{`"longRunningToolIds"`, `"customMetadata":{"patchlog":{"cleared":{"as":"` + got.ID() + `","id":"r","seq":3,"tokens":31}}},"longRunningToolIds"`},
	} {
		if !strings.Contains(want, change[0]) {
			t.Fatalf("%s is not in %s", change[0], want)
		}
		want = strings.Replace(want, change[0], change[1], 1)
	}
	wanted, err := patch.ParseEvent([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	if !patch.Same(patch.Record{Event: wanted}, patch.Record{Event: got}) {
		t.Errorf("cleared is\n%s, want\n%s", got, wanted)
	}
	if got := s.state(); got != "map[found:3]" {
		t.Errorf("the state is %s", got)
	}
}
