package inspector

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"html/template"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var recordKey = store.Key{App: "shop", User: "ada", Session: "../4711 \"x\""}

// openLog returns a store with a session of the given lines, and an inspector of the store.
func openLog(t testing.TB, opts Options, lines ...string) (*store.Store, *Inspector) {
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

func ask(t testing.TB, i *Inspector, path string, pairs ...any) *httptest.ResponseRecorder {
	t.Helper()
	url := query("/"+path, append([]any{"key", recordKey}, pairs...)...)
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+string(url), nil)
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w
}

var (
	tags    = regexp.MustCompile(`(?s)<[^>]*>`)
	element = regexp.MustCompile(`<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*)>`)
	// drawings matches the inspector's own SVG, which renderPicture checks.
	drawings = regexp.MustCompile(`(?s)<figure class="picture" id="picture">.*?</figure>|<svg class="share".*?</svg>`)
	attr     = regexp.MustCompile(`^(\s+[a-z][-a-z]*(="[^"<>]*"|='[^'<>]*')?)*\s*$`)
)

// pageText returns the text of a page without tags.
func pageText(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, "")) }

// wantPage requests a page, and checks that it has the status, is well-formed and contains the texts.
func wantPage(t testing.TB, i *Inspector, status int, url []any, texts ...string) string {
	t.Helper()
	w := ask(t, i, url[0].(string), url[1:]...)
	page := w.Body.String()
	if w.Code != status {
		t.Fatalf("%v: status %d, want %d: %s", url, w.Code, status, pageText(page))
	}
	if err := checkPage(page); err != nil {
		t.Errorf("%v: %v", url, err)
	}
	text := pageText(page)
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("%v: it does not say %q:\n%s", url, want, text)
		}
	}
	return page
}

// checkPage returns an error if a page has unclosed elements, foreign scripts, violations of the content security
// policy, or invisible characters.
func checkPage(page string) error {
	if len(page) > 1<<20 {
		return fmt.Errorf("the page has %d bytes", len(page))
	}
	if n := strings.Count(page, "<script"); n != 1 {
		return fmt.Errorf("it has %d scripts", n)
	}
	page = drawings.ReplaceAllString(page, "")
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

func event(id, author, parts string, more ...string) string {
	role := "model"
	if author == "user" {
		role = "user"
	}
	return fmt.Sprintf(`{"id":%q,"invocationId":"i1","author":%q,"content":{"role":%q,"parts":[%s]}%s}`, id, author, role, parts, strings.Join(more, ""))
}

func textPart(s string) string {
	b, _ := json.Marshal(map[string]string{"text": s})
	return string(b)
}

func dataPart(mimeType string, content []byte) string {
	b, _ := json.Marshal(map[string]any{"inlineData": map[string]string{"mimeType": mimeType, "data": base64.StdEncoding.EncodeToString(content)}})
	return string(b)
}

var png = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR-and-so-on")

// An event is shown part by part, with its state delta and its place.
func TestRecordEvent(t *testing.T) {
	s, i := openLog(t, Options{},
		event("q", "user", textPart("Where is\nmy order?")+`,`+dataPart("image/png", png)),
		event("c", "shop", `{"text":"I think","thought":true},{"functionCall":{"id":"f1","name":"find","args":{"order":["A-1",{"deep":true}]}}}`,
			`,"actions":{"stateDelta":{"step":{"n":2},"user:name":"Ada"}},"usageMetadata":{"promptTokenCount":17},"branch":"root.shop"`),
		event("r", "shop", `{"functionResponse":{"id":"f1","name":"find","response":{"where":"caf\u00e9\u202e","note":"a\nb"}}}`),
		event("o", "shop", `{"executableCode":{"language":"PYTHON","code":"print(1)\nprint(2)"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n2"}},`+
			`{"fileData":{"mimeType":"text/html","fileUri":"javascript:alert(1)"}},{"toolCall":{"x":1}},{"inlineData":{"mimeType":"image/svg+xml","data":"PHN2Zz48L3N2Zz4="}}`),
	)
	page := wantPage(t, i, 200, []any{"record", "seq", 1}, "Record 1", "Where is\nmy order?", "image/png, 26 bytes", "The model sees it, at index 0")
	if strings.Contains(page, "<img") {
		t.Error("an image is shown")
	}
	wantPage(t, i, 200, []any{"record", "seq", 2}, "thought", "I think", "function call", "find", "{\n  \"order\": [\n    \"A-1\",\n    {\n      \"deep\": true\n    }\n  ]\n}",
		"Answered by record 3", "step", "\"n\": 2", "user:name", "\"Ada\"", "\"promptTokenCount\": 17", "root.shop", "i1", "After record 2")
	page = wantPage(t, i, 200, []any{"record", "seq", 3}, "Answers the call of record 2", "function response", `"café\u202e"`, `"a\nb"`)
	if !strings.Contains(page, `&amp;seq=2">Answers the call`) {
		t.Error("the call is not linked")
	}
	wantPage(t, i, 200, []any{"record", "seq", 4}, "PYTHON", "print(1)\nprint(2)", "OUTCOME_OK", "1\n2", "javascript:alert(1)", "toolCall", "image/svg+xml, 11 bytes")
	testlog.Must(s.ApplyPatch(t.Context(), recordKey, []*patch.PatchEvent{patch.NewSplice(1, 2)}, store.PatchOptions{AsOfNow: true}))(t)
	wantPage(t, i, 200, []any{"record", "seq", 2}, "Hidden by the cut at 5", "Answered by record 3")
	wantPage(t, i, 200, []any{"record", "seq", 3}, "Hidden by the cut at 5", "Answers the call of record 2")
	wantPage(t, i, 404, []any{"record", "seq", 6}, "there is no record 6")
	wantPage(t, i, 400, []any{"record"}, "seq")
	wantPage(t, i, 400, []any{"record", "seq", "x"}, "whole number")
	wantPage(t, i, 404, []any{"record", "seq", 1, "id", "other"}, `it has no event "other"`)
}

// The raw record can be saved. Its file name is valid on every system.
func TestRecordJSON(t *testing.T) {
	line := event("q", "user", textPart(`<script>&`))
	_, i := openLog(t, Options{}, line)
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

// patchLog returns a log with patches of all types.
func patchLog() []string {
	return []string{
		event("e1", "user", textPart("order A-4711")),
		event("e2", "shop", textPart("found A-4711 in /srv/orders/a.txt")),
		event("e3", "user", textPart("and B-1234?")),
		event("e4", "shop", textPart("none")),
		`{"id":"p5","patchType":"summarise","author":"me","start":0,"count":2,"summaryEvent":` + event("s5", "shop", textPart("A-4711 was found; so was Z-9999")) + `,
		"customMetadata":{"patchlog":{"trigger":"tokens","eventsBefore":2,"eventsAfter":1,"level":1,"identifiers":2,"lost":1,"usage":{"calls":1,"promptTokens":1200,"answerTokens":30}}}}`,
		`{"id":"p6","patchType":"splice","start":1,"count":1}`,
		`{"id":"p7","patchType":"revert","patchId":"p6"}`,
		`{"id":"p8","patchType":"splice","start":7,"count":1}`,
		`{"id":"p9","patchType":"splice","start":1,"count":1,"group":"g"}`,
		`{"id":"p10","patchType":"splice","start":1,"count":1,"group":"g","replacement":[` + event("n1", "shop", textPart("new one")) + `,` + event("n2", "shop", textPart("new two")) + `]}`,
		`{"id":"p11","patchType":"pin","eventId":"n2"}`,
	}
}

// joinLines removes the line breaks inside lines of JSON.
func joinLines(lines []string) []string {
	for n := range lines {
		lines[n] = strings.ReplaceAll(lines[n], "\n", "")
	}
	return lines
}

// If a price is set, the headline says what the hidden tokens would cost per prompt.
func TestPrice(t *testing.T) {
	_, i := openLog(t, Options{Price: 250}, joinLines(patchLog())...)
	if page := ask(t, i, "session", "at", 4).Body.String(); strings.Contains(page, "costs about") {
		t.Error("nothing is hidden, and money is saved")
	}
	page := ask(t, i, "session").Body.String()
	m := regexp.MustCompile(`<strong>(\d+)</strong> of (\d+) tokens visible.* · 1 compaction · .*each prompt costs about ([\d.]+) less`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no money is saved:\n%s", page)
	}
	visible, raw := testlog.Must(strconv.Atoi(m[1]))(t), testlog.Must(strconv.Atoi(m[2]))(t)
	if want := fmt.Sprintf("%.4f", float64(raw-visible)*250/1e6); raw <= visible || m[3] != want {
		t.Errorf("saved are %s, want %s", m[3], want)
	}
	for _, price := range []float64{-1, math.NaN(), math.Inf(1)} {
		if err := (Options{Price: price}).Validate(); !errors.Is(err, patch.ErrInvalid) {
			t.Errorf("a price of %v: %v", price, err)
		}
	}
}

// A patch is shown with its effect and whether it is active. An event is shown with the patch that hides it.
func TestRecordPatch(t *testing.T) {
	_, i := openLog(t, Options{}, joinLines(patchLog())...)
	for at, want := range map[int]string{4: "· 4 of 4 events</span></p>", 6: "1 compaction · 1 cut</p>", 7: "1 compaction</p>", 11: "1 compaction · 2 cuts</p>"} {
		if page := ask(t, i, "session", "at", at).Body.String(); !strings.Contains(page, want) || strings.Contains(page, "1 identifier only in the raw log") != (at > 4) {
			t.Errorf("after record %d the headline does not have %q", at, want)
		}
	}
	page := wantPage(t, i, 200, []any{"record", "seq", 5}, "Record 5 · summarised 2 events", "start 0, count 2, state keep", "What changed", "visible events4 → 3",
		"Active", "record 5, tokens: index 0 to 1: 2 events → 1 summary of level 1", "1 call of the summarizer: 1,200 tokens read, 30 written",
		"1 of 2 identifiers lost", "A-4711 was found; so was Z-9999", "order A-4711", "Events that it added", "The model sees it, at index 0", "what it hides", "kindsummary")
	if !strings.Contains(page, `&amp;seq=2">found A-4711 in`) || !strings.Contains(page, `href="summary?`) {
		t.Error("the hidden events are not linked")
	}
	wantPage(t, i, 200, []any{"record", "seq", 6}, "-removed user and B-1234?", "Reverted", "reverted by record 7")
	wantPage(t, i, 200, []any{"record", "seq", 7}, "patch p6", "+added user", "Active")
	wantPage(t, i, 200, []any{"record", "seq", 8}, "skipped: out of range")
	wantPage(t, i, 200, []any{"record", "seq", 9}, "Together with record 10")
	wantPage(t, i, 200, []any{"record", "seq", 10}, "new one", "new two", "pinned", "The model sees it, at index 2")
	page = wantPage(t, i, 200, []any{"record", "seq", 10, "id", "n2"}, "new two", "Other events that it added")
	if n := strings.Count(page, `aria-label="An event that it added"`); n != 1 {
		t.Errorf("%d events in full", n)
	}
	page = wantPage(t, i, 200, []any{"record", "seq", 2}, "Hidden by the summary at 5", "a visible event represents it")
	if !strings.Contains(page, `&amp;seq=5">Hidden by the summary at 5</a>`) {
		t.Error("the hiding patch is not linked")
	}
	wantPage(t, i, 200, []any{"record", "seq", 3}, "Hidden by the cut at 9", "no visible event represents it")
}

// Any content is shown as text, on a page of bounded size.
func TestRecordHostile(t *testing.T) {
	testlog.SkipUnderRace(t)
	evil := "<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \x1b[31mred\x1b[0m \u202eevil\u2066 \x00 \x7f \" ' & + </pre></details> {{.}}"
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	deep := strings.Repeat(`[{"a":`, 200) + "1" + strings.Repeat("}]", 200)
	wide := strings.Repeat(`["x"],`, 300_000) + "1"
	lines := []string{
		event("evil", "<b>\u202e", textPart(evil)+`,{"functionCall":{"id":`+quoted(evil)+`,"name":`+quoted(evil)+`,"args":{`+quoted(evil)+`:`+quoted(evil)+`}}},`+
			`{"fileData":{"mimeType":`+quoted(evil)+`,"fileUri":`+quoted(evil)+`}},{"inlineData":{"mimeType":`+quoted(evil)+`,"displayName":`+quoted(evil)+`,"data":"AAAA"}},`+
			`{"executableCode":{"language":`+quoted(evil)+`,"code":`+quoted(evil)+`}},{`+quoted(evil)+`:1}`,
			`,"branch":`+quoted(evil)+`,"errorMessage":`+quoted(evil)+`,"actions":{"stateDelta":{`+quoted(evil)+`:`+quoted(evil)+`}},"customMetadata":{"x":`+quoted(evil)+`}`),
		event("large", "user", textPart(strings.Repeat("<script>\n", 700_000))),
		event("deep", "user", `{"functionResponse":{"name":"f","response":{"a":`+deep+`}}}`),
		event("wide", "user", `{"functionResponse":{"name":"f","response":{"a":[`+wide+`]}}}`),
		event("many", "user", strings.Repeat(textPart(evil)+",", 20_000)+textPart("last")),
		`{"id":"p","patchType":"splice","start":0,"count":5,"replacement":[` + strings.Repeat(event("x", "user", textPart(strings.Repeat(evil, 500)))+",", 0) + event("y", "user", textPart(strings.Repeat(evil, 20_000))) + `]}`,
		`{"id":` + quoted(evil) + `,"patchType":"splice","start":0,"count":0,"author":` + quoted(evil) + `,"group":` + quoted(evil) + `}`,
		`{"id":"u","patchType":"<script>"}`,
	}
	_, i := openLog(t, Options{}, lines...)
	const shown = `<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \u001b[31mred\u001b[0m \u202eevil\u2066 \u0000 \u007f " ' & + </pre></details> {{.}}`
	wantPage(t, i, 200, []any{"record", "seq", 1}, shown, `\u202e`)
	wantPage(t, i, 200, []any{"record", "seq", 2}, "The end of these 6,300,000 bytes is not shown.", "See the raw record.")
	wantPage(t, i, 200, []any{"record", "seq", 3}, `[{"a":[{"a":`)
	wantPage(t, i, 200, []any{"record", "seq", 4}, `"x"`, "bytes is not shown")
	wantPage(t, i, 200, []any{"record", "seq", 5}, shown, "parts more not shown.")
	wantPage(t, i, 200, []any{"record", "seq", 6}, shown, "bytes is not shown")
	wantPage(t, i, 200, []any{"record", "seq", 7}, `\u202eevil`)
	wantPage(t, i, 200, []any{"record", "seq", 8}, "skipped")
	wantPage(t, i, 200, []any{"diff", "from", 0, "to", 5}, `\u202eevil`)
	wantPage(t, i, 200, []any{"diff", "from", 5, "to", 6}, `\u202eevil`)
	wantPage(t, i, 404, []any{"record", "seq", 1, "id", evil + "\xff"}, "it has no event")
}

// Indenting complete JSON does not change its value.
func TestPropertyIndentJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var draw func(depth int) string
	draw = func(depth int) string {
		blank := []string{"", " ", "\n\t"}[r.IntN(3)]
		join := func(of func() string) string {
			var all []string
			for range r.IntN(4) {
				all = append(all, blank+of()+blank)
			}
			return strings.Join(all, ",")
		}
		name := func() string {
			return `"` + []string{"", `a\"b`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\u202e`, `\u0022`, `\u005c`, `\\u00e9`, `{[:,]}`, "é", "\u202e", `\n`, `\/`}[r.IntN(14)] + `"`
		}
		switch n := r.IntN(7); {
		case n == 0 && depth > 0:
			return "{" + join(func() string { return name() + blank + ":" + blank + draw(depth-1) }) + "}"
		case n == 1 && depth > 0:
			return "[" + join(func() string { return draw(depth - 1) }) + blank + "]"
		case n < 4:
			return name()
		default:
			return []string{"null", "true", "-1.5e10", "0"}[r.IntN(4)]
		}
	}
	for range 20_000 {
		text := draw(5)
		out, read := indentJSON(text, 1<<20)
		var was, is any
		if json.Unmarshal([]byte(text), &was) != nil || read != len(text) || json.Unmarshal([]byte(out), &is) != nil || !reflect.DeepEqual(was, is) {
			t.Fatalf("%s\nbecame\n%s\nread %d of %d", text, out, read, len(text))
		}
		if masked := maskEscapes(out); len(masked) != len(out) || strings.Contains(masked, `\`) {
			t.Fatalf("%s\nwithout escapes:\n%s", out, masked)
		}
		most := r.IntN(30)
		if out, read = indentJSON(text, most); read < len(text) && out != text[:read] || read > most || !utf8.ValidString(out) {
			t.Fatalf("%s\nup to %d, read %d:\n%s", text, most, read, out)
		}
	}
}

func TestIndentJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a":[1,{}, [ ] ],"b":"x\ny"}`, "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": \"x\\ny\"\n}"},
		{`"\u4e16\u0000\u202e\u0041"`, "\"世\\u0000\u202eA\""},
		{``, ``}, {`"`, `"`}, {`"\`, `"\`}, {`"\u12`, `"\u12`}, {`]]`, `]]`}, {`{`, `{`}, {`[1 x`, `[1 x`}, // not JSON
	} {
		if got, _ := indentJSON(c.text, 1000); got != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	if out, read := indentJSON(deep, 1<<20); out != deep || read != len(deep) {
		t.Errorf("deep JSON became %s", out)
	}
}

// displayText keeps visible text unchanged and reports its size correctly.
func TestLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a\r\nb\n\tc  d\u00a0é世\U0001f600", "a\nb\n\tc  d\u00a0é世\U0001f600"},
		{"\x00\x1b[31m\r\x7f\u202e\u2066\u200b\ufeff\U000e0041", `\u0000\u001b[31m\u000d\u007f\u202e\u2066\u200b\ufeff\U000e0041`},
		{"\xff\xe4\xb8", `\xff\xe4\xb8`},
		{"\ufffd", "\ufffd"},
	} {
		got, _, read := displayText(c.text, 1000)
		if got != c.want || read != len(c.text) {
			t.Errorf("%q: got %q, read %d", c.text, got, read)
		}
	}
	for _, text := range []string{strings.Repeat("<", 100), strings.Repeat("世\"", 100), strings.Repeat("\x00", 100), "plain"} {
		for most := range 60 {
			shown, cost, _ := displayText(text, most)
			if page := template.HTMLEscapeString(shown); len(page) > cost || cost > most || !utf8.ValidString(shown) {
				t.Fatalf("%q up to %d: %q costs %d", text[:5], most, page, cost)
			}
		}
	}
}

// Shown events stay within the byte budget, whatever their content.
func TestShowingBounded(t *testing.T) {
	for _, parts := range []string{
		textPart(strings.Repeat("<\x00", 500_000)),
		strings.Repeat(textPart("x")+",", 50_000) + textPart("x"),
		strings.Repeat(textPart(strings.Repeat("é", 10_000))+",", 100) + textPart("x"),
		`{"functionCall":{"name":"f","args":{"a":[` + strings.Repeat(`"id-12345",`, 200_000) + `1]}}}`,
	} {
		e := testlog.Must(patch.ParseEvent([]byte(event("e", "user", parts))))(t)
		show := contentRenderer{BytesLeft: 100_000, Marks: newMarks(map[string]string{"id-12345": markNotVisible}), Raw: func(uint64) template.URL { return "raw" }}
		shown := show.event(e, 1)
		var page bytes.Buffer
		testlog.NoError(t, templates.ExecuteTemplate(&page, "content", shown))
		if page.Len() > 160_000 {
			t.Errorf("%.40s: %d bytes", parts, page.Len())
		}
		if !strings.Contains(page.String(), `href="raw"`) {
			t.Errorf("%.40s: nothing says where the rest is", parts)
		}
	}
}

// Identifiers are marked as whole words, in texts and in JSON.
func TestMarks(t *testing.T) {
	e := testlog.Must(patch.ParseEvent([]byte(event("e", "user", textPart("<b>a1b2c</b> a1b2cd /x/y.go:12")+`,{"functionResponse":{"name":"f","response":{"o":"one\na1b2c\ttwo \u0026 <a1b2c>","x/y1":"a1b2cd"}}}`))))(t)
	show := contentRenderer{BytesLeft: 10_000, Marks: newMarks(map[string]string{"a1b2c": markNotVisible, "/x/y.go": markInOtherEvents, "/x/y.go:12": markNotVisible, "x/y1": markInOtherEvents})}
	var got [][]run
	for _, b := range show.event(e, 1).Blocks {
		got = append(got, b.Runs)
	}
	want := [][]run{
		{{"<b>", ""}, {"a1b2c", "not-visible"}, {"</b> a1b2cd ", ""}, {"/x/y.go:12", "not-visible"}},
		{{"{\n  \"o\": \"one\\n", ""}, {"a1b2c", "not-visible"}, {"\\ttwo & <", ""}, {"a1b2c", "not-visible"}, {">\",\n  \"", ""}, {"x/y1", "in-other-events"}, {"\": \"a1b2cd\"\n}", ""}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// markdown recognises headings and items. It does not change other text and marks.
func TestMarkdown(t *testing.T) {
	var got []string
	for _, l := range markdown([]run{{"## Orders\n- one ", ""}, {"A-1", markInvented}, {", two\n  * three\n#4 -5\n\n", ""}, {"- B", markInvented}}) {
		line := l.Kind + ":"
		for _, r := range l.Runs {
			line += r.Text + r.Mark
		}
		got = append(got, line)
	}
	if want := []string{"heading:Orders", "item:one A-1invented, two", "item:three", "text:#4 -5", "text:", "text:- Binvented"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A page shows the same difference as the command.
func TestDiff(t *testing.T) {
	lines := joinLines(patchLog())
	lines = append(lines, event("e12", "user", textPart("more"), `,"actions":{"stateDelta":{"step":2,"new":true}}`), `{"id":"p13","patchType":"unpin","eventId":"n2"}`,
		`{"id":"p14","patchType":"splice","start":0,"count":0,"replacement":[`+event("n3", "shop", textPart("first"))+`]}`, `{"id":"p15","patchType":"splice","start":2,"count":1}`)
	lines[0] = event("e1", "user", textPart("order A-4711"), `,"actions":{"stateDelta":{"step":1}}`)
	s, i := openLog(t, Options{}, lines...)
	for _, c := range [][2]uint64{{0, 4}, {4, 5}, {5, 6}, {3, 13}, {0, 0}, {5, 7}, {10, 11}, {12, 13}, {8, 12}, {13, 15}} {
		before := testlog.Must(s.ViewAt(t.Context(), recordKey, c[0]))(t)
		after := testlog.Must(s.ViewAt(t.Context(), recordKey, c[1]))(t)
		d := present.DifferenceOf(before, after)
		var want []string
		for _, row := range d.Rows() {
			want = append(want, row.Name+row.Text)
		}
		changes := d.Changes(2)
		for _, e := range changes {
			want = append(want, fmt.Sprintf("%s%s %s %s\n", e.Sign, changeNames[e.Sign], e.Entry.Event.Author(), present.EntryText(e.Entry)))
		}
		if len(changes) == 0 {
			want = append(want, present.SameEvents)
		}
		for _, row := range d.StateRows() {
			want = append(want, row.Key+" "+row.Value)
		}
		if len(d.StateRows()) == 0 {
			want = append(want, present.SameState)
		}
		want = append(want, d.PinLines()...)
		page := wantPage(t, i, 200, []any{"diff", "from", c[0], "to", c[1]}, append(want, fmt.Sprintf("Open the session after record %d or after record %d", c[0], c[1]))...)
		if n := strings.Count(page, `<span class="sign" aria-hidden="true">`); n != len(changes)+len(d.StateRows()) {
			t.Errorf("%v: %d rows, want %d and %d", c, n, len(changes), len(d.StateRows()))
		}
	}
	wantPage(t, i, 200, []any{"diff", "from", 4}, "Open the session after record 4 or after record 15")
}

// Words that differ between a removed event and its replacement are marked, unless the two events have few
// words in common.
func TestDiffMarksWords(t *testing.T) {
	_, i := openLog(t, Options{}, event("a", "user", textPart("the brass lamp <b>")), event("b", "user", textPart("one two three")),
		`{"id":"p","patchType":"splice","start":0,"count":2,"replacement":[`+event("c", "user", textPart("the green lamp <b>"))+`,`+event("d", "user", textPart("four five six"))+`]}`)
	page := wantPage(t, i, 200, []any{"diff", "from", 2})
	for _, want := range []string{"the <mark>brass</mark> lamp &lt;b&gt;", "the <mark>green</mark> lamp &lt;b&gt;", ">one two three<", ">four five six<"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

// A call and its response are linked even if one patch added both.
func TestCallsOfOnePatch(t *testing.T) {
	call, answer := `{"functionCall":{"id":"c1","name":"f","args":{}}}`, `{"functionResponse":{"id":"c1","name":"f","response":{}}}`
	_, i := openLog(t, Options{}, event("a", "user", textPart("a")),
		`{"id":"p","patchType":"splice","start":0,"count":1,"replacement":[`+event("b", "user", textPart("b"))+`,`+event("c", "shop", call)+`,`+event("d", "shop", answer)+`]}`)
	page := wantPage(t, i, 200, []any{"record", "seq", 2})
	if strings.Count(page, "Answered by record 2") != 1 || strings.Count(page, "Answers the call of record 2") != 1 {
		t.Errorf("calls are shown for events without calls:\n%s", page)
	}
}

func TestDiffRefused(t *testing.T) {
	_, i := openLog(t, Options{}, event("a", "user", textPart("a")), event("b", "user", textPart("b")))
	wantPage(t, i, 200, []any{"diff", "from", 2, "to", 1}, "Open the session after record 1 or after record 2")
	wantPage(t, i, 404, []any{"diff", "from", 1, "to", 7}, "record 7")
	wantPage(t, i, 200, []any{"diff", "to", 1}, "Open the session after record 0 or after record 1")
	wantPage(t, i, 400, []any{"diff", "from", "1.5"}, "whole number")
}

// Events that do not fit on a page are counted.
func TestDiffBounded(t *testing.T) {
	var lines []string
	for n := range 10_000 {
		lines = append(lines, event(fmt.Sprint("e", n), "user", textPart(fmt.Sprint(n)), fmt.Sprintf(`,"actions":{"stateDelta":{"k%d":%[1]d}}`, n)))
	}
	_, i := openLog(t, Options{}, lines...)
	page := wantPage(t, i, 200, []any{"diff", "from", 0}, "and 9800 more events", "and 9800 more keys", "0 → 10000")
	if n := strings.Count(page, `<span class="sign" aria-hidden="true">`); n != 400 {
		t.Errorf("%d rows", n)
	}
}

// summaryLog returns a log with a cleared result and a summary that merged two summaries.
func summaryLog() []string {
	own := func(level, events, from, to int) string {
		return fmt.Sprintf(`,"customMetadata":{"patchlog":{"level":%d,"windows":%d,"passes":%[1]d,"events":%[3]d,"from":%[4]d,"to":%[5]d}}`, level, level, events, from, to)
	}
	return []string{
		event("e1", "user", textPart("order <b>A-4711</b>, please")),
		event("e2", "shop", `{"functionCall":{"id":"f1","name":"find","args":{"id":"A-4711"}}}`),
		event("e3", "shop", `{"functionResponse":{"id":"f1","name":"find","response":{"o":"in\n/srv/orders/a.txt\nB-1234X"}}}`),
		event("e4", "user", textPart("and C-1234?")),
		event("e5", "shop", textPart("none, see /srv/orders/c.txt")),
		event("e6", "user", textPart("thanks for C-1234")),
		`{"id":"p7","patchType":"summarise","start":0,"count":3,"summaryEvent":` + event("s7", "shop", textPart("A-4711 was found, Z-9999<i> too, not C-1234"), own(1, 3, 1, 3)) + `}`,
		`{"id":"p8","patchType":"summarise","start":1,"count":2,"summaryEvent":` + event("s8", "shop", textPart("no order"), own(1, 2, 4, 5)) + `}`,
		`{"id":"p9","patchType":"summarise","start":0,"count":2,"summaryEvent":` + event("s9", "shop", textPart("A-4711 was found, Z-9999<i> too, 77 times"), own(2, 5, 1, 5)) + `}`,
	}
}

// A summary is shown with what it covers, in the words of the command, and with marked identifiers.
func TestSummary(t *testing.T) {
	s, i := openLog(t, Options{}, summaryLog()...)
	v, docs, err := present.LossesOf(t.Context(), s, recordKey, "")
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	want := []string{"/srv/orders/a.txt, /srv/orders/c.txt, B-1234X", "not visible (3)", "What the summary hides", "level2", "from record1", "to record5", "order <b>A-4711</b>, please",
		"It covers 5 events", "Record 9", "Before this change"}
	page := wantPage(t, i, 200, []any{"summary", "at", v.Seq(), "index", 0}, want...)
	for _, want := range []string{
		`<mark class="not-visible" title="not visible: no visible event contains it">/srv/orders/a.txt</mark>\nB-1234X`,
		`none, see <mark class="not-visible"`,
		`and <mark class="in-other-events" title="in other events: missing from the summary, but another visible event contains it">C-1234</mark>?`,
		`found, <mark class="invented" title="invented: no event contains it">Z-9999</mark>&lt;i&gt; too`,
		`&amp;seq=3"><mark class="not-visible">/srv/orders/a.txt</mark></a>`,
	} {
		if want = strings.Replace(want, `\nB-1234X`, `\n<mark class="not-visible" title="not visible: no visible event contains it">B-1234X</mark>`, 1); !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	if strings.Contains(page, `">A-4711</mark>`) {
		t.Error("an identifier of the summary is marked")
	}
	panel := func(page string) string {
		_, panel, _ := strings.Cut(page, `id="panel-summary"`)
		return panel
	}
	if got := wantPage(t, i, 200, []any{"summary", "patch", "p9"}); panel(got) == "" || pageText(panel(got)) != pageText(panel(page)) {
		t.Error("by its patch it is another page")
	}
	_, docs, err = present.LossesOf(t.Context(), s, recordKey, "p7")
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	wantPage(t, i, 200, []any{"summary", "patch", "p7"}, "It covers 3 events")
	if strings.Contains(strings.Join(docs[0].Lines(), ""), "C-1234") {
		t.Error("an identifier of another event counts as invented")
	}
	wantPage(t, i, 200, []any{"summary", "at", 8, "index", 1}, "no order", "in other events (1)", "C-1234")
	wantPage(t, i, 200, []any{"summary", "index", 0}, "What the summary hides")

	wantPage(t, i, 400, []any{"summary", "at", 8, "index", 2}, "represents no other event")
	wantPage(t, i, 422, []any{"summary", "index", 2}, "2 events visible")
	wantPage(t, i, 400, []any{"summary"}, "index")
	wantPage(t, i, 404, []any{"summary", "patch", "e1"}, `there is no patch "e1"`)
	wantPage(t, i, 404, []any{"summary", "at", 99, "index", 0})
}

// The summary page of a patch names each summary that the patch or its group added, or says that there is none.
func TestSummaries(t *testing.T) {
	s, i := openLog(t, Options{},
		event("e1", "user", textPart("A-4711"), `,"branch":"x"`), event("e2", "user", textPart("B-4711"), `,"branch":"y"`),
		`{"id":"p3","patchType":"splice","state":"keep","start":0,"count":2,"replacement":[`+
			event("s1", "shop", textPart("one"), `,"branch":"x","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}`)+`,`+
			event("s2", "shop", textPart("two"), `,"branch":"y","actions":{"compaction":{"startTimestamp":1,"endTimestamp":2}}`)+`]}`,
		`{"id":"p4","patchType":"splice","start":2,"count":0,"replacement":[`+event("n", "shop", textPart("new"))+`]}`,
		`{"id":"p5","patchType":"splice","start":2,"count":1}`,
		`{"id":"p6","patchType":"splice","start":9,"count":1,"replacement":[`+event("m", "shop", textPart("never"))+`]}`)
	_, docs, err := present.LossesOf(t.Context(), s, recordKey, "p3")
	if err != nil || len(docs) != 2 {
		t.Fatal(docs, err)
	}
	page := wantPage(t, i, 200, []any{"summary", "patch", "p3"}, "one", "At index 1: summary: two")
	if !strings.Contains(page, `href="summary?at=6&amp;index=1&amp;key=`) {
		t.Error(page)
	}
	wantPage(t, i, 200, []any{"summary", "at", 3, "index", 1}, "two", "It covers 1 event")
	wantPage(t, i, 400, []any{"summary", "patch", "p4"}, "added no summary")
	wantPage(t, i, 400, []any{"summary", "patch", "p5"}, "added no summary")
	wantPage(t, i, 400, []any{"summary", "patch", "p6"}, "added no summary")
}

// A page has as many long events as fit, and a link to the next page.
func TestSummaryPages(t *testing.T) {
	var lines []string
	for n := range 150 {
		lines = append(lines, event(fmt.Sprint("e", n), "user", textPart(fmt.Sprintf("%s end-%d", strings.Repeat("word ", 1_000), n))))
	}
	lines = append(lines, `{"id":"p","patchType":"summarise","start":0,"count":150,"summaryEvent":`+event("s", "shop", textPart("all"))+`}`)
	_, i := openLog(t, Options{}, lines...)
	seen := 0
	for pages := 0; seen < 150; pages++ {
		page := wantPage(t, i, 200, []any{"summary", "index", 0, "from", seen})
		rows := len(regexp.MustCompile(`" id="c\d`).FindAllString(page, -1))
		if rows < 20 || rows > 100 && seen == 0 || strings.Contains(page, "is not shown") || pages > 10 {
			t.Fatalf("%d rows from %d on", rows, seen)
		}
		for n := seen; n < seen+rows; n++ {
			if !strings.Contains(page, fmt.Sprintf(">end-%d</mark></pre>", n)) {
				t.Errorf("event %d is truncated", n)
			}
		}
		seen += rows
		if next := fmt.Sprintf(`href="summary?at=151&amp;from=%d&amp;index=0`, seen); strings.Contains(page, next) != (seen < 150) {
			t.Errorf("the link after %d", seen)
		}
	}
}

// The page of a cleared result shows the copy and the original.
func TestSummaryCleared(t *testing.T) {
	s, i := openLog(t, Options{}, summaryLog()[:6]...)
	v := testlog.Must(s.View(t.Context(), recordKey))(t)
	in := testlog.Must(v.At(2).StandIn("c1", 3, map[int]json.RawMessage{0: json.RawMessage(`{"functionResponse":{"id":"f1","name":"find","response":{"note":"cleared"}}}`)}))(t)
	testlog.Must(s.ApplyPatch(t.Context(), recordKey, []*patch.PatchEvent{patch.NewSplice(2, 1, in).WithID("p")}, store.PatchOptions{AsOfNow: true}))(t)
	for _, url := range [][]any{{"summary", "index", 2}, {"summary", "patch", "p"}} {
		wantPage(t, i, 200, url, "What replaced it", `"note": "cleared"`, "What was cleared", "1 event", `/srv/orders/a.txt`, "an event of record 3", "tokens as logged")
	}
	wantPage(t, i, 200, []any{"record", "seq", 3}, "Hidden by the clearing at 7", "a visible event represents it")
	wantPage(t, i, 200, []any{"record", "seq", 7}, "Events that it added", "what it hides")
}

// The events that a summary covers are shown in pages of bounded size.
func TestSummaryLarge(t *testing.T) {
	testlog.SkipUnderRace(t)
	var lines []string
	for n := range 9_999 {
		lines = append(lines, event(fmt.Sprint("e", n), "user", textPart(fmt.Sprintf("%s order A-%d", strings.Repeat("word and word ", 20), n))))
	}
	lines[0] = event("e0", "user", textPart(strings.Repeat("G-1 <A-12345> ", 400_000)))
	lines = append(lines, `{"id":"p","patchType":"summarise","start":0,"count":9990,"summaryEvent":`+event("s", "shop", textPart(strings.Repeat("Z-99999 & ", 100_000)))+`}`)
	_, i := openLog(t, Options{}, lines...)
	start := time.Now()
	page := wantPage(t, i, 200, []any{"summary", "index", 0}, "9990 events, 1 to ", "more, which ‘patchlog loss’ lists")
	t.Logf("%d bytes in %v", len(page), time.Since(start))
	if n := len(regexp.MustCompile(`" id="c\d`).FindAllString(page, -1)); n != coveredRows {
		t.Errorf("%d rows", n)
	}
	page = wantPage(t, i, 200, []any{"summary", "index", 0, "from", 9_900}, "9901 to 9990 here", "A-9989", "Earlier events")
	if strings.Contains(page, "Later events") || strings.Contains(page, "A-9899<") {
		t.Error("other events")
	}
}
