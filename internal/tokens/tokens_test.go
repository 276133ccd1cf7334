package tokens_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/tokens"
)

// For each kind of text, the estimate is within a quarter of a tokenizer's count. For each single text, it is
// within a third.
func TestAgainstTokenizer(t *testing.T) {
	data, err := os.ReadFile("testdata/counts.json")
	if err != nil {
		t.Fatal(err)
	}
	var samples []struct {
		Kind, Text string
		O200k      int
	}
	if err := json.Unmarshal(data, &samples); err != nil {
		t.Fatal(err)
	}
	estimated, counted := map[string]int{}, map[string]int{}
	check := func(of string, got, want int, most float64) {
		if off := float64(got)/float64(want) - 1; math.Abs(off) > most {
			t.Errorf("%s: %d tokens estimated, %d counted (%+.0f %%)", of, got, want, 100*off)
		}
	}
	for _, s := range samples {
		n := tokens.Of(s.Text).Tokens()
		estimated[s.Kind] += n
		counted[s.Kind] += s.O200k
		check(s.Kind+" "+string([]rune(s.Text)[:12]), n, s.O200k, 1./3)
	}
	for _, kind := range []string{"Latin", "Han", "kana", "Hangul", "Cyrillic", "other scripts", "code", "JSON", "logs"} {
		check(kind, estimated[kind], counted[kind], 0.25)
	}
}

// OfQuoted returns the same size for a text in a JSON string, however its characters are escaped.
func TestOfQuoted(t *testing.T) {
	for _, text := range []string{"", "plain", "a \"quoted\"\n\ttext\\ \u0000\b\f\r", "höflich, 東京 서울 привет 😀", "\u2028"} {
		plain, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := tokens.OfQuoted(plain), tokens.Of(text); got != want {
			t.Errorf("%s: %d, want %d", plain, got, want)
		}
		if got, want := tokens.OfQuoted([]byte(`"\u00e9\u6771\ud83d\ude00"`)), tokens.Of("é東😀"); got != want {
			t.Errorf("escaped: %d, want %d", got, want)
		}
		if got, want := tokens.OfBytes([]byte(text)), tokens.Of(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestPrefix(t *testing.T) {
	const text = "four, vier 四つ 넷"
	for limit := range tokens.Of(text) + 2 {
		n := tokens.Prefix(text, limit)
		if !utf8.ValidString(text[:n]) || tokens.Of(text[:n]) > limit {
			t.Fatalf("%d: %q", limit, text[:n])
		}
		if n < len(text) {
			_, size := utf8.DecodeRuneInString(text[n:])
			if tokens.Of(text[:n+size]) <= limit {
				t.Fatalf("%d: %q, and there is room for more", limit, text[:n])
			}
		}
	}
}

func TestAllocations(t *testing.T) {
	text := strings.Repeat("four, vier 四つ 넷 \n", 100)
	quoted, _ := json.Marshal(text)
	if n := testing.AllocsPerRun(10, func() { tokens.Of(text); tokens.OfQuoted(quoted) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOf(b *testing.B) {
	text := strings.Repeat("The quick brown fox, 42 of them.\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tokens.Of(text)
	}
}
