package identifiers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestFind(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"nothing to see here":                  "",
		"order 4711 and 47110":                 "47110",
		"see https://a.example/b?c=1, please.": "https://a.example/b?c",
		"write to ada@math.example!":           "ada@math.example",
		"an @mention and a@b":                  "",
		`{"path":"/src/a/main.go"}`:            "/src/a/main.go",
		"src/main.go and/or ./x.go":            "/x.go src/main.go",
		// Compilers and grep append line numbers to paths. The numbers are not part of the identifier.
		"src/main.go:12, /a/b.ts:205:26: no":               "/a/b.ts src/main.go",
		"a/b.ts:import x\na/b.ts:86:async y\n811:async z":  "a/b.ts",
		"47:main.ts 48:order_4711 12:x 12:34 2024:05:06":   "12:34 2024:05:06 order_4711",
		"a/b/image:1.2.3 example.com:8080 C:/a.go:7 k1:v1": "C:/a.go a/b/image:1.2.3 example.com:8080 k1:v1",
		"2024-05-20 (12.50 EUR)":                           "12.50 2024-05-20",
		"“credit_card_7434610” <AB-12>":                    "AB-12 credit_card_7434610",
		"größe42 ok":                                       "größe42",
		"find_user×2 a12345→b12345":                        "a12345 b12345",
		// A comma can separate thousands, or the elements of a list.
		"$12,500.00, 1,234,567 and -1,250": "1,234,567 1,250 12,500.00",
		"47110,47111 12,50 1234,567":       "47110 47111",
		"a1,234 x/1,234":                   "",
		"12345,678,901":                    "12345",
		// A word that an ellipsis cuts at its end is not an identifier. A word after an ellipsis can be one.
		"paid ORDER-47… and…X-12345 Y-12345": "X-12345 Y-12345",
		"X-12345… is X-12345 and X-12345…":   "X-12345",
		// Text in a script without spaces is not part of an identifier.
		"订单AB12345已发货，编号12345。":          "12345 AB12345",
		"東京/京都/大阪 ok":                    "",
		"١٢٣٤٥ and 12345":                "12345 ١٢٣٤٥",
		"\x00\xff12345\xff 1\u00a054321": "12345 54321",
	} {
		if got := strings.Join(identifiers.Find(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		indexed := identifiers.NewIndex(text).Identifiers()
		slices.Sort(indexed)
		if got := strings.Join(indexed, " "); got != want {
			t.Errorf("%q: the index has %q, want %q", text, got, want)
		}
	}
}

func event(parts string) *patch.Event {
	return testlog.Event(`{"author":"a","content":{"role":"model","parts":[` + parts + `]},"errorMessage":"broke at 12:34"}`)
}

func TestText(t *testing.T) {
	e := event(`{"text":"a\n\"b\" \u00e9\ud83d\ude00 c:\\d"},{"text":"hidden1","thought":true},{"thought":true,"functionCall":{"name":"hidden2"}},{"thought":false,"text":"shown"},
		{"functionCall":{"id":"c-1","name":"pay","args":{"n":[100,200,300],"s":"x\ny","m":-1.50e3,"o":{"id":"inner","thought":true,"data":"d"}}}},
		{"functionResponse":{"id":"c-1","name":"pay","response":{"u":"é","thoughtSignature":"kept"}},"thoughtSignature":"QUJD"},
		{"fileData":{"mimeType":"text/x","fileUri":"gs://b/c"}},{"executableCode":{"code":"run(1)"}},{"partMetadata":{"x":["]}"]},"text":"noted"},
		{"inlineData":{"mimeType":"image/png","data":"QUJDMTIz"}},{"toolCall":{"q":"other"}}`)
	want := []string{"a", `"b" é😀 c:\d`, "shown", "pay", "n", "100", "200", "300", "s", "x", "y", "m", "-1.50e3", "o", "id", "inner", "thought", "data", "d",
		"pay", "u", "é", "thoughtSignature", "kept", "text/x", "gs://b/c", "run(1)", "noted", "image/png", "other", "broke at 12:34"}
	if got := strings.Split(strings.TrimSuffix(identifiers.Text(nil, e, nil), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Values returns the same strings, names and numbers that encoding/json decodes.
func TestPropertyValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		text := testlog.Must(json.Marshal(map[string]any{"k": []any{value, 1.5}}))(t)
		want := "k\n" + value + "\n1.5\n"
		if value == "" {
			want = "k\n1.5\n"
		}
		if got := identifiers.Values(text); got != strings.ToValidUTF8(want, "\uFFFD") {
			t.Fatalf("%s: %q, want %q", text, got, want)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`{"role":"user","parts":[{"text":"a\u00e9"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if e, err := patch.ParseEvent([]byte(`{"author":"a","content":` + string(text) + `}`)); err == nil {
			identifiers.Text(e)
		}
	})
}

// An index gives the same results as a search of the text.
func TestPropertyIndex(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b1", "1", "12", ".", "/", "-", " ", ",", "…", "é", "号", "x@y.z", "\n", "\xff"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "text"), "")
		x := identifiers.NewIndex(text)
		for range 30 {
			word := strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "word"), "")
			for _, r := range word {
				if !strings.ContainsRune("ab12é", r) {
					continue
				}
				if got, want := x.Has(word), identifiers.Occurs(text, word); got != want {
					t.Fatalf("%q in %q: %v, want %v", word, text, got, want)
				}
				break
			}
		}
		ids := identifiers.Find(text)
		for _, id := range ids {
			if !identifiers.Occurs(text, id) {
				t.Fatalf("%q has the identifier %q, which does not stand in it", text, id)
			}
		}
		if got := x.Identifiers(); x.Len() != len(got) {
			t.Fatalf("%d of %d", x.Len(), len(got))
		} else if slices.Sort(got); !slices.Equal(got, ids) {
			t.Fatalf("%q: the index has %q, Find says %q", text, got, ids)
		}
		if c := identifiers.Compare(x, x); c.Identifiers != len(ids) || len(c.Lost)+len(c.Invented)+len(c.Numbers) > 0 {
			t.Fatalf("a text compared with itself: %+v", c)
		}
	})
}

func TestCompare(t *testing.T) {
	const about = "Order ORDER-4711 of ada@math.example: 105.00 EUR and 45.50 EUR, on 2024-05-20, total 5,000 points; /src/a/main.go:12 has 42 lines, 9:30. Code 00123. Ids 8001 7200 6400. https://a.example/x/1"
	for _, c := range []struct{ text, lost, invented, numbers string }{
		{about, "", "", ""},
		{"ORDER-4711 ada@math.example 105.00 45.50 2024-05-20 5,000 /src/a/main.go:12 00123 https://a.example/x/1", "", "", ""},
		{"ORDER-4712", "*", "ORDER-4712", ""},
		{"ORDER-471", "*", "ORDER-471", ""},
		{"order-4713", "*", "order-4713", ""},
		{"bob@math.example /src/b/main.go", "*", "bob@math.example /src/b/main.go", ""},
		{"/src/a/main.go src/a/main.go:12 main.go", "*", "", ""}, // parts of words of the source
		{"/src/main.go", "*", "/src/main.go", ""},
		{"2024-05-21 2024-05", "*", "2024-05-21", ""},
		// Numbers that can be derived from numbers of the source are not invented.
		{"150.50 in all", "*", "", "150.50"},
		{"the rest is 59.50", "*", "", "59.50"},
		{"3 times: 315.00", "*", "", "3 315.00"},
		{"$5000", "*", "", "5000"}, // too short for an identifier
		{"5000.00 points", "*", "", "5000.00"},
		{"all ids: 15201, 21601", "*", "", "15201 21601"},
		{"13.37 333.33 99999", "*", "333.33 99999 13.37", ""},
		{"00124 -00123 00042", "*", "00124 00042", ""},
		{"7 or 43 lines at 9:31, v2", "*", "", "43 9:31 v2 7"},
		// A word that an ellipsis cuts must be a prefix of a word in the source.
		{"ORDER-47…", "*", "", ""},
		{"ORDER-48…", "*", "ORDER-48", ""},
		{"ORDER-4712…", "*", "ORDER-4712", ""},
		{"…ORDER-4712", "*", "ORDER-4712", ""},
	} {
		got := identifiers.Compare(identifiers.NewIndex(c.text), identifiers.NewIndex(about))
		if len(got.Lost) > 0 != (c.lost != "") || got.Identifiers != 9 {
			t.Errorf("%q: lost %q of %d", c.text, got.Lost, got.Identifiers)
		}
		for name, of := range map[string][2]string{"invented": {strings.Join(got.Invented, " "), c.invented}, "numbers": {strings.Join(got.Numbers, " "), c.numbers}} {
			a, b := strings.Fields(of[0]), strings.Fields(of[1])
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Errorf("%q: %s %q, want %q", c.text, name, a, b)
			}
		}
	}
}

// Compare takes time linear in the size of its texts, even if they are hostile. If it searched the whole text for
// each word, it would take minutes.
func TestCompareHostile(t *testing.T) {
	n := testlog.ScaleDownForRace(1 << 17)
	lines := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	texts := map[string]string{
		"one word": strings.Repeat("a1", n/2), "digits": strings.Repeat("1", n), "slashes": strings.Repeat("/", n), "commas": strings.Repeat("1,", n/2),
		"ids": lines("id-%d "), "others": lines("other-%d "), "numbers": lines("%d.25 "), "cut": lines("id-%d… "), "parts": lines("x/id-%d/1/1/1"),
		"thousands": strings.Repeat("123,", n/4), "same": strings.Repeat("1-1 ", n/4), "ones": strings.Repeat("1/", n/2), "dots": strings.Repeat("…", n/3),
	}
	indices := map[string]*identifiers.Index{}
	for name, text := range texts {
		indices[name] = identifiers.NewIndex(text)
	}
	for _, text := range texts {
		for _, index := range indices {
			identifiers.Compare(identifiers.NewIndex(text), index)
		}
	}
}

func ExampleCompare() {
	events := "Ada Lovelace (ada@math.example) pays 105.00 and 45.50 for ORDER-4711."
	c := identifiers.Compare(
		identifiers.NewIndex("Ada paid 150.50 for ORDER-4712."),
		identifiers.NewIndex(events))
	fmt.Println("invented", c.Invented)
	fmt.Println("numbers", c.Numbers)
	fmt.Println("lost", c.Lost, "of", c.Identifiers)
	// Output:
	// invented [ORDER-4712]
	// numbers [150.50]
	// lost [ada@math.example 105.00 45.50 ORDER-4711] of 4
}

func ExampleFind() {
	fmt.Println(identifiers.Find(`Write "src/main.go:12" to ada@math.example; order 4711 costs $1,250.00.`))
	// Output: [1,250.00 ada@math.example src/main.go]
}

func ExampleOccurs() {
	fmt.Println(identifiers.Occurs("see ORDER-4711.", "ORDER-4711"), identifiers.Occurs("see ORDER-4711.", "ORDER-471"))
	// Output: true false
}

func TestCompareSpellings(t *testing.T) {
	for _, c := range []struct {
		about, text string
		invented    bool
	}{
		{"release v1.24.3", "Release 1.24.3", false}, {"1.24.3", "v1.24.3", false}, {"1.24.3", "1.24.4", true},
		{"commit 3f9c2ab81d77e0", "3f9c2ab", false}, {"commit 3f9c2ab", "3f9c2ab81d77e0", false}, {"3f9c2ab81d77e0", "3f9c2ac", true}, {"3f9c2ab81d77e0", "3f9c2", true},
		{"ORDER_4711_AB", "order-4711-ab", false}, {"ORDER_4711_AB", "order-4711-ac", true}, {"+49 170 1234567", "0170-1234567", true}, {"tel 0170 1234567", "1234567", false},
		{"due May 20, 2024", "2024-05-20", false}, {"due on the 20th of May", "2024-05-20", false}, {"20.05.2024", "2024-05-20", false}, {"05/20/2024", "2024-05-20", false},
		{"due May 20, 2024", "2024-05-21", true}, {"2024-05-20T10:00:00Z", "20.05.2024", false},
		{"took 1200 ms", "1200ms", false}, {"took 1,200 ms", "1200ms", false}, {"took 1200 ms", "1300ms", true}, {"HAT136 flies", "hat-136", false},
	} {
		got := identifiers.Compare(identifiers.NewIndex(c.text), identifiers.NewIndex(c.about))
		if (len(got.Invented) > 0) != c.invented {
			t.Errorf("%q about %q: invented %q", c.text, c.about, got.Invented)
		}
	}
}
