package adkrecord_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// goRecord is a record as ADK for Go writes it, of a range in nanoseconds of the test's time.
func goRecord(t testing.TB, id string, from, to time.Duration, excluded ...time.Duration) *patch.Event {
	c := map[string]any{
		"startTimestamp": stamp(from), "endTimestamp": stamp(to),
		"compactedContent": content("model", map[string]any{"text": "told by " + id}),
	}
	var refs []any
	for _, x := range excluded {
		refs = append(refs, map[string]any{"invocationId": "inv", "timestamp": stamp(x)})
	}
	if refs != nil {
		c["excludedEvents"] = refs
	}
	return testlog.EventOf(t, event{"id": id, "author": "user", "invocationId": "e-" + id, "timestamp": stamp(time.Hour), "actions": map[string]any{"compaction": c}})
}

func stamp(d time.Duration) string {
	return time.Unix(int64(epoch(0)), 0).Add(d).UTC().Format(time.RFC3339Nano)
}

// stamped gives texts at the times given.
func stamped(t testing.TB, times ...time.Duration) (events []*patch.Event) {
	for i, d := range times {
		events = append(events, testlog.EventOf(t, event{
			"id": fmt.Sprint("e", i), "invocationId": "inv", "author": "user", "timestamp": stamp(d),
			"content": content("user", map[string]any{"text": "said"}),
		}))
	}
	return events
}

// Times by RFC 3339 are taken as they are, to the nanosecond; exclusions to the microsecond,
// since a store may have rounded them, and what is excluded in doubt stays in sight.
func TestExactTimes(t *testing.T) {
	const ns, us = time.Nanosecond, time.Microsecond
	for _, c := range []struct {
		name   string
		times  []time.Duration
		record *patch.Event
		want   string
	}{
		{"just outside", []time.Duration{0, 10 * us, 20 * us, 20*us + 90*ns}, goRecord(t, "r", 90*ns, 20*us), "e0 r e3"},
		{"at the ends", []time.Duration{0, 10 * us, 20 * us}, goRecord(t, "r", 0, 20*us), "r"},
		{"excluded, rounded down", []time.Duration{0, 5*us + 789*ns, 20 * us}, goRecord(t, "r", 0, 20*us, 5*us), "r e1"},
		{"excluded, rounded up", []time.Duration{0, 5*us + 789*ns, 20 * us}, goRecord(t, "r", 0, 20*us, 6*us), "r e1"},
		{"another is excluded", []time.Duration{0, 5 * us, 20 * us}, goRecord(t, "r", 0, 20*us, 9*us), "r"},
	} {
		all := append(stamped(t, c.times...), c.record)
		var got []string
		for _, e := range adkrecord.FilterEventsForLLM(all) {
			got = append(got, e.ID())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: shown are %v, want %s", c.name, got, c.want)
		}
	}
	v := view(t, append(stamped(t, 0, 10*us, 10*us+90*ns), goRecord(t, "r", 0, 10*us))...)
	if a := adkrecord.Adopt(v); len(a.Adopted) != 1 || a.Patches[0].Count() != 2 {
		t.Errorf("adopted is %+v", a)
	}
}

// What stays is not taken along: the longest stretch without it is.
func TestAdoptAroundWhatStays(t *testing.T) {
	for _, c := range []struct {
		stay    string
		visible string
		left    string
	}{
		{"", "S1:user e5", ""},
		{"e4", "S1:user e4 e5", ""},
		{"e0", "e0 S1:user e5", ""},
		{"e1", "e0 e1 S1:user e5", ""},
		{"e3", "S1:user e3 e4 e5", ""},
		{"e2", "S1:user e2 e3 e4 e5", ""}, // of two that are as long, the first
		{"e0 e1 e2 e3 e4", "e0 e1 e2 e3 e4 S1: e5", "all that it stands for stays"},
	} {
		v := withRecords(t, "u a u a u a", record(t, "r", 0, 4, false))
		a := adkrecord.AdoptWith(v, adkrecord.Options{Stay: strings.Fields(c.stay)})
		after, err := v.Preview(a.Patches, fold.CheckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reason := ""
		for _, l := range a.Left {
			reason += l.Reason
		}
		if got := visible(after); got != c.visible || reason != c.left {
			t.Errorf("%q stays: visible are %s, want %s; left is %q", c.stay, got, c.visible, reason)
		}
	}
}

// Where the events of a record do not stand side by side, and some must stay, the longest
// stretch goes.
func TestAdoptAroundOthers(t *testing.T) {
	const s = time.Second
	v := view(t, append(stamped(t, 0, 9*s, s, 2*s, 3*s), goRecord(t, "r", 0, 3*s))...)
	a := adkrecord.AdoptWith(v, adkrecord.Options{Stay: []string{"none"}})
	after, err := v.Preview(a.Patches, fold.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := visible(after); got != "e0 e1 S1:user" {
		t.Errorf("visible are %s, left %v", got, a.Left)
	}
}

// A summary that somebody has put in by hand is no record that is to be adopted, or cut.
func TestAdoptLeavesSummariesByHand(t *testing.T) {
	v := view(t, stamped(t, 0, time.Second, 2*time.Second)...)
	for i := range 2 {
		by, err := patch.NewEvent(patch.Fields{
			ID: fmt.Sprint("by hand ", i), InvocationID: "o", Author: "user", Content: patch.Text("user", "told by hand"),
			Actions: patch.Actions{Compaction: &patch.EventCompaction{StartTimestamp: 0, EndTimestamp: 1e12, CompactedContent: patch.Text("model", "told by hand")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if v, err = v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: patch.NewSummarise(i, 1, by)}); err != nil {
			t.Fatal(err)
		}
	}
	if a := adkrecord.AdoptWith(v, adkrecord.Options{Live: true}); len(a.Patches)+len(a.Left) > 0 {
		t.Errorf("%+v", a)
	}
}

// A record that was written over a visible log stands for the summaries that its author was
// shown, and for no other; of whose events others tell already, it goes.
func TestAdoptLive(t *testing.T) {
	summarised := func(at time.Duration, from, to time.Duration) fold.View {
		v := view(t, stamped(t, 0, time.Second, 2*time.Second, 3*time.Second)...)
		s, err := patch.NewEvent(patch.Fields{
			ID: "ours", InvocationID: "o", Author: "user", Timestamp: time.Unix(int64(epoch(0)), 0).Add(at),
			Content: patch.Text("user", "ours tells"), Actions: patch.Actions{Compaction: &patch.EventCompaction{
				StartTimestamp: float64(epoch(0)) + from.Seconds(), EndTimestamp: float64(epoch(0)) + to.Seconds(),
			}},
			CustomMetadata: compaction.Lineage{Level: 1, Windows: 1, Passes: 1, Events: 2}.Metadata(),
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err = v.Apply(patch.Record{Seq: v.Seq() + 1, Patch: patch.NewSummarise(0, 2, s)})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	shown := func(v fold.View) (out []string) {
		for i, e := range v.Events() {
			if id := e.ID(); v.Entry(i).Summary {
				out = append(out, testlog.FirstText(e))
			} else {
				out = append(out, id)
			}
		}
		return out
	}
	const s = time.Second
	for _, c := range []struct {
		name   string
		at     time.Duration // of our summary of the first two events
		record *patch.Event
		live   bool
		want   string
	}{
		{"it was shown the summary", 2500 * time.Millisecond, goRecord(t, "r", 2*s, 3*s), true, "told by r"},
		{"it was not", 10 * s, goRecord(t, "r", 2*s, 3*s), true, "ours tells,told by r"},
		{"it left it out", 2500 * time.Millisecond, testlog.EventOf(t, event{"id": "r", "author": "user", "timestamp": stamp(time.Hour), "actions": map[string]any{"compaction": map[string]any{
			"startTimestamp": stamp(2 * s), "endTimestamp": stamp(3 * s), "compactedContent": content("model", map[string]any{"text": "told by r"}),
			"excludedEvents": []any{map[string]any{"invocationId": "o", "timestamp": stamp(2500 * time.Millisecond)}},
		}}}), true, "ours tells,told by r"},
		{"ours tells it already", 10 * s, goRecord(t, "r", 0, s), true, "ours tells,e2,e3"},
		{"ours tells a part, and others are there", 10 * s, goRecord(t, "r", 0, 2*s), true, "ours tells,told by r,e3"},
		{"nothing of it is there", 10 * s, goRecord(t, "r", 20*s, 21*s), true, "ours tells,e2,e3,"},
		{"another log's", 10 * s, goRecord(t, "r", 0, s), false, "told by r,e2,e3"},
		{"another log's, made in between", 2500 * time.Millisecond, goRecord(t, "r", 2*s, 3*s), false, "ours tells,told by r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := summarised(c.at, 0, s)
			v, err := v.Apply(patch.Record{Seq: v.Seq() + 1, Event: c.record})
			if err != nil {
				t.Fatal(err)
			}
			a := adkrecord.AdoptWith(v, adkrecord.Options{Live: c.live})
			after, err := v.Preview(a.Patches, fold.CheckOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(shown(after), ","); got != c.want {
				t.Errorf("shown are %s, want %s; left %v", got, c.want, a.Left)
			}
			if len(a.Adopted)+len(a.Left) != 1 {
				t.Errorf("%+v", a)
			}
		})
	}
}
