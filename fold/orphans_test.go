package fold_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Each row has a visible log, a patch, and the expected error. The error consists of the orphans (call or response,
// id, event, problem) and the suggestion. If the error is "", the patch is accepted.
func TestOrphans(t *testing.T) {
	sum := event("S", "role:model", "text:summary")
	asUser := event("S", "role:user", "text:summary")
	for _, c := range []struct {
		name    string
		log     []string
		patch   *patch.PatchEvent
		orphans string
		suggest string
	}{
		{"a pair goes together", []string{"e0", "e1 call:a", "e2 resp:a", "e3"}, patch.NewSplice(1, 2), "", ""},
		{"the call alone", []string{"e0", "e1 call:a", "e2 resp:a", "e3"}, patch.NewSplice(1, 1),
			"response a e2 would answer no call", "1+2"},
		{"the response alone", []string{"e0", "e1 call:a", "e2 resp:a", "e3"}, patch.NewSplice(2, 1),
			"call a e1 would lose its response", "1+2"},
		{"truncating between", []string{"e0", "e1 call:a", "e2 resp:a", "e3"}, patch.NewTruncateBefore("e2"),
			"response a e2 would answer no call", "e0"},
		{"unpaired parts do not count", []string{"e0", "e1 resp:x", "e2"}, patch.NewSplice(0, 1), "", ""},
		{"a response is put in with its call", []string{"e0", "e1"}, patch.NewSplice(1, 1, events("r1 call:n", "r2 resp:n")...), "", ""},
		{"a new response without call", []string{"e0", "e1"}, patch.NewSplice(1, 1, event("r", "resp:n")),
			"response n r would answer no call", "none"},

		// Two calls have the same id.
		{"the second of two pairs with one id", []string{"e0", "e1 call:a", "e2 resp:a", "e3 call:a", "e4 resp:a"}, patch.NewSplice(3, 2), "", ""},
		{"the first call of two", []string{"e0", "e1 call:a", "e2 resp:a", "e3 call:a", "e4 resp:a"}, patch.NewSplice(1, 1),
			"response a e2 would answer no call", "1+2"},
		{"a response would move to another call", []string{"e0", "e1 call:a", "e2 call:a", "e3 resp:a", "e4 resp:a"}, patch.NewSplice(3, 1),
			"call a e1 would lose its response; response a e4 would answer another call", "2+2"},

		// Parallel calls have separate responses, and one response is missing.
		{"one of three parallel responses", []string{"e0", "e1 @i call:a call:b call:c", "e2 resp:a", "e3 resp:b", "e4 @j"}, patch.NewSplice(2, 1),
			"call a e1 would lose its response", "1+3"},
		{"parallel calls, one still open", []string{"e0", "e1 @i call:a call:b", "e2 resp:a", "e3"}, patch.NewSplice(1, 2),
			"call b e1 is still open and would be hidden", "none"},
		{"the open call is of an older invocation", []string{"e0", "e1 @i call:a call:b", "e2 resp:a", "e3 @j"}, patch.NewSplice(1, 2), "", ""},

		{"by name where there is no id", []string{"e0", "e1 call:", "e2 resp:", "e3"}, patch.NewSplice(1, 1),
			"response  e2 would answer no call", "1+2"},
		{"the same branch first", []string{"e0", "e1 #b call:a", "e2 #c call:a", "e3 #b resp:a", "e4 #c resp:a"}, patch.NewSplice(1, 1),
			"response a e3 would answer another call", "1+4"},
		{"an event does not answer itself", []string{"e0", "e1 call:a resp:a", "e2 resp:a"}, patch.NewSplice(2, 1),
			"call a e1 would lose its response", "1+2"},

		// A long-running call first gets a placeholder response, and later the final response.
		{"a long-running call with its placeholder", []string{"e0", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j"}, patch.NewSplice(1, 2),
			"call a e1 is still open and would be hidden", "none"},
		{"after the final response", []string{"e0", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j by:user resp:a"}, patch.NewSplice(1, 3), "", ""},
		{"the final response alone", []string{"e0", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j by:user resp:a"}, patch.NewSplice(3, 1), "", ""},
		{"an invocation inherited from the event before", []string{"e0 @i", "e1 call:a", "e2"}, patch.NewSplice(1, 1),
			"call a e1 is still open and would be hidden", "none"},

		{"a call would come first", []string{"e0", "e1 call:a", "e2 resp:a"}, patch.NewTruncateBefore("e1"),
			"call a e1 would come first, where a model's API accepts no function call", "e0"},
		{"a call that came first still does", []string{"e0 call:a", "e1 resp:a", "e2"}, patch.NewSplice(2, 1), "", ""},
		{"a new call would come first", []string{"e0"}, patch.NewSplice(0, 0, events("r1 call:n", "r2 resp:n")...),
			"call n r1 would come first, where a model's API accepts no function call", "none"},
		{"a call directly after a summary of role model", []string{"e0", "e1", "e2 call:a", "e3 resp:a", "e4"}, patch.NewSummarise(0, 2, sum),
			"call a e2 would come directly after a summary of role model, where a model's API accepts no function call", "0+4"},
		{"and of role user", []string{"e0", "e1", "e2 call:a", "e3 resp:a", "e4"}, patch.NewSummarise(0, 2, asUser), "", ""},
		{"a cut moves a call up to a summary", []string{"e0", "s role:model summary text:s", "e2", "e3 call:a", "e4 resp:a"}, patch.NewSplice(2, 1),
			"call a e3 would come directly after a summary of role model, where a model's API accepts no function call", "1+2"},
		{"a call after a change of state", []string{"d k=1", "e1", "e2 call:a", "e3 resp:a"}, patch.NewSplice(1, 1),
			"call a e2 would come first, where a model's API accepts no function call", "1+3"},
		{"a call in front of which nothing was said", []string{"d k=1", "e1 call:a", "e2 resp:a"}, patch.NewSplice(0, 1), "", ""},
		{"a change of state in front of a call", []string{"e0", "e1 call:a", "e2 resp:a"}, patch.NewSplice(0, 1, event("d", "k=1")),
			"call a e1 would come first, where a model's API accepts no function call", "0+3"},
		{"a change of state between a call and the cut", []string{"e0", "d k=1", "e1 call:a", "e2 resp:a"}, patch.NewTruncateBefore("d"),
			"call a e1 would come first, where a model's API accepts no function call", "e0"},
		{"a change of state between a summary and a call", []string{"e0", "e1", "d k=1", "e2 call:a", "e3 resp:a"}, patch.NewSummarise(0, 2, sum),
			"call a e2 would come directly after a summary of role model, where a model's API accepts no function call", "0+5"},
		{"a summary that says nothing", []string{"e0", "e1 call:a", "e2 resp:a"}, patch.NewSplice(0, 1, event("S", "k=1", "summary")),
			"call a e1 would come first, where a model's API accepts no function call", "0+3"},
		{"a new call after a new summary", []string{"e0", "e1"}, patch.NewSplice(1, 1, events("s role:model summary text:s", "r call:n", "r2 resp:n")...),
			"call n r would come directly after a summary of role model, where a model's API accepts no function call", "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view(t, c.log...)
			err := v.Check(c.patch, fold.CheckOptions{})
			after := apply(t, v, c.patch)
			if together := v.CheckOrphans(after, fold.CheckOptions{}); orphansOf(together) != c.orphans {
				t.Errorf("judged as one of several: %q, want %q", orphansOf(together), c.orphans)
			}
			if err := v.CheckOrphans(after, fold.CheckOptions{AllowOrphans: true}); err != nil {
				t.Errorf("orphans allowed, judged as one of several: %v", err)
			}
			if c.orphans == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var got *fold.OrphanError
			if !errors.As(err, &got) || !errors.Is(err, fold.ErrOrphanedCall) {
				t.Fatalf("got %v", err)
			}
			if list := describe(got); list != c.orphans {
				t.Errorf("orphans %q, want %q", list, c.orphans)
			}
			if s := suggestion(got); s != c.suggest {
				t.Errorf("suggests %s, want %s", s, c.suggest)
			}
			for _, o := range got.Orphans {
				if !strings.Contains(err.Error(), fmt.Sprintf("%q", o.EventID)) || !strings.Contains(err.Error(), o.Problem) {
					t.Errorf("%q does not name %v", err, o)
				}
			}
			if err := v.Check(c.patch, fold.CheckOptions{AllowOrphans: true}); err != nil {
				t.Errorf("orphans allowed: %v", err)
			}
			if got.Suggested {
				if err := v.Check(widened(c.patch, got), fold.CheckOptions{}); err != nil {
					t.Errorf("the suggestion is refused: %v", err)
				}
			}
		})
	}
}

func describe(e *fold.OrphanError) string {
	var out []string
	for _, o := range e.Orphans {
		kind := "call"
		if o.Response {
			kind = "response"
		}
		out = append(out, fmt.Sprintf("%s %s %s %s", kind, o.CallID, o.EventID, o.Problem))
	}
	return strings.Join(out, "; ")
}

func orphansOf(err error) string {
	var e *fold.OrphanError
	if !errors.As(err, &e) {
		return ""
	}
	return describe(e)
}

func suggestion(e *fold.OrphanError) string {
	switch {
	case !e.Suggested:
		return "none"
	case e.EventID != "":
		return e.EventID
	}
	return fmt.Sprintf("%d+%d", e.Start, e.Count)
}

func widened(p *patch.PatchEvent, e *fold.OrphanError) *patch.PatchEvent {
	switch p.Type() {
	case patch.TruncateBefore:
		return patch.NewTruncateBefore(e.EventID)
	case patch.Summarise:
		return patch.NewSummarise(e.Start, e.Count, p.NewEvents()[0])
	}
	return patch.NewSplice(e.Start, e.Count, p.NewEvents()...)
}

// The text of an OrphanError with many orphans is short and suggests a span.
func TestOrphanMessage(t *testing.T) {
	v := view(t, "e0", "e1 call:a call:b call:c call:d call:e call:f call:g", "e2 resp:a resp:b resp:c resp:d resp:e resp:f resp:g", "e3")
	text := v.Check(patch.NewSplice(1, 1), fold.CheckOptions{}).Error()
	for _, want := range []string{"and 2 more", "start 1, count 2", `visible event 2 (id "e2")`, `response "a" of function "f"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	text = v.Check(patch.NewSplice(0, 0, event("r", "resp:z")), fold.CheckOptions{}).Error()
	for _, want := range []string{`new event (id "r")`, "no wider span is accepted"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	text = v.Check(patch.NewTruncateBefore("e2"), fold.CheckOptions{}).Error()
	if want := `the nearest earlier event that is accepted is "e0"`; !strings.Contains(text, want) {
		t.Errorf("%q does not say %q", text, want)
	}
}

func TestBaseIsChecked(t *testing.T) {
	v := apply(t, view(t, "e1", "e2", "e3"), patch.NewSplice(0, 1))
	v = extend(t, v, "e5")
	p := patch.NewSplice(0, 1)
	var conflict *fold.ConflictError
	if err := v.Check(p.WithBase(0), fold.CheckOptions{}); !errors.As(err, &conflict) || conflict.Base != 0 || conflict.Newest != 4 ||
		!errors.Is(err, fold.ErrConflict) || !strings.Contains(err.Error(), "newest patch is 4") {
		t.Errorf("an old base: %v", err)
	}
	for _, base := range []uint64{4, 5} {
		if err := v.Check(p.WithBase(base), fold.CheckOptions{}); err != nil {
			t.Errorf("base %d: %v", base, err)
		}
	}
	if err := v.Check(p.WithBase(6), fold.CheckOptions{}); !errors.Is(err, patch.ErrInvalid) || !strings.Contains(err.Error(), "6") {
		t.Errorf("a base above the last seq: %v", err)
	}
	if err := v.Check(p.WithBase(0), fold.CheckOptions{AsOfNow: true}); err != nil {
		t.Errorf("any base: %v", err)
	}
	// Check applies its rules in the order base, form, bounds, orphans.
	testlog.ErrorIs(t, v.Check(patch.NewSplice(9, 0).WithBase(0), fold.CheckOptions{}), fold.ErrConflict, "base before form")
	testlog.ErrorIs(t, v.Check(patch.NewSplice(9, 0), fold.CheckOptions{}), patch.ErrInvalid, "form before bounds")
	testlog.ErrorIs(t, v.Check(patch.NewSplice(9, 1, event("r", "resp:z")), fold.CheckOptions{}), fold.ErrOutOfRange, "bounds before orphans")
}

func TestOutOfRangeNamesTheValue(t *testing.T) {
	v := view(t, "e1", "e2")
	const maxInt = int(^uint(0) >> 1)
	for _, c := range []struct {
		p    *patch.PatchEvent
		want string
	}{
		{patch.NewSplice(-1, 1), "start is -1"}, {patch.NewSplice(0, -1), "count is -1"},
		{patch.NewSplice(0, 3), "the visible log has length 2"}, {patch.NewSplice(3, 0, event("r")), "start 3"},
		{patch.NewSplice(1, maxInt), "length 2"}, {patch.NewSplice(maxInt, maxInt), "length 2"},
		{patch.NewSummarise(0, 0, event("S", "text:s")), "count is 0"},
	} {
		err := v.Check(c.p, fold.CheckOptions{})
		if !errors.Is(err, fold.ErrOutOfRange) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q in it", c.p, err, c.want)
		}
	}
	if err := v.Check(patch.NewTruncateBefore("e9"), fold.CheckOptions{}); !errors.Is(err, fold.ErrEventNotFound) || !strings.Contains(err.Error(), `"e9"`) {
		t.Errorf("an event that is not there: %v", err)
	}
}

// If thousands of calls have the same key, Check refuses a patch fast. It stops searching for a wider span, so the
// error suggests none.
func TestSuggestionIsBounded(t *testing.T) {
	var lines []string
	lines = append(lines, "first")
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf("c%d call:a", i))
	}
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf("r%d resp:a", i))
	}
	v := view(t, lines...)
	var orphans *fold.OrphanError
	if err := v.Check(patch.NewSplice(1500, 1), fold.CheckOptions{}); !errors.As(err, &orphans) || orphans.Suggested {
		t.Errorf("got %v", err)
	}
	if err := v.Check(patch.NewTruncateBefore("c2000"), fold.CheckOptions{}); !errors.As(err, &orphans) {
		t.Errorf("got %v", err)
	}
}

// Several patches are checked for orphans together. If one patch removes a call and another patch removes its
// response, neither is an orphan.
func TestOrphansOfSeveralPatches(t *testing.T) {
	for _, c := range []struct {
		name    string
		log     []string
		patches []*patch.PatchEvent
		orphans string
	}{
		{"a call and its response, one patch each", []string{"e0", "e1 call:a", "e2", "e3 resp:a", "e4"},
			[]*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(1, 1)}, ""},
		{"a second response stays", []string{"e0", "e1 call:a", "e2", "e3 resp:a", "e4 resp:a"},
			[]*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(1, 1)}, "response a e4 would answer no call"},
		{"the second answer of two calls with one id stays, and its own call goes", []string{"e0", "e1 call:a", "e2 resp:a", "e3 call:a", "e4 resp:a"},
			[]*patch.PatchEvent{patch.NewSplice(3, 1), patch.NewSplice(2, 1)}, "response a e4 would answer another call"},
		{"an open call of the newest invocation", []string{"e0 @i", "e1 @i call:a", "e2 @i"},
			[]*patch.PatchEvent{patch.NewSplice(1, 1), patch.NewSplice(0, 1)}, "call a e1 is still open and would be hidden"},
		{"all before a call", []string{"e0", "e1", "e2 call:a", "e3 resp:a"},
			[]*patch.PatchEvent{patch.NewSplice(1, 1), patch.NewSplice(0, 1)}, "call a e2 would come first, where a model's API accepts no function call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view(t, c.log...)
			after := v
			for _, p := range c.patches {
				after = apply(t, after, p)
			}
			if got := orphansOf(v.CheckOrphans(after, fold.CheckOptions{})); got != c.orphans {
				t.Errorf("orphans %q, want %q", got, c.orphans)
			}
		})
	}
}

func TestAllowWaiting(t *testing.T) {
	hide := fold.CheckOptions{AllowWaiting: true}
	for _, c := range []struct {
		name    string
		log     []string
		orphans string
	}{
		{"of an invocation that is over", []string{"e0 @i", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j"}, ""},
		{"of the newest invocation", []string{"e0 @i", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @i"}, "call a e1 is still open and would be hidden"},
		{"an ordinary one of the newest invocation", []string{"e0 @i", "e1 @i call:a", "e2 @i", "e3 @i"}, "call a e1 is still open and would be hidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view(t, c.log...)
			p := patch.NewSplice(1, 2)
			if got := orphansOf(v.Check(p, hide)); got != c.orphans {
				t.Errorf("orphans %q, want %q", got, c.orphans)
			}
			if got := orphansOf(v.CheckOrphans(apply(t, v, p), hide)); got != c.orphans {
				t.Errorf("judged as one of several: %q, want %q", got, c.orphans)
			}
		})
	}
	v := view(t, "e0 @i", "e1 @i call:a long:a", "e2 @i resp:a", "e3 @j")
	if v.Check(patch.NewSplice(1, 2), fold.CheckOptions{}) == nil {
		t.Error("a waiting call was hidden without permission")
	}
}
