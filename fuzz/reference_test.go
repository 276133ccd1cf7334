package fuzz

import (
	"testing"

	"github.com/patchlog-dev/patchlog/patch"
)

func TestFold(t *testing.T) {
	for _, test := range []struct {
		name, log               string
		visible, state, skipped string
	}{{
		name: "an empty log",
	}, {
		name: "events are appended and state is replayed",
		log: `e1 k=1 j=1
		      e2 k=2`,
		visible: "e1 e2", state: "j=1 k=2",
	}, {
		name: "null sets a key and does not delete it",
		log: `e1 k=1
		      e2 k=null`,
		visible: "e1 e2", state: "k=null",
	}, {
		name:    "only the session's own keys are folded",
		log:     `e1 k=1 app:k=2 user:k=3 temp:k=4`,
		visible: "e1", state: "k=1",
	}, {
		name: "a splice drops",
		log: `e1 k=1
		      e2 k=2
		      e3
		      cut 1+1`,
		visible: "e1 e3", state: "k=1",
	}, {
		name: "a splice keeps if it says so",
		log: `e1 k=1
		      e2 k=2
		      e3
		      cut 1+1 keep`,
		visible: "e1 e3", state: "k=2",
	}, {
		name: "kept state counts at its old position",
		log: `e1 k=1
		      e2 k=2
		      cut 0+1 keep`,
		visible: "e2", state: "k=2",
	}, {
		name: "kept is the net delta of the run, then the replacement's own",
		log: `e1 k=1 j=1 l=1
		      e2 k=2 j=2
		      put 0+2 keep | r1 j=3`,
		visible: "r1", state: "j=3 k=2 l=1",
	}, {
		name: "a replacement without keep carries nothing",
		log: `e1 k=1
		      put 0+1 | r1 j=3`,
		visible: "r1", state: "j=3",
	}, {
		name: "the first new node carries, so it goes with it",
		log: `e1 k=1
		      put 0+1 keep | r1 | r2
		      cut 0+1`,
		visible: "r2", state: "",
	}, {
		name: "the second new node carries nothing",
		log: `e1 k=1
		      put 0+1 keep | r1 | r2
		      cut 1+1`,
		visible: "r1", state: "k=1",
	}, {
		name: "inserting in front, between and at the end",
		log: `e1
		      e2
		      put 0+0 | a
		      put 2+0 | b
		      put 4+0 | c`,
		visible: "a e1 b e2 c",
	}, {
		name: "an insertion is directly before V[start], after markers",
		log: `e1 k=1
		      e2
		      cut 0+1 keep
		      put 0+0 | r k=2`,
		visible: "r e2", state: "k=2",
	}, {
		name: "an insertion at the end is after markers too",
		log: `e1
		      e2 k=1
		      cut 1+1 keep
		      put 1+0 | r k=2`,
		visible: "e1 r", state: "k=2",
	}, {
		name: "truncating drops",
		log: `e1 k=1
		      e2 k=2
		      e3 j=1
		      before e3`,
		visible: "e3", state: "j=1",
	}, {
		name: "truncating keeps if it says so",
		log: `e1 k=1
		      e2 k=2
		      e3 j=1
		      before e3 keep`,
		visible: "e3", state: "j=1 k=2",
	}, {
		name: "truncation takes all in front, markers too",
		log: `e1 k=1
		      e2
		      cut 0+1 keep
		      before e2`,
		visible: "e2", state: "",
	}, {
		name: "truncating before the first event makes one marker of the markers",
		log: `e1 k=1
		      e2 k=2
		      e3
		      cut 0+1 keep
		      cut 0+1 keep
		      before e3 keep`,
		visible: "e3", state: "k=2",
	}, {
		name: "a marker between the first and the last visible node goes with them",
		log: `e1
		      e2 k=1
		      e3
		      cut 1+1 keep
		      cut 0+2`,
		visible: "", state: "",
	}, {
		name: "a run never takes a marker beyond its first visible node",
		log: `e1 k=1
		      e2
		      e3
		      cut 0+1 keep
		      cut 0+1`,
		visible: "e3", state: "k=1",
	}, {
		name: "a run never takes a marker beyond its last visible node",
		log: `e1
		      e2 k=1
		      e3
		      cut 1+1 keep
		      cut 0+1`,
		visible: "e3", state: "k=1",
	}, {
		name: "a summary keeps",
		log: `e1 k=1
		      e2 k=2
		      e3
		      sum 0+2 | S1`,
		visible: "S1 e3", state: "k=2",
	}, {
		name: "a summary drops if it says so",
		log: `e1 k=1
		      e2 k=2
		      e3
		      sum 0+2 drop | S1`,
		visible: "S1 e3", state: "",
	}, {
		name: "keep, then drop: the kept state goes with the summary",
		log: `e1 k=1
		      sum 0+1 | S1
		      cut 0+1`,
		visible: "", state: "",
	}, {
		name: "drop, then keep: dropped state does not come back",
		log: `e1 k=1
		      put 0+1 | r1 j=1
		      sum 0+1 | S1`,
		visible: "S1", state: "j=1",
	}, {
		name: "equal times on both sides of a cut",
		log: `{"id":"e1","timestamp":"1970-01-01T00:00:05Z"}
		      {"id":"e2","timestamp":"1970-01-01T00:00:05Z"}
		      before e2`,
		visible: "e2",
	}, {
		name: "log order holds whatever the times say",
		log: `{"id":"e1","timestamp":"1970-01-01T00:00:05Z"}
		      {"id":"e2","timestamp":"1970-01-01T00:00:01Z"}
		      {"id":"e3","timestamp":"1970-01-01T00:00:03Z"}
		      cut 1+1`,
		visible: "e1 e3",
	}, {
		name: "summarise, then truncate with drop",
		log: `e1 k=1
		      e2
		      e3 k=3
		      e4 j=4
		      e5 l=5
		      e6 m=6
		      sum 0+4 | S1
		      before e6`,
		visible: "e6", state: "m=6",
	}, {
		name: "truncating alone",
		log: `e1 k=1
		      e2
		      e3 k=3
		      e4 j=4
		      e5 l=5
		      e6 m=6
		      before e6`,
		visible: "e6", state: "m=6",
	}, {
		name: "a kept splice, then truncate before it",
		log: `e1 k=1
		      e2 j=2
		      e3
		      put 1+1 keep | r
		      before r`,
		visible: "r e3", state: "j=2",
	}, {
		name: "a repeated id folds as a separate node; look-ups take the first visible one",
		log: `e1
		      e2 k=1
		      e3
		      e2 k=2
		      e4
		      before e2`,
		visible: "e2 e3 e2 e4", state: "k=2",
	}, {
		name: "the first visible one, not the first one",
		log: `e2
		      e1
		      e2
		      cut 0+1
		      before e2`,
		visible: "e2",
	}, {
		name: "a patch that cannot be applied changes nothing",
		log: `e1 k=1
		      cut 0+2
		      cut -1+1
		      cut 0+-1
		      cut 2+0
		      put 2+0 | r
		      sum 0+0 | S1
		      put 9223372036854775807+1 | r
		      put 1+9223372036854775807 | r
		      before e2
		      before p2`,
		visible: "e1", state: "k=1",
		skipped: "2: out of range, 3: out of range, 4: out of range, 5: splice that neither removes nor adds, " +
			"6: out of range, 7: out of range, 8: out of range, 9: out of range, 10: event not found, 11: event not found",
	}, {
		name: "a malformed patch changes nothing",
		log: `e1
		      {"id":"a","patchType":"rewind","patchId":"p1"}
		      {"id":"b","patchType":"splice","start":0}
		      {"id":"c","patchType":"splice","start":0,"count":"1"}
		      {"id":"d","patchType":"splice","start":0,"count":1,"eventId":"e1"}
		      {"id":"e","patchType":"splice","start":0,"count":1,"replacement":[{"patchType":"splice"}]}
		      {"id":"f","patchType":"splice","start":0,"count":1,"state":"purge"}
		      {"id":"g","patchType":"splice","start":0,"count":1,"actions":{"stateDelta":{}}}
		      sum 0+1 | S1 k=1
		      {"id":"h","patchType":"summarise","start":0,"count":1,"summaryEvent":{"content":{"parts":[]}}}`,
		visible: "e1",
		skipped: "2: unknown type, 3: missing field, 4: wrong-typed field, 5: field of another patch type, " +
			"6: patch inside a replacement, 7: wrong-typed field, 8: field of another patch type, " +
			"9: summary with a state delta, 10: summary without content",
	}, {
		name: "unknown fields",
		log: `e1 k=1
		      e2
		      {"id":"a","patchType":"truncate_before","eventId":"e2","later":1}
		      {"id":"b","patchType":"summarise","start":0,"count":1,"summaryEvent":{"id":"S1","content":{"parts":[{"text":"x"}]}}}`,
		visible: "S1",
	}, {
		name: "neither base nor orphans keep a patch of the log from being applied",
		log: `e1 call:c1
		      e2 resp:c1
		      cut 0+1 base:77`,
		visible: "e2",
	}} {
		t.Run(test.name, func(t *testing.T) {
			r := fold(t, nil, test.log)
			expect(t, "visible", showVisible(r), test.visible)
			expect(t, "state", showState(r.State()), test.state)
			expect(t, "skipped", showSkipped(r), test.skipped)
		})
	}
}

// Patches do not change the initial state. The initial state has no keys with the prefix "temp:".
func TestInitialStateStays(t *testing.T) {
	initial := map[string]patch.Value{}
	for _, key := range []string{"tenant", "k", "app:k", "user:k", "temp:k"} {
		initial[key], _ = patch.NewValue("t1")
	}
	r := fold(t, initial, `
		e1 tenant=2 k=2
		e2 k=3
		cut 0+2`)
	if got, want := showState(r.State()), `k="t1" tenant="t1"`; got != want {
		t.Errorf("state %s, want %s", got, want)
	}
	initial["tenant"] = patch.Value{}
	if got, want := showState(r.State()), `k="t1" tenant="t1"`; got != want {
		t.Errorf("state %s after the caller changed its map, want %s", got, want)
	}
}

func TestSeqs(t *testing.T) {
	for _, test := range []struct {
		name, log     string
		seq, patchSeq uint64
	}{
		{"empty", ``, 0, 0},
		{"no patch", "e1\ne2", 2, 0},
		{"a patch", "e1\ncut 0+1\ne2", 3, 2},
		{"a skipped patch is the newest patch", "e1\ncut 0+1\ne2\ncut 7+1\ne3", 5, 4},
		{"so is one of an unknown type", "e1\n" + `{"id":"a","patchType":"rewind"}`, 2, 2},
	} {
		r := fold(t, nil, test.log)
		if r.Seq() != test.seq || r.PatchSeq() != test.patchSeq {
			t.Errorf("%s: seq %d and patch seq %d, want %d and %d", test.name, r.Seq(), r.PatchSeq(), test.seq, test.patchSeq)
		}
	}
}
