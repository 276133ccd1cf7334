package inspector

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var recordKey = store.Key{App: "shop", User: "ada", Session: "../4711 \"x\""}

// shownLog returns a store with a session of these lines, and its inspector.
func shownLog(t testing.TB, opts Options, lines ...string) (*store.Store, *Inspector) {
	t.Helper()
	made := 0
	s := teststore.Memory(t, store.Options{
		Now:   func() time.Time { return time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC) },
		NewID: func() string { made++; return fmt.Sprint("made-", made) },
	})
	testlog.Must(s.Import(t.Context(), recordKey, strings.NewReader(strings.Join(lines, "\n")), store.ImportOptions{}))(t)
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	i := testlog.Must(New(s, opts))(t)
	return s, i
}

// ask returns the answer to a request for a page about the session.
func ask(t testing.TB, i *Inspector, path string, pairs ...any) *httptest.ResponseRecorder {
	t.Helper()
	url := testlog.Must(query("/"+path, append([]any{"key", recordKey}, pairs...)...))(t)
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+string(url), nil)
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w
}

var (
	tags    = regexp.MustCompile(`(?s)<[^>]*>`)
	element = regexp.MustCompile(`<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*)>`)
	attr    = regexp.MustCompile(`^(\s+[a-z][-a-z]*(="[^"<>]*"|='[^'<>]*')?)*\s*$`)
)

// said is what a page says: its text without tags.
func said(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, "")) }

// shows asks for a page, and checks its status, that it is in order, and that it says some texts.
func shows(t testing.TB, i *Inspector, status int, url []any, texts ...string) string {
	t.Helper()
	w := ask(t, i, url[0].(string), url[1:]...)
	page := w.Body.String()
	if w.Code != status {
		t.Fatalf("%v: status %d, want %d: %s", url, w.Code, status, said(page))
	}
	if err := inOrder(page); err != nil {
		t.Errorf("%v: %v", url, err)
	}
	text := said(page)
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("%v: it does not say %q:\n%s", url, want, text)
		}
	}
	return page
}

// inOrder reports what is wrong with a page: elements that are not closed, foreign scripts, what
// the content security policy forbids, and characters that do not show.
func inOrder(page string) error {
	if len(page) > 1<<20 {
		return fmt.Errorf("the page has %d bytes", len(page))
	}
	if n := strings.Count(page, "<script"); n != 1 {
		return fmt.Errorf("it has %d scripts", n)
	}
	var open []string
	for _, m := range element.FindAllStringSubmatch(page, -1) {
		name := strings.ToLower(m[2])
		if !attr.MatchString(m[3]) {
			return fmt.Errorf("attributes of %s", m[0])
		}
		for _, bad := range []string{" style=", " onerror", " onload", " onclick", "javascript:", `href="http`, `src="http`, `src="data:`} {
			if strings.Contains(strings.ToLower(m[3]), bad) {
				return fmt.Errorf("%q in %s", bad, m[0])
			}
		}
		switch name {
		case "meta", "link", "input", "img", "br", "hr":
			continue
		case "svg", "iframe", "object", "embed", "b", "i", "base":
			if name != "b" {
				return fmt.Errorf("an element %s", m[0])
			}
		}
		if m[1] == "" {
			open = append(open, name)
			continue
		}
		if len(open) == 0 || open[len(open)-1] != name {
			return fmt.Errorf("%s closes %v", m[0], open)
		}
		open = open[:len(open)-1]
	}
	if len(open) > 0 {
		return fmt.Errorf("%v are not closed", open)
	}
	for _, r := range page {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\ufffd' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return fmt.Errorf("it has the character %U", r)
		}
	}
	return nil
}

// event is a line of the log.
func event(id, author, parts string, more ...string) string {
	role := "model"
	if author == "user" {
		role = "user"
	}
	return fmt.Sprintf(`{"id":%q,"invocationId":"i1","author":%q,"content":{"role":%q,"parts":[%s]}%s}`, id, author, role, parts, strings.Join(more, ""))
}

func text(s string) string {
	b, _ := json.Marshal(map[string]string{"text": s})
	return string(b)
}

func data(mimeType string, content []byte) string {
	b, _ := json.Marshal(map[string]any{"inlineData": map[string]string{"mimeType": mimeType, "data": base64.StdEncoding.EncodeToString(content)}})
	return string(b)
}

var png = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR-and-so-on")

// An event is shown part by part, with what it sets and where it is.
func TestRecordEvent(t *testing.T) {
	s, i := shownLog(t, Options{},
		event("q", "user", text("Where is\nmy order?")+`,`+data("image/png", png)),
		event("c", "shop", `{"text":"I think","thought":true},{"functionCall":{"id":"f1","name":"find","args":{"order":["A-1",{"deep":true}]}}}`,
			`,"actions":{"stateDelta":{"step":{"n":2},"user:name":"Ada"}},"usageMetadata":{"promptTokenCount":17},"branch":"root.shop"`),
		event("r", "shop", `{"functionResponse":{"id":"f1","name":"find","response":{"where":"caf\u00e9\u202e","note":"a\nb"}}}`),
		event("o", "shop", `{"executableCode":{"language":"PYTHON","code":"print(1)\nprint(2)"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n2"}},`+
			`{"fileData":{"mimeType":"text/html","fileUri":"javascript:alert(1)"}},{"toolCall":{"x":1}},{"inlineData":{"mimeType":"image/svg+xml","data":"PHN2Zz48L3N2Zz4="}}`),
	)
	page := shows(t, i, 200, []any{"record", "seq", 1}, "Record 1: an event", "Where is\nmy order?", "image/png, 26 bytes", "Visible, at index 0", "Record 2")
	if strings.Contains(page, "<img") {
		t.Error("an image is shown")
	}
	shows(t, i, 200, []any{"record", "seq", 2}, "thought", "I think", "function call", "find", "{\n  \"order\": [\n    \"A-1\",\n    {\n      \"deep\": true\n    }\n  ]\n}",
		"Answered by record 3", "step", "\"n\": 2", "user:name", "\"Ada\"", "\"promptTokenCount\": 17", "root.shop", "i1", "Record 1", "Record 3", "As it stood then")
	page = shows(t, i, 200, []any{"record", "seq", 3}, "Answers the call of record 2", "function response", `"café\u202e"`, `"a\nb"`)
	if !strings.Contains(page, `&amp;seq=2">Answers the call`) {
		t.Error("the call is not linked")
	}
	shows(t, i, 200, []any{"record", "seq", 4}, "PYTHON", "print(1)\nprint(2)", "OUTCOME_OK", "1\n2", "javascript:alert(1)", "toolCall", "image/svg+xml, 11 bytes")
	testlog.Must(s.ApplyPatch(t.Context(), recordKey, store.PatchOptions{AsOfNow: true}, patch.NewSplice(1, 2)))(t)
	shows(t, i, 200, []any{"record", "seq", 2}, "Hidden by patch 5", "Answered by record 3")
	shows(t, i, 200, []any{"record", "seq", 3}, "Hidden by patch 5", "Answers the call of record 2")
	shows(t, i, 404, []any{"record", "seq", 6}, "there is no record 6")
	shows(t, i, 400, []any{"record"}, "seq")
	shows(t, i, 400, []any{"record", "seq", "x"}, "whole number")
	shows(t, i, 404, []any{"record", "seq", 1, "id", "other"}, `it brought no event "other"`)
}

// The record as it was logged can be saved, under a name that any system takes.
func TestRecordJSON(t *testing.T) {
	line := event("q", "user", text(`<script>&`))
	_, i := shownLog(t, Options{}, line)
	w := ask(t, i, "record", "seq", 1, "form", "json")
	r, err := patch.ParseRecord(w.Body.Bytes())
	if err != nil || w.Code != 200 {
		t.Fatal(w.Code, err)
	}
	if said, _ := r.Event.Field("content"); !strings.Contains(line, string(said)) {
		t.Errorf("got %s", said)
	}
	if got, want := w.Header().Get("Content-Disposition"), `attachment; filename="session-shop-ada-..-4711--x-1.json"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("it is of type %s", got)
	}
}

// patched is a log with patches of all sorts.
func patched() []string {
	return []string{
		event("e1", "user", text("order A-4711")),
		event("e2", "shop", text("found A-4711 in /srv/orders/a.txt")),
		event("e3", "user", text("and B-1234?")),
		event("e4", "shop", text("none")),
		`{"id":"p5","patchType":"summarise","author":"me","start":0,"count":2,"summaryEvent":` + event("s5", "shop", text("A-4711 was found; so was Z-9999")) + `,
		"customMetadata":{"patchlog":{"trigger":"tokens","eventsBefore":2,"eventsAfter":1,"level":1,"held":2,"lost":1,"usage":{"calls":1,"promptTokens":1200,"answerTokens":30}}}}`,
		`{"id":"p6","patchType":"splice","start":1,"count":1}`,
		`{"id":"p7","patchType":"revert","patchId":"p6"}`,
		`{"id":"p8","patchType":"splice","start":7,"count":1}`,
		`{"id":"p9","patchType":"splice","start":1,"count":1,"group":"g"}`,
		`{"id":"p10","patchType":"splice","start":1,"count":1,"group":"g","replacement":[` + event("n1", "shop", text("new one")) + `,` + event("n2", "shop", text("new two")) + `]}`,
		`{"id":"p11","patchType":"pin","eventId":"n2"}`,
	}
}

// joined are lines of JSON without line breaks in them.
func joined(lines []string) []string {
	for n := range lines {
		lines[n] = strings.ReplaceAll(lines[n], "\n", "")
	}
	return lines
}

// A patch is shown with what it did and what became of it, and an event with what hides it.
func TestRecordPatch(t *testing.T) {
	_, i := shownLog(t, Options{}, joined(patched())...)
	for at, want := range map[int]string{4: "0 compactions</p>", 11: "1 compaction · 1 identifier not in sight</p>"} {
		if page := ask(t, i, "session", "at", at).Body.String(); !strings.Contains(page, want) {
			t.Errorf("after record %d the headline does not end with %q", at, want)
		}
	}
	page := shows(t, i, 200, []any{"record", "seq", 5}, "Record 5: a patch, summarise", "start 0, count 2, state keep", "What changed", "visible events4 -> 3",
		"It stands.", "record 5, tokens: index 0 to 1: 2 events → 1 summary of level 1", "1 call of the summarizer: 1,200 tokens read, 30 written",
		"1 of 2 identifiers lost", "A-4711 was found; so was Z-9999", "order A-4711", "What it put in", "Visible, at index 0", "What it stands for", "As it stood before", "kindsummary")
	if !strings.Contains(page, `&amp;seq=2">found A-4711 in`) || !strings.Contains(page, `href="summary?`) {
		t.Error("what it hid is not linked")
	}
	shows(t, i, 200, []any{"record", "seq", 6}, "-removed1e3userand B-1234?", "It has been reverted.", "reverted by record 7")
	shows(t, i, 200, []any{"record", "seq", 7}, "patch p6", "+added1e3user", "It stands.")
	shows(t, i, 200, []any{"record", "seq", 8}, "skipped: out of range")
	shows(t, i, 200, []any{"record", "seq", 9}, "Of its group: record 10")
	shows(t, i, 200, []any{"record", "seq", 10}, "new one", "new two", "Pinned", "Visible, at index 2")
	page = shows(t, i, 200, []any{"record", "seq", 10, "id", "n2"}, "new two", "Other events that it put in")
	if n := strings.Count(page, "An event that it put in"); n != 1 {
		t.Errorf("%d events in full", n)
	}
	page = shows(t, i, 200, []any{"record", "seq", 2}, "Hidden by patch 5", "Told of")
	if !strings.Contains(page, `&amp;seq=5">Hidden by patch 5</a>`) {
		t.Error("what hides it is not linked")
	}
	shows(t, i, 200, []any{"record", "seq", 3}, "Hidden by patch 9", "Not told of")
}

// A session that a request may not read looks like one that is not there.
func TestRecordAuthorized(t *testing.T) {
	_, i := shownLog(t, Options{Authorize: func(*http.Request, store.Key, Access) bool { return false }}, event("q", "user", text("secret"), ``))
	for _, url := range [][]any{{"record", "seq", 1}, {"summary", "index", 0}, {"diff", "from", 0}, {"record", "seq", 1, "form", "json"}} {
		if page := shows(t, i, 404, url); strings.Contains(page, "secret") {
			t.Error(url, page)
		}
	}
}

// Whatever a session says is text on a page of bounded size.
func TestRecordHostile(t *testing.T) {
	testlog.OneGoroutine(t)
	evil := "<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \x1b[31mred\x1b[0m \u202eevil\u2066 \x00 \x7f \" ' & + </pre></details> {{.}}"
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	deep := strings.Repeat(`[{"a":`, 200) + "1" + strings.Repeat("}]", 200)
	wide := strings.Repeat(`["x"],`, 300_000) + "1"
	lines := []string{
		event("evil", "<b>\u202e", text(evil)+`,{"functionCall":{"id":`+quoted(evil)+`,"name":`+quoted(evil)+`,"args":{`+quoted(evil)+`:`+quoted(evil)+`}}},`+
			`{"fileData":{"mimeType":`+quoted(evil)+`,"fileUri":`+quoted(evil)+`}},{"inlineData":{"mimeType":`+quoted(evil)+`,"displayName":`+quoted(evil)+`,"data":"AAAA"}},`+
			`{"executableCode":{"language":`+quoted(evil)+`,"code":`+quoted(evil)+`}},{`+quoted(evil)+`:1}`,
			`,"branch":`+quoted(evil)+`,"errorMessage":`+quoted(evil)+`,"actions":{"stateDelta":{`+quoted(evil)+`:`+quoted(evil)+`}},"customMetadata":{"x":`+quoted(evil)+`}`),
		event("large", "user", text(strings.Repeat("<script>\n", 700_000))),
		event("deep", "user", `{"functionResponse":{"name":"f","response":{"a":`+deep+`}}}`),
		event("wide", "user", `{"functionResponse":{"name":"f","response":{"a":[`+wide+`]}}}`),
		event("many", "user", strings.Repeat(text(evil)+",", 20_000)+text("last")),
		`{"id":"p","patchType":"splice","start":0,"count":5,"replacement":[` + strings.Repeat(event("x", "user", text(strings.Repeat(evil, 500)))+",", 0) + event("y", "user", text(strings.Repeat(evil, 20_000))) + `]}`,
		`{"id":` + quoted(evil) + `,"patchType":"splice","start":0,"count":0,"author":` + quoted(evil) + `,"group":` + quoted(evil) + `}`,
		`{"id":"u","patchType":"<script>"}`,
	}
	_, i := shownLog(t, Options{}, lines...)
	const shown = `<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \u001b[31mred\u001b[0m \u202eevil\u2066 \u0000 \u007f " ' & + </pre></details> {{.}}`
	shows(t, i, 200, []any{"record", "seq", 1}, shown, `\u202e`)
	shows(t, i, 200, []any{"record", "seq", 2}, "It is 6,300,000 bytes long, of which the end is not shown.", "The raw record has all.")
	shows(t, i, 200, []any{"record", "seq", 3}, `"a": [`)
	shows(t, i, 200, []any{"record", "seq", 4}, `"x"`, "of which the end is not shown")
	shows(t, i, 200, []any{"record", "seq", 5}, shown, "parts more: too much for a page.")
	shows(t, i, 200, []any{"record", "seq", 6}, shown, "of which the end is not shown")
	shows(t, i, 200, []any{"record", "seq", 7}, `\u202eevil`)
	shows(t, i, 200, []any{"record", "seq", 8}, "skipped")
	shows(t, i, 200, []any{"diff", "from", 0, "to", 5}, `\u202eevil`)
	shows(t, i, 200, []any{"diff", "from", 5, "to", 6}, `\u202eevil`)
	shows(t, i, 404, []any{"record", "seq", 1, "id", evil + "\xff"}, "it brought no event")
}
