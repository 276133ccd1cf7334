package inspector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
)

// A difference shows what the command says of it.
func TestDiff(t *testing.T) {
	lines := joined(patched())
	lines = append(lines, event("e12", "user", text("more"), `,"actions":{"stateDelta":{"step":2,"new":true}}`), `{"id":"p13","patchType":"unpin","eventId":"n2"}`,
		`{"id":"p14","patchType":"splice","start":0,"count":0,"replacement":[`+event("n3", "shop", text("first"))+`]}`, `{"id":"p15","patchType":"splice","start":2,"count":1}`)
	lines[0] = event("e1", "user", text("order A-4711"), `,"actions":{"stateDelta":{"step":1}}`)
	s, i := shownLog(t, Options{}, lines...)
	for _, c := range [][2]uint64{{0, 4}, {4, 5}, {5, 6}, {3, 13}, {0, 0}, {5, 7}, {10, 11}, {12, 13}, {8, 12}, {13, 15}} {
		before := testlog.Must(s.ViewAt(t.Context(), recordKey, c[0]))(t)
		after := testlog.Must(s.ViewAt(t.Context(), recordKey, c[1]))(t)
		d := present.DifferenceOf(before, after)
		var want []string
		for _, row := range d.Rows() {
			want = append(want, row.Name+row.Text)
		}
		changes := d.Changes(2)
		for _, e := range changes {
			want = append(want, fmt.Sprintf("%s%s%d%s%s%s\n", e.Sign, changeWords[e.Sign], e.Index, e.Entry.Event.ID(), e.Entry.Event.Author(), present.EntryText(e.Entry)))
		}
		if len(changes) == 0 {
			want = append(want, present.SameEvents)
		}
		for _, row := range d.StateRows() {
			want = append(want, row.Key+row.Value)
		}
		if len(d.StateRows()) == 0 {
			want = append(want, present.SameState)
		}
		want = append(want, d.PinLines()...)
		page := shows(t, i, 200, []any{"diff", "from", c[0], "to", c[1]}, append(want, fmt.Sprintf("From record %d to record %d", c[0], c[1]))...)
		if n := strings.Count(page, `<td><span aria-hidden="true">`); n != len(changes)+len(d.StateRows()) {
			t.Errorf("%v: %d rows, want %d and %d", c, n, len(changes), len(d.StateRows()))
		}
	}
	shows(t, i, 200, []any{"diff", "from", 4}, "From record 4 to record 15")
}

func TestDiffRefused(t *testing.T) {
	_, i := shownLog(t, Options{}, event("a", "user", text("a")), event("b", "user", text("b")))
	shows(t, i, 200, []any{"diff", "from", 2, "to", 1}, "From record 1 to record 2")
	shows(t, i, 404, []any{"diff", "from", 1, "to", 7}, "record 7")
	shows(t, i, 200, []any{"diff", "to", 1}, "From record 0 to record 1")
	shows(t, i, 400, []any{"diff", "from", "1.5"}, "whole number")
}

// What a page has no room for is counted.
func TestDiffBounded(t *testing.T) {
	var lines []string
	for n := range 10_000 {
		lines = append(lines, event(fmt.Sprint("e", n), "user", text(fmt.Sprint(n)), fmt.Sprintf(`,"actions":{"stateDelta":{"k%d":%[1]d}}`, n)))
	}
	_, i := shownLog(t, Options{}, lines...)
	page := shows(t, i, 200, []any{"diff", "from", 0}, "and 9800 more events", "and 9800 more keys", "0 -> 10000")
	if n := strings.Count(page, `<td><span aria-hidden="true">`); n != 400 {
		t.Errorf("%d rows", n)
	}
}
