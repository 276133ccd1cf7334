package adk_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/compaction/adkrecord"
)

// recordOf is the event that ADK's own compaction appends for a window of a session's
// events, in the form in which services keep it that do not know the field: the range of the
// window's times, and what lies in that and is not of the window.
func recordOf(sess session.Session, window []*session.Event, words string) *session.Event {
	from, to := window[0].Timestamp, window[0].Timestamp
	for _, e := range window {
		if e.Timestamp.Before(from) {
			from = e.Timestamp
		}
		if e.Timestamp.After(to) {
			to = e.Timestamp
		}
	}
	record := map[string]any{
		"startTimestamp": from.Format(time.RFC3339Nano), "endTimestamp": to.Format(time.RFC3339Nano),
		"compactedContent": map[string]any{"role": "model", "parts": []any{map[string]any{"text": words}}},
	}
	var excluded []any
	for e := range sess.Events().All() {
		in := !e.Timestamp.Before(from) && !e.Timestamp.After(to)
		shown := slices.ContainsFunc(window, func(w *session.Event) bool { return w.ID == e.ID })
		if in && !shown && e.CustomMetadata["_adk_compaction"] == nil {
			excluded = append(excluded, map[string]any{"invocationId": e.InvocationID, "timestamp": e.Timestamp.Format(time.RFC3339Nano)})
		}
	}
	if excluded != nil {
		record["excludedEvents"] = excluded
	}
	e := session.NewEvent(context.Background(), "e-"+fmt.Sprint(to.UnixNano()))
	e.Author = "user"
	e.CustomMetadata = map[string]any{"_adk_compaction": record}
	return e
}

// named are the marks in a text, w1, w2 …, of which each event has its own.
var named = regexp.MustCompile(`\bw\d+\b`)

func marksOf(contents ...*genai.Content) (words []string) {
	for _, c := range contents {
		for _, p := range c.Parts {
			words = append(words, named.FindAllString(p.Text, -1)...)
		}
	}
	return words
}

// namer is a summarizer that names what it was shown, and nothing else.
var namer = adk.EventsSummarizer(func(_ context.Context, events []*session.Event) (*genai.Content, *genai.GenerateContentResponseUsageMetadata, error) {
	var contents []*genai.Content
	for _, e := range events {
		if e.Content != nil {
			contents = append(contents, e.Content)
		}
	}
	return genai.NewContentFromText("ours: "+strings.Join(marksOf(contents...), " "), "model"), nil, nil
})

// A runner whose own compaction is on beside the service's: whatever it appends, no event is
// lost to the model, none is told twice but the few that must stay raw, and the prompts are valid.
func TestBothCompactions(t *testing.T) {
	for _, c := range []struct {
		name     string
		cfg      compaction.Config
		interval int // of theirs, in turns
		overlap  int
	}{
		{"theirs more often", compaction.Config{Enabled: true, CompactionInterval: 9, Summarizer: namer}, 3, 0},
		{"ours more often", compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: namer}, 5, 0},
		{"as often, overlapping", compaction.Config{Enabled: true, CompactionInterval: 3, Summarizer: namer}, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessions := compacted(t, adk.Options{Compaction: c.cfg})
			asked, said := 0, 0
			var prompt []*genai.Content
			m := replying(func(p []*genai.Content) *genai.Part {
				prompt = p
				said++
				return &genai.Part{Text: fmt.Sprintf("w%d %s", 2*said, strings.Repeat("word ", 80))}
			})
			a := llmAgent(t, m)
			r := newRunner(t, a, sessions, sessions.Plugin())
			records := 0
			var covered []string // words of events that a record of theirs stands for
			for turn := 1; turn <= 30; turn++ {
				asked++
				words := fmt.Sprintf("w%d %s", 2*asked-1, strings.Repeat("word ", 80))
				runTurn(t, r, genai.NewContentFromText(words, "user"))
				checkPrompt(t, prompt)
				seen := map[string]int{}
				for _, w := range marksOf(prompt...) {
					seen[w]++
				}
				twice := 0
				for n := 1; n < 2*asked; n++ {
					switch seen[fmt.Sprint("w", n)] {
					case 1:
					case 0:
						t.Fatalf("turn %d: the model is not told of w%d: %v", turn, n, marksOf(prompt...))
					default:
						twice++
					}
				}
				if most := records * (1 + 2*c.overlap); twice > most {
					t.Fatalf("turn %d: %d events are told twice after %d records: %v", turn, twice, records, marksOf(prompt...))
				}
				if turn%c.interval != 0 {
					continue
				}
				// Theirs: the newest turns, with the overlap before them.
				sessions.Settle(t)
				sess := get(t, sessions, "s")
				var window []*session.Event
				for e := range sess.Events().All() {
					if e.CustomMetadata["_adk_compaction"] == nil {
						window = append(window, e)
					}
				}
				window = window[max(0, len(window)-2*(c.interval+c.overlap)):]
				var contents []*genai.Content
				for _, e := range window {
					contents = append(contents, e.Content)
				}
				covered = append(covered, marksOf(contents...)...)
				no(t, sessions.AppendEvent(t.Context(), sess, recordOf(sess, window, "theirs: "+strings.Join(marksOf(contents...), " "))))
				records++
				if newest := window[len(window)-1].ID; !slices.Contains(ids(get(t, sessions, "s")), newest) {
					t.Fatalf("turn %d: the agent's newest event is gone", turn)
				}
				left := 0
				for e := range get(t, sessions, "s").Events().All() {
					if e.CustomMetadata["_adk_compaction"] != nil {
						left++
					}
				}
				equal(t, "records that stay in sight", left, 0)
			}
			if len(prompt) > 40 || records == 0 || len(covered) == 0 {
				t.Errorf("the last prompt has %d contents, after %d records", len(prompt), records)
			}
			// The audit log has every record as it came.
			logged := 0
			for r, err := range sessions.RawEvents(t.Context(), get(t, sessions, "s"), 1) {
				no(t, err)
				if r.Event != nil && adkrecord.IsCompactionEvent(r.Event) {
					logged++
				}
			}
			equal(t, "records in the audit log", logged, records)
		})
	}
}

// A record that comes when this service has summarised the same events already says nothing
// new, and goes from sight; one that cannot be adopted stays, and harms nothing.
func TestRecordsThatAreNotAdopted(t *testing.T) {
	cfg := compaction.Config{Enabled: true, CompactionInterval: 2, Summarizer: namer}
	svc := compacted(t, adk.Options{Compaction: cfg})
	sess := create(t, svc, "s", nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(id, inv, author string, change ...func(*session.Event)) *session.Event {
		e := said(id, inv, author, append(change, long)...)
		at = at.Add(time.Second)
		e.Timestamp = at
		no(t, svc.AppendEvent(t.Context(), sess, e))
		return e
	}
	var window []*session.Event
	for i := range 2 {
		inv := fmt.Sprint("i", i)
		window = append(window, add("u"+inv, inv, "user"), add("a"+inv, inv, "app"))
	}
	before := get(t, svc, "s")
	svc.Ended(t.Context(), sess, "i1")
	svc.Settle(t)
	if n := get(t, svc, "s").Events().Len(); n > 2 {
		t.Fatalf("%d events are visible, so nothing was compacted", n)
	}
	no(t, svc.AppendEvent(t.Context(), get(t, svc, "s"), recordOf(before, window[:3], "theirs")))
	for e := range get(t, svc, "s").Events().All() {
		if e.CustomMetadata["_adk_compaction"] != nil || says([]*genai.Content{e.Content}, "theirs") {
			t.Errorf("%s is visible", e.ID)
		}
	}
	add("q", "i2", "user")
	at = at.Add(time.Second)
	open := said("open", "i2", "app", calling("x", "slow", "x"))
	open.Timestamp = at
	no(t, svc.AppendEvent(t.Context(), sess, open))
	shown := get(t, svc, "s")
	no(t, svc.AppendEvent(t.Context(), shown, recordOf(shown, []*session.Event{open}, "theirs")))
	equal(t, "running", svc.Live(sess), "i2") // not the record's invocation
	last := get(t, svc, "s").Events()
	if e := last.At(last.Len() - 1); e.CustomMetadata["_adk_compaction"] == nil {
		t.Error("a record of an open call was adopted")
	}
	for _, id := range []string{"q", "open"} {
		if !slices.Contains(ids(get(t, svc, "s")), id) {
			t.Errorf("%s is not among %v", id, ids(get(t, svc, "s")))
		}
	}
	// When a summary of ours tells of the call, the record goes too.
	got := said("got", "i2", "user", returning("x", "slow", nil))
	at = at.Add(time.Second)
	got.Timestamp = at
	no(t, svc.AppendEvent(t.Context(), sess, got))
	for i := range 3 {
		inv := fmt.Sprint("j", i)
		add("u"+inv, inv, "user")
		add("a"+inv, inv, "app")
		svc.Ended(t.Context(), sess, inv)
		svc.Settle(t)
	}
	for e := range get(t, svc, "s").Events().All() {
		if e.CustomMetadata["_adk_compaction"] != nil || e.ID == "open" {
			t.Errorf("%s is visible", e.ID)
		}
	}
}

// Where compaction is off, records are ADK's own business, and stay what they are.
func TestRecordsWithoutCompaction(t *testing.T) {
	svc := compacted(t, adk.Options{})
	sess := create(t, svc, "s", nil)
	e := said("u", "1", "user", long)
	no(t, svc.AppendEvent(t.Context(), sess, e))
	r := recordOf(sess, []*session.Event{e}, "theirs")
	no(t, svc.AppendEvent(t.Context(), sess, r))
	equal(t, "visible", ids(get(t, svc, "s")), []string{"u", r.ID})
	equal(t, "record", get(t, svc, "s").Events().At(1).CustomMetadata, r.CustomMetadata)
}

// A workflow's node that appends a record keeps its list of events; what is to be adopted is
// with the first event that is none of a node's.
func TestRecordInsideANode(t *testing.T) {
	svc := compacted(t, adk.Options{Compaction: compaction.Config{Enabled: true, CompactionInterval: 50, Summarizer: namer}})
	sess := create(t, svc, "s", nil)
	var window []*session.Event
	for i := range 4 {
		e := said(fmt.Sprint("e", i), "1", []string{"user", "app"}[i%2], long)
		e.Timestamp = e.Timestamp.Add(time.Duration(i) * time.Second)
		no(t, svc.AppendEvent(t.Context(), sess, e))
		window = append(window, e)
	}
	record := recordOf(sess, window[:3], "theirs")
	record.Branch = "node"
	no(t, svc.AppendEvent(t.Context(), sess, record))
	equal(t, "in the node", ids(sess), []string{"e0", "e1", "e2", "e3", record.ID})
	late := said("late", "1", "app", long)
	late.Timestamp = late.Timestamp.Add(time.Hour)
	no(t, svc.AppendEvent(t.Context(), sess, late))
	if shown := ids(sess); slices.Contains(shown, "e0") || slices.Contains(shown, record.ID) || len(shown) != 3 {
		t.Errorf("after it %v are shown", shown)
	}
}
