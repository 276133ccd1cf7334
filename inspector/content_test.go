package inspector

import (
	"bytes"
	"encoding/json"
	"html/template"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

// Indenting changes nothing that JSON says, as long as it is told to its end.
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
		if masked := withoutEscapes(out); len(masked) != len(out) || strings.Contains(masked, `\`) {
			t.Fatalf("%s\nwithout escapes:\n%s", out, masked)
		}
		most := r.IntN(30)
		if out, read = indentJSON(text, most); len(out) > most+2*deepest+12 || read > len(text) || !utf8.ValidString(out) {
			t.Fatalf("%s\nup to %d, read %d:\n%s", text, most, read, out)
		}
	}
}

func TestIndentJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a":[1,{}, [ ] ],"b":"x\ny"}`, "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": \"x\\ny\"\n}"},
		{`"\u4e16\u0000\u202e\u0041"`, "\"世\\u0000\u202eA\""},
		{``, ``}, {`"`, `"`}, {`"\`, `"\`}, {`"\u12`, `"\u12`}, {`]]`, `]]`}, {`{`, `{`}, {`[1 x`, "[\n  1 x"}, // no JSON
	} {
		if got, _ := indentJSON(c.text, 1000); got != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
	if out, read := indentJSON(strings.Repeat("[", 1<<20), 1<<20); len(out) > 1<<20+100 || read > 20_000 {
		t.Errorf("%d bytes of %d", len(out), read)
	}
}

// A text shows as it is, and takes as much of the page as it says.
func TestLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a\r\nb\n\tc  d\u00a0é世\U0001f600", "a\nb\n\tc  d\u00a0é世\U0001f600"},
		{"\x00\x1b[31m\r\x7f\u202e\u2066\u200b\ufeff\U000e0041", `\u0000\u001b[31m\u000d\u007f\u202e\u2066\u200b\ufeff\U000e0041`},
		{"\xff\xe4\xb8", `\xff\xe4\xb8`},
		{"\ufffd", "\ufffd"},
	} {
		got, _, read := lines(c.text, 1000)
		if got != c.want || read != len(c.text) {
			t.Errorf("%q: got %q, read %d", c.text, got, read)
		}
	}
	for _, text := range []string{strings.Repeat("<", 100), strings.Repeat("世\"", 100), strings.Repeat("\x00", 100), "plain"} {
		for most := range 60 {
			shown, cost, _ := lines(text, most)
			if page := template.HTMLEscapeString(shown); len(page) > cost || cost > most || !utf8.ValidString(shown) {
				t.Fatalf("%q up to %d: %q costs %d", text[:5], most, page, cost)
			}
		}
	}
}

// What is shown of events stays within what is left of a page, whatever is in them.
func TestShowingBounded(t *testing.T) {
	for _, parts := range []string{
		text(strings.Repeat("<\x00", 500_000)),
		strings.Repeat(text("x")+",", 50_000) + text("x"),
		strings.Repeat(text(strings.Repeat("é", 10_000))+",", 100) + text("x"),
		`{"functionCall":{"name":"f","args":{"a":[` + strings.Repeat(`"id-12345",`, 200_000) + `1]}}}`,
	} {
		e := testlog.Must(patch.ParseEvent([]byte(event("e", "user", parts))))(t)
		show := showing{Left: 100_000, Marks: newMarks(map[string]string{"id-12345": markGone}), Raw: func(uint64) template.URL { return "raw" }}
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

// Identifiers are marked as wholes, in texts and in what JSON says.
func TestMarks(t *testing.T) {
	e := testlog.Must(patch.ParseEvent([]byte(event("e", "user", text("<b>a1b2c</b> a1b2cd /x/y.go:12")+`,{"functionResponse":{"name":"f","response":{"o":"one\na1b2c\ttwo \u0026 <a1b2c>","x/y1":"a1b2cd"}}}`))))(t)
	show := showing{Left: 10_000, Marks: newMarks(map[string]string{"a1b2c": markGone, "/x/y.go": markElsewhere, "/x/y.go:12": markGone, "x/y1": markElsewhere})}
	var got [][]run
	for _, b := range show.event(e, 1).Blocks {
		got = append(got, b.Runs)
	}
	want := [][]run{
		{{"<b>", ""}, {"a1b2c", "gone"}, {"</b> a1b2cd ", ""}, {"/x/y.go:12", "gone"}},
		{{"{\n  \"o\": \"one\\n", ""}, {"a1b2c", "gone"}, {"\\ttwo & <", ""}, {"a1b2c", "gone"}, {">\",\n  \"", ""}, {"x/y1", "elsewhere"}, {"\": \"a1b2cd\"\n}", ""}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Headings and items are told apart, and nothing else of a text changes, marked or not.
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
