package compaction_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// What is told in the first turn is there after five rounds of merging four summaries
// into one of half their size, and then at every size in which it has room.
func TestExtractiveKeepsTheTask(t *testing.T) {
	testlog.OneGoroutine(t)
	const rounds, fan, size = 5, 4, 120
	const first = "Good morning, my name is Ada Lovelace and I have a question about order 4711, which I placed last week."
	turn := 0
	raw := func() []*patch.Event {
		var events []*patch.Event
		for range 3 {
			turn++
			id := fmt.Sprint("i", turn)
			asked := fmt.Sprintf("Now please look at invoice INV-%05d of customer c_%d, and compare it with what Bob Smith said on 2024-06-%02d about it.", turn, turn*7, turn%28+1)
			if turn == 1 {
				asked = first
			}
			events = append(events,
				extUser(id, asked),
				extCall(id, id, "lookup", object{"id": fmt.Sprint("INV-", turn)}),
				extResult(id, id, "lookup", object{"id": fmt.Sprint("R-", turn), "state": "open"}),
				extAgent(id, fmt.Sprintf("I have found it, and it differs by %d dollars. There is more to say about it, which I do at some length, so that there is something to cut off.", turn)))
		}
		return events
	}
	var summary func(round int) *patch.Event
	summary = func(round int) *patch.Event {
		if round == 0 {
			return extSummary(extract(t, compaction.Request{Events: raw(), MaxTokens: size}))
		}
		var inputs []*patch.Event
		tokens := 0
		for range fan {
			e := summary(round - 1)
			tokens += e.EstimatedTokens()
			inputs = append(inputs, e)
		}
		return extSummary(extract(t, compaction.Request{Events: inputs, Merge: true, MaxTokens: min(tokens/2, 2*size)}))
	}
	last := summary(rounds)
	for tokens := 400; tokens >= 27; tokens-- {
		got := extract(t, compaction.Request{Events: []*patch.Event{last}, Merge: true, MaxTokens: tokens})
		for _, want := range []string{"Ada Lovelace", "order 4711"} {
			if !strings.Contains(got, want) {
				t.Fatalf("with %d tokens %q is gone:\n%s", tokens, want, got)
			}
		}
	}
	for tokens := 19; tokens >= 0; tokens-- {
		if got := extract(t, compaction.Request{Events: []*patch.Event{last}, Merge: true, MaxTokens: tokens}); strings.Contains(got, "INV-") {
			t.Fatalf("with %d tokens another line is left:\n%s", tokens, got)
		}
	}
}

// Of real sessions, 15 % of their size tells every function's name, if that is not very
// little, and nearly all ids in what users asked.
func TestExtractiveCorpus(t *testing.T) {
	testlog.OneGoroutine(t)
	for _, set := range recorded.Sets(t) {
		t.Run(set.Name, func(t *testing.T) { extractsFrom(t, set) })
	}
}

func extractsFrom(t *testing.T, set recorded.Set) {
	t.Helper()
	names, namesTold, ids, idsTold := 0, 0, 0, 0
	for _, file := range set.Files {
		events, tokens := extSession(t, file)
		budget := tokens * 15 / 100
		got := extract(t, compaction.Request{Events: events, MaxTokens: budget})
		if n := patch.EstimateTextTokens(got); n > budget || budget > 10 && got == "" {
			t.Errorf("%s: %d tokens, want up to %d", file, n, budget)
		}
		for name := range extFunctions(events) {
			names++
			if strings.Contains(got, name) {
				namesTold++
			} else if budget >= 150 {
				t.Errorf("%s: in %d tokens %s is not named", file, budget, name)
			}
		}
		for id := range extIDs(t, events) {
			ids++
			if strings.Contains(got, id) {
				idsTold++
			}
		}
	}
	t.Logf("%d sessions: %d of %d names, %d of %d ids", len(set.Files), namesTold, names, idsTold, ids)
	// The shares are of the large corpus: a few sessions have too few names and ids.
	if set.Large && (namesTold*100 < names*95 || idsTold*100 < ids*90) {
		t.Errorf("%d of %d names and %d of %d ids are told", namesTold, names, idsTold, ids)
	}
}

func extSession(t *testing.T, file string) (events []*patch.Event, tokens int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	records, _, err := records.ReadAll(patch.NewDecoder(bytes.NewReader(text), file))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Event != nil {
			events = append(events, r.Event)
			tokens += r.Event.EstimatedTokens()
		}
	}
	return events, tokens
}

func extFunctions(events []*patch.Event) map[string]bool {
	names := make(map[string]bool)
	for _, e := range events {
		for p := range e.FunctionParts() {
			names[p.Name] = true
		}
	}
	return names
}

// extIDs are words of what users asked that have both letters and digits in them.
func extIDs(t *testing.T, events []*patch.Event) map[string]bool {
	t.Helper()
	ids := make(map[string]bool)
	for _, e := range events {
		if e.Author() != "user" {
			continue
		}
		for _, p := range e.Content().Parts() {
			if len(p.Text) > 2000 {
				continue // a task with files in it
			}
			for _, word := range strings.Fields(p.Text) {
				word = strings.Trim(word, ".,;:!?()\"'*`#")
				if strings.ContainsAny(word, "0123456789") && strings.ContainsAny(strings.ToLower(word), "abcdefghijklmnopqrstuvwxyz") && !strings.ContainsAny(word, "()[]{}<>\"'`,;=") && len(word) >= 5 {
					ids[word] = true
				}
			}
		}
	}
	return ids
}

// However many events there are, the first request leads the summary.
func TestExtractiveLongSession(t *testing.T) {
	testlog.OneGoroutine(t)
	var events []*patch.Event
	for i := range 2500 {
		id := fmt.Sprint("i", i)
		events = append(events,
			extUser(id, fmt.Sprintf("Please look at order %d of customer c_%d again, it is still not here.", i, i)),
			extCall(id, id, "lookup", object{"order": i, "customer": fmt.Sprint("c_", i)}),
			extResult(id, id, "lookup", object{"state": "lost", "parcel": fmt.Sprint("P-", i)}),
			extAgent(id, "It seems to be lost. I have opened a case."))
	}
	for _, tokens := range []int{20, 2000, 100_000, 1 << 30} {
		got := extract(t, compaction.Request{Events: events, MaxTokens: tokens})
		if got := strings.TrimPrefix(got, "Keep in mind:\n"); !strings.HasPrefix(got, "- Please look at order 0 of customer") {
			t.Errorf("with %d tokens the first line is %.80q", tokens, got)
		}
	}
}
