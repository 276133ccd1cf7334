package inspector

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// summed is a log in which two summaries became one, with results that were cut.
func summed() []string {
	own := func(level, events, from, to int) string {
		return fmt.Sprintf(`,"customMetadata":{"patchlog":{"level":%d,"windows":%d,"passes":%[1]d,"events":%[3]d,"from":%[4]d,"to":%[5]d}}`, level, level, events, from, to)
	}
	return []string{
		event("e1", "user", text("order <b>A-4711</b>, please")),
		event("e2", "shop", `{"functionCall":{"id":"f1","name":"find","args":{"id":"A-4711"}}}`),
		event("e3", "shop", `{"functionResponse":{"id":"f1","name":"find","response":{"o":"in\n/srv/orders/a.txt\nB-1234X"}}}`),
		event("e4", "user", text("and C-1234?")),
		event("e5", "shop", text("none, see /srv/orders/c.txt")),
		event("e6", "user", text("thanks for C-1234")),
		`{"id":"p7","patchType":"summarise","start":0,"count":3,"summaryEvent":` + event("s7", "shop", text("A-4711 was found, Z-9999<i> too, not C-1234"), own(1, 3, 1, 3)) + `}`,
		`{"id":"p8","patchType":"summarise","start":1,"count":2,"summaryEvent":` + event("s8", "shop", text("no order"), own(1, 2, 4, 5)) + `}`,
		`{"id":"p9","patchType":"summarise","start":0,"count":2,"summaryEvent":` + event("s9", "shop", text("A-4711 was found, Z-9999<i> too, 77 times"), own(2, 5, 1, 5)) + `}`,
	}
}

// A summary is shown with what it stands for, in the words of the command, and with identifiers
// marked.
func TestSummary(t *testing.T) {
	s, i := shownLog(t, Options{}, summed()...)
	v, docs, err := present.LossesOf(t.Context(), s, recordKey, "")
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	want := append(docs[0].Head(), "/srv/orders/a.txt, /srv/orders/c.txt, B-1234X", "gone (3):", "Summary at index 0", "level2", "from record1", "to record5", "order <b>A-4711</b>, please",
		"What it stands for 5 events", "The patch that put it in, record 9", "As it stood before")
	page := shows(t, i, 200, []any{"summary", "at", v.Seq(), "index", 0}, want...)
	for _, want := range []string{
		`<mark class="gone" title="gone: it stands nowhere in the visible log">/srv/orders/a.txt</mark>\nB-1234X`,
		`none, see <mark class="gone"`,
		`and <mark class="elsewhere" title="elsewhere: the summary does not have it, another visible event does">C-1234</mark>?`,
		`found, <mark class="invented" title="invented: no event has it">Z-9999</mark>&lt;i&gt; too`,
		`&amp;seq=3"><mark class="gone">/srv/orders/a.txt</mark></a>`,
	} {
		if want = strings.Replace(want, `\nB-1234X`, `\n<mark class="gone" title="gone: it stands nowhere in the visible log">B-1234X</mark>`, 1); !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	if strings.Contains(page, `">A-4711</mark>`) {
		t.Error("what the summary has is marked")
	}
	if got := shows(t, i, 200, []any{"summary", "patch", "p9"}); got != page {
		t.Error("by its patch it is another page")
	}
	_, docs, err = present.LossesOf(t.Context(), s, recordKey, "p7")
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	shows(t, i, 200, []any{"summary", "patch", "p7"}, append(docs[0].Head(), "3 events")...)
	if strings.Contains(strings.Join(docs[0].Lines(), ""), "C-1234") {
		t.Error("what another event has is invented")
	}
	shows(t, i, 200, []any{"summary", "at", 8, "index", 1}, "no order", "elsewhere (1): C-1234")
	shows(t, i, 200, []any{"summary", "index", 0}, "Summary at index 0")

	shows(t, i, 400, []any{"summary", "at", 8, "index", 2}, "stands for itself")
	shows(t, i, 422, []any{"summary", "index", 2}, "2 events visible")
	shows(t, i, 400, []any{"summary"}, "index")
	shows(t, i, 404, []any{"summary", "patch", "e1"}, `there is no patch "e1"`)
	shows(t, i, 404, []any{"summary", "at", 99, "index", 0})
}

// Of the summaries that a patch or its group put in, each is named, and of what is none it is said.
func TestSummaries(t *testing.T) {
	s, i := shownLog(t, Options{},
		event("e1", "user", text("A-4711"), `,"branch":"x"`), event("e2", "user", text("B-4711"), `,"branch":"y"`),
		`{"id":"p3","patchType":"splice","state":"keep","start":0,"count":2,"replacement":[`+
			event("s1", "shop", text("one"), `,"branch":"x","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}`)+`,`+
			event("s2", "shop", text("two"), `,"branch":"y","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}`)+`]}`,
		`{"id":"p4","patchType":"splice","start":2,"count":0,"replacement":[`+event("n", "shop", text("new"))+`]}`,
		`{"id":"p5","patchType":"splice","start":2,"count":1}`,
		`{"id":"p6","patchType":"splice","start":9,"count":1,"replacement":[`+event("m", "shop", text("never"))+`]}`)
	_, docs, err := present.LossesOf(t.Context(), s, recordKey, "p3")
	if err != nil || len(docs) != 2 {
		t.Fatal(docs, err)
	}
	page := shows(t, i, 200, []any{"summary", "patch", "p3"}, append(docs[0].Head(), "one", "At index 1: summary: two")...)
	if !strings.Contains(page, `href="summary?at=6&amp;index=1&amp;key=`) {
		t.Error(page)
	}
	shows(t, i, 200, []any{"summary", "at", 3, "index", 1}, "two", "What it stands for 1 event")
	shows(t, i, 400, []any{"summary", "patch", "p4"}, "stands for itself")
	shows(t, i, 400, []any{"summary", "patch", "p5"}, "put in no summary")
	shows(t, i, 400, []any{"summary", "patch", "p6"}, "stands for itself")
}

// A page has as many long events as it has room for, and leads on to the others.
func TestSummaryPages(t *testing.T) {
	var lines []string
	for n := range 150 {
		lines = append(lines, event(fmt.Sprint("e", n), "user", text(fmt.Sprintf("%s end-%d", strings.Repeat("word ", 1_000), n))))
	}
	lines = append(lines, `{"id":"p","patchType":"summarise","start":0,"count":150,"summaryEvent":`+event("s", "shop", text("all"))+`}`)
	_, i := shownLog(t, Options{}, lines...)
	seen := 0
	for pages := 0; seen < 150; pages++ {
		page := shows(t, i, 200, []any{"summary", "index", 0, "from", seen})
		rows := strings.Count(page, `<li class="covered-row`)
		if rows < 20 || rows > 100 && seen == 0 || strings.Contains(page, "is not shown") || pages > 10 {
			t.Fatalf("%d rows from %d on", rows, seen)
		}
		for n := seen; n < seen+rows; n++ {
			if !strings.Contains(page, fmt.Sprintf(">end-%d</mark></pre>", n)) {
				t.Errorf("event %d is not told to its end", n)
			}
		}
		seen += rows
		if next := fmt.Sprintf(`href="summary?at=151&amp;from=%d&amp;index=0`, seen); strings.Contains(page, next) != (seen < 150) {
			t.Errorf("what leads on from %d", seen)
		}
	}
}

// Of a result that was cleared, what stands in its place and the original are shown.
func TestSummaryCleared(t *testing.T) {
	s, i := shownLog(t, Options{}, summed()[:6]...)
	v := testlog.Must(s.View(t.Context(), recordKey))(t)
	in := testlog.Must(v.At(2).StandIn("c1", 3, map[int]json.RawMessage{0: json.RawMessage(`{"functionResponse":{"id":"f1","name":"find","response":{"note":"cleared"}}}`)}))(t)
	testlog.Must(s.ApplyPatch(t.Context(), recordKey, store.PatchOptions{AsOfNow: true}, patch.NewSplice(2, 1, in).WithID("p")))(t)
	for _, url := range [][]any{{"summary", "index", 2}, {"summary", "patch", "p"}} {
		shows(t, i, 200, url, "What stands there", `"note": "cleared"`, "What was logged 1 event", `/srv/orders/a.txt`, "an event of record 3", "tokens as logged")
	}
	shows(t, i, 200, []any{"record", "seq", 3}, "Hidden by patch 7", "Told of")
	shows(t, i, 200, []any{"record", "seq", 7}, "What it put in", "What it stands for")
}

// What a summary stands for is shown in pages of bounded size, however much it is.
func TestSummaryLarge(t *testing.T) {
	testlog.OneGoroutine(t)
	var lines []string
	for n := range 9_999 {
		lines = append(lines, event(fmt.Sprint("e", n), "user", text(fmt.Sprintf("%s order A-%d", strings.Repeat("word and word ", 20), n))))
	}
	lines[0] = event("e0", "user", text(strings.Repeat("G-1 <A-12345> ", 400_000)))
	lines = append(lines, `{"id":"p","patchType":"summarise","start":0,"count":9990,"summaryEvent":`+event("s", "shop", text(strings.Repeat("Z-99999 & ", 100_000)))+`}`)
	_, i := shownLog(t, Options{}, lines...)
	start := time.Now()
	page := shows(t, i, 200, []any{"summary", "index", 0}, "9990 events, 1 to ", "more, which ‘patchlog loss’ lists")
	t.Logf("%d bytes in %v", len(page), time.Since(start))
	if n := strings.Count(page, `<li class="covered-row`); n != coveredRows {
		t.Errorf("%d rows", n)
	}
	page = shows(t, i, 200, []any{"summary", "index", 0, "from", 9_900}, "9901 to 9990 here", "A-9989", "Earlier events")
	if strings.Contains(page, "Later events") || strings.Contains(page, "A-9899<") {
		t.Error("other events")
	}
}
