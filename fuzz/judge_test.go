package fuzz

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

// judge returns the refusal of the patch in the last line of a script, or nil. The preceding lines are the log.
func judge(t *testing.T, script string, allowOrphans bool) *Refusal {
	t.Helper()
	script = strings.TrimSpace(script)
	i := strings.LastIndex(script, "\n")
	r := fold(t, nil, script[:max(i, 0)])
	err := r.Check(CheckOptions{AllowOrphans: allowOrphans}, patchOf(t, strings.TrimSpace(script[i+1:])))
	if err == nil {
		return nil
	}
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("an error of type %T: %v", err, err)
	}
	return refusal
}

func TestCheck(t *testing.T) {
	const unknown = `{"id":"a","patchType":"rewind","patchId":"p1"}`
	for _, test := range []struct {
		name, log string
		kind      string // kind of the refusal, or "" if the patch is not refused
		text      string // part of the text of the refusal
	}{
		{"a cut", "e1\ncut 0+1", "", ""},
		{"an insertion at the end", "e1\nput 1+0 | r", "", ""},
		{"into an empty log", "put 0+0 | r", "", ""},
		{"truncation before the first event", "e1\nbefore e1", "", ""},

		{"no patch seen, none there", "e1\ncut 0+1 base:0", "", ""},
		{"no patch seen, one there", "e1\ne2\ncut 0+1\ncut 0+1 base:0", Conflict, "3"},
		{"the newest patch seen", "e1\ne2\ncut 0+1\ncut 0+1 base:3", "", ""},
		{"an event since", "e1\ne2\ncut 0+1\ne3\ncut 0+1 base:3", "", ""},
		{"base is the last seq", "e1\ne2\ncut 0+1\ne3\ncut 0+1 base:4", "", ""},
		{"base above the last seq", "e1\ne2\ncut 0+1\ne3\ncut 0+1 base:5", Invalid, "5"},
		{"a skipped patch counts", "e1\ncut 7+1\ncut 0+1 base:0", Conflict, "2"},
		{"no base: as of now", "e1\ne2\ncut 0+1\ncut 0+1", "", ""},

		{"an unknown patch in the log", "e1\n" + unknown + "\ncut 0+1", UnknownInLog, "2"},
		{"an unknown patch goes before the base", "e1\n" + unknown + "\ncut 0+1 base:0", UnknownInLog, ""},
		{"other skipped patches do not matter", "e1\ncut 5+5\nsum 0+0 | S\ncut 0+1", "", ""},
		{"base goes before form", "e1\ne2\ncut 0+1\nput 0+0 base:0", Conflict, ""},
		{"form goes before bounds", "e1\n" + `{"patchType":"splice","start":5,"count":1,"state":"x"}`, Invalid, `"x"`},
		{"bounds go before orphans", "e1\ne2 call:c\ne3 resp:c\ncut 2+2", OutOfRange, "2"},

		{"unknown type", "e1\n" + unknown, Invalid, "rewind"},
		{"field missing", "e1\n" + `{"patchType":"splice","start":0}`, Invalid, "count"},
		{"no effect", "e1\ncut 0+0", Invalid, "count"},
		{"summary with state", "e1\nsum 0+1 | S k=1", Invalid, "stateDelta"},
		{"a patch inside a replacement", "e1\n" + `{"patchType":"splice","start":0,"count":1,"replacement":[{"patchType":"x"}]}`, Invalid, "replacement/0"},

		{"start < 0", "e1\ncut -1+1", OutOfRange, "-1"},
		{"count < 0", "e1\ncut 0+-1", OutOfRange, "-1"},
		{"end beyond V", "e1\ncut 0+2", OutOfRange, "2"},
		{"an insertion beyond V", "e1\nput 2+0 | r", OutOfRange, "2"},
		{"hidden events do not count", "e1\ne2\ncut 0+1\ncut 1+1", OutOfRange, "1"},
		{"the sum overflows", "e1\ncut 9223372036854775807+9223372036854775807", OutOfRange, ""},
		{"a summary of nothing", "e1\nsum 0+0 | S", OutOfRange, "0"},
		{"a cut of a pinned event", "e1\ne2\npin e2\ncut 0+2", Pinned, `"e2"`},
		{"a truncation of one", "e1\ne2\npin e1\nbefore e2", Pinned, `"e1"`},
		{"a summary of one", "e1\npin e1\nsum 0+1 | S", Pinned, `"e1"`},
		{"a replacement of one", "e1\npin e1\nput 0+1 | r", Pinned, `"e1"`},
		{"a pinned summary", "e1\nsum 0+1 | S\npin S\ncut 0+1", Pinned, `"S"`},
		{"an insertion at one", "e1\npin e1\nput 0+0 | r", "", ""},
		{"beside one", "e1\ne2\npin e2\ncut 0+1", "", ""},
		{"one that is pinned no longer", "e1\npin e1\nunpin e1\ncut 0+1", "", ""},
		{"one whose pin was reverted", "e1\npin e1\nrevert p2\ncut 0+1", "", ""},
		{"one that was pinned while it was another's", "e1\npin e1\ne1\ncut 1+1", "", ""},
		{"a revert may hide one", "put 0+0 | r\npin r\nrevert p1", "", ""},
		{"pinning a pinned event", "e1\npin e1\npin e1", "", ""},
		{"unpinning an unpinned event", "e1\nunpin e1", "", ""},
		{"a pin on an older base", "e1\npin e1\npin e1 base:0", Conflict, ""},
		{"a cut planned before a pin", "e1\npin e1\ncut 0+1 base:0", Conflict, ""},
		{"a pin of no event", "e1\npin e2", NotFound, `"e2"`},
		{"an unpin of a hidden event", "e1\ncut 0+1\nunpin e1", NotFound, `"e1"`},
		{"a pin of a patch", "e1\ne2\ncut 0+1\npin p3", NotFound, `"p3"`},
		{"a pin with a state", "e1\npin e1 keep", Invalid, "state"},
		{"bounds go before pins", "e1\npin e1\ncut 0+2", OutOfRange, "2"},
		{"pins go before orphans", "e0\ne1 call:c\ne2 resp:c\npin e1\ncut 1+1", Pinned, `"e1"`},

		{"a new group", "e1\ne2\ncut 0+1 group:g", "", ""},
		{"a group that is there", "e1\ne2\ncut 0+1 group:g\ncut 0+1 group:g", Invalid, `"g"`},
		{"a group that only a skipped patch names", "e1\ncut 5+1 group:g\ncut 0+1 group:g", Invalid, `"g"`},
		{"a base goes before the group", "e1\ne2\ncut 0+1 group:g\ncut 0+1 group:g base:0", Conflict, ""},
		{"the group goes before bounds", "e1\ne2\ncut 0+1 group:g\ncut 5+1 group:g", Invalid, `"g"`},

		{"no such event", "e1\nbefore e2", NotFound, `"e2"`},
		{"a hidden event", "e1\ne2\ncut 0+1\nbefore e1", NotFound, `"e1"`},
		{"a patch is no event", "e1\ne2\ncut 0+1\nbefore p3", NotFound, `"p3"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judge(t, test.log, false)
			switch {
			case got == nil && test.kind != "":
				t.Fatalf("not refused, want %s", test.kind)
			case got != nil && (got.Kind != test.kind || !strings.Contains(got.Text, test.text)):
				t.Fatalf("%v, want %q with %q", got, test.kind, test.text)
			}
		})
	}
}

// CheckOptions can allow orphans and hidden pinned events. Each patch of a batch is checked as if the preceding
// patches were logged. The patches of a group are checked for orphans together.
func TestCheckAllows(t *testing.T) {
	for _, test := range []struct {
		name, log, batch string
		pinned           bool // whether pinned events may be hidden
		first, call      string
	}{
		{"hiding a pinned event", "e1\npin e1", "cut 0+1", true, "", ""},
		{"allowing orphans does not allow it", "e1\npin e1", "cut 0+1", false, Pinned, Pinned},
		{"allowing it does not allow orphans", "e0\ne1 call:c\ne2 resp:c\npin e1", "cut 1+1", true, OrphanedCall, OrphanedCall},
		{"a batch names one group", "e1\ne2", "cut 0+1 group:g\ncut 0+1 group:g", false, "", ""},
		{"a group that is there", "e1\ne2\npin e2 group:g", "cut 0+1\nunpin e2 group:g", false, "", Invalid},
		{"only the first base counts", "e1\ne2", "cut 0+1 base:0\ncut 0+1 base:0", false, "", ""},
		{"the first base counts", "e1\ne2\npin e1", "cut 1+1 base:0\npin e1", false, Conflict, Conflict},
		{"unpinned in the batch", "e1\npin e1", "unpin e1\ncut 0+1", false, "", ""},
		{"pinned in the batch", "e1", "pin e1\ncut 0+1", false, "", Pinned},
		{"a call, then its response", "e0\ne1 call:c\ne2 resp:c", "cut 1+1\ncut 1+1", false, OrphanedCall, OrphanedCall},
		{"two cuts are reverted", "e0\ne1 call:c\ne2\ne3 resp:c\ncut 1+1 group:g\ncut 2+1 group:g", "revert p6\nrevert p5", false, OrphanedCall, OrphanedCall},
		{"they are of one group", "e0\ne1 call:c\ne2 resp:c", "cut 1+1 group:g\ncut 1+1 group:g", false, OrphanedCall, ""},
		{"they are of two groups", "e0\ne1 call:c\ne2 resp:c", "cut 1+1 group:g\ncut 1+1 group:h", false, OrphanedCall, OrphanedCall},
		{"a group, then a patch out of range", "e0\ne1 call:c\ne2 resp:c", "cut 1+1 group:g\npin e1 group:g", false, OrphanedCall, NotFound},
		{"a group twice", "e1\ne2\ne3", "cut 0+1 group:g\ncut 0+1\ncut 0+1 group:g", false, "", ""},
		{"pairs that both break", "e0\ne1\ne2 call:c\ne3 resp:c", "cut 0+1\ncut 0+1", false, "", OrphanedCall},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fold(t, nil, test.log)
			var patches []*patch.PatchEvent
			for i, line := range strings.Split(test.batch, "\n") {
				patches = append(patches, record(t, line, r.Seq()+uint64(i)+1).Patch)
			}
			for n, want := range map[int]string{1: test.first, len(patches): test.call} {
				var refusal *Refusal
				got := ""
				if errors.As(r.Check(CheckOptions{AllowPinned: test.pinned}, patches[:n]...), &refusal) {
					got = refusal.Kind
				}
				if got != want {
					t.Errorf("the first %d: %v, want %q", n, refusal, want)
				}
			}
		})
	}
}

func TestOrphans(t *testing.T) {
	for _, test := range []struct {
		name, log string
		want      []string // expected orphans, each as "event call: rule"
	}{{
		name: "(a) cutting a call and not its response",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      cut 1+1`,
		want: []string{"e2 c: " + LostCall},
	}, {
		name: "cutting both",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      cut 1+2`,
	}, {
		name: "unpaired parts never count",
		log: `e0
		      e1 resp:c
		      e2
		      cut 0+1`,
	}, {
		name: "(a) a new response without a call",
		log: `e0
		      put 1+0 | r resp:c`,
		want: []string{"r c: " + LostCall},
	}, {
		name: "a new response that answers, and a new pair",
		log: `e0
		      e1 call:c
		      put 2+0 | r1 resp:c | r2 call:d | r3 resp:d`,
	}, {
		name: "(a) a summary with a response",
		log: `e0
		      sum 0+1 | S resp:c`,
		want: []string{"S c: " + LostCall},
	}, {
		name: "a replacement may take a call's place",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      put 1+1 | r call:c`,
	}, {
		name: "the second pair of a reused id leaves the first whole",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      e3 call:c
		      e4 resp:c
		      cut 3+2`,
	}, {
		name: "(b) a response would amend another surviving call",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      e3 call:c
		      e4 resp:c
		      cut 3+1`,
		want: []string{"e4 c: " + OtherCall},
	}, {
		name: "(b) and (c): of a reused id the first response goes",
		log: `e0
		      e1 call:c
		      e2 call:c
		      e3 resp:c
		      e4 resp:c
		      cut 3+1`,
		want: []string{"e1 c: " + LostResponse, "e4 c: " + OtherCall},
	}, {
		name: "a response may pair with a new call",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      e3 call:c
		      e4 resp:c
		      put 3+1 | r call:c`,
	}, {
		name: "(c) cutting a response and not its call",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      cut 2+1`,
		want: []string{"e1 c: " + LostResponse},
	}, {
		name: "cutting one of two responses",
		log: `e0
		      e1 call:c
		      e2 resp:c
		      e3 resp:c
		      cut 2+1`,
	}, {
		name: "only the call that loses its response is named, not the open one",
		log: `e0
		      e1 call:a call:b call:c
		      e2 resp:a
		      e3 resp:c
		      cut 3+1`,
		want: []string{"e1 c: " + LostResponse},
	}, {
		name: "all of them cut, the open one of an old invocation",
		log: `e0 @i1
		      e1 call:a call:b call:c @i1
		      e2 resp:a @i1
		      e3 resp:c @i1
		      e4 @i2
		      cut 1+3`,
	}, {
		name: "(d) hiding an open call of the newest invocation",
		log: `e0 @i1
		      e1 @i2
		      e2 call:c @i2
		      cut 2+1`,
		want: []string{"e2 c: " + HiddenCall},
	}, {
		name: "an event without invocation belongs to the one before it",
		log: `e0 @i1
		      e1 @i2
		      e2 call:c
		      e3
		      cut 2+1`,
		want: []string{"e2 c: " + HiddenCall},
	}, {
		name: "the newest invocation is that of the newest event, hidden or not",
		log: `e0 @i1
		      e1 call:c @i1
		      e2 @i2
		      cut 2+1
		      cut 1+1`,
	}, {
		name: "an invocation that resumes is the newest again",
		log: `e0 @i1
		      e1 call:c @i1
		      e2 @i2
		      e3 @i1
		      cut 1+1`,
		want: []string{"e1 c: " + HiddenCall},
	}, {
		name: "an unknown invocation is not the newest",
		log: `e0
		      e1 call:c
		      cut 1+1`,
	}, {
		name: "(d) hiding a long-running call of any invocation",
		log: `e0 @i1
		      e1 call:c long:c @i1
		      e2 @i2
		      cut 1+1`,
		want: []string{"e1 c: " + HiddenCall},
	}, {
		name: "(d) a placeholder does not close it",
		log: `e0 @i1
		      e1 call:c long:c @i1
		      e2 resp:c @i1
		      e3 @i2
		      cut 1+2`,
		want: []string{"e1 c: " + HiddenCall},
	}, {
		name: "the user's response does, after a placeholder too",
		log: `e0 @i1
		      e1 call:c long:c @i1
		      e2 resp:c @i1
		      e3 resp:c @i2 by:user
		      e4 @i3
		      cut 1+3`,
	}, {
		name: "only the calls that are named are long-running",
		log: `e0 @i1
		      e1 call:c call:d long:d @i1
		      e2 @i2
		      cut 1+1`,
		want: []string{"e1 d: " + HiddenCall},
	}, {
		name: "(e) an event with a call would come first",
		log: `e0
		      e1 call:c
		      before e1`,
		want: []string{"e1 : " + BarePosition},
	}, {
		name: "it was first before",
		log: `e1 call:c
		      e2
		      cut 1+1`,
	}, {
		name: "(e) directly after a summary of role model",
		log: `e0
		      e1 call:c
		      sum 0+1 | S role:model`,
		want: []string{"e1 : " + BarePosition},
	}, {
		name: "a summary of role user",
		log: `e0
		      e1 call:c
		      sum 0+1 | S role:user`,
	}, {
		name: "a model's event that is no summary",
		log: `e0
		      e1 call:c
		      put 0+1 | r role:model`,
	}, {
		name: "(e) an event with actions.compaction is a summary",
		log: `e0
		      e1 call:c
		      put 0+1 | r role:model compaction`,
		want: []string{"e1 : " + BarePosition},
	}, {
		name: "(e) a summary that is there already",
		log: `e0 role:model compaction
		      e1
		      e2 call:c
		      cut 1+1`,
		want: []string{"e2 : " + BarePosition},
	}, {
		name: "from first to directly after a summary: it stood so before",
		log: `e1 call:c
		      put 0+0 | S role:model compaction`,
	}, {
		name: "(e) a change of state in front says nothing",
		log: `{"id":"d","author":"agent","actions":{"stateDelta":{"k":1}}}
		      e1 resp:x
		      e2 call:c
		      cut 1+1`,
		want: []string{"e2 : " + BarePosition},
	}, {
		name: "(e) nor does one after a summary",
		log: `e0
		      {"id":"d","author":"agent","actions":{"stateDelta":{"k":1}}}
		      e1 call:c
		      sum 0+1 | S role:model`,
		want: []string{"e1 : " + BarePosition},
	}, {
		name: "(e) it came first before too",
		log: `{"id":"d","author":"agent","actions":{"stateDelta":{"k":1}}}
		      e1 call:c
		      cut 0+1`,
	}, {
		name: "(e) a new event with a call has not stood anywhere",
		log: `e1 call:c
		      put 0+1 | r call:c`,
		want: []string{"r : " + BarePosition},
	}, {
		name: "a response may come first, if it was unpaired",
		log: `e0
		      e1 resp:c
		      before e1`,
	}} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			refusal := judge(t, test.log, false)
			if refusal != nil {
				if refusal.Kind != OrphanedCall {
					t.Fatal(refusal)
				}
				for _, o := range refusal.Orphans {
					got = append(got, fmt.Sprintf("%s %s: %s", o.EventID, o.Call, o.Rule))
					if !strings.Contains(refusal.Text, fmt.Sprintf("%q", o.EventID)) {
						t.Errorf("event %s is not named in %q", o.EventID, refusal.Text)
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("refused for %q\nwant        %q", got, test.want)
			}
			if judge(t, test.log, true) != nil {
				t.Error("refused although orphans are allowed")
			}
		})
	}
}

func TestSuggestions(t *testing.T) {
	const session = `
		e0
		e1 call:a
		e2 resp:a
		e3 call:b
		e4 resp:b
		e5`
	for _, test := range []struct{ log, patch, want string }{
		{session, "cut 1+1", "1+2"},
		{session, "cut 2+1", "1+2"},
		{session, "cut 2+2", "1+4"},
		{session, "cut 1+2", "1+2"},
		{session, "put 2+1 | r resp:a", "2+1"},
		{session, "sum 1+1 | S role:user", "1+2"},
		{session, "sum 1+1 | S role:model", "1+4"}, // e3 must not directly follow S
		{session, "cut 0+1", "0+5"},                // neither e1 nor e3 may be the first event
		{session, "put 2+0 | r resp:x", "none"},
		{session, "cut 6+1", "none"},
		{session, "cut 0+0", "none"},
		{"e0\ne1 call:c\ne2 resp:c", "put 2+0 | r resp:c", "2+0"},
		{"e0 @i1\ne1 call:c @i1", "cut 1+1", "none"},
		{"e0\ne1 call:c\ne2 resp:c", "put 2+0 | r call:d | r2 resp:d", "2+0"},
		{"e0 resp:c\ne1 call:c\ne2", "cut 0+1", "0+2"},
		{"e0\nS role:model compaction\ne2\ne3 call:c", "cut 2+1", "1+2"}, // the span 2+2 would pass too, but is not the first

		{session + "\npin e2", "cut 3+1", "3+2"},
		{session + "\npin e0", "cut 0+1", "none"},
		{session + "\npin e1", "cut 2+1", "none"}, // every span that passes includes the pinned event e1
		{session + "\npin e0", "before e2", "e0"},
		{"e0\ne1\ne2 call:c\npin e0", "before e2", "e0"}, // not e1, because that would hide the pinned event e0

		{session, "before e1", "e0"},
		{session, "before e2", "e0"},
		{session, "before e5", "e0"}, // of the earlier events, e4 and e2 need their calls, and e3 and e1 may not be first
		{session, "before e0", "none"},
		{session, "before e9", "none"},
		{"e0\ne1\ne2 call:c", "before e2", "e1"},
		{"e0\ne1\ne0\ne2 call:c", "before e2", "e1"}, // not the second e0, because "e0" is the id of an earlier event
	} {
		r := fold(t, nil, test.log)
		p := patchOf(t, test.patch)
		got := "none"
		if start, count, ok := r.Suggest(p, CheckOptions{}); ok && p.Type() == patch.TruncateBefore {
			got = r.Visible()[count].ID()
		} else if ok {
			got = fmt.Sprintf("%d+%d", start, count)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s, for %s", test.patch, got, test.want, test.log)
		}
	}
}
