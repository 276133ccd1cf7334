package inspector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// A row shows an event's content as text. A call or result is shown with the name of its tool. A single member
// such as output is shown without its key.
func TestPhrases(t *testing.T) {
	for parts, want := range map[string]string{
		textPart("one\ntwo"): "one two",
		`{"functionCall":{"name":"read","args":{"path":"/a/b"}}}`:                                            "[read] /a/b",
		`{"functionCall":{"name":"find","args":{"to":"SEA","n":2,"deep":{"a":[1]}}}}`:                        `[find] to: SEA · n: 2 · deep: {"a":[1]}`,
		`{"functionResponse":{"name":"read","response":{"output":"line\nline"}}}`:                            "[read] → line line",
		`{"functionResponse":{"name":"f","response":{"ok":true}}}`:                                           "[f] → ok: true",
		`{"functionResponse":{"name":"f","response":{"کلید":"مقدار"}}}`:                                      "[f] → کلید: مقدار",
		textPart("I look") + `,{"functionCall":{"name":"go","args":{}}}`:                                     "I look|[go] ",
		`{"functionResponse":{"name":"f","response":{"output":"` + strings.Repeat(`x\n\"y\"`, 2000) + `"}}}`: "[f] → output: x \"y\"x",
	} {
		e := testlog.Must(patch.ParseEvent([]byte(event("e", "user", parts))))(t)
		var got []string
		for _, p := range phrasesOf(e) {
			if p.Tool != "" {
				p.Text = "[" + p.Tool + "] " + p.Text
			}
			got = append(got, p.Text)
		}
		if said := strings.Join(got, "|"); said != want && !(len(parts) > 8000 && strings.HasPrefix(said, want) && len(said) < 1000) {
			t.Errorf("%.80s: %q, want %q", parts, said, want)
		}
	}
}

func TestNumberFormats(t *testing.T) {
	for d, want := range map[time.Duration]string{
		300 * time.Millisecond: "+0.3 s", 31 * time.Second: "+31 s", 5 * time.Minute: "+5 min", 7 * time.Hour: "+7 h", 80 * time.Hour: "+3 days", -4 * time.Second: "−4.0 s",
	} {
		if got := gapText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1.0k", 23_449: "23.4k", 99_949: "99.9k", 198_000: "198k", 1_250_000: "1.2M"} {
		if got := shortTokens(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{5 * time.Second: "just now", 30 * time.Minute: "30 min ago", 5 * time.Hour: "5 h ago", 50 * time.Hour: "2 days ago", 400 * time.Hour: "12 Nov 2026"} {
		if got := timeAgo(now, now.Add(-d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// Patches of one group are shown as one line, and so are adjacent events that one patch hides.
func TestLogGroups(t *testing.T) {
	var lines []string
	turn := func(n int, id, author, parts string) string {
		return strings.Replace(event(id, author, parts), `"invocationId":"i1"`, fmt.Sprintf(`"invocationId":"i%d"`, n), 1)
	}
	for n := range 6 {
		lines = append(lines, turn(n, fmt.Sprint("u", n), "user", textPart("question")), turn(n, fmt.Sprint("m", n), "shop", textPart("answer")))
	}
	lines = append(lines, `{"id":"p13","patchType":"splice","start":0,"count":4}`, `{"id":"p14","patchType":"pin","eventId":"u5"}`)
	s, i := openLog(t, Options{}, lines...)
	testlog.Must(s.Rewind(t.Context(), recordKey, "i4", store.UndoOptions{}))(t) // the rewind also unpins events
	page := wantPage(t, i, 200, []any{"session"}, "Turns 1–2", "4 records, hidden by the cut at 13", "Turns 5–6", "4 records, hidden by the rewind at", "hid 4 events, 8 tokens", "pinned 1 event", "rewound to the end of turn 4")
	if n := strings.Count(page, "<summary><span>rewound to the end of turn 4"); n != 1 {
		t.Errorf("the rewind is shown %d times", n)
	}
	wantPage(t, i, 200, []any{"session", "kind", "user"}, "2 records, hidden by the cut at 13")
	wantPage(t, i, 200, []any{"session", "done", "13-13"}, "Hid 4 events, 8 tokens. 4 events hidden, 0 added")
	for _, done := range []string{"x", "0-1", "3-2", "1-99", "1-1"} {
		wantPage(t, i, 400, []any{"session", "done", done})
	}
	wantPage(t, i, 200, []any{"session", "turn", 2}, "record 4 of")
	wantPage(t, i, 404, []any{"session", "turn", 9}, "there is no turn 9")
}

// Records before the first turn are shown in turn 1. The headline does not count reverted changes.
func TestHeaderBeforeTurns(t *testing.T) {
	header := strings.Replace(event("h", "system", ""), `"invocationId":"i1"`, `"invocationId":""`, 1)
	lines := []string{header, event("u", "user", textPart("question")), event("m", "shop", textPart("answer"))}
	summary := `{"id":"p4","patchType":"summarise","start":0,"count":2,"summaryEvent":` + event("s4", "shop", textPart("asked")) + `}`
	_, i := openLog(t, Options{}, append(lines, summary)...)
	wantPage(t, i, 200, []any{"session"}, "of turn 1 · 2 events", "Turn 1 2 records, hidden by the summary at 4")

	later := strings.Replace(event("u2", "user", textPart("more")), `"invocationId":"i1"`, `"invocationId":"i2"`, 1)
	s, i := openLog(t, Options{}, append(lines, later, `{"id":"p5","patchType":"splice","start":0,"count":1}`)...)
	rewound := testlog.Must(s.Rewind(t.Context(), recordKey, "i2", store.UndoOptions{}))(t)
	wantPage(t, i, 200, []any{"session"}, "2 of 4 events · 1 cut · 1 rewind")
	for _, id := range []string{rewound.Records[0].ID(), "p5"} {
		testlog.Must(s.Revert(t.Context(), recordKey, id, store.UndoOptions{}))(t)
	}
	if page := ask(t, i, "session").Body.String(); !strings.Contains(page, "· 4 of 4 events</span></p>") {
		t.Error("changes that were reverted are counted")
	}
	testlog.Must(s.Rewind(t.Context(), recordKey, "i1", store.UndoOptions{}))(t)
	wantPage(t, i, 200, []any{"session"}, "rewound to before turn 1: 3 events hidden")
}

// The conversation shows a summary with what it hides and what it lost.
func TestSummariesInTheConversation(t *testing.T) {
	_, i := openLog(t, Options{}, summaryLog()...)
	page := wantPage(t, i, 200, []any{"session"}, "of turn 1 · 5 events", "A-4711 was found, Z-9999<i> too, 77 times", "Lost: ", "/srv/orders/a.txt", "1 identifier invented", "What it hides")
	if strings.Contains(page, "Revert") {
		t.Error("a client without write access is offered a revert")
	}
	_, i = openLog(t, Options{Write: true}, summaryLog()...)
	wantPage(t, i, 200, []any{"session"}, "Revert")
}
