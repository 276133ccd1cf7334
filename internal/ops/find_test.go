package ops_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/ops"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/store"
)

// An event or a patch is found by its id, by a unique prefix of its id, or by the seq of its record. If an id
// is a number, it takes precedence over a seq. A turn is found by its invocation's id, by its number or by one
// of its records. If an event is hidden, the error names the patch that hides it.
func TestNames(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	key := store.Key{App: "a", User: "u", Session: "s"}
	const log = `{"id":"alpha-1","invocationId":"inv-1","author":"user","content":{"role":"user","parts":[{"text":"x"}]}}
{"id":"alpha-2","invocationId":"inv-2","author":"user","content":{"role":"user","parts":[{"text":"x"}]}}
{"id":"beta","author":"user","content":{"role":"user","parts":[{"text":"x"}]}}
{"id":"1","invocationId":"other","author":"user","content":{"role":"user","parts":[{"text":"x"}]}}
{"id":"patch-x","patchType":"splice","start":2,"count":1}
{"id":"patch-y","patchType":"pin","eventId":"1"}
`
	done := testlog.Must(s.Import(t.Context(), key, strings.NewReader(log), store.ImportOptions{}))(t)
	event := func(name string) (string, error) { return ops.EventID(t.Context(), s, key, done.View, name) }
	patch := func(name string) (string, error) { return ops.PatchID(t.Context(), s, key, name) }
	in := func(i ops.Invocation) func(string) (string, error) {
		return func(string) (string, error) { return i.Find(t.Context(), s, key) }
	}
	visible := func(name string) (string, error) { return ops.VisibleEventID(t.Context(), s, key, done.View, name) }
	for _, c := range []struct {
		find              func(string) (string, error)
		name, want, fails string
	}{
		{event, "alpha-1", "alpha-1", ""}, {event, "2", "alpha-2", ""}, {event, "b", "beta", ""}, {event, "3", "beta", ""}, {event, "1", "1", ""},
		{event, "alpha", "", `"alpha-1" and "alpha-2"`}, {event, "5", "", "record 5 has no event"}, {event, "none", "", `there is no event "none"`}, {event, "99", "", `there is no event "99"`},
		{patch, "5", "patch-x", ""}, {patch, "patch-y", "patch-y", ""}, {patch, "patch-", "", "begin with"}, {patch, "2", "", "record 2 has no patch"}, {patch, "beta", "", `there is no patch "beta"`},
		{in(ops.Invocation{ID: "oth"}), "", "other", ""}, {in(ops.Invocation{ID: "inv"}), "", "", "several invocations"}, {in(ops.Invocation{ID: "2"}), "", "", `there is no invocation "2"`},
		{in(ops.Invocation{Turn: 2}), "", "inv-2", ""}, {in(ops.Invocation{Turn: 4}), "", "", "there is no turn 4; it has 3"},
		{in(ops.Invocation{Record: 2}), "", "inv-2", ""}, {in(ops.Invocation{Record: 3}), "", "", "record 3 belongs to no turn"}, {in(ops.Invocation{Record: 9}), "", "", "there is no record 9"},
		{visible, "2", "alpha-2", ""}, {visible, "3", "", `event "beta" is hidden by patch 5`}, {visible, "9", "", `there is no event "9"`},
	} {
		got, err := c.find(c.name)
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: got %q, %v; want %q, %s", c.name, got, err, c.want, c.fails)
		}
	}
	for n, want := range []uint64{1, 3, 6} {
		if got, err := ops.LastRecordOfTurn(t.Context(), s, key, n+1); got != want || err != nil {
			t.Errorf("turn %d ends at record %d, %v; want %d", n+1, got, err, want)
		}
	}
	if _, err := ops.LastRecordOfTurn(t.Context(), s, key, 4); err == nil || !strings.Contains(err.Error(), "there is no turn 4; it has 3") {
		t.Errorf("a turn that is not there: %v", err)
	}
}
