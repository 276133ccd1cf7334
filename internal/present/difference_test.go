package present_test

import (
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func sets(id, delta string) string {
	return `{"id":"` + id + `","author":"agent","actions":{"stateDelta":` + delta + `}}`
}

// shown is a change without its event.
type shown struct {
	sign  present.Sign
	index int
	id    string
}

func changesOf(d present.Difference, around int) []shown {
	var all []shown
	for _, c := range d.Changes(around) {
		all = append(all, shown{c.Sign, c.Index, c.Entry.Event.ID()})
	}
	return all
}

func TestDifference(t *testing.T) {
	_, views := viewsOf(t,
		sets("e1", `{"a":1,"b":"x","gone\n":[1]}`), sets("e2", `{"a":2}`), sets("e3", `{"b":"y"}`), sets("e4", `{"d":4}`), sets("e5", `{"e":5}`),
		`{"id":"pin1","patchType":"pin","eventId":"e4"}`,
		`{"id":"pin2","patchType":"pin","eventId":"e5"}`,
		`{"id":"un","patchType":"unpin","eventId":"e4"}`,
		`{"id":"cut","patchType":"splice","start":1,"count":2,"replacement":[{"id":"r","actions":{"stateDelta":{"new":true}}}]}`,
		`{"id":"cut2","patchType":"splice","start":0,"count":1}`,
	)
	cut := present.DifferenceOf(views[8], views[9])
	testlog.Equal(t, "changes", changesOf(cut, 0), []shown{{present.Removed, 1, "e2"}, {present.Removed, 2, "e3"}, {present.Added, 1, "r"}})
	testlog.Equal(t, "changes with context", changesOf(cut, 2), []shown{
		{present.Unchanged, 0, "e1"}, {present.Removed, 1, "e2"}, {present.Removed, 2, "e3"}, {present.Added, 1, "r"}, {present.Unchanged, 2, "e4"}, {present.Unchanged, 3, "e5"}})
	if last := cut.Changes(2)[5].Entry; !last.Pinned || last.Seq != 5 {
		t.Errorf("got %+v", last)
	}
	testlog.Equal(t, "state", cut.StateRows(), []present.StateRow{{present.Changed, "a", "1, was 2"}, {present.Changed, "b", `"x", was "y"`}, {present.Added, "new", "true"}})
	testlog.Equal(t, "pins", cut.PinLines(), nil)
	testlog.Equal(t, "rows", cut.Rows(), []present.Row{{"visible events", "5 → 4"}, {"tokens, about", "0 → 0"}})

	back := present.DifferenceOf(views[10], views[7])
	testlog.Equal(t, "changes back", changesOf(back, 9), []shown{{present.Removed, 0, "r"}, {present.Added, 0, "e1"}, {present.Added, 1, "e2"}, {present.Added, 2, "e3"}, {present.Unchanged, 3, "e4"}, {present.Unchanged, 4, "e5"}})
	testlog.Equal(t, "state back", back.StateRows(), []present.StateRow{{present.Added, "a", "2"}, {present.Added, "b", `"y"`}, {present.Added, "gone", "[1]"}, {present.Removed, "new", "was true"}})
	testlog.Equal(t, "pins back", back.PinLines(), []string{"pinned: e4"})

	pins := present.DifferenceOf(views[6], views[8])
	testlog.Equal(t, "pins", pins.PinLines(), []string{"pinned: e5", "no longer pinned: e4"})
	testlog.Equal(t, "no changes", changesOf(pins, 2), nil)
	testlog.Equal(t, "no state", pins.StateRows(), nil)
	testlog.Equal(t, "JSON", asJSON(t, pins), `{"removed":[],"added":[],"visibleBefore":5,"visibleAfter":5,"state":{"changed":{},"removed":[]},"tokensBefore":0,"tokensAfter":0,"pinned":["e5"],"unpinned":["e4"]}`)

	gone := present.DifferenceOf(views[1], views[0])
	testlog.Equal(t, "JSON of removed events", asJSON(t, gone), `{"removed":[{"index":0,"event":`+asJSON(t, views[1].At(0))+`}],"added":[],"visibleBefore":1,"visibleAfter":0,`+
		`"state":{"changed":{},"removed":["a","b","gone\n"]},"tokensBefore":0,"tokensAfter":0}`)
}

// Changes in several places are shown without the unchanged events around them.
func TestScatteredDifference(t *testing.T) {
	_, views := viewsOf(t, said("e1", "user", "1"), said("e2", "user", "2"), said("e3", "user", "3"), said("e4", "user", "4"),
		`{"id":"p1","patchType":"splice","start":2,"count":1}`, `{"id":"p2","patchType":"splice","start":0,"count":1}`)
	testlog.Equal(t, "went", changesOf(present.DifferenceOf(views[4], views[6]), 2), []shown{{present.Removed, 0, "e1"}, {present.Removed, 2, "e3"}})
	testlog.Equal(t, "came", changesOf(present.DifferenceOf(views[6], views[4]), 2), []shown{{present.Added, 0, "e1"}, {present.Added, 2, "e3"}})
}

// A preview shows events without the ids that the store assigns when it logs them.
func TestPreview(t *testing.T) {
	s := open(t)
	add(t, s, said("e1", "user", "one"), said("e2", "agent", "two"))
	note := testlog.Event(`{"author":"agent","content":{"role":"model","parts":[{"text":"a note"}]}}`)
	p := patch.NewSplice(0, 1, note)
	preview := testlog.Must(s.Preview(t.Context(), key, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true}))(t)
	d := present.PreviewOf(preview, p)
	testlog.Equal(t, "changes", changesOf(d, 1), []shown{{present.Removed, 0, "e1"}, {present.Added, 0, ""}, {present.Unchanged, 1, "e2"}})
	testlog.Equal(t, "added", asJSON(t, d.Added), `[{"index":0,"event":`+note.String()+`}]`)
	if preview.Added[0].Event.ID() == "" {
		t.Error("the preview was changed")
	}
	testlog.Equal(t, "tokens", d.TokensAfter, note.EstimatedTokens()+testlog.Event(said("e2", "agent", "two")).EstimatedTokens())

	// A patch that is already logged has no effect.
	p = p.WithID("p1")
	testlog.Must(s.ApplyPatch(t.Context(), key, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true}))(t)
	again := testlog.Must(s.Preview(t.Context(), key, []*patch.PatchEvent{p}, store.PatchOptions{AsOfNow: true}))(t)
	testlog.Equal(t, "changes again", changesOf(present.PreviewOf(again, p), 1), nil)
	testlog.Equal(t, "no views", changesOf(present.DifferenceOf(fold.View{}, fold.View{}), 1), nil)
}

func TestChangedWords(t *testing.T) {
	marked := func(pieces []present.Piece) string {
		var b strings.Builder
		for _, p := range pieces {
			if p.Mark {
				b.WriteString("[" + p.Text + "]")
			} else {
				b.WriteString(p.Text)
			}
		}
		return b.String()
	}
	for _, c := range []struct {
		before, after, was, now string
		ok                      bool
	}{
		{"the brass lamp is here", "the green lamp is over there", "the [brass] lamp is [here]", "the [green] lamp is [over there]", true},
		{"a b c", "a b c", "a b c", "a b c", true},
		{"a b", "c a b d", "a b", "[c] a b [d]", true},
		{"one two three", "four five six", "[one two three]", "[four five six]", false},
		{"", "", "", "", true},
		{"", "a", "", "[a]", false},
	} {
		was, now, ok := present.ChangedWords(c.before, c.after)
		testlog.Equal(t, c.before+" | "+c.after, []any{marked(was), marked(now), ok}, []any{c.was, c.now, c.ok})
	}
}

// A truncated text ends with an ellipsis. A text that only loses spaces does not.
func TestClip(t *testing.T) {
	for text, want := range map[string]string{"abcd": "abcd", "abcde": "abcd …", "a   b": "a …", "a  b": "a b", "äöüß": "äöüß", "äöüßx": "äöüß …"} {
		testlog.Equal(t, text, present.Clip(text, 4), want)
	}
}
