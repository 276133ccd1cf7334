package recall_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

func responseEvent(t testing.TB, parts ...string) *patch.Event {
	t.Helper()
	e, err := patch.ParseEvent([]byte(`{"id":"e","author":"agent","content":{"role":"user","parts":[` + strings.Join(parts, ",") + `]},"actions":{"stateDelta":{"k":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newID() string { return "e2" }

func response(id, value string) string {
	return `{"functionResponse":{"id":"` + id + `","name":"f","response":` + value + `}}`
}

// partOf returns a part of an event, and the members of its response as a Go value.
func partOf(t testing.TB, e *patch.Event, index int) (part patch.Part, says map[string]any) {
	t.Helper()
	for i, p := range e.Content().Parts() {
		if i == index {
			part = p
		}
	}
	testlog.NoError(t, part.Response.Decode(&says))
	return part, says
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("0123456789", 400)
	list := testlog.Must(json.Marshal(strings.Split(strings.TrimSuffix(strings.Repeat("element,", 400), ","), ",")))(t)
	keys := map[string]int{}
	for i := range 500 {
		keys[fmt.Sprintf("key%03d", i)] = i
	}
	many := testlog.Must(json.Marshal(keys))(t)
	for _, c := range []struct {
		name, value string
		want        func(says map[string]any) bool
	}{
		{"a text", `{"output":"` + long + `"}`, func(says map[string]any) bool {
			text := says["output"].(string)
			return strings.HasPrefix(text, "0123456789") && strings.HasSuffix(text, "6789") && strings.Contains(text, "characters left out …]") && len(text) > 400
		}},
		{"a text that is escapes", `{"output":"` + strings.Repeat(`\n\u0001\"`, 800) + `"}`, func(says map[string]any) bool {
			return strings.HasPrefix(says["output"].(string), "\n\u0001\"\n")
		}},
		{"what only HTML escapes", `{"output":"` + strings.Repeat("<b>&", 1000) + `"}`, func(says map[string]any) bool {
			return strings.HasPrefix(says["output"].(string), "<b>&")
		}},
		{"a record with one long field", `{"id":7,"ok":true,"body":"` + long + `","rows":[1,2],"price":1.50}`, func(says map[string]any) bool {
			return says["id"] == 7. && says["ok"] == true && says["price"] == 1.5 && reflect.DeepEqual(says["rows"], []any{1., 2.}) && len(says["body"].(string)) > 400
		}},
		{"a list", `{"rows":` + string(list) + `}`, func(says map[string]any) bool {
			rows := says["rows"].([]any)
			return rows[0] == "element" && rows[len(rows)-1] == "element" && strings.Contains(fmt.Sprint(rows...), "elements left out")
		}},
		{"a list of one long text", `{"rows":["` + long + `","x"]}`, func(says map[string]any) bool {
			rows := says["rows"].([]any)
			return strings.HasPrefix(rows[0].(string), "0123") && rows[len(rows)-1] == "x"
		}},
		{"many keys", string(many), func(says map[string]any) bool {
			return says["key000"] == 0. && strings.Contains(says["…"].(string), "members left out")
		}},
		{"deep inside", `{"a":{"b":{"c":[{"d":"` + long + `"}]}},"z":"last"}`, func(says map[string]any) bool {
			d := says["a"].(map[string]any)["b"].(map[string]any)["c"].([]any)[0].(map[string]any)["d"]
			return says["z"] == "last" && strings.HasPrefix(d.(string), "0123")
		}},
		{"a long number", `{"n":` + strings.Repeat("1", 2000) + `}`, func(says map[string]any) bool {
			return strings.Contains(says["n"].(string), "left out")
		}},
		{"a key of its own", `{"shortened":"mine","body":"` + long + `"}`, func(says map[string]any) bool {
			return says["shortened"] == "mine" && strings.Contains(says["shortened2"].(string), `"12/0"`)
		}},
		{"a key of its own, in escapes", `{"\u0073hortened":"mine","body":"` + long + `"}`, func(says map[string]any) bool {
			return says["shortened"] == "mine" && strings.Contains(says["shortened2"].(string), `"12/0"`)
		}},
		{"a key that says what is left out", `{"…":1,` + string(many)[1:], func(says map[string]any) bool {
			return says["…"] == 1. && strings.Contains(says["…2"].(string), "members left out")
		}},
		{"such a key inside", `{"a":{"…":1,` + string(many)[1:] + `,"…2":"` + long + `"}`, func(says map[string]any) bool {
			return strings.Contains(fmt.Sprint(says["a"]), "members left out")
		}},
		{"not an object's doing", `{"` + strings.Repeat("k", 3000) + `":1}`, func(says map[string]any) bool {
			return strings.Contains(fmt.Sprint(says), "left out")
		}},
	} {
		e := responseEvent(t, response("c1", c.value))
		short, err := recall.Shorten(e, 12, "12", newID, 400)
		if err != nil || short == nil {
			t.Fatalf("%s: %v, %v", c.name, short, err)
		}
		part, says := partOf(t, short, 0)
		if !c.want(says) {
			t.Errorf("%s: %s", c.name, records.JSON(part.Response))
		}
		if strings.Contains(string(records.JSON(part.Value)), "u003c") {
			t.Errorf("%s: %s", c.name, records.JSON(part.Value))
		}
		if n := utf8.RuneCount(records.JSON(part.Value)); n > 1600 {
			t.Errorf("%s: %d characters", c.name, n)
		}
		if part.ID != "c1" || part.Name != "f" || short.ID() != "e2" || records.HasDelta(short) || records.LoggedTokens(short) != e.EstimatedTokens() {
			t.Errorf("%s: %v", c.name, short)
		}
		if o, ok := short.Origin(); !ok || o.ID != "e" || o.Seq != 12 {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
	data := strings.Repeat("QUJD", 5000)
	media := func(response string) string {
		return `{"functionResponse":{"id":"c1","name":"shoot","willContinue":false,"response":` + response + `,"parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]},"thoughtSignature":"QUJD"}`
	}
	if short, err := recall.Shorten(responseEvent(t, media(`{"ok":true}`)), 1, "1", newID, 200); short != nil || err != nil {
		t.Errorf("for an image alone a result is shortened to %v, %v", short, err)
	}
	long = `{"ok":true,"body":"` + strings.Repeat("0123456789", 500) + `"}`
	short := testlog.Must(recall.Shorten(responseEvent(t, media(long)), 1, "1", newID, 200))(t)
	for _, p := range short.Content().Parts() {
		if p.Kind != patch.PartResponse {
			continue
		}
		if recall.Original(p) == long || !strings.Contains(p.Response.String(), `"ok":true`) || utf8.RuneCountInString(p.Response.String()) > 800 {
			t.Errorf("beside an image it says %s", p.Response)
		}
		for _, kept := range []string{data, "thoughtSignature", "willContinue"} {
			if !strings.Contains(p.JSON.String(), kept) {
				t.Errorf("%.20s is left out", kept)
			}
		}
	}
}

// A response with media in its members is not shortened, because shortening would lose the media.
func TestShortenKeepsMediaInMembers(t *testing.T) {
	inside := `{"functionResponse":{"id":"c1","name":"shoot","response":{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("QUJD", 500) + `"},{"type":"text","text":"` + strings.Repeat("all is well ", 400) + `"}]}}}`
	if short, err := recall.Shorten(responseEvent(t, inside), 1, "1", newID, 200); short != nil || err != nil {
		t.Errorf("it is shortened: %v, %v", short, err)
	}
}

// Deep, wide and long results are shortened in little time.
func TestShortenHostile(t *testing.T) {
	testlog.SkipUnderRace(t)
	long := strings.Repeat("x", 2<<20)
	var wide strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&wide, `"key %d":{"a":[%d]},`, i, i)
	}
	var likeOwn strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&likeOwn, `"%sshortened":1,"shortened%d":1,`, strings.Repeat("_", i), i)
	}
	for name, value := range map[string]string{
		"deep":         `{"a":` + strings.Repeat(`[`, 900) + `"` + long + `"` + strings.Repeat(`]`, 900) + `}`,
		"deep objects": strings.Repeat(`{"a":`, 900) + `"` + long + `"` + strings.Repeat(`}`, 900),
		"wide":         `{` + wide.String() + `"z":1}`,
		"a wide list":  `{"a":[` + strings.Repeat(`[1,2],`, 500_000) + `0]}`,
		"a long key":   `{"` + long + `":1}`,
		"escapes":      `{"a":"` + strings.Repeat(`\u0001`, 1<<18) + `"}`,
		"all at once":  `{"a":["` + long + `","` + long + `"],"b":{"c":"` + long + `"}}`,
	} {
		e := responseEvent(t, response("c1", value))
		short, err := recall.Shorten(e, 1, "1", newID, 1000)
		if err != nil || short == nil || short.EstimatedTokens() > 1000 {
			t.Errorf("%s: %v", name, err)
		}
		for p := range short.FunctionParts() {
			part, _ := partOf(t, short, p.Index)
			if n := strings.Count(string(records.JSON(part.Response)), "[") + strings.Count(string(records.JSON(part.Response)), "{"); name[:4] == "deep" && n > 12 {
				t.Errorf("%s: it is %d deep", name, n)
			}
		}
	}
}

func TestShortenUnchanged(t *testing.T) {
	long := strings.Repeat("long ", 400)
	for name, e := range map[string]*patch.Event{
		"a short result":     responseEvent(t, response("c1", `{"ok":true}`)),
		"several short ones": responseEvent(t, response("c1", `{"a":"`+long[:700]+`"}`), response("c2", `{"a":"`+long[:700]+`"}`)),
		"a long text":        responseEvent(t, `{"text":"`+long+`"}`),
		"a long call":        responseEvent(t, `{"functionCall":{"id":"c1","name":"f","args":{"a":"`+long+`"}}}`),
		"what was recalled":  responseEvent(t, `{"functionResponse":{"id":"c1","name":"recall_read","response":{"page":"`+long+`"}}}`),
	} {
		if short, err := recall.Shorten(e, 1, "1", newID, 200); short != nil || err != nil {
			t.Errorf("%s: %v, %v", name, short, err)
		}
	}
	// If an event has several results, only the long ones are shortened.
	e := responseEvent(t, `{"text":"beside"}`, response("c1", `{"ok":1.50}`), response("c2", `{"a":"`+long+`"}`))
	short := testlog.Must(recall.Shorten(e, 3, "3", newID, 200))(t)
	if first, _ := partOf(t, short, 1); string(records.JSON(first.Response)) != `{"ok":1.50}` {
		t.Errorf("%s", records.JSON(first.JSON))
	}
	if second, says := partOf(t, short, 2); !strings.Contains(says["shortened"].(string), `"3/2"`) {
		t.Errorf("%s", records.JSON(second.JSON))
	}
}

// Any shortened tool result is within the limit, and the pages of the original together are equal to the logged
// result.
func TestPropertyShorten(t *testing.T) {
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		leaf := rapid.OneOf(
			rapid.SampledFrom([]string{"null", "true", "1e400", "-0.0", "1.50", "9007199254740993", `""`, `"\u0000\u2028"`}),
			rapid.Custom(func(t *rapid.T) string {
				piece := rapid.SampledFrom([]string{"a", "é", "東京", "\n", `"`, "\\", "😀", "x ", "\u0001"}).Draw(t, "piece")
				text, _ := json.Marshal(strings.Repeat(piece, rapid.IntRange(0, 900).Draw(t, "times")))
				return string(text)
			}))
		if depth == 0 {
			return leaf
		}
		inner := value(depth - 1)
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(inner, 0, 30), func(all []string) string { return "[" + strings.Join(all, ",") + "]" }),
			rapid.Map(rapid.SliceOfN(inner, 0, 30), func(all []string) string {
				for i := range all {
					all[i] = fmt.Sprintf(`"key %d":`, i*i*i) + all[i]
				}
				return "{" + strings.Join(all, ",") + "}"
			}))
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := `{"result":` + value(2).Draw(t, "value") + `}`
		if rapid.Bool().Draw(t, "more") {
			raw = raw[:len(raw)-1] + `,"x":` + value(1).Draw(t, "value") + `}`
		}
		e := testlog.Must(patch.ParseEvent([]byte(`{"id":"e","content":{"parts":[` + response("c1", raw) + `]}}`)))(t)
		limit := rapid.IntRange(1, 1500).Draw(t, "limit")
		short := testlog.Must(recall.Shorten(e, 1, "1", newID, limit))(t)
		var was patch.Part
		for _, p := range e.Content().Parts() {
			was = p
		}
		if big := e.EstimatedTokens() > limit && utf8.RuneCount(records.JSON(was.Response)) > max(limit, recall.MinResultTokens)*patch.RunesPerToken; big != (short != nil) {
			t.Fatalf("of %d tokens, limit %d: shortened %v", e.EstimatedTokens(), limit, short != nil)
		}
		if short != nil {
			for _, p := range short.Content().Parts() {
				if n := utf8.RuneCount(records.JSON(p.Value)); n > max(limit, recall.MinResultTokens)*patch.RunesPerToken {
					t.Fatalf("%d characters, limit %d tokens", n, limit)
				}
			}
		}
		text := recall.Original(was)
		var only map[string]json.RawMessage
		testlog.NoError(t, was.Response.Decode(&only))
		want := string(records.JSON(was.Response))
		if s := only["result"]; len(only) == 1 && s[0] == '"' {
			testlog.NoError(t, json.Unmarshal(s, &want))
		}
		var pages strings.Builder
		for at := 0; at >= 0; {
			var page string
			page, at = recall.Page(text, at, 100)
			pages.WriteString(page)
			if patch.EstimateTextTokens(page) > 100 {
				t.Fatalf("a page of %d tokens", patch.EstimateTextTokens(page))
			}
		}
		if text != want || pages.String() != want {
			t.Fatalf("the original is %q, want %q, in pages %q", text, want, pages.String())
		}
	})
}

func TestPage(t *testing.T) {
	for _, c := range []struct {
		text           string
		offset, tokens int
		page           string
		next           int
	}{
		{"", 0, 10, "", -1},
		{"abcdefgh", 0, 1, "abcd", 4},
		{"abcdefgh", 4, 1, "efgh", -1},
		{"abcdefgh", -5, 2, "abcdefgh", -1},
		{"abcdefgh", 100, 2, "", -1},
		{"ééééé", 1, 1, "éé", 4},
		{"abcdefgh", 0, 0, "abcd", 4},
		{"😀a", 0, 1, "😀", 4},
	} {
		if page, next := recall.Page(c.text, c.offset, c.tokens); page != c.page || next != c.next {
			t.Errorf("%q from %d: %q, %d", c.text, c.offset, page, next)
		}
	}
}

func TestReading(t *testing.T) {
	e, err := patch.ParseEvent([]byte(`{"errorMessage":"it broke","content":{"parts":[{"text":"a"},{"text":"no","thought":true},{},
		{"functionCall":{"name":"f","args":{"x":1.50}}},` + response("c", `{"out":"said\nso"}`) + `,` + response("c", `{"out":"a","b":1}`) + `,
		{"inlineData":{"mimeType":"image/png","data":"QUJD"}},{"fileData":{"mimeType":"text/x","fileUri":"gs://b"}},
		{"executableCode":{"code":"run(1)"}},{"codeExecutionResult":{"output":"1"}},{"toolCall":{"q":1}},
		{"functionResponse":{"name":"g","parts":[{"inlineData":{"mimeType":"image/png","data":"QUJD"}}]}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := "a\n\n" + `call of f: {"x":1.50}` + "\n\nresult of f: said\nso\n\n" + `result of f: {"out":"a","b":1}` +
		"\n\n[image/png of 3 bytes]\n\n[text/x at gs://b]\n\nrun(1)\n\n1\n\n" + `toolCall: {"q":1}` + "\n\n" +
		"result of g: \n\n[image/png of 3 bytes]\n\nerror: it broke"
	if got := recall.Reading(e); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
