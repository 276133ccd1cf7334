package present_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/store"
)

func summary(id string, start, count int, text, more string) string {
	return strings.NewReplacer("ID", id, "START", asNumber(start), "COUNT", asNumber(count), "TEXT", text, "MORE", more).Replace(
		`{"id":"p-ID","patchType":"summarise","start":START,"count":COUNT,"summaryEvent":{"id":"ID","author":"user","content":{"role":"user","parts":[{"text":"TEXT"}]}}MORE}`)
}

func asNumber(n int) string { return string(rune('0' + n)) }

// order is a session with a summary by itself and two of one group.
var order = []string{
	`{"id":"e1","invocationId":"i1","author":"user","content":{"role":"user","parts":[{"text":"I am Ada, ada@math.example. Where is ORDER-4711? I paid 105.00 and 45.50 euros."}]}}`,
	`{"id":"e2","invocationId":"i1","author":"shop","content":{"role":"model","parts":[{"functionCall":{"id":"call-1","name":"track","args":{"order":"ORDER-4711"}}}]}}`,
	`{"id":"e3","invocationId":"i1","author":"shop","content":{"role":"user","parts":[{"functionResponse":{"id":"call-1","name":"track","response":{"tracking":"TR-88-1234567","label":"/orders/4711/label.pdf"}}}]}}`,
	`{"id":"e4","invocationId":"i1","author":"shop","content":{"role":"model","parts":[{"text":"It is on its way: TR-88-1234567."}]}}`,
	`{"id":"e5","invocationId":"i2","author":"user","content":{"role":"user","parts":[{"text":"Thank you. That was 150.50 in all."}]}}`,
	`{"id":"e6","invocationId":"i2","author":"shop","content":{"role":"model","parts":[{"text":"You are welcome."}]}}`,
	`{"id":"e7","invocationId":"i3","author":"user","content":{"role":"user","parts":[{"text":"Mail the label to ada@math.example, please."}]}}`,
	`{"id":"e8","invocationId":"i3","author":"shop","content":{"role":"model","parts":[{"text":"Done."}]}}`,
	summary("s0", 7, 1, "It is done.", ""),
	summary("s1", 0, 4, "Ada asked for ORDER-4711, tracked as TR-99-1234567, and paid 150.50.", `,"group":"g"`),
	summary("s2", 1, 2, "Ada said thanks.", `,"group":"g"`),
}

func TestLosses(t *testing.T) {
	s := open(t)
	add(t, s, order...)
	s1 := []string{
		"index 0, level 1, id s1: stands for 4 events of 1 invocation, about 74 → 25 tokens",
		"  2 of 6 identifiers can be seen",
		"  gone (4): /orders/4711/label.pdf, TR-88-1234567, 105.00, 45.50",
		"  elsewhere (1): ada@math.example",
		"  invented (1): TR-99-1234567",
		"  numbers that no event has (1): 150.50",
	}
	s2 := []string{
		"index 1, level 1, id s2: stands for 2 events of 1 invocation, about 16 → 5 tokens",
		"  1 of 1 identifier can be seen",
		"  elsewhere (1): 150.50",
	}
	s0 := []string{
		"index 3, level 1, id s0: stands for 1 event of 1 invocation, about 2 → 3 tokens",
		"  0 of 0 identifiers can be seen",
	}
	check := func(patchID string, seq uint64, want ...[]string) []present.LossDocument {
		t.Helper()
		v, losses, err := present.LossesOf(t.Context(), s, key, patchID)
		testlog.NoError(t, err)
		if v.Seq() != seq || len(losses) != len(want) {
			t.Fatalf("%q: %d losses after record %d", patchID, len(losses), v.Seq())
		}
		for i, l := range losses {
			testlog.Equal(t, "lines of "+l.ID, l.Lines(), want[i])
		}
		return losses
	}
	all := check("", 11, s1, s2, s0)
	testlog.Equal(t, "JSON", asJSON(t, all[1]), `{"key":"a/u/s","seq":11,"index":1,"id":"s2","level":1,"events":2,"invocations":1,"tokensBefore":16,"tokensAfter":5,"held":1,"gone":[],"elsewhere":["150.50"],"invented":[],"numbers":[]}`)
	check("p-s1", 11, s1, s2)

	// A summary that was merged is shown as the log was after the last patch of its group.
	add(t, s, append(order, summary("s3", 0, 2, "Ada, ORDER-4711.", ""), `{"id":"p4","patchType":"splice","start":1,"count":1}`)...)
	check("p-s1", 11, s1, s2)
	check("p-s3", 13, []string{
		"index 0, level 1, id s3: stands for 6 events of 2 invocations, about 90 → 7 tokens",
		"  1 of 7 identifiers can be seen",
		"  gone (6): ada@math.example, /orders/4711/label.pdf, TR-88-1234567, 105.00, 45.50, 150.50",
	})
	for id, want := range map[string]string{"e1": `session a/u/s: not found: there is no patch "e1"`, "p4": `session a/u/s: invalid: patch "p4" put in no summary`} {
		if _, _, err := present.LossesOf(t.Context(), s, key, id); err == nil || err.Error() != want {
			t.Errorf("got %v want %s", err, want)
		}
	}
	if _, _, err := present.LossesOf(t.Context(), s, store.Key{App: "a", User: "u", Session: "none"}, ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	v := testlog.Must(s.View(t.Context(), key))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := present.SummariesBy(ctx, s, key, v, "p-s1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Names come from a session, and may be anything.
func TestLossIsPrintable(t *testing.T) {
	d := present.LossDocument{ID: "s\n1", Gone: []string{"x\x1b", "y\u202e"}, Held: 2}
	testlog.Equal(t, "lines", d.Lines(), []string{
		"index 0, level 0, id s 1: stands for 0 events of 0 invocations, about 0 → 0 tokens",
		"  0 of 2 identifiers can be seen",
		`  gone (2): x\u001b, y\u202e`,
	})
}
