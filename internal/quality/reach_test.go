package quality_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/quality"
	"github.com/patchlog-dev/patchlog/patch"
)

// asked returns a session in which the user writes one text of first in each invocation. In the last invocation, the
// agent writes the texts of last and makes a call with args.
func asked(t *testing.T, first, last []string, args map[string]any) quality.Recording {
	t.Helper()
	var events []*patch.Event
	for i, text := range first {
		inv := fmt.Sprint("i", i)
		events = append(events, say("u"+inv, inv, "user", text, nil),
			say("a"+inv, inv, "model", strings.Repeat("and so they went on ", 30), nil))
	}
	for i, text := range last {
		events = append(events, say(fmt.Sprint("last", i), "last", "model", text, nil))
	}
	rec, err := quality.Record(append(events, say("call", "last", "model", "", args)))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestReached(t *testing.T) {
	many, all := make([]string, 30), map[string]any{}
	for i := range many {
		many[i] = fmt.Sprintf("The parcel is PARCEL-%d.", 1000+i)
		all[fmt.Sprint(i)] = fmt.Sprintf("PARCEL-%d", 1000+i)
	}
	long := strings.Repeat("there was no end to it ", 40)
	for _, c := range []struct {
		name        string
		first, last []string
		args        map[string]any
		needed      int
		seen        int
		reached     int
		blind       int
	}{
		{"it is found by itself, and by what stands beside it", []string{"My card ends with 99887.", "Thanks."}, nil,
			map[string]any{"card": 99887}, 1, 0, 1, 1},
		{"it is found by itself alone", []string{"It is ZX-90817.", "Thanks."}, nil,
			map[string]any{"parcel": "ZX-90817"}, 1, 0, 1, 0},
		{"the name of the function leads to it", []string{"For f it is ZX-90817.", "Thanks."}, nil,
			map[string]any{"parcel": "ZX-90817"}, 1, 0, 1, 1},
		{"one that is a part of another does not lead to it", []string{"It is /src/app/zebra.go, and not /src/app then.", "Thanks."}, nil,
			map[string]any{"at": "/src/app", "in": "/src/app/zebra.go"}, 2, 0, 2, 0},
		{"one that is seen leads to another", []string{"Of K-10234 the key is ZX-90817.", "Thanks."}, []string{"Is it for K-10234?"},
			map[string]any{"a": "K-10234", "b": "ZX-90817"}, 2, 1, 1, 1},
		{"what is seen takes no place", []string{"My card ends with 99887.", "Thanks."}, strings.SplitAfter(strings.Repeat("A card. ", 20), ". "),
			map[string]any{"card": 99887}, 1, 0, 1, 1},
		{"eight events come back", many, nil, all, 30, 0, 8, 0},
		{"of each come some 800 characters", []string{"It is ZX-90817. " + long[:len(long)/2] + "It is ZX-90818.", "Thanks."}, nil,
			map[string]any{"a": "ZX-90817", "b": "ZX-90818"}, 2, 0, 2, 0},
		{"and no more", []string{"It is ZX-90817. " + long + "It is ZX-90818.", "Thanks."}, nil,
			map[string]any{"a": "ZX-90817", "b": "ZX-90818"}, 2, 0, 1, 0},
	} {
		f := replay(t, asked(t, c.first, c.last, c.args), alwaysSummarise("They talked at length.", 100))
		if f.Needed != c.needed || f.Seen != c.seen || f.Reached != c.reached || f.ReachedBlind != c.blind {
			t.Errorf("%s: %d needed, %d seen, %d reached, %d blind; want %d, %d, %d, %d", c.name,
				f.Needed, f.Seen, f.Reached, f.ReachedBlind, c.needed, c.seen, c.reached, c.blind)
		}
	}
}

// If events were cut without a summary, a search does not reach their identifiers.
func TestCutIdentifiersAreNotReached(t *testing.T) {
	rec := asked(t, []string{"Hello.", "My card ends with 99887.", "Thanks."}, nil, map[string]any{"card": 99887})
	if f := replay(t, rec, quality.Truncate(100)); f.Needed != 1 || f.Seen+f.Reached+f.ReachedBlind != 0 {
		t.Errorf("%+v", f)
	}
}

func TestShares(t *testing.T) {
	f := quality.Figures{Needed: 4, Seen: 1, Reached: 2, ReachedBlind: 1}
	f.Add(quality.Figures{Needed: 4, Seen: 1, Reached: 2, ReachedBlind: 1})
	if f.SeenShare() != 0.25 || f.InReachShare() != 0.75 || f.InReachBlindShare() != 0.5 {
		t.Errorf("%v, %v and %v", f.SeenShare(), f.InReachShare(), f.InReachBlindShare())
	}
	if none := (quality.Figures{}); none.InReachShare() != 1 || none.InReachBlindShare() != 1 {
		t.Error("of nothing, not all is in reach")
	}
}
